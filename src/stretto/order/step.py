"""A step of a job as stages: one collective of all ranks, or what each family of parallel groups does.

Ranks are numbered as torchrun and mpirun do: all GPUs of machine 0, then those of machine 1, and so on. Families of
groups are given the one whose ranks are next to each other first (``tp=8,pp=4,dp=16``: rank = tp + 8 (pp + 4 dp)). All
groups of a family run at the same time; the families run one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..model.arrays import Int64
from ..model.errors import InputError, nearest
from ..model.files import unreadable
from ..model.kinds import BY_NAME
from ..model.units import parse_size
from .messages import Share
from .problem import Stage
from .traffic import Layout, Library, Traffic, phase

PIPELINE = "pipeline"
"""Besides the collectives: each rank sends to the next one of its group, and that one sends as much back."""


@dataclass(frozen=True, eq=False)
class Family:
    """Groups of ranks that do the same at the same time.

    Attributes:
        name: such as "dp".
        collective: the name of a kind, or :data:`PIPELINE`.
        size_bytes: the full buffer of each group, all of a step.
        groups: for each group its ranks.
        root: the rank in the group from which rooted kinds start, or at which they end.
    """

    name: str
    collective: str
    size_bytes: int
    groups: tuple[Int64, ...]
    root: int = 0


def whole(collective: str, size_bytes: int, ranks: int, root: int = 0) -> Family:
    """One collective among all ranks."""
    return Family(collective, collective, size_bytes, (np.arange(ranks),), root)


def families(
    text: str, ranks: int, collective: str | None, size_bytes: int | None, where: str = "groups"
) -> list[Family]:
    """Families from a text such as ``tp=8:allreduce:40GB,pp=4:pipeline:2GB,dp=16:allreduce:10GB``.

    Args:
        collective, size_bytes: of families that do not say theirs.
    Raises:
        InputError: something else than NAME=COUNT:COLLECTIVE:SIZE, or counts whose product is not the number of ranks.
    """
    parts = [part.strip().split(":") for part in text.split(",")]
    counts = [_count(part[0], where) for part in parts]
    if prod(counts) != ranks:
        product = f"{' x '.join(map(str, counts))} = {prod(counts)}" if len(counts) > 1 else str(counts[0])
        raise InputError(f"{text!r} has {product} ranks, and the topology has {ranks}", where)
    found = []
    stride = 1
    for part, count in zip(parts, counts):
        name = part[0].partition("=")[0]
        if len(part) > 3:
            raise InputError(f"{':'.join(part)!r} must be NAME=COUNT:COLLECTIVE:SIZE", where)
        kind = part[1] if len(part) > 1 else collective
        size = parse_size(part[2], where) if len(part) > 2 else size_bytes
        if count > 1:
            first = np.arange(ranks).reshape(-1, count, stride).swapaxes(1, 2).reshape(-1, count)
            found.append(_checked(name, kind, size, tuple(first), ranks, where))
        stride *= count
    if not found:
        raise InputError(f"{text!r} has no group of two ranks", where)
    return found


def _count(text: str, where: str) -> int:
    name, equals, count = text.partition("=")
    if not equals or not name or not count.isdecimal() or int(count) < 1:
        raise InputError(f"{text!r} must be NAME=COUNT, such as dp=16", where)
    return int(count)


def listed_families(path: str, ranks: int, collective: str | None, size_bytes: int | None) -> list[Family]:
    """Families from a JSON file: a list of ``{"name": "dp", "collective": "allreduce", "size": "1GB", "ranks": [[0, 8],
    [1, 9]]}``.

    Raises:
        InputError: the file cannot be read, is not such a list, or names ranks that there are not.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", path) from None
    rows = data.get("groups") if isinstance(data, Mapping) else data
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(
            'must be a list of objects such as {"name": "dp", "size": "1GB", "ranks": [[0, 8], [1, 9]]}', path
        )
    return [_listed(row, f"{path}, group {i}", ranks, collective, size_bytes) for i, row in enumerate(rows)]


def _listed(row: Mapping[str, Any], where: str, ranks: int, collective: str | None, size_bytes: int | None) -> Family:
    unknown = set(row) - {"name", "collective", "size", "ranks", "root"}
    if unknown:
        raise InputError(f"has no {sorted(unknown)[0]!r}; it may have name, collective, size, ranks and root", where)
    lists = row.get("ranks")
    if isinstance(lists, list) and lists and all(isinstance(r, int) for r in lists):
        lists = [lists]
    if not isinstance(lists, list) or not lists or not all(
        isinstance(group, list) and len(group) > 1 and all(type(r) is int for r in group) for group in lists
    ):  # fmt: skip
        raise InputError("'ranks' must be lists of two or more numbers", where)
    size = row.get("size")
    size = size_bytes if size is None else parse_size(str(size), where)
    far = [rank for group in lists for rank in group if not 0 <= rank < ranks]
    if far:
        raise InputError(f"there is no rank {far[0]}; there are ranks 0 to {ranks - 1}", where)
    groups = tuple(np.array(group, dtype=np.int64) for group in lists)
    root = row.get("root", 0)
    if type(root) is not int or not all(0 <= root < len(group) for group in groups):
        raise InputError(f"root {root!r} is not a place in each group", where)
    family = _checked(str(row.get("name", "group")), row.get("collective", collective), size, groups, ranks, where)
    return Family(family.name, family.collective, family.size_bytes, family.groups, root)


def _checked(
    name: str, kind: str | None, size_bytes: int | None, groups: tuple[Int64, ...], ranks: int, where: str
) -> Family:
    """A family whose collective, size and ranks there are."""
    if kind is None:
        raise InputError(f"{name} has no collective; write {name}=COUNT:COLLECTIVE:SIZE or give one for all", where)
    if size_bytes is None:
        raise InputError(f"{name} has no size; write {name}=COUNT:COLLECTIVE:SIZE or give one for all", where)
    known_kind(kind, where)
    for group in groups:
        if len(np.unique(group)) < len(group):
            raise InputError(f"{name} has a rank twice in one group", where)
    used = np.concatenate(groups)
    if len(np.unique(used)) < len(used):
        raise InputError(f"two groups of {name} share a rank; groups that run at the same time may not", where)
    return Family(name, kind, size_bytes, groups)


def known_kind(kind: str, where: str) -> str:
    """A collective's name as given, refused if nobody knows it."""
    names = [*(k.name for k in BY_NAME.values() if k.general), PIPELINE]
    if kind not in names:
        raise InputError(f"there is no collective {kind!r}; {nearest(kind, names)}", where)
    return kind


def stage_of(family: Family, library: Library, machine: Int64) -> Stage:
    """What a library sends for all groups of a family.

    Args:
        machine: int64[ranks], the number of each rank's machine.
    """
    return Stage(family.name, tuple(_share(family, group, library, machine) for group in family.groups))


def _share(family: Family, group: Int64, library: Library, machine: Int64) -> Share:
    if family.collective == PIPELINE:
        return Share(group, pipeline(len(group), family.size_bytes))
    # libraries look at who shares a machine, and machines come in the order of their numbers
    layout = Layout(np.unique(machine[group], return_inverse=True)[1].ravel())
    return Share(group, library.traffic(layout, family.collective, family.size_bytes, family.root))


def pipeline(ranks: int, size_bytes: int) -> Traffic:
    """Each rank sends to the next one, and the next one back, all at the same time."""
    v: Sequence[int] | Int64 = np.arange(ranks - 1)
    up = np.arange(1, ranks)
    return Traffic(PIPELINE, (phase(np.concatenate((v, up)), np.concatenate((up, v)), size_bytes),))

"""A plan by symmetry: what happens to one chunk of each orbit, and the group whose images of it are the whole plan.

The transfers of a :class:`SymmetricPlan` are the images of ``part``, a timed plan of the *representative* chunks, under
every element of a :class:`~stretto.model.symmetry.Symmetry`. Only the identity maps a chunk to itself. So what happens
to a representative chunk, at all nodes, is what ``part`` says and nothing else. :mod:`.orbits` says how the group maps
chunks to each other.

Chunks of an orbit may differ by a byte, as a buffer need not divide evenly. Their representative in ``part`` is as
large as the largest of them, and all of them take its time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Float64, Int32, Int64, Ragged
from .collective import Promised, Workload
from .errors import InputError
from .memory import too_much
from .orbits import Orbits, dealt
from .plan import NO_TURNS, Plan, make_plan
from .symmetry import Symmetry
from .timeline import Timeline

__all__ = ["Orbits", "SymmetricPlan", "SymmetricTimeline", "dealt", "make_symmetric_plan"]

EXPANDED = ("chunk", "src", "op", "dst", "route", "depends")
"""The columns that a symmetric plan has when it is asked for them, besides its times."""


class SymmetricPlan(Plan):
    """A plan whose transfers are the images of ``part``. Build one with :func:`make_symmetric_plan`.

    Its columns are those of the expanded plan, made when they are asked for: transfer ``row * size + element`` is the
    image of transfer ``row`` of ``part`` under ``element`` of the group, which has ``size`` elements.

    Attributes:
        part: the timed plan of the representative chunks.
        orbits: the chunks of the workload, by the group.
    """

    part: Plan
    orbits: Orbits

    def __new__(cls, *args: Any, **given: Any) -> Any:
        # dataclasses.replace gives all columns: what it makes is expanded
        return Plan(*args, **given) if "chunk" in given else object.__new__(cls)

    def __init__(self, part: Plan, orbits: Orbits, meta: Mapping[str, Any]) -> None:
        facts = {
            "topology": part.topology, "workload": orbits.workload, "sharing": part.sharing, "rate": None,
            "weight": None, "group": None, "plane": None, "message": None, "turns": NO_TURNS, "barriers": False,
            "meta": dict(meta), "part": part, "orbits": orbits,
        }  # fmt: skip
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    def __getattr__(self, name: str) -> Any:
        # called for what is no attribute yet
        if name not in EXPANDED:
            raise AttributeError(f"a plan has no {name!r}")
        return getattr(self.expanded, name)

    @property
    def symmetry(self) -> Symmetry:
        return self.orbits.symmetry

    @property
    def transfer_count(self) -> int:
        return self.part.transfer_count * self.symmetry.size

    @property
    def start_s(self) -> Float64:
        return np.repeat(_given(self.part.start_s), self.symmetry.size)

    @property
    def finish_s(self) -> Float64:
        return np.repeat(_given(self.part.finish_s), self.symmetry.size)

    @property
    def other_src(self) -> Ragged | None:
        return self.expanded.other_src

    @cached_property
    def expanded(self) -> Plan:
        """See :meth:`expand`."""
        return self.expand()

    def expand(self) -> Plan:
        """The plain plan.

        Raises:
            InputError: it does not fit into memory.
        """
        reason = too_much(self.transfer_count, "transfers")
        if reason is not None:
            raise InputError(f"the transfers of all {self.symmetry.size:,} elements of the symmetry: {reason}", "plan")
        part, size = self.part, self.symmetry.size
        element = np.arange(size)

        def nodes(values: Int32) -> Int32:
            return self.symmetry.image(element, values[:, None])

        def lists(column: Ragged, images: NDArray[Any]) -> Ragged:
            """Lists of the expanded rows from the images of a column's values, [values, elements]."""
            at = _images_of_rows(column, size)
            return at.with_values(images.ravel()[at.values.astype(np.int64) * size + at.owners % size])

        other = part.other_src
        return make_plan(
            self.topology, self.workload, "timed",
            chunk=self.orbits.chunks(part.chunk[:, None], element).ravel(),
            src=nodes(part.src).ravel(),
            op=np.repeat(part.op, size),
            dst=lists(part.dst, nodes(part.dst.values)),
            route=lists(part.route, self.symmetry.image_of_links(element, part.route.values[:, None])),
            depends=lists(part.depends, part.depends.values[:, None].astype(np.int64) * size + element),
            start_s=self.start_s, finish_s=self.finish_s, meta=self.meta,
            other_src=None if other is None else lists(other, nodes(other.values)),
        )  # fmt: skip

    def describe(self, k: int) -> str:
        """A transfer as messages name it, see :meth:`Plan.describe`."""
        row, element = divmod(k, self.symmetry.size)
        part, names, g = self.part, self.topology.names, np.array(element)
        starts, ends = (",".join(names[v] for v in self.symmetry.image(g, at[row])) for at in (part.sources, part.dst))
        return f"transfer {k} (chunk {self.orbits.chunks(part.chunk[row], g)}: {starts}→{ends})"

    def digest(self) -> str:
        """SHA-256 of everything but ``meta``: of the representatives, the group, and the whole workload."""
        h = hashlib.sha256(self.part.digest().encode())
        for c in self.workload.collectives:
            h.update(f"{c.kind} {c.root} {c.size_bytes} {c.chunk_count} {c.start_s!r} {c.weight!r}".encode())
            h.update(c.ranks.tobytes())
            if c.traits.whole:
                h.update(c.chunk_bytes.tobytes())
            elif isinstance(c, Promised) and not isinstance(c.chunks, int):
                h.update(c.chunks.tobytes())
        for column in (self.symmetry.generators, self.symmetry.orders, self.orbits.owner, self.orbits.position):
            h.update(np.ascontiguousarray(column).tobytes())
        return h.hexdigest()

    def noted(self, meta: Mapping[str, Any]) -> SymmetricPlan:
        return SymmetricPlan(self.part, self.orbits, meta)


def _given(times: Float64 | None) -> Float64:
    assert times is not None, "symmetric plans are timed"
    return times


def make_symmetric_plan(
    symmetry: Symmetry,
    workload: Workload,
    *,
    owner: NDArray[Any],
    position: NDArray[Any],
    meta: Mapping[str, Any] | None = None,
    where: str | None = None,
    **columns: Any,
) -> SymmetricPlan:
    """Build a plan by symmetry and check its form; whether it is correct is for the verifier.

    Args:
        workload: the whole workload: collectives of one kind and size, which share no rank. Where the
            buffer is one piece, its chunks are as :func:`dealt` makes them.
        owner: for each orbit of chunks the node, or nodes, that own its representative.
        position: for each orbit its place, see :class:`Orbits`.
        columns: those of ``part``, as :func:`~stretto.model.plan.make_plan` takes them; ``chunk`` is the orbit.
    Raises:
        InputError: columns of unequal length, an index out of range, an owner that is no rank, a position beyond the
            chunks.
    """
    first = workload.collectives[0]
    likes = {(c.kind, c.size_bytes, len(c.ranks), c.chunk_count) for c in workload.collectives}
    if len(likes) > 1 or not first.traits.general:
        raise InputError("plans by symmetry serve collectives of one general kind and size", where)
    owners = np.ascontiguousarray(owner, dtype=np.int32).reshape(len(position), -1)
    count = symmetry.topology.node_count
    if owners.shape[1] != (2 if first.traits.pieces == "pair" else 1) or (owners < 0).any() or (owners >= count).any():
        raise InputError("an orbit of chunks has an owner that is no node", where)
    orbits = Orbits(workload, symmetry, owners, np.ascontiguousarray(position, dtype=np.int64))
    collective = orbits.seats[0][owners]
    if (collective < 0).any() or (collective != collective[:, :1]).any() or (np.diff(collective[:, 0]) < 0).any():
        raise InputError("the owners of chunks must be ranks of one collective, collective after collective", where)
    beyond = (orbits.position < 0) | (orbits.position + orbits.shares > orbits.cuts)
    if first.traits.whole and beyond.any():
        raise InputError("an orbit of chunks has a position beyond the chunks of a piece", where)
    part = make_plan(symmetry.topology, orbits.representatives, "timed", where=where, **columns)
    return SymmetricPlan(part, orbits, meta or {})


class SymmetricTimeline(Timeline):
    """The course of a symmetric plan. Its columns are those of the expanded plan, made when they are asked for.

    Attributes:
        part: the course of the representatives' transfers.
    """

    plan: SymmetricPlan
    part: Timeline

    def __init__(self, plan: SymmetricPlan, part: Timeline) -> None:
        completions_s = plan.orbits.of_all(part.completions_s)
        facts = {"plan": plan, "part": part, "completions_s": completions_s, "turn_start_s": np.zeros(0)}
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    def __getattr__(self, name: str) -> Any:
        # called for what is no attribute yet
        rows = {"arrival_s": "dst", "hop_offset_s": "route"}
        if name not in ("start_s", "finish_s", *rows):
            raise AttributeError(f"a timeline has no {name!r}")
        column, size = getattr(self.part, name), self.plan.symmetry.size
        if name not in rows:
            return np.repeat(column, size)
        return column[_images_of_rows(getattr(self.plan.part, rows[name]), size).values]

    @cached_property
    def link_bytes(self) -> Int64:
        """int64[links], the bytes that crossed each link, where each chunk counts as its orbit's largest."""
        part, symmetry = self.plan.part, self.plan.symmetry
        hops, sizes = symmetry.link_orbits[part.route.values], part.size_bytes[part.route.owners]
        carried = np.bincount(hops, weights=sizes, minlength=symmetry.topology.link_count)[symmetry.link_orbits]
        return (carried * symmetry.copies).astype(np.int64)


def _images_of_rows(column: Ragged, size: int) -> Ragged:
    """For each row of a column ``size`` times the list of the places of its values."""
    return Ragged(column.offsets, np.arange(len(column.values), dtype=np.int32)).take(
        np.repeat(np.arange(column.rows), size)
    )

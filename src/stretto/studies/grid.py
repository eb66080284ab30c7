"""Your own study: every planner on every topology, collective and size of a TOML file.

title = "..."                       # all but topologies, sizes and planners may be left out
topologies = ["ndv2:2", "mine.json"]  # specs, or files beside this one
collectives = ["allgather"]
sizes = ["1MB", "1GB"]              # the full buffer
chunks = [1]
seeds = 1                           # instances a cell, counted from --seed
time_limit = 15                     # seconds of planning, where a planner has none of its own
planners = ["mtegcca", {planner = "teccl", name = "fast", options = {mode = "fast"}, time_limit = 60}]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from ..model.errors import InputError, nearest, none_of
from ..model.kinds import KINDS
from ..model.units import parse_size
from ..planners import find
from ..topologies import load_topology
from ..topologies.values import check_keys, count, entry, read_text, real
from .model import Cell, Figure, Study

GRID = ("title", "topologies", "collectives", "sizes", "chunks", "seeds", "time_limit", "planners")
PLANNER = ("planner", "name", "options", "time_limit")


def read_grid(path: str) -> Study:
    """The study that a TOML file describes.

    Raises:
        InputError: the file cannot be read, or an entry is wrong; names the place and the remedy.
    """
    try:
        data = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not TOML: {error}", path) from None
    check_keys(data, GRID, path)
    folder = Path(path).parent
    topologies = [_topology(t, folder, f"{path}, topologies") for t in _list(data, "topologies", str, path)]
    collectives = _list(data, "collectives", str, path, ["allgather"])
    for kind in collectives:
        if kind not in KINDS:
            raise InputError(none_of(kind, KINDS), f"{path}, collectives")
    sizes = [parse_size(text, f"{path}, sizes") for text in _list(data, "sizes", str, path)]
    chunks = [count(n, "'chunks'", path, 1) for n in _list(data, "chunks", int, path, [1])]
    seeds = count(data.get("seeds", 1), "'seeds'", path, 1)
    limit = _time_limit(data, None, path)
    given = _list(data, "planners", (str, dict), path)
    schemes = [_scheme(p, limit, f"{path}, planners[{i}]") for i, p in enumerate(given)]
    if len({s.scheme for s in schemes}) < len(schemes):
        raise InputError("two planners have one name; give each its own with name = ...", f"{path}, planners")
    title = entry(data, "title", str, path, f"{Path(path).stem}: a grid")
    cells = [
        replace(s, topology=topology, size_bytes=size, figures=(f"{kind}, {topology}", kind), collective=kind,
                chunks=cut, seeds=seeds)
        for kind, topology, size, cut, s in product(collectives, topologies, sizes, chunks, schemes)
    ]  # fmt: skip
    lines = ("scheme",) if len(chunks) == 1 else ("scheme", "chunks")
    over_sizes = [
        Figure(f"{kind}, {topology}", f"{kind} on {topology}", "size_bytes", "completion_over_bound", lines)
        for kind, topology in product(collectives, topologies)
    ]
    every = [Figure(kind, f"{kind}: every run", "scheme", "completion_over_bound", lines) for kind in collectives]
    # run each planner once on a small request, so that no cell's planning time includes imports
    first = {c.scheme: replace(c, topology="ring:4", size_bytes=4000, seeds=1, time_limit_s=1.0) for c in cells}
    return Study("grid", title, f"A grid of one's own: {Path(path).name}", cells, [*over_sizes, *every],
                 warm_up=list(first.values()))  # fmt: skip


def _scheme(given: str | dict[str, Any], limit_s: float | None, where: str) -> Cell:
    """A planner of the file, after checking its options, as a cell without a request."""
    table = {"planner": given} if isinstance(given, str) else given
    check_keys(table, PLANNER, where)
    spec = table.get("planner")
    if not isinstance(spec, str):
        raise InputError('a planner is "name" or {planner = "name", ...}', where)
    known = {o.name: o for name in spec.split("+") for stage in _stages(name, where) for o in stage.options}
    options = {}
    for name, value in entry(table, "options", dict, where, {}).items():
        if name not in known:
            raise InputError(f"{spec} has no option {name!r}; {nearest(name, known)}", where)
        options[name] = str(value).lower() if isinstance(value, bool) else str(value)
        known[name].parse(options[name])
    label = entry(table, "name", str, where, ", ".join([spec, *(f"{k}={text}" for k, text in options.items())]))
    return Cell(label, "", 0, spec, (), options=options, time_limit_s=_time_limit(table, limit_s, where))


def _stages(name: str, where: str) -> list[Any]:
    """A planner and its refiners; for a refiner that stands alone also the planners that it is run after."""
    try:
        entry = find(name)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{error.where}: "), where) from None
    return [entry, *map(find, entry.alone)]


def _topology(spec: str, folder: Path, where: str) -> str:
    """A topology's spec, after checking that it loads; paths are relative to the grid's file."""
    if (folder / spec.partition("?")[0]).is_file():
        spec = str(folder / spec)
    try:
        load_topology(spec)
    except InputError as error:
        raise InputError(str(error), where) from None
    return spec


def _list(table: Mapping[str, Any], name: str, kind: Any, path: str, default: Any = None) -> list[Any]:
    """A list of the file, after checking that it is not empty and that all its values have one type."""
    values = table.get(name, default)
    if not isinstance(values, list) or not values or not all(isinstance(v, kind) for v in values):
        raise InputError(f"{name} = [...] is missing, empty, or has something of another kind in it", path)
    return values


def _time_limit(table: Mapping[str, Any], default: float | None, where: str) -> float | None:
    """Seconds of planning; None for no limit."""
    return real(table["time_limit"], "'time_limit'", where) if "time_limit" in table else default

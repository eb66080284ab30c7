"""The plan file: Parquet with one row a transfer, or JSON for people and small plans.

Of a plan by symmetry it has the rows of the representatives, and their group beside them.

Both also hold the topology, the workload, how links are shared and how the plan was made, so that one file is enough to
verify, simulate or run a plan. Reading gives back bit for bit what was written.
"""

from __future__ import annotations

import json
import os
import shlex
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.errors import InputError, StrettoError
from ..model.files import unreadable
from ..model.memory import too_much
from ..model.plan import OPTIONAL_COLUMNS, Plan, Turns, make_plan
from ..model.symmetric import SymmetricPlan
from ..topologies import names_family
from ..topologies.files import topology_from_json
from ..topologies.values import entry, json_text, objects
from . import PLAN, atomic_file, check_ending, parquet, parquet_elsewhere
from .by_symmetry import symmetric_from_json, symmetry_to_json
from .collectives import collective_from_json, collective_to_json

BY_SYMMETRY, FORWARDING, SEVERAL_CHUNKS = 4, 5, 6
VERSIONS = (1, 2, 3, BY_SYMMETRY, FORWARDING, SEVERAL_CHUNKS)
"""Of plan files: 6 for messages that carry several chunks, 5 for transfers that forward what others brought, 4 for
plans by symmetry, 3 for transfers from several sources and bandwidths that change with time, 2 for networks where
messages cost something, which readers of earlier versions would not see; else 1."""

VALUE_BYTES = 24
"""Memory for each value of a plan file while it is read: the column, its copy, and the plan's."""

FORMAT = "stretto-plan"
SCALARS, LISTS = ("chunk", "src", "size_bytes", "op"), ("dst", "route", "depends")
OPTIONAL_LIST = "other_src"
FLOATS = ("start_s", "finish_s", "rate", "weight")
"""Columns of transfers: those with a list in each row, and those of float64; all others hold whole numbers."""
KEY = "stretto"
DAMAGE = (OSError, LookupError, TypeError, ValueError, AttributeError, MemoryError, RecursionError, zlib.error)
"""What is raised while a damaged file is read."""


def write_plan(plan: Plan, path: str) -> None:
    """Write a plan: JSON if the path ends in .json, else Parquet."""
    check_ending(path, PLAN)
    (write_json if path.lower().endswith(".json") else write_parquet)(plan, path)


def read_plan(path: str) -> Plan:
    """Read a plan file of either kind.

    Raises:
        InputError: the file cannot be read, is torn, has another version or holds no plan; names the place.
    """
    if os.path.isdir(path):
        raise InputError("is a folder, not a plan file", path)
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and names_family(path):
            shown = f"`stretto topologies {shlex.quote(path)}` shows it"
            raise InputError(
                f"is a network, not a plan file; {shown}, and `stretto plan -t` plans for it", path
            ) from None
        raise unreadable(path, error) from None
    return _read_parquet(path) if start == b"PAR1" else _read_json(path)


def _version(plan: Plan) -> int:
    if isinstance(plan, SymmetricPlan):
        return BY_SYMMETRY
    if plan.message is not None:
        return SEVERAL_CHUNKS
    if plan.forwards is not None:
        return FORWARDING
    return 3 if plan.other_src is not None or plan.topology.changes else 2 if plan.topology.message_s.any() else 1


def _header(plan: Plan) -> dict[str, Any]:
    extra: dict[str, Any] = {"barriers": True} if plan.barriers else {}
    orbits = None
    if isinstance(plan, SymmetricPlan):
        extra["symmetry"], orbits = symmetry_to_json(plan), plan.orbits
    turns = plan.turns
    if turns.count:
        columns = {name: getattr(turns, name).tolist() for name in ("plane", "before", "start_s")}
        extra["turns"] = [
            {name: column[i] for name, column in columns.items()} | {"matching": turns.matching[i].tolist()}
            for i in range(turns.count)
        ]
    return {
        "format": FORMAT,
        "version": _version(plan),
        "sharing": plan.sharing,
        **extra,
        "meta": plan.meta,
        "workload": [collective_to_json(c, plan.topology, orbits) for c in plan.workload.collectives],
        "topology": plan.topology.to_json(),
    }


def _turns(rows: Any, path: str) -> Turns:
    try:
        return Turns.of(
            [
                (*_numbers([r["plane"], r["before"]]), *map(float, _numbers([r["start_s"]], (int, float))),
                 np.asarray(_numbers(r["matching"]), dtype=np.int32))
                for r in rows
            ]
        )  # fmt: skip
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the turns are wrong: {type(error).__name__}: {error}", path) from None


def _build(header: Any, columns: dict[str, Any], sizes: NDArray[Any] | None, path: str) -> Plan:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError("is no stretto plan", path)
    if header.get("version") not in VERSIONS:
        raise InputError(
            f"has version {header.get('version')!r}; this stretto reads versions {VERSIONS[0]} to {VERSIONS[-1]}", path
        )
    if ("symmetry" in header) != (header["version"] == BY_SYMMETRY):
        has = "an entry" if "symmetry" in header else "no entry"
        raise InputError(f"has version {header['version']}, but {has} 'symmetry'", path)
    topology = topology_from_json(header.get("topology"), f"{path}, topology")
    try:
        workload = Workload(tuple(collective_from_json(c, topology) for c in header["workload"]))
        if not workload.collectives or not isinstance(header["meta"], dict):
            raise ValueError("no collective, or no meta")
    except StrettoError as error:
        raise InputError(f"the workload is wrong: {error}", path) from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise InputError(f"the workload is wrong: {type(error).__name__}: {error}", path) from None
    turns, barriers = _turns(header.get("turns", []), path), entry(header, "barriers", bool, path, False)
    plan: Plan
    if "symmetry" in header:
        if header.get("sharing") != "timed" or turns.count or barriers or {"forwards", "message"} & columns.keys():
            raise InputError(
                "a plan by symmetry is timed, without turns, barriers and the columns 'forwards' and 'message'", path
            )
        plan = symmetric_from_json(
            header["symmetry"], topology, workload.collectives, path, meta=header["meta"], **columns
        )
    else:
        plan = make_plan(
            topology, workload, header.get("sharing", ""), meta=header["meta"], where=path,
            turns=turns, barriers=barriers, **columns,
        )  # fmt: skip
    rows = _rows(plan)
    if sizes is not None:
        bad = np.flatnonzero(sizes != rows.size_bytes)
        if len(bad):
            k = int(bad[0])
            raise InputError(f"{rows.describe(k)} has {sizes[k]} bytes, its chunk {rows.size_bytes[k]}", path)
    return plan


def _rows(plan: Plan) -> Plan:
    """The plan whose transfers stand in the file."""
    return plan.part if isinstance(plan, SymmetricPlan) else plan


def _timings(plan: Plan) -> list[str]:
    """The columns of times and rates that a plan has."""
    return [name for name in OPTIONAL_COLUMNS if getattr(plan, name) is not None]


def _lists(plan: Plan) -> dict[str, Ragged]:
    """The columns that hold a list for each transfer."""
    lists = {name: getattr(plan, name) for name in LISTS}
    return lists if plan.other_src is None else lists | {OPTIONAL_LIST: plan.other_src}


def write_parquet(plan: Plan, path: str) -> None:
    """Write a plan as Parquet: plain columns, everything else in the metadata under ``stretto``."""
    with atomic_file(path, "wb") as file:
        write_parquet_into(file, plan)


def write_parquet_into(file: IO[bytes], plan: Plan) -> None:
    """Write the same into an open file."""
    rows = _rows(plan)
    columns: dict[str, parquet.Column] = {name: getattr(rows, name) for name in SCALARS}
    columns |= _lists(rows) | {name: getattr(rows, name) for name in _timings(rows)}
    parquet.write_table(file, columns, {KEY: json.dumps(_header(plan)).encode()})


def _table(path: str) -> parquet.Table | parquet_elsewhere.Table:
    """The table in a file, without its columns."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return parquet.Table(data)
    except parquet.OtherLayout:
        return parquet_elsewhere.Table(path)


def _read_parquet(path: str) -> Plan:
    try:
        table = _table(path)
        if (reason := too_much(table.values, "values", VALUE_BYTES)) is not None:
            raise InputError(reason, path)
        header = json.loads(table.metadata.get(KEY, b"null"))
    except DAMAGE as error:
        raise InputError(f"is damaged or no Parquet file: {_reason(error)}", path) from None
    columns: dict[str, Any] = {}
    wanted = ("chunk", "src", "op", *LISTS)
    for name in (*wanted, OPTIONAL_LIST, "size_bytes", *OPTIONAL_COLUMNS):
        if name not in table.names:
            if name in wanted:
                raise InputError(f"the column {name!r} is missing", path)
            continue
        try:
            column = table.column(name)
            if isinstance(column, Ragged) != (name in (*LISTS, OPTIONAL_LIST)):
                raise TypeError("it must have numbers, and a list in each row for dst, route and depends")
            if isinstance(column, Ragged):
                columns[name] = Ragged(column.offsets, _whole(column.values, name))
            elif name in FLOATS and column.dtype != np.float64:
                raise TypeError("it must be float64")
            else:
                columns[name] = column if name in FLOATS else _whole(column, name)
        except DAMAGE as error:
            raise InputError(f"the column {name!r} is damaged or of the wrong type: {_reason(error)}", path) from None
    return _build(header, columns, columns.pop("size_bytes", None), path)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) and not isinstance(error, LookupError) else repr(error)


def _whole(values: NDArray[Any], name: str) -> NDArray[Any]:
    if len(values) and values.dtype.kind not in "iu":
        raise TypeError("it must hold whole numbers")
    if len(values) and name != "size_bytes" and (values.max() >= 2**31 or values.min() < -(2**31)):
        raise ValueError("a number is out of range")
    return values


def write_json(plan: Plan, path: str) -> None:
    """Write a plan as JSON, one transfer a line."""
    with atomic_file(path) as file:
        file.writelines(_json_lines(plan))


def plan_to_text(plan: Plan) -> str:
    """What :func:`write_json` writes."""
    return "".join(_json_lines(plan))


def plan_from_text(text: str, where: str) -> Plan:
    """The plan of a text by :func:`plan_to_text`.

    Args:
        where: what messages call the text.
    Raises:
        InputError: the text holds no plan.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", where) from None
    return _from_json(data, where)


def _json_lines(plan: Plan) -> Iterator[str]:
    rows = _rows(plan)
    columns = {n: getattr(rows, n).tolist() for n in (*SCALARS, *_timings(rows))}
    lists = {n: (r.offsets.tolist(), r.values.tolist()) for n, r in _lists(rows).items()}
    yield json_text(_header(plan))[:-2] + ',\n "transfers": [\n'
    for k in range(rows.transfer_count):
        row = {n: column[k] for n, column in columns.items()}
        row |= {n: values[offsets[k] : offsets[k + 1]] for n, (offsets, values) in lists.items()}
        yield "  " + json.dumps(row) + (",\n" if k + 1 < rows.transfer_count else "\n")
    yield " ]\n}\n"


def _read_json(path: str) -> Plan:
    if os.path.isfile(path) and not os.path.getsize(path):
        raise InputError("is empty", path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            data = json.load(file)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"is neither Parquet nor JSON: {error.msg} at {at}", path) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"is neither Parquet nor JSON: {error}", path) from None
    return _from_json(data, path)


def _from_json(data: Any, path: str) -> Plan:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError("is no stretto plan", path)
    rows = objects(data, "transfers", path)
    columns: dict[str, Any] = {}
    given = {name for name in (*OPTIONAL_COLUMNS, OPTIONAL_LIST) if any(name in row for row in rows)}
    for name in ("chunk", "src", "op", "size_bytes", *LISTS, *sorted(given)):
        try:
            values = [r[name] for r in rows]
            if name in (*LISTS, OPTIONAL_LIST):
                columns[name] = Ragged.of([np.asarray(_numbers(v), dtype=np.int32) for v in values])
            elif name in FLOATS:
                columns[name] = np.array([float(v) for v in _numbers(values, (int, float))])
            else:
                columns[name] = _whole(np.array(_numbers(values), dtype=np.int64), name)
        except KeyError:
            k = next(i for i, r in enumerate(rows) if name not in r)
            raise InputError(f"transfer {k} has no {name!r}", path) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{name!r} of some transfer is wrong: {error}", path) from None
    return _build(data, columns, columns.pop("size_bytes"), path)


def _numbers(values: Any, kinds: tuple[type, ...] = (int,)) -> Any:
    if not isinstance(values, list) or not all(isinstance(v, kinds) and not isinstance(v, bool) for v in values):
        raise TypeError("not a list of numbers" if not isinstance(values, list) else "not a number")
    return values

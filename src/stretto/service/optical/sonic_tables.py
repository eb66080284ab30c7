"""SONiC's tables of optical circuit switches: which circuits are in the way of others, and how far each is.

Names and keys are those of :mod:`stretto.formats.sonic_patches`, which says where they are defined. In STATE_DB a
circuit has ``a_side_status`` and ``b_side_status``, and ``OCS_PORT|1A`` has ``status`` (``blocked``, ``tuning``,
``tuned`` or ``failed``) and ``target_simplex_port_id``, the end that it is joined with.

Images of 2026 of the design's authors, and the YANG module of one of them, have other names there: the tables end in
``_TABLE``, a port's status is ``oper_status`` with ``connected`` for ``tuned``, and a circuit has one ``status``:
``disabled``, ``enabled`` or ``invalid``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...formats.sonic_patches import TABLE, Ends, key_of
from .driver import FAILED, TUNED, TUNING

CONFIG_DB, STATE_DB = "CONFIG_DB", "STATE_DB"
CIRCUITS, PORTS = TABLE, "OCS_PORT"
SUFFIXES = ("", "_TABLE")
"""What the names of STATE_DB's tables end in."""


def ends_of(key: str, row: object) -> Ends:
    """The ends of a circuit, by its row, or by its key where the row has none of them."""
    fields = row if isinstance(row, Mapping) else {}
    a, _, b = key.rpartition("-")
    return str(fields.get("a_side", a)), str(fields.get("b_side", b))


def in_the_way(table: Mapping[str, Any], wanted: Iterable[Ends]) -> list[str]:
    """The keys of circuits in CONFIG_DB that hold an end of a wanted circuit and are none of them."""
    wanted = list(wanted)
    keys = {key_of(ends) for ends in wanted}
    taken = {end for ends in wanted for end in ends}
    return [key for key, row in table.items() if key not in keys and taken.intersection(ends_of(key, row))]


def state_of(ends: Ends, circuits: Mapping[str, Any], ports: Mapping[str, Any]) -> str:
    """How far a circuit is, by STATE_DB's tables; a switch that says nothing of it yet works on it.

    The row of a circuit that was ended may still be there when it is asked for again, so its ports must name each
    other, too, where they name any.
    """
    row = circuits.get(key_of(ends))
    if not isinstance(row, Mapping):
        return TUNING
    names = ("a_side_status", "b_side_status")
    sides = tuple(row.get(name) or status_of(ports.get(end)) for name, end in zip(names, ends, strict=True))
    whole = row.get("status", "enabled")
    if FAILED in sides or whole == "invalid":
        return FAILED
    joined = all(_target(ports.get(end)) in (None, other) for end, other in (ends, ends[::-1]))
    return TUNED if sides == (TUNED, TUNED) and whole == "enabled" and joined else TUNING


def status_of(row: object) -> object:
    """A port's status by its row; None if it says none."""
    if not isinstance(row, Mapping):
        return None
    status = row.get("status", row.get("oper_status"))
    return TUNED if status == "connected" else status


def _target(row: object) -> object:
    return row.get("target_simplex_port_id") if isinstance(row, Mapping) else None

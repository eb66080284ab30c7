"""Circuits as SONiC's optical circuit switches name them, and their changes as JSON patches.

From the high-level design "OCS Support in SONiC" (sonic-net/SONiC, ``doc/ocs/ocs_hld.md``, revision 0.5 of April 2026,
sections 6.1 and 8). CONFIG_DB's ``OCS_CROSS_CONNECT|1A-2B`` with ``a_side`` and ``b_side`` joins port 1's side A, where
what its node sends comes in, with port 2's side B. An end is in one circuit at most, so what a circuit replaces is
removed first. ``config apply-patch`` takes a patch (RFC 6902) as one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..model.circuits import Circuit
from ..model.timeline import Timeline
from . import atomic_file
from .crossconnect import switches_of

FORMAT, VERSION = "stretto-sonic-patches", 1
TABLE = "OCS_CROSS_CONNECT"

Ends = tuple[str, str]
"""A circuit by the names of its ends, such as ("1A", "2B")."""


def ends_of_port(port: int) -> Ends:
    """The names of a port's two ends: the first port of a plane is 1A and 1B."""
    return f"{port + 1}A", f"{port + 1}B"


def key_of(ends: Ends) -> str:
    """The key of a circuit."""
    return "-".join(ends)


def row_of(ends: Ends) -> dict[str, str]:
    """The row of a circuit in CONFIG_DB."""
    return {"a_side": ends[0], "b_side": ends[1]}


def json_patch(remove: Iterable[Ends], add: Iterable[Ends], empty: bool) -> list[dict[str, Any]]:
    """A change of circuits as a JSON patch.

    Args:
        empty: CONFIG_DB has no circuit before. It keeps no table without rows, so the patch makes the table first.
    """
    new: list[dict[str, Any]] = [{"op": "add", "path": f"/{TABLE}", "value": {}}] if empty else []
    gone = [{"op": "remove", "path": f"/{TABLE}/{key_of(ends)}"} for ends in remove]
    made = [{"op": "add", "path": f"/{TABLE}/{key_of(ends)}", "value": row_of(ends)} for ends in add]
    return [*new, *gone, *made]


def write(timeline: Timeline, path: str) -> None:
    """Write for each switch the patch of its first circuits, and that of each turn."""
    switches = []
    for switch in switches_of(timeline, path):
        circuits = len(switch["initial"])
        first = json_patch([], map(_ends, switch["initial"]), empty=True) if circuits else []
        turns = []
        for turn in switch["turns"]:
            patch = json_patch(map(_ends, turn["break"]), map(_ends, turn["make"]), empty=not circuits)
            circuits += len(turn["make"]) - len(turn["break"])
            turns.append({"start_s": turn["start_s"], "end_s": turn["end_s"], "patch": patch})
        switches.append({"switch": switch["switch"], "ports": switch["ports"], "initial": first, "turns": turns})
    document = {"format": FORMAT, "version": VERSION, "topology": timeline.plan.topology.name, "switches": switches}
    with atomic_file(path) as file:
        json.dump(document, file)
        file.write("\n")


def _ends(circuit: Circuit) -> Ends:
    sender, receiver = circuit
    return ends_of_port(sender)[0], ends_of_port(receiver)[1]

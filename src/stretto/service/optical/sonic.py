"""A driver for switches that run SONiC: gNMI's Set of CONFIG_DB, and Get of STATE_DB.

Paths are those of SONiC's native gNMI server, ``/sonic-db:CONFIG_DB/localhost/TABLE/KEY``. A Set is one transaction, in
which deletes come first (gNMI specification, section 3.4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...formats.sonic_patches import Ends, key_of, row_of
from ...model.circuits import Circuit
from ...runtime.switches import SwitchFailed
from ..gnmi import GnmiClient, GnmiFailed, Target
from .driver import A_SIDE, B_SIDE, FAILED, End, Status
from .sonic_tables import CIRCUITS, CONFIG_DB, PORTS, STATE_DB, SUFFIXES, ends_of, in_the_way, state_of, status_of

ANSWER_S = 5.0
"""Seconds in which a switch must answer a call; SONiC checks a Set against its YANG models before it answers."""


class SonicDriver:
    """One plane on a switch that runs SONiC.

    Args:
        ports: for each port of the plane the names of its side A and its side B.
        namespace: SONiC's, for a switch with several ASICs.
    """

    def __init__(self, target: Target, ports: Sequence[Ends], namespace: str = "localhost") -> None:
        self.ports = list(ports)
        self._client = GnmiClient(target, ANSWER_S)
        self._namespace = namespace
        self._end_of = {name: End(i, side) for i, names in enumerate(ports) for side, name in zip("AB", names)}
        self._asked: set[tuple[int, int]] = set()
        self._suffix = SUFFIXES[0]

    def connect(self, circuits: Sequence[Circuit], instead_of: Iterable[Circuit] = ()) -> None:
        wanted = [self._ends(circuit) for circuit in circuits]
        replaced = [key_of(self._ends(circuit)) for circuit in instead_of]
        table = self._table(CONFIG_DB, CIRCUITS)
        delete = dict.fromkeys([*(key for key in replaced if key in table), *in_the_way(table, wanted)])
        add = [ends for ends in wanted if key_of(ends) not in table or key_of(ends) in delete]
        if delete or add:
            self._set(delete, add)
        self._asked -= {self._circuit(ends_of(key, table[key])) for key in delete}
        self._asked |= {(a, b) for a, b in circuits}

    def disconnect(self, circuits: Iterable[Circuit]) -> None:
        asked = [tuple(circuit) for circuit in circuits]
        table = self._table(CONFIG_DB, CIRCUITS)
        keys = [key for key in (key_of(self._ends(circuit)) for circuit in asked) if key in table]
        if keys:
            self._set(keys, [])
        self._asked -= {(a, b) for a, b in asked}

    def status(self) -> Status:
        circuits, ports = self._state()
        if not ports:  # this switch has none, or calls the tables by the other names
            self._suffix = SUFFIXES[1 - SUFFIXES.index(self._suffix)]
            circuits, ports = self._state()
        failed = [
            end for name, row in ports.items() if (end := self._end_of.get(name)) and status_of(row) == FAILED
        ]  # fmt: skip
        states = {pair: state_of(self._ends(pair), circuits, ports) for pair in sorted(self._asked)}
        return Status(states, frozenset(failed))

    def close(self) -> None:
        self._client.close()

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Circuits and ports in STATE_DB; ports second, so that those of a circuit that has failed say so."""
        return self._table(STATE_DB, CIRCUITS + self._suffix), self._table(STATE_DB, PORTS + self._suffix)

    def _ends(self, circuit: Sequence[int]) -> Ends:
        a, b = circuit
        return self.ports[a][0], self.ports[b][1]

    def _circuit(self, ends: Ends) -> tuple[int, int]:
        """The ports of a circuit, -1 for an end that is none of this plane's."""
        a, b = (self._end_of.get(name, End(-1, "")) for name in ends)
        return (a.port if a.side == A_SIDE else -1), (b.port if b.side == B_SIDE else -1)

    def _path(self, database: str, *parts: str) -> str:
        return "/".join((f"/sonic-db:{database}", self._namespace, *parts))

    def _table(self, database: str, name: str) -> dict[str, Any]:
        """A table of the switch by its keys; empty where it has none."""
        try:
            notices = self._client.get([self._path(database, name)], "json_ietf")
        except GnmiFailed as error:
            if error.missing:  # a table without rows is not kept
                return {}
            raise SwitchFailed(str(error)) from None
        rows: dict[str, Any] = {}
        for notice in notices:
            if isinstance(notice.value, dict):
                inside = notice.path.rpartition(f"{name}/")[2]
                rows |= notice.value if notice.path.endswith(name) else {inside: notice.value}
        return rows

    def _set(self, delete: Iterable[str], add: Iterable[Ends]) -> None:
        rows = [(self._path(CONFIG_DB, CIRCUITS, key_of(ends)), row_of(ends)) for ends in add]
        try:
            self._client.set([self._path(CONFIG_DB, CIRCUITS, key) for key in delete], rows)
        except GnmiFailed as error:
            raise SwitchFailed(str(error)) from None

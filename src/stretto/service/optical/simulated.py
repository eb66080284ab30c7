"""A driver over a switch that ``stretto run`` has: one without hardware, or a program that turns a vendor's.

:mod:`stretto.runtime.switches` turns a plane in one call that ends when its circuits are up. Here that call has a
thread of its own, so that a turn can be asked for and asked about.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ...model.circuits import Change, Circuit
from ...runtime.switches import Switch, SwitchFailed
from .driver import FAILED, SIDES, TUNED, TUNING, End, Status


class SimulatedDriver:
    """One plane of a :class:`~stretto.runtime.switches.Switch`.

    Args:
        plane: its number for the switch.
        turn_s: how long a turn takes, seconds.

    Attributes:
        broken: ends that fail whenever a circuit needs them. Tests of what follows a failure put ends in.
    """

    def __init__(self, switch: Switch, plane: int, turn_s: float) -> None:
        self.switch, self.plane, self.turn_s = switch, plane, turn_s
        self.broken: set[End] = set()
        self._states: dict[tuple[int, int], str] = {}
        self._failed: set[End] = set()
        self._lock = threading.Lock()

    def connect(self, circuits: Sequence[Circuit], instead_of: Iterable[Circuit] = ()) -> None:
        asked = [(a, b) for a, b in circuits]
        with self._lock:
            taken = {end for a, b in asked for end in ((a, 0), (b, 1))}
            breaks = [list(c) for c in self._states if c not in asked and {(c[0], 0), (c[1], 1)} & taken]
            breaks += [list(c) for c in instead_of if tuple(c) in self._states and list(c) not in breaks]
            makes = [list(c) for c in asked if self._states.get(c) != TUNED]
            keeps = [list(c) for c in self._states if list(c) not in breaks and c not in asked]
            for a, b in breaks:
                del self._states[a, b]
            self._states |= dict.fromkeys(((a, b) for a, b in makes), TUNING)
        work = threading.Thread(target=self._turn, args=(Change(breaks, makes, keeps),), daemon=True)
        work.start()

    def disconnect(self, circuits: Iterable[Circuit]) -> None:
        with self._lock:
            for a, b in circuits:
                self._states.pop((a, b), None)

    def status(self) -> Status:
        with self._lock:
            return Status(dict(self._states), frozenset(self._failed))

    def close(self) -> None:
        self.switch.close()

    def _turn(self, turn: Change) -> None:
        try:
            self.switch.turn(self.plane, turn, self.turn_s)
            state = TUNED
        except SwitchFailed:
            state = FAILED
        with self._lock:
            for a, b in turn.makes:
                ends = {End(port, side) for port, side in zip((a, b), SIDES, strict=True)} & self.broken
                self._failed |= ends
                if (a, b) in self._states:
                    self._states[a, b] = FAILED if ends else state

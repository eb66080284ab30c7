"""The controller of optical planes (SWOT, section 3.3): what each plane joins, and when it may turn.

The plan says in which order planes turn and which transfers each matching carries. Ranks report a transfer that has
arrived, so the controller knows when a plane carries nothing more; then it tells the switch to turn, and once the
circuits are up it tells the ranks that wait for them. A rank that dies does not report: its circuits stay in use.

What a plane joins stays from one collective to the next. A plane that already has the matching that it should turn to
does not turn.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int32
from ..model.circuits import Change, change
from ..model.errors import PeerFailed
from ..model.plan import Plan
from ..model.topology import Plane
from .switches import Switch, SwitchFailed

CONTROLLER = "controller"


class Turn(NamedTuple):
    """A turn that a switch has made: its number in the plan, and when it began and ended, by the monotonic clock."""

    number: int
    plane: int
    change: Change
    began_at: float
    up_at: float


class Circuits:
    """The planes of a fabric and what each joins.

    Attributes:
        matching: for each plane int32[ports], the port to which each sends; of a turning plane what it turns to.
        turning: the planes that turn now.
        turns: the turns made in this run, in the order in which they ended. Those that changed nothing are not in it.
    """

    def __init__(self, planes: Sequence[Plane], switch: Switch) -> None:
        self.planes, self.switch = planes, switch
        self.matching: list[Int32] = [np.array(plane.matching, dtype=np.int32) for plane in planes]
        self.turning: set[int] = set()
        self.turns: list[Turn] = []
        self.ended: SimpleQueue[Turn | tuple[int, int, str]] = SimpleQueue()
        self.told, self.tell = socket.socketpair()
        self.told.setblocking(False)

    def fileno(self) -> int:
        """A file that can be read when a turn has ended."""
        return self.told.fileno()

    def begin(self, plan: Plan, pace: float) -> None:
        """Take up a plan.

        Args:
            pace: real seconds for one second of the plan.
        Raises:
            PeerFailed: a plane turns, or is not in the matching with which the plan begins.
        """
        if self.turning:
            raise PeerFailed(CONTROLLER, f"plane {min(self.turning)} still turns as the next plan begins")
        self.plan, self.pace = plan, pace
        self.turns = []
        self.arrived: set[int] = set()
        on = np.full(plan.transfer_count, -1) if plan.plane is None else plan.plane
        self.carried = [np.flatnonzero(on == p) for p in range(len(self.planes))]
        for p, plane in enumerate(plan.topology.planes):
            if (plane.matching >= 0).any() and not np.array_equal(plane.matching, self.matching[p]):
                raise PeerFailed(CONTROLLER, f"plane {p} joins other ports than the plan begins with")

    def report(self, row: int) -> None:
        """Take note that a transfer has arrived."""
        self.arrived.add(row)

    def turn(self, number: int) -> None:
        """Begin a turn of the plan; :meth:`ends` says when its circuits are up.

        Raises:
            PeerFailed: the plane turns already, or a transfer that it carries has not arrived.
        """
        plan, plane = self.plan, int(self.plan.turns.plane[number])
        if plane in self.turning:
            raise PeerFailed(CONTROLLER, f"plane {plane} would turn while it turns")
        before = self.carried[plane][self.carried[plane] < plan.turns.before[number]].tolist()
        used = [row for row in before if row not in self.arrived]
        if used:
            raise PeerFailed(
                CONTROLLER, f"plane {plane} would turn while its circuit is in use", plan.describe(used[0])
            )
        then = np.array(plan.turns.matching[number], dtype=np.int32)
        now, self.matching[plane] = self.matching[plane], then
        self.turning.add(plane)
        # a plane that joined nothing is set up before it is needed: no time counts
        seconds = self.planes[plane].reconfiguration_s * self.pace if (now >= 0).any() else 0.0
        work = threading.Thread(target=self._turn, args=(number, plane, change(now, then), seconds), daemon=True)
        work.start()

    def _turn(self, number: int, plane: int, asked: Change, seconds: float) -> None:
        """Make one turn, in a thread of its own."""
        began_at = time.monotonic()
        ended: Turn | tuple[int, int, str]
        try:
            if asked.breaks or asked.makes:
                self.switch.turn(plane, asked, seconds)
            ended = Turn(number, plane, asked, began_at, time.monotonic())
        except SwitchFailed as error:
            ended = number, plane, str(error)
        except Exception as error:  # else the run would wait for ever
            ended = number, plane, f"{type(error).__name__}: {error}"
        self.ended.put(ended)
        with contextlib.suppress(OSError):
            self.tell.send(b"\0")

    def ends(self) -> list[int]:
        """The numbers of the turns that have ended since the last call.

        Raises:
            PeerFailed: a switch could not turn.
        """
        with contextlib.suppress(BlockingIOError):
            self.told.recv(1 << 12)
        numbers = []
        while not self.ended.empty():
            turn = self.ended.get()
            if not isinstance(turn, Turn):
                number, plane, reason = turn
                raise PeerFailed(f"the switch of plane {plane}", reason, f"turn {number} of plane {plane}")
            self.turning.discard(turn.plane)
            if turn.change.breaks or turn.change.makes:
                self.turns.append(turn)
            numbers.append(turn.number)
        return numbers

    def close(self) -> None:
        """Let the switch go."""
        self.switch.close()
        for end in (self.told, self.tell):
            end.close()

"""Whether a run still gets on: who is alive, who is silent, who runs something else, and when the time is over."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NoReturn

from .mesh import LATE, Connection
from .pacing import Queue
from .wire import Kind, encode

if TYPE_CHECKING:
    from .loop import Run

PINGS = 4
"""Pings in the time for which a peer may be silent."""
LOOK_S = 0.25
"""Seconds between two looks at those with whom a program exchanges nothing: they may run another one."""
LEAST_S = 1e-3
"""Seconds by which a look at silent peers comes after the moment from which they are at fault."""


class Watch:
    """Looks after a run from now on.

    Attributes:
        at: when to look again, by the monotonic clock.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.timeout_s = run, run.timeout_s
        self._strangers: list[Connection] | None = None
        began = time.monotonic()
        self.over_at = began + LATE * self.timeout_s
        self.ping_at = began + self.timeout_s / PINGS
        self.look_at = began + LOOK_S if len(run.mesh.peers) > len(run.peers) or run.mesh.watched else math.inf
        self.at = min(self.over_at, self.ping_at, self.look_at)

    def look(self, now: float) -> None:
        """Do what is due; the run fails if it does not get on."""
        if now >= self.look_at:
            self.look_at = now + LOOK_S
            if self.run.mesh.condemned is not None:
                self.run.fail(*self.run.mesh.condemned)
            for c in self.strangers():
                if c.ahead is not None and c.ahead.run <= self.run.number:
                    frame, c.ahead = c.ahead, None
                    self.run.incoming.take(c, frame)
                self.run.incoming.read(c)
        if now >= self.ping_at:
            self._ping()
            self.ping_at = min(now + self.timeout_s / PINGS, self._end_of_silence(now) + LEAST_S)
        if now >= self.over_at:
            if self.run.pending():
                self._give_up()
            self.over_at = math.inf
        self.at = min(self.over_at, self.ping_at, self.look_at)

    def strangers(self) -> list[Connection]:
        """The connections to those with whom the program exchanges nothing."""
        if self._strangers is None:
            mesh, peers = self.run.mesh, self.run.peers
            self._strangers = [c for p, connections in mesh.peers.items() if p not in peers for c in connections]
            for c in self._strangers:
                c.begin(Queue(False))
        return self._strangers

    def _ping(self) -> None:
        """Tell all processes that this one is alive: one that is a run ahead may wait for it."""
        for c in self.run.mains():
            if c.closed is None and not c.unsent:
                self.run.say(c, Kind.PING)
        for c in self.strangers():
            if c.main is c and c.closed is None:
                c.queue(encode(Kind.PING, self.run.number, call=self.run.call))
                c.flush()

    def _end_of_silence(self, now: float) -> float:
        """When the next peer will have been silent for too long; fails if one has been."""
        ends = [math.inf]
        for c in self.run.mains():
            if c.done < self.run.number and now - c.heard_at > self.timeout_s:
                self.run.incoming.read(c)  # what is too little to wake this process
            if c.done < self.run.number:
                if now - c.heard_at > self.timeout_s:
                    self.run.fail(c.peer, f"it has said nothing for the timeout of {self.timeout_s:g} s")
                ends.append(c.heard_at + self.timeout_s)
        return min(ends)

    def _give_up(self) -> NoReturn:
        """The time for the run is over, and all are alive: fail because of the peer that is farthest behind."""
        run = self.run
        waits = [p for p in run.peers if any(run.needs(c) for c in run.peers[p])]
        begun = {p: max(c.begun for c in run.peers[p]) for p in waits} or {run.mesh.node: run.number}
        peer = min(begun, key=begun.__getitem__)
        behind = f"is still in collective {begun[peer]}, and " if 0 < begun[peer] < run.number else ""
        within = f"within the timeout of {self.timeout_s:g} s"
        run.fail(peer, f"it is alive, but {behind}collective {run.number} of the group has not ended {within}")

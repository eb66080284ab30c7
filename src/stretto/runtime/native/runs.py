"""A run of the compiled loop, as Python sees it: how to wait for its end, and what it did."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...lower import Program
from ...model.arrays import Int64
from ...model.errors import PeerFailed
from ..recorded import Trace
from . import kernel_layout as at
from .events import HOLDING, LEAVING
from .failures import transfer_of
from .records import WORD, Ends, address
from .templates import Template, column

if TYPE_CHECKING:
    from .engine import Engine

HOLD_MS = 1
"""Milliseconds for which a thread that waits for a run keeps Python's lock: less than the 5 ms that Python lets a busy
thread keep it, which is what getting it back costs."""
MOST_SPARE = 4
"""How many runs of one call keep their memory for the next ones."""


class Poll(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("came", ctypes.c_short)]


class Slot:
    """The memory of a run, at ``place``: a copy of the words that it begins with."""

    def __init__(self, block: Int64) -> None:
        self.block = block.copy()
        self.place = address(self.block)
        self._poll = Poll(-1, select.POLLIN, 0)
        self.poll = ctypes.byref(self._poll)

    def wake_by(self, event: int) -> None:
        """Let an event tell the end of the run."""
        self.block[at.WAKE // WORD] = self._poll.fd = event


class Run:
    """A program that runs, or waits for its turn in its group.

    Args:
        spare: where its memory goes when nobody needs it any more.
    """

    def __init__(
        self, engine: Engine, ends: Ends, program: Program, template: Template, slot: Slot | None = None,
        spare: list[Slot] | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.ends, self.program, self.template = engine, ends, program, template
        self._slot, self._spare, self._event = slot or Slot(template.block), spare, engine.events.take()
        self.block, self.place = self._slot.block, self._slot.place
        self._slot.wake_by(self._event)
        self._failure: BaseException | None = None
        self.keep: list[Any] = []

    def __del__(self) -> None:
        if sys.is_finalizing():  # then modules may be gone, and the descriptor goes with the process
            return
        self.engine.events.give(self._event)
        if self._spare is not None and self.released and len(self._spare) < MOST_SPARE:
            self._spare.append(self._slot)

    @property
    def failure(self) -> BaseException | None:
        """Why it has failed."""
        return self._failure or self.engine.failed_sum(self.ends.mesh)

    @property
    def ended(self) -> bool:
        return bool(self.block[at.STATUS // WORD])

    @property
    def released(self) -> bool:
        """Whether the loop looks at the run no more: it tells of the end after it has noted it."""
        return bool(self.block[at.RELEASED // WORD])

    def wait(self, within_s: float | None = None) -> bool:
        """Wait until the run has ended, or for a time; returns whether it has."""
        if self.ended or HOLDING.poll(self._slot.poll, 1, HOLD_MS) > 0:
            return True
        until = None if within_s is None else time.monotonic() + within_s
        while not self.ended:
            left_ms = -1 if until is None else max(0, int((until - time.monotonic()) * 1000) + 1)
            if LEAVING.poll(self._slot.poll, 1, min(left_ms, 1 << 30)) == 0 and left_ms == 0:
                return self.ended
        return True

    def fail(self, failure: BaseException) -> None:
        """End a run that the loop does not run, and call who listens to it."""
        self.end(failure)
        self.engine.listeners.call(self.place)

    def end(self, failure: BaseException) -> None:
        """End a run that the loop does not run."""
        self._failure = failure
        self.block[at.STATUS // WORD] = at.ENDED_BADLY
        os.eventfd_write(self._event, 1)

    def listen(self, call: Callable[[], None]) -> None:
        """Call ``call`` once when the run has ended, in a thread for this."""
        self.engine.listeners.add(self.place, self, call)
        self.block[at.LISTENS // WORD] = 1
        self.engine.listeners.call(self.place)  # it may have ended before the loop could see that anyone listens

    def transfer_of(self, peer: str) -> str | None:
        """A transfer that the run still waits for, of a peer if there is one."""
        names = self.ends.mesh.names
        node = next((node for node, name in names.items() if name == peer), self.ends.mesh.node)
        return transfer_of(self.program, self.block, node)

    def result(
        self, traced: bool = True, meanwhile: Callable[[], None] | None = None, every_s: float | None = None
    ) -> Trace:
        """Wait for the end; what the run did (nothing if it need not be told), or its failure as an exception.

        Args:
            meanwhile: called every ``every_s`` seconds until then.
        """
        mesh = self.ends.mesh
        try:
            while not self.wait(every_s):
                if meanwhile is not None:
                    meanwhile()
        except BaseException:
            mesh.abort(PeerFailed(mesh.name(mesh.node), "it was interrupted"), mesh.node)
            raise
        if self.failure is not None:
            raise self.failure
        return self.trace() if traced else Trace()

    def arrived_s(self) -> dict[int, float]:
        """When the rows arrived that have by now."""
        moments = column(self.block, at.R_ARRIVED, len(self.program.receives)).copy()  # the loop goes on writing
        rows = np.flatnonzero(moments)
        since_s = (moments[rows] - int(self.block[at.STARTED_AT // WORD])) / 1e9
        return dict(zip(self.program.receives.row[rows].tolist(), since_s.tolist(), strict=True))

    def trace(self) -> Trace:
        """When rows were sent and arrived."""
        program, block = self.program, self.block
        start = int(block[at.STARTED_AT // WORD])
        trace = Trace()
        for times, rows, which in (
            (trace.sent_s, program.sends.row, at.S_BEGAN), (trace.gone_s, program.sends.row, at.S_GONE),
            (trace.coming_s, program.receives.row, at.R_CAME), (trace.arrived_s, program.receives.row, at.R_ARRIVED),
            (trace.arrived_s, program.awaited.row, at.A_SEEN),
        ):  # fmt: skip
            times.update(zip(rows.tolist(), ((column(block, which, len(rows)) - start) / 1e9).tolist(), strict=True))
        dry = column(block, at.R_DRY_AT, len(program.receives.row))
        dry_s, dry_bytes = (dry - start) / 1e9, column(block, at.R_DRY_BYTES, len(dry))
        rows = np.flatnonzero(dry)
        trace.dry = {
            row: (t, count)
            for row, t, count in zip(
                program.receives.row[rows].tolist(), dry_s[rows].tolist(), dry_bytes[rows].tolist(), strict=True
            )
        }
        return trace

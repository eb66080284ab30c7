"""What a rank's collectives did: a line for each in the folder that ``STRETTO_TRACE`` names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable

from ..choose.library import Library
from ..lower import Program
from ..runtime.recorded import Trace

Span = tuple[int, int, float, float]


class Traces:
    """The file of one rank.

    Attributes:
        wanted: whether there is one.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        folder = os.environ.get("STRETTO_TRACE")
        if folder:
            os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, f"rank{library.rank}.jsonl"), "a") if folder else None  # noqa: SIM115
        self.wanted = self._file is not None

    def add(self, kind: str, program: Program, began_s: float, trace: Trace) -> None:
        """Write a line: for each transfer that the program ran here its row, the other rank, and seconds of first and
        last byte. Of a transfer in segments (:mod:`stretto.runtime.segments`) they are those of the whole."""
        if self._file is None:
            return
        steps, transfers = program.steps, program.plan.transfer_count
        rank = {node: r for r, node in enumerate(self._library.nodes)}
        sent = (
            (row % transfers, rank[to], began_s + first_s, began_s + trace.gone_s[row])
            for row, first_s in trace.sent_s.items()
            for to in steps.sends[row].to
        )
        arrived = (
            (row % transfers, rank[receive.source], began_s + trace.coming_s[row], began_s + trace.arrived_s[row])
            for row, receive in steps.receives.items()
        )
        span = {"began_s": began_s, "ended_s": time.monotonic()}
        ends = {"sent": _whole(sent), "arrived": _whole(arrived)}
        self._file.write(json.dumps({"kind": kind, "rank": self._library.rank, **span, **ends}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _whole(spans: Iterable[Span]) -> list[Span]:
    """Join the spans of the same transfer with the same rank."""
    joined: dict[tuple[int, int], tuple[float, float]] = {}
    for row, rank, first_s, last_s in spans:
        before = joined.get((row, rank), (first_s, last_s))
        joined[row, rank] = min(before[0], first_s), max(before[1], last_s)
    return [(*key, *span) for key, span in joined.items()]

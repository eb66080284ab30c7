"""What a rank's collectives did: a line for each in the folder that ``STRETTO_TRACE`` names.

A line is there as soon as its collective has ended, whole, so ``stretto watch`` can follow a job that runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from ..choose.expected import Expected, expected
from ..choose.library import Library, Recipe
from ..lower import Program
from ..model.arrays import Int64
from ..model.kinds import BY_NAME
from ..runtime.recorded import Trace

Span = tuple[int, int, float, float]

_TEXT = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
"""Quicker than ``json.dumps``, and shorter."""


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
        # whole lines, each by one call of the kernel: several groups of a process may share the file
        path = os.path.join(folder, f"rank{library.rank}.jsonl") if folder else None
        self._file = open(path, "ab", buffering=0) if path else None  # noqa: SIM115
        self._alike: WeakKeyDictionary[Recipe, tuple[bytes, str]] = WeakKeyDictionary()
        self.wanted = self._file is not None

    def add(self, kind: str, recipe: Recipe, program: Program, sizes: Int64, began_s: float, trace: Trace) -> None:
        """Write a line: for each transfer that the program ran here its row, the other rank, and seconds of first and
        last byte; the bytes to and from each rank, and what the plan leads to expect.

        Args:
            program: that of the recipe, or its part in segments (:mod:`stretto.runtime.segments`), whose transfers have
                the times of the whole.
            sizes: int64[chunks], bytes of each chunk of the plan.
        """
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
        record = {"kind": kind, "rank": self._library.rank, **span, "at": time.time(), **ends}
        self._file.write(f"{_TEXT(record)[:-1]},{self._what_is_alike(kind, recipe, program, sizes, rank)}\n".encode())

    def _what_is_alike(self, kind: str, recipe: Recipe, program: Program, sizes: Int64, rank: Mapping[int, int]) -> str:
        """The end of a line, alike for calls of one recipe and size: bytes, and what the plan leads to expect.

        Args:
            rank: the rank of each node.
        """
        key = sizes.tobytes()
        known = self._alike.get(recipe)
        if known is not None and known[0] == key:
            return known[1]
        plan, whole, each = recipe.program.plan, recipe.program.steps, sizes.tolist()
        n = plan.transfer_count
        sent = {(row % n, to) for row, send in program.steps.sends.items() for to in send.to}
        arrived = {row % n for row in program.steps.receives}
        planned = Expected(None, {}) if self._library.assumed else expected(recipe)
        said = {
            # of pieces between pairs a rank knows the sizes of its own alone, which are what it starts with
            "size_bytes": sum(each[c] for c in whole.held) if BY_NAME[kind].pieces == "pair" else sum(each),
            "planned_s": planned.seconds,
            "planned_bytes": int(plan.workload.collectives[0].size_bytes),
            "planned_Bps": {rank[v]: rate for v, rate in planned.rates.items()},
            "sent_bytes": _by_rank((rank[to], each[whole.sends[row].chunk]) for row, to in sent),
            "arrived_bytes": _by_rank(
                (rank[whole.receives[row].source], each[whole.receives[row].chunk]) for row in arrived
            ),
        }
        self._alike[recipe] = key, _TEXT(said)[1:]
        return self._alike[recipe][1]

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


def _by_rank(sizes: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Bytes by rank."""
    total: dict[int, int] = {}
    for rank, size in sizes:
        total[rank] = total.get(rank, 0) + size
    return total

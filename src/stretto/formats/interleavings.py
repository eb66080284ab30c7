"""Proof that no interleaving of a program's threadblocks gets stuck or races for memory.

**Model.** Threadblocks of all ranks run side by side, each its operations in order. Between two meetings (``nop``,
``barrier``) only what the same thread does is in order. A counter is raised by signals or releases and lowered by waits
or acquires, which stand still at 0. A barrier lets its blocks go on when all are there. A put through a port channel
happens some time between its call and the next signal on that channel as the peer sees it, or a flush. A packet can be
read once it was written in the same run. A rank starts its threadblocks in their order, at most ``resident`` at a time,
and its next run when all blocks of this one have ended; between runs the application uses the rank's input and output.

**Method.** One execution E is carried out. Its events, the order inside threads, blocks and ranks, and for each wait
signals that it is certain to follow make a graph G. Vector clocks, one number for each block, queue and rank, say which
events G orders. Of a counter whose signals G orders, each before all that comes before the next one in its thread, the
k-th wait follows the k-th signal. Of a counter raised by threads in no certain order, a wait follows those signals
without which it could not have been reached by counting (``first_waits``). Reported are: blocks that stand still at the
end of E; two waits on one counter where the earlier one in E is not an ancestor, in G, of what its thread or block did
before the later one; counters that do not end where they began; two accesses to a cell of memory, one of them a write,
that G does not order.

**Theorem.** If E ends and the waits of each counter are ordered in that sense, every execution is a linear order of G,
and every execution ends.

*Proof.* (1) Let e be the first event in some execution that happens before one of its ancestors in G. Order inside
threads cannot be broken, so e is a wait, the j-th of its counter in G, and what is missing is a signal p that e is said
to follow, or an ancestor of p. The waits before e in G are ancestors of what comes before e in its own thread, which
has happened with all its ancestors, since e is the first exception; a later wait has e as an ancestor. So e takes the
j-th token, and at least j signals have happened, with all their ancestors. If G orders the signals of the counter,
these are the first j or more of them, and p is the j-th; if not, p is among any j signals by counting. Either way p has
happened with its ancestors: a contradiction. The same holds for packets, which are written once before they are read,
and for barriers, which all their blocks must reach. (2) Let an execution stand still, and let e be the first event of E
that has not happened in it. What came before e in E has happened, so e is next in its block. If e waits for a counter,
at least as many signals have happened as before e in E, and, by (1), just the waits that come before e in G; so the
counter is above 0 and e can happen: a contradiction. A block that has not begun waits for others of its rank to end,
all of which have ended if they had in E. QED.

So E stands for all executions: counts only grow, nothing that could happen is ever prevented (the program is a marked
graph). Accesses that G orders are in that order in every execution. Two runs, or three where scratch has two halves,
stand for any number: an access in run r and one in run r + 2 that touch the same cell have between them the second
one's counterpart in run r + 1, which G orders after the first and its own rank before the second.

Cost: near-linear in operations and accesses; each signal and wait copies one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import at_speed
from .kernel_interleavings import (
    LEFT,
    PACKET_READ,
    RACE,
    READ,
    REWRITTEN,
    SIGNAL,
    STUCK,
    UNORDERED,
    WAIT,
    Clocks,
    Events,
    Findings,
    Memory,
    Reads,
    Resources,
)
from .kernel_interleavings_run import Order, Turn, execute
from .mscclpp_events import Cells, EventLists, Layout, arrays_of, common_elements, list_events
from .mscclpp_program import ExecutionPlan

MOST_FINDINGS = 10_000
"""Findings that are kept; a damaged program may have one for each pair of accesses."""


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        kind: "stuck", "race", "unordered" (waits), "left" (a counter), "packet" or "barrier".
        text: one sentence.
        operations: (rank, block, operation) of those concerned.
    """

    kind: str
    text: str
    operations: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Proof:
    """What is known about all executions of a program.

    Attributes:
        findings: empty if no execution gets stuck or races.
        blocks: the most threadblocks of a rank. operations, signals, accesses: of all ranks, how many were looked at.
    """

    findings: tuple[Finding, ...]
    blocks: int
    operations: int
    signals: int
    accesses: int

    @property
    def holds(self) -> bool:
        return not self.findings

    def note(self) -> str:
        """The result as a note for the user."""
        if self.findings:
            return f"threadblocks: {self.findings[0].text}"
        return (
            f"no interleaving of threadblocks deadlocks or races: proved for {self.operations} operations, "
            f"{self.signals} signals and {self.accesses} accesses to memory"
        )

    def to_json(self) -> dict[str, Any]:
        """As data."""
        findings = [{"kind": f.kind, "text": f.text, "operations": f.operations} for f in self.findings]
        return {"holds": self.holds, "findings": findings, "operations": self.operations, "signals": self.signals}


def prove(plan: ExecutionPlan, elements: int | None = None, resident: int | None = None) -> Proof:
    """Prove that no execution of a program gets stuck or races, or say what is wrong.

    Args:
        elements: units of ``plan.alignment`` bytes of a chunk; by default the fewest that groups of threadblocks split
            evenly, which stands for all sizes of programs without pipelines whose groups are of one size.
        resident: threadblocks that a rank runs at once; by default all.
    """
    layout = Layout(elements or common_elements(plan), plan)
    lists, ranks, begins = list_events(plan, layout)
    events, resources, cells = arrays_of(lists, ranks, begins, plan)
    queued = np.ones(len(resources.initial), dtype=np.int64)
    while True:
        runs = 3 if plan.double_scratch else 2
        rows, broken = _run(events, resources, queued, len(plan.gpus), runs, resident or max(1, len(ranks)))
        if not (broken & queued).any():
            break
        queued &= 1 - broken
    findings = [_finding(row, lists, cells, plan) for row in rows.tolist()] + _barriers(lists, plan)
    unique = tuple({(f.kind, f.operations): f for f in findings}.values())
    signals = int(np.count_nonzero(events.kind == SIGNAL))
    most = max((len(gpu.blocks) for gpu in plan.gpus), default=0)
    operations = sum(len(block) for gpu in plan.gpus for block in gpu.blocks)
    return Proof(unique, most, operations, signals, len(lists.accesses))


def _run(
    events: Events, resources: Resources, queued: np.ndarray, ranks: int, runs: int, resident: int
) -> tuple[np.ndarray, np.ndarray]:
    """The findings of the kernel, as rows, and the counters whose signals are in no certain order."""
    blocks, counters = len(events.rank), len(resources.initial)
    chains = blocks + resources.queues + ranks
    base, joined, early = (np.zeros((blocks, chains), dtype=np.int32) for _ in range(3))
    ended = np.zeros((ranks, chains), dtype=np.int32)
    clocks = Clocks(base, joined, early, _fill(blocks), _fill(blocks), _fill(blocks, 1), ended, _fill(resources.queues))
    nobody, never = (_fill(resources.cells, value) for value in (-1, 0))
    memory = Memory(nobody, nobody.copy(), nobody.copy(), nobody.copy(), never, never.copy(), never.copy())
    reading = (events.mode == READ) | (events.mode == PACKET_READ)
    most = runs * int((events.end - events.begin)[reading].sum())
    reads = Reads(_fill(most), _fill(most), _fill(most), _fill(most), _fill(1))
    turn = Turn(
        at=_fill(blocks),
        ready=_fill(2 * blocks + 2),
        ends=_fill(2),
        waiting=_fill(counters, -1),
        barriers=_fill(len(resources.barrier_size), -1),
        packets=_fill(1, -1),
        behind=_fill(blocks, -1),
        came=_fill(len(resources.barrier_size)),
        row_of=_fill(len(events.kind), -1),
        value=resources.initial.copy(),
        taken=_fill(counters),
        next_signal=_fill(counters),
        last_block=_fill(2 * counters, -1).reshape(2, -1),
        last_phase=_fill(2 * counters, -1).reshape(2, -1),
        last_thread=_fill(2 * counters, -1).reshape(2, -1),
        head=_fill(counters, -1),
        tail=_fill(counters, -1),
        after=_fill(len(events.kind), -1),
        started=_fill(ranks),
        left=_fill(ranks),
    )
    found = Findings(np.zeros((MOST_FINDINGS, 4), dtype=np.int64), _fill(1))
    first = np.searchsorted(events.rank, np.arange(ranks + 1))
    kernel = at_speed(execute, runs * len(events.kind) * max(1, chains // 1000))
    order = _order(events, queued)
    kernel(events, resources, order, clocks, memory, reads, turn, first, runs, resident, found)
    return found.rows[: min(int(found.total[0]), MOST_FINDINGS)], order.broken


def _fill(size: int, value: int = 0) -> np.ndarray:
    return np.full(size, value, dtype=np.int64)


def _order(events: Events, queued: np.ndarray) -> Order:
    """Signals by counter and by the first wait that is certain to follow them."""
    counters = len(queued)
    signals = np.flatnonzero(events.kind == SIGNAL)
    signals = signals[np.lexsort((events.first_wait[signals], events.what[signals]))]
    return Order(np.searchsorted(events.what[signals], np.arange(counters + 1)), signals, queued, _fill(counters))


def _finding(row: list[int], lists: EventLists, cells: Cells, plan: ExecutionPlan) -> Finding:
    """A finding of the kernel in words."""
    kind, event, other, place = row
    if kind == STUCK:
        operation = lists.source[event]
        return Finding("stuck", f"{_words(operation, plan)} waits for what never comes", (operation,))
    if kind == RACE:
        sides = [e for e in (event, other) if e >= 0]
        memory = f"{'iso'['iso'.index(cells.spaces[place][1])]} of rank {cells.spaces[place][0]}"
        texts = [_words(lists.source[e], plan) for e in sides]
        texts += ["the application between two runs"] * (2 - len(sides))
        text = f"{texts[0]} and {texts[1]} use the same bytes of buffer {memory}, one writes, in no certain order"
        return Finding("race", text, tuple(lists.source[e] for e in sides))
    if kind == UNORDERED:
        operation = lists.source[event]
        text = f"{_words(operation, plan)} and a wait of another thread use one counter in no certain order"
        return Finding("unordered", text, (operation,))
    if kind == LEFT:
        name = next(k for k, v in lists.counters.items() if v == place)
        users = [lists.source[e] for e, k in enumerate(lists.kind) if k in (SIGNAL, WAIT) and lists.what[e] == place]
        what = f"{name[1]} {'' if name[1] == 'semaphore' else 'channel '}{name[2]} of rank {max(name[0], -1 - name[0])}"
        return Finding("left", f"{what} ends with {other} instead of {lists.initial[place]}", tuple(users[:2]))
    assert kind == REWRITTEN
    operation = lists.source[event]
    return Finding("packet", f"{_words(operation, plan)} writes packets that nobody has read yet", (operation,))


def _words(operation: tuple[int, int, int], plan: ExecutionPlan) -> str:
    rank, block, place = operation
    return f"rank {rank}, threadblock {block}, operation {place} ({plan.gpus[rank].blocks[block][place].name})"


def _barriers(lists: EventLists, plan: ExecutionPlan) -> list[Finding]:
    """Barriers at which other than the said number of threadblocks meet."""
    return [
        Finding("barrier", f"{len(blocks)} threadblocks of rank {rank} meet at barrier {number} of {size}", ())
        for (rank, number), size, blocks in zip(lists.barriers, lists.barrier_sizes, lists.barrier_blocks, strict=True)
        if len(blocks) != size
    ]

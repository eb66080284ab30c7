"""The run of a program of threadblocks: the main loop of the kernel of ``interleavings``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .kernel_interleavings import (
    BARRIER,
    FIRST_ROWS,
    FLUSH,
    LEFT,
    SIGNAL,
    STUCK,
    SYNC,
    UNORDERED,
    WAIT,
    Clocks,
    Events,
    Findings,
    Int64,
    Memory,
    Reads,
    Resources,
    clock_of,
    grown,
    learn,
    meet,
    own_buffers,
    packets_there,
    report,
    use_memory,
    writes_packets,
)


class Order(NamedTuple):
    """Which signals a wait is certain to follow.

    Attributes:
        offsets, signals: by counter (CSR), those first that the earliest wait is certain to follow by ``first_wait``.
        queued: int64[counters], whether instead the k-th wait follows the k-th signal. broken: int64[counters], set
            where signals turn out to be in no certain order, so that this does not hold.
    """

    offsets: Int64
    signals: Int64
    queued: Int64
    broken: Int64


class Turn(NamedTuple):
    """Where the blocks are.

    Attributes:
        at: int64[blocks], the next event of each. ready: int64[blocks + 1], a ring of blocks that may go on;
            ``ends`` its first and its first free place.
        waiting: int64[counters], a block that waits for each, -1; barriers: int64[barriers], the same;
            packets: int64[1], the same for packets; behind: int64[blocks], the next block that waits for the same.
        came: int64[barriers], how many blocks are there. row_of: int64[events], the clock of a signal under way, -1.
        value, taken, next_signal: int64[counters], value, waits in this run, place in ``Order``.
        last_block, last_phase, last_thread: int64[2, counters], where the last wait and the last signal were.
        head, tail: int64[counters], signals on their way, -1; after: int64[events], the next one on the same counter.
        started, left: int64[ranks], blocks that have begun, and blocks that have not ended.
        free, free_count: rows of clocks that are free.
    """

    at: Int64
    ready: Int64
    ends: Int64
    waiting: Int64
    barriers: Int64
    packets: Int64
    behind: Int64
    came: Int64
    row_of: Int64
    value: Int64
    taken: Int64
    next_signal: Int64
    last_block: Int64
    last_phase: Int64
    last_thread: Int64
    head: Int64
    tail: Int64
    after: Int64
    started: Int64
    left: Int64


def push(turn: Turn, block: int) -> None:
    """A block may go on."""
    turn.ready[turn.ends[1]] = block
    turn.ends[1] = (turn.ends[1] + 1) % len(turn.ready)


def wake(turn: Turn, heads: Int64, which: int) -> None:
    """All blocks that wait for something may look again."""
    block = heads[which]
    heads[which] = -1
    while block >= 0:
        after = turn.behind[block]
        push(turn, block)
        block = after


def sleep(turn: Turn, heads: Int64, which: int, block: int) -> None:
    """A block waits for something."""
    turn.behind[block] = heads[which]
    heads[which] = block


def in_order(turn: Turn, clocks: Clocks, side: int, counter: int, block: int, thread: int) -> bool:
    """Whether the last wait (side 0) or signal (1) on a counter certainly came before what this thread does next."""
    last, phase = turn.last_block[side, counter], turn.last_phase[side, counter]
    if last == block:
        return bool(phase != clocks.phase[block] or turn.last_thread[side, counter] == thread)
    return bool(last < 0 or clock_of(clocks, block, thread)[last] >= phase)


def remember(turn: Turn, clocks: Clocks, side: int, counter: int, block: int, thread: int) -> None:
    """This wait or signal is the last one on its counter."""
    turn.last_block[side, counter], turn.last_phase[side, counter] = block, clocks.phase[block]
    turn.last_thread[side, counter] = thread


def take(events: Events, event: int, block: int, clocks: Clocks, turn: Turn, found: Findings) -> None:
    """A wait that can go on: check that it follows the wait before it on the counter, and lower the counter."""
    counter, thread = events.what[event], events.thread[event]
    if not in_order(turn, clocks, 0, counter, block, thread):
        report(found, UNORDERED, event, turn.last_block[0, counter], counter)
    remember(turn, clocks, 0, counter, block, thread)
    turn.value[counter] -= 1
    turn.taken[counter] += 1


def give(events: Events, event: int, block: int, clocks: Clocks, turn: Turn, order: Order) -> None:
    """A signal: raise the counter, and queue up; note where it does not certainly follow the signal before it."""
    counter, thread = events.what[event], events.thread[event]
    if not in_order(turn, clocks, 1, counter, block, thread):
        order.broken[counter] = 1
    remember(turn, clocks, 1, counter, block, thread)
    turn.value[counter] += 1
    turn.after[event] = -1
    if turn.head[counter] < 0:
        turn.head[counter] = event
    else:
        turn.after[turn.tail[counter]] = event
    turn.tail[counter] = event
    wake(turn, turn.waiting, counter)


def next_signal(events: Events, resources: Resources, turn: Turn, order: Order, counter: int) -> int:
    """A signal that the wait on a counter that has just gone on certainly follows, and no earlier wait did; -1 if
    none."""
    if order.queued[counter]:
        event = turn.head[counter]
        if event < 0 or turn.taken[counter] <= resources.initial[counter] + turn.next_signal[counter]:
            return -1
        turn.next_signal[counter] += 1
        turn.head[counter] = turn.after[event]
        return int(event)
    at = order.offsets[counter] + turn.next_signal[counter]
    if at == order.offsets[counter + 1] or events.first_wait[order.signals[at]] > turn.taken[counter]:
        return -1
    turn.next_signal[counter] += 1
    return int(order.signals[at])


def join_barrier(clocks: Clocks, turn: Turn, barrier: int, blocks: Int64) -> None:
    """All blocks of a barrier are there: each knows what the others know, and they go on."""
    total = clocks.base[blocks[0]].copy()
    for i in range(len(blocks)):
        total[:] = np.maximum(total, clocks.base[blocks[i]])
    for i in range(len(blocks)):
        clocks.base[blocks[i]] = total
        turn.at[blocks[i]] += 1
    turn.came[barrier] = 0
    wake(turn, turn.barriers, barrier)


def members(turn: Turn, barrier: int, count: int) -> Int64:
    """The blocks that wait at a barrier."""
    found = np.empty(count, dtype=np.int64)
    block = turn.barriers[barrier]
    for i in range(count):
        found[i] = block
        block = turn.behind[block]
    return found


def start_blocks(events: Events, clocks: Clocks, turn: Turn, first: Int64, resident: int) -> None:
    """Each rank starts its first blocks."""
    for rank in range(len(first) - 1):
        turn.started[rank] = 0
        turn.left[rank] = first[rank + 1] - first[rank]
        for _ in range(min(resident, turn.left[rank])):
            start_block(clocks, turn, rank, first)
    turn.at[:] = events.offsets[:-1]


def start_block(clocks: Clocks, turn: Turn, rank: int, first: Int64) -> None:
    """A rank starts its next block."""
    block = first[rank] + turn.started[rank]
    turn.started[rank] += 1
    clocks.base[block] = clocks.ranks[rank]
    clocks.has_joined[block] = clocks.has_first[block] = 0
    push(turn, block)


def end_block(clocks: Clocks, turn: Turn, block: int, rank: int, first: Int64) -> bool:
    """A block is done; whether its rank is, too."""
    meet(clocks, block)
    turn.left[rank] -= 1
    if first[rank] + turn.started[rank] < first[rank + 1]:
        start_block(clocks, turn, rank, first)
    if turn.left[rank]:
        return False
    for b in range(first[rank], first[rank + 1]):
        clocks.ranks[rank][:] = np.maximum(clocks.ranks[rank], clocks.base[b])
    return True


def report_stuck(events: Events, turn: Turn, first: Int64, found: Findings) -> None:
    """Every block that has begun and not ended stands before an event that cannot come."""
    for rank in range(len(first) - 1):
        for block in range(first[rank], first[rank] + turn.started[rank]):
            if turn.at[block] < events.offsets[block + 1]:
                report(found, STUCK, turn.at[block], turn.left[rank], events.what[turn.at[block]])


def execute(
    events: Events,
    resources: Resources,
    order: Order,
    clocks: Clocks,
    memory: Memory,
    reads: Reads,
    turn: Turn,
    first: Int64,
    runs: int,
    resident: int,
    found: Findings,
) -> int:
    """Run the program ``runs`` times and report what is wrong.

    Args:
        first: int64[ranks + 1], the blocks of each rank. resident: how many blocks a rank runs at once.
    Returns:
        How many events happened.
    """
    blocks, happened = len(events.rank), 0
    rows = np.zeros((FIRST_ROWS, clocks.base.shape[1]), dtype=np.int32)
    for rank in range(len(first) - 1):
        own_buffers(clocks, rank, resources, memory, reads, blocks, found)
    for run in range(1, runs + 1):
        free = [i for i in range(len(rows))]
        turn.row_of[:] = -1
        turn.taken[:] = 0
        turn.next_signal[:] = 0
        turn.head[:] = -1
        turn.ends[:] = 0
        start_blocks(events, clocks, turn, first, resident)
        odd = (run - 1) % 2
        while turn.ends[0] != turn.ends[1]:
            block = turn.ready[turn.ends[0]]
            turn.ends[0] = (turn.ends[0] + 1) % len(turn.ready)
            event, rank = turn.at[block], events.rank[block]
            if event == events.offsets[block + 1]:
                if end_block(clocks, turn, block, rank, first):
                    own_buffers(clocks, rank, resources, memory, reads, blocks, found)
                continue
            kind, what = events.kind[event], events.what[event]
            if kind == WAIT and turn.value[what] <= 0:
                sleep(turn, turn.waiting, what, block)
                continue
            if kind > WAIT and not packets_there(events, memory, event, run, odd):
                sleep(turn, turn.packets, 0, block)
                continue
            happened += 1
            if kind == BARRIER:
                meet(clocks, block)
                sleep(turn, turn.barriers, what, block)
                turn.came[what] += 1
                if turn.came[what] == resources.barrier_size[what]:
                    join_barrier(clocks, turn, what, members(turn, what, turn.came[what]))
                continue
            packets = kind > WAIT and writes_packets(events, event)
            row = -1
            if kind == SIGNAL or packets:
                if len(free) == 0:
                    free = [i for i in range(len(rows), 2 * len(rows))]
                    rows = grown(rows)
                row = free.pop()
                rows[row] = clock_of(clocks, block, events.thread[event])
            if kind == SYNC:
                meet(clocks, block)
            elif kind == SIGNAL:
                queue = events.queue[event]
                if queue >= 0:
                    rows[row, blocks + queue] = clocks.puts[queue]
                turn.row_of[event] = row
                give(events, event, block, clocks, turn, order)
            elif kind == WAIT:
                take(events, event, block, clocks, turn, found)
                signal = next_signal(events, resources, turn, order, what)
                while signal >= 0:
                    if turn.row_of[signal] >= 0:
                        learn(clocks, block, events.thread[event], rows[turn.row_of[signal]])
                        free.append(turn.row_of[signal])
                    signal = next_signal(events, resources, turn, order, what)
            elif kind == FLUSH:
                learn(clocks, block, events.thread[event], clock_of(clocks, block, events.thread[event]))
                clocks.joined[block, blocks + what] = clocks.puts[what]
                if events.thread[event] == 0:
                    clocks.first[block, blocks + what] = clocks.puts[what]
            else:
                use_memory(events, event, block, clocks, memory, reads, rows, row, odd, run, blocks, found)
            if packets:
                wake(turn, turn.packets, 0)
            turn.at[block] = event + 1
            push(turn, block)
        if turn.left.any():
            report_stuck(events, turn, first, found)
            return happened
        for counter in range(len(turn.value)):
            if run == 1 and turn.value[counter] != resources.initial[counter]:
                report(found, LEFT, -1, turn.value[counter], counter)
    return happened

"""One execution of a program of threadblocks, with vector clocks: the kernel of ``interleavings``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

SYNC, BARRIER, SIGNAL, WAIT, WHOLE, PUT, FLUSH = range(7)
"""Kinds of events."""
READ, WRITE, PACKET_READ, PACKET_WRITE = range(4)
"""Kinds of accesses: a packet is read as soon as it is there."""
STUCK, RACE, UNORDERED, LEFT, REWRITTEN = range(5)
"""Findings: a block cannot go on; two accesses without order; two waits on a counter without order; a counter that ends
with another value than it began with; a packet written again before it was read."""
FIRST_ROWS = 64
"""Rows of clocks for signals under way at first; doubled when they are all in use."""


class Events(NamedTuple):
    """What blocks do, block after block.

    Attributes:
        rank: int64[blocks]. offsets: int64[blocks + 1], the events of each block.
        kind: int64[events]. thread: int64[events], -1 where all threads of the block take part.
        what: int64[events], the counter of a signal or wait, the barrier, the queue of a put or flush.
        queue: int64[events], the queue behind which a signal is sent, or -1.
        first_wait: int64[events], of a signal: the number of the wait, from 1, that is certain to come after it.
        access_offsets: int64[events + 1], CSR of ``begin``, ``end`` (cells), ``mode``, ``shift`` (cells further in
            odd runs).
    """

    rank: Int64
    offsets: Int64
    kind: Int64
    thread: Int64
    what: Int64
    queue: Int64
    first_wait: Int64
    access_offsets: Int64
    begin: Int64
    end: Int64
    mode: Int64
    shift: Int64


class Resources(NamedTuple):
    """What blocks share.

    Attributes:
        initial: int64[counters], their values at first. barrier_size: int64[barriers], how many blocks meet.
        queues: how many queues of puts there are. cells: how many cells memory has.
        owned_offsets, owned: CSR by rank, the cells that belong to the application between runs.
    """

    initial: Int64
    barrier_size: Int64
    queues: int
    cells: int
    owned_offsets: Int64
    owned: Int64


class Clocks(NamedTuple):
    """Clocks of blocks: for each block, queue and rank the last phase, put and run known to be over.

    Attributes:
        base: int32[blocks, chains], at the last meeting of the block's threads. joined: the same, with what any thread
            has waited for since. first: the same, with what thread 0 has waited for since.
        has_joined, has_first: int64[blocks], whether those differ from ``base``.
        phase: int64[blocks], the number of the running phase. ranks: int32[ranks, chains], at the end of a run.
        puts: int64[queues], so far.
    """

    base: Int32
    joined: Int32
    first: Int32
    has_joined: Int64
    has_first: Int64
    phase: Int64
    ranks: Int32
    puts: Int64


class Memory(NamedTuple):
    """Who used each cell last.

    Attributes:
        write_chain, write_time, write_event: int64[cells], the last write. head: int64[cells], the newest read since,
            -1.
        filled: int64[cells], the run in which a packet came, from 1; packet: int64[cells], the row of its clock.
        unread: int64[cells], whether that packet was not yet read.
    """

    write_chain: Int64
    write_time: Int64
    write_event: Int64
    head: Int64
    filled: Int64
    packet: Int64
    unread: Int64


class Reads(NamedTuple):
    """Reads since the last write of their cell, as linked lists; entry 0 of ``size`` is how many there are."""

    chain: Int64
    time: Int64
    event: Int64
    before: Int64
    size: Int64


class Findings(NamedTuple):
    """What is wrong, as rows (kind, event, other event or value, cell or counter); ``total[0]`` of them."""

    rows: Int64
    total: Int64


def report(findings: Findings, kind: int, event: int, other: int, place: int) -> None:
    """Add a finding, while there is room."""
    at = findings.total[0]
    if at < len(findings.rows):
        findings.rows[at, 0], findings.rows[at, 1] = kind, event
        findings.rows[at, 2], findings.rows[at, 3] = other, place
    findings.total[0] = at + 1


def check_access(
    memory: Memory, reads: Reads, clock: Int32, cell: int, writes: bool, event: int, chain: int, found: Findings
) -> None:
    """Report the accesses of a cell that conflict with this one and are not known to come before it.

    Args:
        clock: int32[chains], what is known to be over. chain: a chain whose accesses are in order with this one, or -1.
    """
    who = memory.write_chain[cell]
    if who >= 0 and who != chain and clock[who] < memory.write_time[cell]:
        report(found, RACE, memory.write_event[cell], event, cell)
    if not writes:
        return
    at = memory.head[cell]
    while at >= 0:
        who = reads.chain[at]
        if who != chain and clock[who] < reads.time[at]:
            report(found, RACE, reads.event[at], event, cell)
        at = reads.before[at]


def note_access(memory: Memory, reads: Reads, cell: int, writes: bool, event: int, chain: int, time: int) -> None:
    """Remember an access of a cell."""
    if writes:
        memory.write_chain[cell], memory.write_time[cell], memory.write_event[cell] = chain, time, event
        memory.head[cell] = -1
        return
    at = reads.size[0]
    reads.size[0] = at + 1
    reads.chain[at], reads.time[at], reads.event[at] = chain, time, event
    reads.before[at] = memory.head[cell]
    memory.head[cell] = at


def clock_of(clocks: Clocks, block: int, thread: int) -> Int32:
    """What a thread of a block, -1 for any of them, knows to be over."""
    clock: Int32 = clocks.first[block] if thread == 0 and clocks.has_first[block] else clocks.base[block]
    return clock


def learn(clocks: Clocks, block: int, thread: int, row: Int32) -> None:
    """A thread of a block, -1 for all of them, has waited for what a clock says."""
    if not clocks.has_joined[block]:
        clocks.joined[block] = clocks.base[block]
        clocks.has_joined[block] = 1
    clocks.joined[block][:] = np.maximum(clocks.joined[block], row)
    if thread == 0:
        if not clocks.has_first[block]:
            clocks.first[block] = clocks.base[block]
            clocks.has_first[block] = 1
        clocks.first[block][:] = np.maximum(clocks.first[block], row)


def meet(clocks: Clocks, block: int) -> None:
    """The threads of a block wait for each other: a phase is over."""
    if clocks.has_joined[block]:
        clocks.base[block] = clocks.joined[block]
    clocks.has_joined[block] = clocks.has_first[block] = 0
    clocks.base[block, block] = clocks.phase[block]
    clocks.phase[block] += 1


def own_buffers(
    clocks: Clocks, rank: int, resources: Resources, memory: Memory, reads: Reads, blocks: int, found: Findings
) -> None:
    """Between runs the application uses the input and the output of a rank."""
    chain = blocks + resources.queues + rank
    clock = clocks.ranks[rank]
    time = clock[chain] + 1
    for at in range(resources.owned_offsets[rank], resources.owned_offsets[rank + 1]):
        cell = resources.owned[at]
        check_access(memory, reads, clock, cell, True, -1 - rank, -1, found)
        note_access(memory, reads, cell, True, -1 - rank, chain, time)
    clock[chain] = time


def packets_there(events: Events, memory: Memory, event: int, run: int, odd: int) -> bool:
    """Whether all packets that an event reads have come in this run."""
    for a in range(events.access_offsets[event], events.access_offsets[event + 1]):
        if events.mode[a] == PACKET_READ:
            for cell in range(events.begin[a] + odd * events.shift[a], events.end[a] + odd * events.shift[a]):
                if memory.filled[cell] != run:
                    return False
    return True


def use_memory(
    events: Events,
    event: int,
    block: int,
    clocks: Clocks,
    memory: Memory,
    reads: Reads,
    rows: Int32,
    row: int,
    odd: int,
    run: int,
    blocks: int,
    found: Findings,
) -> None:
    """The accesses of an event: first what they must follow, then that they were made."""
    thread = events.thread[event]
    chain, time, ordered = block, clocks.phase[block], -1
    if events.kind[event] == PUT:
        queue = events.what[event]
        clocks.puts[queue] += 1
        chain, time = blocks + queue, clocks.puts[queue]
        ordered = chain
    for a in range(events.access_offsets[event], events.access_offsets[event + 1]):
        if events.mode[a] == PACKET_READ:
            for cell in range(events.begin[a] + odd * events.shift[a], events.end[a] + odd * events.shift[a]):
                learn(clocks, block, thread, rows[memory.packet[cell]])
    clock = clocks.joined[block] if thread < 0 and clocks.has_joined[block] else clock_of(clocks, block, thread)
    if events.kind[event] == WHOLE and not has_packets(events, event):
        clock = clocks.base[block]
    for note in range(2):
        for a in range(events.access_offsets[event], events.access_offsets[event + 1]):
            mode = events.mode[a]
            writes = mode == WRITE or mode == PACKET_WRITE
            for cell in range(events.begin[a] + odd * events.shift[a], events.end[a] + odd * events.shift[a]):
                if note:
                    note_access(memory, reads, cell, writes, event, chain, time)
                elif mode != PACKET_READ:
                    check_access(memory, reads, clock, cell, writes, event, ordered, found)
                if note and mode == PACKET_READ:
                    memory.unread[cell] = 0
                if note and mode == PACKET_WRITE:
                    if memory.filled[cell] == run and memory.unread[cell]:
                        report(found, REWRITTEN, event, run, cell)
                    memory.filled[cell], memory.packet[cell], memory.unread[cell] = run, row, 1


def has_packets(events: Events, event: int) -> bool:
    """Whether an event reads packets."""
    for a in range(events.access_offsets[event], events.access_offsets[event + 1]):
        if events.mode[a] == PACKET_READ:
            return True
    return False


def writes_packets(events: Events, event: int) -> bool:
    """Whether an event writes packets."""
    for a in range(events.access_offsets[event], events.access_offsets[event + 1]):
        if events.mode[a] == PACKET_WRITE:
            return True
    return False


def grown(rows: Int32) -> Int32:
    """Twice as many rows."""
    more = np.zeros((2 * rows.shape[0], rows.shape[1]), dtype=np.int32)
    more[: rows.shape[0]] = rows
    return more

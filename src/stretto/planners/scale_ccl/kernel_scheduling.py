"""SCALE-CCL's Algorithm 1, Subchunk Scheduling (section 4.3): what an idle link sends next.

:func:`schedule_subchunk` is the algorithm, :func:`sources` and :func:`receivers` its lines 2 and 3,
:func:`resolve_duplicates` its lines 8 to 21.
"""

from __future__ import annotations

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Goals, Int64, Lists, Pipes
from .kernel_forwarding import Holdings, Queues, Reading, Sites, change_backlog, is_useful
from .kernel_states import ROUTER, Places
from .kernel_transmission import Links, idle_from

TAKEN_OUT = -1
"""The chunk of an entry that has left its queue."""


def schedule_subchunk(
    pipe: int, t: float, pipes: Pipes, into: Lists, places: Places, sites: Sites, chunks: Chunks, goals: Goals,
    reading: Reading, holdings: Holdings, links: Links, queues: Queues, queued_chunk: list[int],
    following: list[int],
) -> int:  # fmt: skip
    """Algorithm 1 for current node u and destination d, the ends of a pipe that is idle.

    Queues lose what it takes out of them.

    Returns:
        The chunk to send; -1 for none.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, _, per_byte_s, _, _, _ = pipes
    came, queued, near_s, _ = holdings
    kind, region = places
    nodes, u, d = len(kind), src[pipe], dst[pipe]
    among = receivers(u, d, pipes, places, sites, reading)
    # lines 4 to 7: the queues J of the pairs (s, d'), and how long the link of each is not available, T
    pair_pipe, wait, offsets = [pipe], [0.0], [0]
    entries, group, seconds, useful = [0], [0], [0.0], [True]
    pair_pipe.clear()
    wait.clear()
    for numbers in (entries, group):
        numbers.clear()
    seconds.clear()
    useful.clear()
    of_pipe = -1
    for s in sources(d, into, pipes, places, sites):
        for w in among:
            other = sites.pipe_of[s, w]
            if other < 0 or queues.head[other] < 0:
                continue
            if other == pipe:
                of_pipe = len(pair_pipe)
            local = kind[s] != ROUTER and kind[w] != ROUTER and region[s] == region[w]
            pair_pipe.append(other)
            free = idle_from(other, hop_offsets, hop_links, hop_late_s, links.share, links.until_s, links.used)
            wait.append(max(0.0, free - t))
            entry = queues.head[other]
            while entry >= 0:
                b = queued_chunk[entry]
                if b >= 0:
                    # what one node alone wants, no other receiver can have in its place
                    alone = not goals.whole_region[b] or (local and reading.by_figure)
                    entries.append(entry)
                    group.append(b * (nodes + 1) + (w if alone else nodes))
                    seconds.append(chunks.size_bytes[b] * per_byte_s[other])
                    useful.append(is_useful(s, w, b, places, goals, sites.reach, came, near_s))
                entry = following[entry]
            offsets.append(len(entries))
    if of_pipe < 0:
        return -1
    lacks = np.array(useful)
    if reading.by_figure:
        _leave_to_accelerators(pair_pipe, offsets, entries, lacks, queued_chunk, pipes, places)
    kept, turn = resolve_duplicates(np.array(offsets), np.array(group), lacks, np.array(wait), np.array(seconds))
    # lines 22 to 25
    chosen = -1
    for i in range(offsets[of_pipe], offsets[of_pipe + 1]):
        if kept[i] and (chosen < 0 or turn[i] < turn[chosen]):
            chosen = i
    b = queued_chunk[entries[chosen]] if chosen >= 0 else -1
    # lines 11, 21, 26 and 27: out of the queues for good; of a chunk that is kept once 26 and 27 find no more
    for p in range(len(pair_pipe)):
        for i in range(offsets[p], offsets[p + 1]):
            if not kept[i] or i == chosen:
                gone = queued_chunk[entries[i]]
                queued_chunk[entries[i]] = TAKEN_OUT
                queued[gone, pair_pipe[p]] = False
                change_backlog(pair_pipe[p], -seconds[i], pipes, places, queues)
    return b


def sources(d: int, into: Lists, pipes: Pipes, places: Places, sites: Sites) -> list[int]:
    """Line 2, P: who leads to ``d``, and of an accelerator the routers of its site ("relevant BRs")."""
    found = [d]
    found.clear()
    for e in range(into.offsets[d], into.offsets[d + 1]):
        pipe = into.values[e]
        if sites.pipe_of[pipes.src[pipe], d] == pipe:
            found.append(pipes.src[pipe])
    if places.kind[d] != ROUTER:
        for v in range(len(places.kind)):
            if places.kind[v] == ROUTER and sites.site[v] == sites.site[d] and v not in found:
                found.append(v)
    return found


def receivers(u: int, d: int, pipes: Pipes, places: Places, sites: Sites, reading: Reading) -> list[int]:
    """Line 3, D: who may hold what ``d`` lacks in its place, ``d`` first.

    Of an accelerator that is served by a router those of its site; served by another accelerator of its site, it alone.
    Of a router, *open*: the routers of its own datacenter, and for what leaves that those that lead to the same others;
    or the routers that ``u`` sends to.
    """
    kind, region = places
    found = [d]
    if kind[d] == ROUTER and not reading.siblings:
        for e in range(pipes.out_offsets[u], pipes.out_offsets[u + 1]):
            v = pipes.dst[pipes.out_pipes[e]]
            if kind[v] == ROUTER and v not in found:
                found.append(v)
    elif kind[d] == ROUTER or kind[u] == ROUTER or region[u] != region[d]:
        for v in range(len(kind)):
            alike = kind[v] == kind[d] and sites.site[v] == sites.site[d] and v != d
            if alike and (kind[d] != ROUTER or sites.site[u] != sites.site[d] or sites.family[v] == sites.family[d]):
                found.append(v)
    return found


def _leave_to_accelerators(
    pair_pipe: list[int], offsets: list[int], entries: list[int], useful: Bool, queued_chunk: list[int],
    pipes: Pipes, places: Places,
) -> None:  # fmt: skip
    """Figure 7: what an accelerator is to send to a neighbour on its site leaves the other queues to that neighbour."""
    kind, region = places
    local = {(0, 0)}
    local.clear()
    for turn in range(2):
        for p in range(len(pair_pipe)):
            s, w = pipes.src[pair_pipe[p]], pipes.dst[pair_pipe[p]]
            inside = kind[s] != ROUTER and kind[w] != ROUTER and region[s] == region[w]
            for i in range(offsets[p], offsets[p + 1]):
                key = (queued_chunk[entries[i]], w)
                if turn == 0 and inside and useful[i]:
                    local.add(key)
                elif turn == 1 and not inside and key in local:
                    useful[i] = False


def resolve_duplicates(
    offsets: Int64, group: Int64, useful: Bool, wait: Float64, seconds: Float64
) -> tuple[Bool, Int64]:  # fmt: skip
    """Lines 8 to 21 of Algorithm 1: of entries that stand for each other one stays.

    Args:
        offsets, group: CSR, the queue of each pair (s, d') of P x D: what its entries bring. Equal numbers are
            duplicates.
        useful: bool[entries], whether the chunk is still to be sent to d'.
        wait: float64[pairs], seconds until the link of the pair is free, T in the paper.
        seconds: float64[entries], the transmission, Delta in the paper.
    Returns:
        kept: bool[entries].
        turn: int64[entries], its place in J: what only one queue holds comes first, then
            duplicates in the order in which they were assigned.
    """
    count, time = len(group), wait.copy()
    pair_of = np.empty(count, dtype=np.int64)
    for p in range(len(wait)):
        pair_of[offsets[p] : offsets[p + 1]] = p
    # the entries of one group follow each other in ``order``
    order = np.argsort(group, kind="mergesort")
    begin = np.searchsorted(group[order], group)
    end = np.searchsorted(group[order], group, side="right")
    kept = np.zeros(count, dtype=np.bool_)
    turn = np.arange(count)
    # lines 8 to 13: what is in one queue stays there and takes its time
    for e in range(count):
        if useful[e] and useful[order[begin[e] : end[e]]].sum() == 1:
            kept[e] = True
            time[pair_of[e]] += seconds[e]
    # lines 14 to 21: a duplicate goes where it would be through first
    assigned = count
    for e in range(count):
        if not useful[e] or kept[order[begin[e] : end[e]]].any():
            continue
        best, chosen = np.inf, -1
        for i in range(begin[e], end[e]):
            other = order[i]
            p = pair_of[other]
            if useful[other] and time[p] + seconds[other] < best:
                best, chosen = time[p] + seconds[other], other
        kept[chosen] = True
        turn[chosen] = assigned
        assigned += 1
        time[pair_of[chosen]] += seconds[chosen]
    return kept, turn

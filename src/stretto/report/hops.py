"""Every hop of every transfer for the page: who sends what to whom, over which link, when, and after what.

Times are counted in ticks, whole fractions of the time that the plan takes, so that they fit into 31 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Int64
from ..model.plan import REDUCE, Plan
from ..model.timeline import Timeline
from .columns import pack_columns

MOST_HOPS = 4_000_000
"""Hops up to which a page has each of them; of more, the use of links in slices of time."""
FINE = 20_000
"""Hops up to which ticks are as short as 30 bits allow."""
TICKS_OF_SHORTEST = 64
"""Ticks that the shortest hop takes at least, where there are more hops than :data:`FINE`. A tooltip then tells times
to 1 % of the shortest hop; 256 ticks make pages of a million transfers 1 to 2 bytes a transfer larger."""


def hop_data(timeline: Timeline, shown: Int64) -> dict[str, Any] | None:
    """The hops over the links that are shown; None if there are too many.

    Returns:
        ``tick``, seconds; tables of a few columns as :func:`~.columns.pack_columns` packs them. Of each transfer:
        ``chunk, op, size, start, lasts`` and the counts ``hops, sources, receivers, after``. Of each hop ``link`` (its
        place among those shown) and ``offset``; ``source`` and ``receiver`` nodes with ``late``, the ticks from the end
        of sending until the arrival; ``before``, how far back the transfer is that this one waits for. ``home``: of
        each chunk the node where it is first, or, of a sum, where the sum is complete.
    """
    plan = timeline.plan
    if len(plan.route.values) > MOST_HOPS:
        return None
    place = np.full(plan.topology.link_count, -1)
    place[shown] = np.arange(len(shown))
    link = place[plan.route.values]
    drawn = link >= 0
    owners = plan.route.owners
    tick = _tick(timeline, len(link))

    def ticks(seconds: NDArray[Any]) -> Int64:
        return np.rint(np.asarray(seconds) / tick).astype(np.int64)

    start, finish = ticks(timeline.start_s), ticks(timeline.finish_s)
    receivers = plan.dst.owners
    back = plan.depends.owners - plan.depends.values
    columns = {
        "chunk": plan.chunk, "op": plan.op == REDUCE, "start": start, "lasts": finish - start,
        "hops": np.bincount(owners[drawn], minlength=plan.transfer_count), "sources": plan.sources.lengths,
        "receivers": plan.dst.lengths, "after": plan.depends.lengths,
        "link": link[drawn], "offset": ticks(timeline.hop_offset_s)[drawn],
        "source": plan.sources.values, "receiver": plan.dst.values,
        "late": ticks(timeline.arrival_s) - finish[receivers], "before": back, "home": home_nodes(plan),
    }  # fmt: skip
    sizes, kind = np.unique(plan.size_bytes, return_inverse=True)
    columns["size"] = kind.reshape(-1)
    if plan.group is not None:
        columns["step"] = plan.group
    if len(plan.workload.collectives) > 1:
        columns["collective"] = plan.workload.chunk_collective
    return {"tick": tick, "sizes": sizes.tolist(), **pack_columns(columns)}


def _tick(timeline: Timeline, hops: int) -> float:
    """Seconds of a tick: the time until all has arrived in 30 bits at most, finer than the shortest hop needs."""
    latest = max(timeline.completion_s, float(timeline.arrival_s.max(initial=0.0)))
    if latest <= 0:
        return 1.0
    finest = latest / 2**30
    if hops <= FINE:
        return finest
    lasts = timeline.finish_s - timeline.start_s
    shortest = float(lasts[lasts > 0].min(initial=latest))
    return max(finest, min(shortest / TICKS_OF_SHORTEST, latest / 2**16))


def home_nodes(plan: Plan) -> NDArray[Any]:
    """int[chunks], where each chunk comes from.

    That is its first holder. A chunk that is a sum has parts at all ranks: it comes from where the first copy of the
    sum starts, and a sum that is never copied belongs to the node that receives its last part.
    """
    work = plan.workload
    holders, sums = work.chunk_holders, work.chunk_reduces
    home = holders.values[holders.offsets[:-1]].astype(np.int64)
    ends = plan.dst.values[plan.dst.offsets[1:] - 1]
    for rows, node in (
        (np.flatnonzero((plan.op == REDUCE) & sums[plan.chunk]), ends),
        (np.flatnonzero((plan.op != REDUCE) & sums[plan.chunk])[::-1], plan.src),
    ):
        home[plan.chunk[rows]] = node[rows]  # of several rows of one chunk the last one stays
    return home

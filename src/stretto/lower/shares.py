"""What part of its connections' rate a plan gives a pair of nodes, where other pairs send over the same links.

Several connections of a pair are limited to little more than what they carried alone
(:func:`stretto.runtime.pacing.lane_rate`). If pairs of two sites each did so at once, they would send several times
what the link between the sites carries. Its queue then drops a quarter of all packets and more, and Linux's BBR takes a
link that drops a fifth for one with a policer: it keeps to a rate that it has seen for 48 round trips, whether or not
other pairs have ended.
"""

from __future__ import annotations

import numpy as np

from ..model.plan import Plan


def share_of(plan: Plan, node: int, peer: int) -> float:
    """The part of the rate of a pair alone that the plan gives it while it sends: 1 where no other pair is in its way,
    0 where it sends nothing.

    A link is divided by the bytes that the plan sends over it from the pair's first transfer to its last one. Where the
    plan has no times, that is all of them.
    """
    to = np.repeat(np.arange(plan.transfer_count), np.diff(plan.dst.offsets))[plan.dst.values == peer]
    rows = to[plan.src[to] == node]
    if not len(rows):
        return 0.0
    meets = np.ones(plan.transfer_count, bool)
    if plan.start_s is not None and plan.finish_s is not None:
        meets = (plan.start_s < plan.finish_s[rows].max()) & (plan.finish_s > plan.start_s[rows].min())
    hop = np.repeat(np.arange(plan.transfer_count), np.diff(plan.route.offsets))
    links, size = plan.route.values, plan.size_bytes[hop].astype(float)
    mine = np.isin(hop, rows)
    count, bandwidth = len(plan.topology.bandwidth), plan.topology.bandwidth
    own = np.bincount(links[mine], size[mine], count)
    every = np.bincount(links[meets[hop] | mine], size[meets[hop] | mine], count)
    used = own > 0
    if not used.any():
        return 1.0
    return float((bandwidth[used] * own[used] / every[used]).min() / bandwidth[used].min())

"""AllReduce among parts of a network, with latency: when the receipts of :mod:`.parts` can take place.

Choose of each part p two ranks, f and w. Of the k - 1 receipts before r, the part that first has all, that of what p
sends can be of f's contribution on its way to r: over a link (x, y) it arrives no sooner than d(f, x) + latency. Of
those after, the one of p can be of what w lacks: it arrives at y no later than d(y, w) before the end. So a link serves
receipts of its window alone,

    2 (k - 1) bytes <= sum over parts and links into them of bandwidth x (T - begin - end), where that is positive,

if begin and end are such that both kinds fit. Receipts before r has all arrive over any link, however long its way to
w is: but that is over before all parts but r get theirs, and so ``end`` is at most the second largest of their least
ways. In the same way receipts after r has all come however far f is, but not before all parts but r can have sent, nor
before anything can come over the link. Behind a switch the sender may be any other part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..collective import Collective
from ..topology import SWITCH, Topology
from .reach import least_time

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class PartTimes:
    """A bound by parts and a rank or two of each.

    Attributes:
        seconds: no plan ends before.
        inside: bool[parts, nodes].
        holders: of each part the rank whose contribution it must send,
        receivers: and the one that must get the sum.
    """

    seconds: float
    inside: Bool
    holders: tuple[int, ...]
    receivers: tuple[int, ...]


def part_times(topology: Topology, collective: Collective, inside: Bool, near: Float64) -> PartTimes:
    """When an AllReduce can end at the earliest, by one partition of what stores.

    Args:
        inside: bool[parts, nodes], each with a rank; every node that is no switch in one of them.
        near: float64[nodes, nodes], least seconds from node to node.
    """
    c, parts = collective, len(inside)
    into, links = np.nonzero(inside[:, topology.dst] & ~inside[:, topology.src])
    x, y, width = topology.src[links], topology.dst[links], topology.bandwidth[links]
    latency = topology.latency_s[links]
    # bool[parts, links into parts]: whether a part may be the one that sends over such a link
    sends = np.where(topology.kind[x] == SWITCH, into != np.arange(parts)[:, None], inside[:, x])
    receives = into == np.arange(parts)[:, None]
    to_exit, from_entry = near[np.ix_(c.ranks, x)], near[np.ix_(y, c.ranks)].T
    own = inside[:, c.ranks]
    holders = _farthest(own, (sends * width) @ to_exit.T)
    receivers = _farthest(own, (receives * width) @ from_entry.T)
    leave = np.where(sends, to_exit[holders], np.inf)
    first = np.sort((leave + latency).min(axis=1))[-2]
    begin = np.maximum(np.minimum(leave.min(axis=0) + latency, first), to_exit.min(axis=0) + latency)
    enter = np.where(receives, from_entry[receivers], np.inf)
    end = np.minimum(enter.min(axis=0), np.sort(enter.min(axis=1))[-2])
    seconds = c.start_s + least_time(begin + end, width, 2.0 * (parts - 1) * c.size_bytes)
    return PartTimes(seconds, inside, tuple(c.ranks[holders].tolist()), tuple(c.ranks[receivers].tolist()))


def _farthest(own: Bool, way: Float64) -> NDArray[np.int64]:
    """Of each part the rank among its own with the longest ways."""
    chosen: NDArray[np.int64] = np.where(own, way, -1.0).argmax(axis=1)
    return chosen

"""Clusters: groups of nodes that faster pipes join inside than lead in from outside.

What has entered a cluster once need not enter it again: the nodes inside have it from each other. So a slow pipe is
best used for what the whole cluster at its end lacks (:mod:`stretto.kernels.matching`). That holds only where the pipes
inside can spread all that enters, so only such groups count as clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels import at_speed
from ..kernels import matching as matching_kernel
from ..model.arrays import Bool, Float64, Int64, distinct
from .pipes import Network

SLOWER = 1.5
"""Where pipes take at least this many times as long for a byte as the next faster ones, they join larger clusters."""


@dataclass(frozen=True)
class Clusters:
    """Nested clusters of the nodes of a network.

    Level 0 has the smallest clusters, the last level what all pipes together join. No two levels share a number.
    """

    of: Int64  # int64[levels, nodes], the number of each node's cluster
    level: Int64  # int64[pipes], the lowest level whose clusters it helps to join; below it leads from one to another


def clusters_of(network: Network, nodes: int, bandwidth: Float64) -> Clusters:
    """The clusters that pipes of each speed join, if these can spread what enters them.

    Args:
        bandwidth: float64[links], bytes/s.
    """
    work = len(network.src)
    speeds = np.sort(network.per_byte)
    if (speeds[1:] < SLOWER * speeds[:-1]).all():
        label = at_speed(matching_kernel.components, work)(network.src, network.dst, nodes)
        return Clusters(label.reshape(1, nodes), np.zeros(len(network.src), dtype=np.int64))
    speeds = np.unique(speeds)
    slowest = speeds[np.append(speeds[1:] >= SLOWER * speeds[:-1], True)[: len(speeds)]]
    found, kept = [np.arange(nodes)], list[float]()
    for per_byte in slowest:
        fast = network.per_byte <= per_byte
        label = at_speed(matching_kernel.components, work)(network.src[fast], network.dst[fast], nodes)
        if kept and np.array_equal(label, found[-1]):
            kept[-1] = float(per_byte)
        elif per_byte == slowest[-1] or _can_spread(network, label, found[-1], fast, bandwidth):
            found.append(label)
            kept.append(float(per_byte))
    numbers = [label + nodes * k for k, label in enumerate(found[1:] or found)]
    return Clusters(
        np.unique(np.array(numbers), return_inverse=True)[1].reshape(-1, nodes).astype(np.int64),
        np.searchsorted(np.array(kept), network.per_byte).astype(np.int64),
    )


def _can_spread(network: Network, outer: Int64, inner: Int64, fast: Bool, bandwidth: Float64) -> bool:
    """Whether fast pipes can bring to every inner cluster all that enters its outer cluster at other nodes."""
    src, dst, n = network.src, network.dst, len(outer)
    enters = outer[src] != outer[dst]
    within = fast & ~enters & (inner[src] != inner[dst])
    into_outer = _widths(network, enters, outer[dst], n, bandwidth)
    into_inner = _widths(network, enters, inner[dst], n, bandwidth)
    spread = _widths(network, within, inner[dst], n, bandwidth)
    alone = np.bincount(outer, minlength=n)[outer] == np.bincount(inner, minlength=n)[inner]
    return bool((alone | (into_outer[outer] - into_inner[inner] <= spread[inner])).all())


def _widths(network: Network, chosen: Bool, key: Int64, keys: int, bandwidth: Float64) -> Float64:
    """float64[keys]: bytes/s that the chosen pipes of each key can carry together at most.

    The narrowest hop decides, of those that all have, from the first on or from the last one back. At each hop a link
    that several pipes share counts once.
    """
    hops = network.hops.take(np.flatnonzero(chosen))
    step = np.arange(len(hops.values)) - hops.offsets[hops.owners]
    back = hops.offsets[hops.owners + 1] - 1 - np.arange(len(hops.values))
    least = np.full(keys, np.inf)
    for k in range(int(hops.lengths.min(initial=0 if not hops.rows else len(bandwidth)))):
        for place in (step, back):
            at = place == k
            use = distinct(key[chosen][hops.owners[at]] * len(bandwidth) + hops.values[at])
            of, link = np.divmod(use, len(bandwidth))
            least = np.minimum(least, np.bincount(of, bandwidth[link], keys))
    return np.where(np.isfinite(least), least, 0.0)

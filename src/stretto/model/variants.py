"""Networks made from another: what messages cost there, switches that store, and links that a route may use; and links
by their opposites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .arrays import Float64, Int64
from .topology import ASSUMED, GIVEN, ROUTER, SWITCH, Topology


def with_messages(topology: Topology, message_s: float) -> Topology:
    """The network where each message costs this, seconds, on links at an end of which something handles messages.

    That is an accelerator, or a router that stores: its software starts each message, which takes time. Switches, and
    routers that routes lead through, pass on packets, and packets of many messages share a link between two of them.
    """
    return replace(topology, message_s=_at_ends(topology, message_s), message_basis=GIVEN)


def costing(topology: Topology, least_s: float) -> Topology:
    """The network where a message costs at least ``least_s`` on links at an end of which something handles messages.

    A cost that is only assumed is dropped.
    """
    if topology.message_basis == ASSUMED:
        return with_messages(topology, least_s)
    at_least_s = _at_ends(topology, least_s)
    if (topology.message_s >= at_least_s).all():
        return topology
    return replace(topology, message_s=np.maximum(topology.message_s, at_least_s), message_basis=GIVEN)


def _at_ends(topology: Topology, message_s: float) -> Float64:
    """float64[links], seconds: the cost, and 0 where both ends pass on packets.

    Accelerators start messages also where routes may pass through them.
    """
    passes = topology.transit & ~topology.is_accelerator
    return np.where(passes[topology.src] & passes[topology.dst], 0.0, message_s)


def seen_by(topology: Topology, size_bytes: float) -> Topology:
    """The network as messages of one size see it: they cost nothing, and links are slower by what they cost.

    A message of that size takes as long over every route as it does here.
    """
    if not topology.message_s.any():
        return topology
    share = 1 / (1 + topology.message_s * topology.bandwidth / max(size_bytes, 1.0))
    steps = topology.changes
    changes = replace(steps, bandwidth=steps.bandwidth * share[steps.link]) if steps else steps
    return replace(
        topology, bandwidth=topology.bandwidth * share, message_s=np.zeros(topology.link_count), changes=changes
    )


def storing(topology: Topology) -> Topology:
    """The same network with switches that store: each sends on what has come whole, when the link onward is free."""
    was = topology.kind == SWITCH
    if not was.any():
        return topology
    return replace(
        topology,
        kind=np.where(was, ROUTER, topology.kind).astype(np.int8),
        transit=topology.transit & ~was,
        replicates=topology.replicates & ~was,
        reduces=np.zeros_like(topology.reduces),
        notes=(*topology.notes, "switches store: each sends on what has come whole"),
    )


def copying_nowhere(topology: Topology) -> Topology:
    """The same network with switches that copy nothing: what is for several nodes is sent to each of them."""
    copies = topology.replicates & topology.is_switch
    return replace(topology, replicates=topology.replicates & ~copies) if copies.any() else topology


def usable(topology: Topology) -> Topology:
    """The network without the links of switches that no route may pass through.

    A switch stores nothing, so a transfer neither begins nor ends there.
    """
    barred = topology.is_switch & ~topology.transit
    useless = barred[topology.src] | barred[topology.dst]
    return topology.with_links(~useless) if useless.any() else topology


def opposite(topology: Topology) -> Int64 | None:
    """int64[links], for each link the one in the other direction of equal bandwidth; None if a link has no such one.

    Of parallel links it is the one of equal latency, if there is one.
    """
    src, dst, width, latency = topology.src, topology.dst, topology.bandwidth, topology.latency_s
    forth, back = np.lexsort((latency, width, dst, src)), np.lexsort((latency, width, src, dst))
    if not all(np.array_equal(a[forth], b[back]) for a, b in ((src, dst), (dst, src), (width, width))):
        return None
    other = np.empty(topology.link_count, dtype=np.int64)
    other[forth] = back
    return other

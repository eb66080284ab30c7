"""Measure the network between the ranks of a group when no topology is given; all ranks learn the same numbers.

First every pair is measured, many pairs at once; the result tells which ranks form a site. Then, for one pair of sites
at a time, all their pairs of ranks send at once: the best sum is the bandwidth of the link between the sites, which a
single pair cannot show where many share it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from itertools import islice, permutations
from typing import Any

from ..choose.library import joined_by_sites, sites_of
from ..model.topology import Topology
from ..runtime.probe import MOST_ROUNDS, SENT_BYTES, flow, probe

LONG_S = 0.2
"""Seconds that the pairs of two sites send at least, at the rates measured one by one: enough for TCP to speed up."""
MOST_BYTES = 1 << 24
TIMES = 3
"""How often two sites send. Other load on a machine only makes a trial longer, so the best trial counts."""

Share = Callable[[str, Any], list[Any]]


def measure(rank: int, ranks: int, sockets: Mapping[int, socket.socket], share: Share, timeout_s: float) -> Topology:
    """The network as all ranks together measure it; every rank of the group must call this.

    Args:
        sockets: the connection to each other rank, used for nothing else until this returns.
        share: publishes this rank's value under a name, and returns the values of all ranks.
    """
    mine = [[r, *m] for r, m in probe(rank, ranks, sockets, timeout_s).items()]
    pairs = {(low, int(high)): (latency_s, width) for low, rows in enumerate(share("pairs", mine))
             for high, latency_s, width in rows}  # fmt: skip
    sites = sites_of(ranks, pairs)
    between = {}
    for a, b in islice(permutations(range(len(sites)), 2), MOST_ROUNDS):
        flows = list(zip(sites[a], sites[b], strict=False))
        measured = [pairs[key] for x, y in flows if (key := (min(x, y), max(x, y))) in pairs]
        if not measured:
            continue
        latency_s, width = min(t for t, _ in measured), max(w for _, w in measured)
        size = int(min(MOST_BYTES, max(SENT_BYTES, width * max(LONG_S, 10 * latency_s))))
        trials_s = []
        for turn in range(TIMES):
            flows_s = share(f"from {a} to {b}, turn {turn}", flow(rank, flows, sockets, size, timeout_s))
            trials_s.append(max(t for t in flows_s if t is not None))
        between[a, b] = len(flows) * size / max(min(trials_s) - latency_s, 1e-9)
    return joined_by_sites(ranks, pairs, between)

"""The network between the ranks of a group, measured when no topology is given; all ranks learn the same."""

from __future__ import annotations

from collections.abc import Mapping

from ..choose.library import joined_by_sites
from ..measure.survey import Party, Share, survey
from ..model.topology import Topology
from ..runtime.channel import Wire
from ..runtime.probe import QUICK


def measure(rank: int, ranks: int, sockets: Mapping[int, Wire], share: Share, timeout_s: float) -> Topology:
    """The network as all ranks together measure it; every rank of the group must call this.

    Args:
        sockets: the connection to each other rank, used for nothing else until this returns.
        share: publishes this rank's value under a name, and returns the values of all ranks.
    """
    found = survey(Party(rank, ranks, {r: (sock,) for r, sock in sockets.items()}, share, timeout_s), QUICK)
    pairs = {(a, b): (p.latency_s.value, p.rate.value) for (a, b), p in found.pairs.items() if a < b}
    return joined_by_sites(ranks, pairs, {sites: rate.value for sites, rate in found.between.items()})

"""The network between the ranks of a group, measured when no topology is given; all ranks learn the same."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..choose.kept import Kept
from ..choose.library import joined_by_one_switch, joined_by_sites
from ..measure.ladder import Widening
from ..measure.survey import Earlier, Party, Share, survey, survey_lanes
from ..model.errors import InputError
from ..model.measurements import SAME, Lanes, Measured, Pair, Survey
from ..model.topology import Topology
from ..runtime.congestion import BBR
from ..runtime.probe import QUICK

LOSSY_LATENCIES = 3.0
"""Times the latency of a small message that a transfer takes over a link that loses packets: the sender learns after a
round trip that one is lost, and what it sends again needs the latency once more. Of 130 KB in packets of 1,500 bytes
some packet is lost in 6 of 10 cases if 1 in 100 are. With 1, plans let sums cross that wait for what crosses before
them, and AllReduce between two lossy sites of two ranks has 0.76 of the link instead of 0.87 (benchmarks/torch_wan.py
--only lossy --sites)."""


class Known:
    """What one process has measured in the groups that it was in, by the names of the other processes.

    Attributes:
        name: this process, in every group.
        site: the name of its site, or "".
        pairs: from another process to this one.
        between: bytes/s from the site of another process to that of this one, and by how many flows.
        lanes: the connections of a pair with another process.

    Args:
        forgets: whether processes that are not in the next group are forgotten: they may have ended.
    """

    def __init__(self, site: str = "", forgets: bool = True) -> None:
        self.name, self.site = secrets.token_hex(8), site or os.environ.get("STRETTO_SITE", "")
        self._forgets = forgets
        self.pairs: dict[str, Pair] = {}
        self.between: dict[str, tuple[Measured, int]] = {}
        self.lanes: dict[str, Lanes] = {}

    def agree(self, share: Share) -> tuple[list[str], list[list[int]] | None, Earlier]:
        """The names of all ranks, the ranks of each site if all name theirs, and what counts as measured: a pair does
        if both of its processes know it."""
        pairs = {name: pair.to_json() for name, pair in self.pairs.items()}
        rows = share("known", [self.name, pairs, self.between, self.lanes, self.site])
        names, named = [row[0] for row in rows], [row[4] for row in rows]
        sites = [[r for r, site in enumerate(named) if site == name] for name in dict.fromkeys(named)]
        to = [(a, b) for a in range(len(names)) for b in range(len(names)) if a != b]
        both = [(a, b) for a, b in to if names[a] in rows[b][1] and names[b] in rows[a][1]]
        earlier = {(a, b): Pair.from_json(rows[b][1][names[a]]) for a, b in both}
        rates = {(a, b): rows[b][2][names[a]] for a, b in both if names[a] in rows[b][2]}
        lanes = {(a, b): Lanes(*rows[b][3][names[a]]) for a, b in both if a < b and names[a] in rows[b][3]}
        between = {ends: (Measured(*rate), flows) for ends, (rate, flows) in rates.items()}
        return names, sites if all(named) else None, Earlier(earlier, between, lanes)

    def keep(self, rank: int, names: Sequence[str], found: Survey) -> None:
        """Remember what concerns this rank."""
        pairs = {names[a]: pair for (a, b), pair in found.pairs.items() if b == rank}
        between: dict[str, tuple[Measured, int]] = {}
        (here,) = (i for i, site in enumerate(found.sites) if rank in site)
        for (a, b), rate in found.between.items():
            if b == here:
                now = rate, max(len(found.sites[a]), len(found.sites[b]))
                for name in (names[v] for v in found.sites[a]):
                    before = self.between.get(name, now)
                    between[name] = before if before[1] > now[1] else now
        if not self._forgets:  # groups may measure at once, so nothing is changed in place
            pairs, between = {**self.pairs, **pairs}, {**self.between, **between}
        self.pairs, self.between = pairs, between
        self.keep_lanes(rank, names, found)

    def keep_lanes(self, rank: int, names: Sequence[str], found: Survey) -> None:
        """Remember the connections of pairs with this rank."""
        at = {v: i for i, site in enumerate(found.sites) for v in site}
        ends = {v: (min(at[v], at[rank]), max(at[v], at[rank])) for v in at if v != rank}
        lanes = {names[v]: found.lanes[pair] for v, pair in ends.items() if pair in found.lanes}
        self.lanes = lanes if self._forgets else {**self.lanes, **lanes}


def measure(rank: int, ranks: int, widening: Widening, share: Share, timeout_s: float, known: Known) -> Topology:
    """The network as all ranks together measure it; every rank of the group must call this.

    Args:
        widening: the connections to each other rank, used for nothing else until this returns; pairs get more of them
            where these carry more.
        share: publishes this rank's value under a name, and returns the values of all ranks.
        known: what this process has measured earlier, which gets what it measures now.
    """
    names, sites, earlier = known.agree(share)
    party = _party(rank, ranks, widening, share, timeout_s)
    one_machine = all(sock.family == socket.AF_UNIX for (sock,) in party.sockets.values())
    if one_machine and (sites is None or len(sites) == 1):
        return joined_by_one_switch(ranks)  # whatever would be measured
    found = survey(party, QUICK, sites=sites, earlier=earlier)
    known.keep(rank, names, found)
    late = _latencies(found)
    pairs = {(a, b): (late[a, b], p.rate.value) for (a, b), p in found.pairs.items() if a < b}
    widest = max((lanes.rate for (a, b), lanes in found.lanes.items() if a == b), default=0.0)
    between = _alike({ends: rate.value for ends, rate in found.between.items()})
    return _agreed(rank, joined_by_sites(ranks, pairs, between, widest, found.sites), share)


def measure_lanes(
    rank: int, ranks: int, widening: Widening, share: Share, timeout_s: float, known: Known, site_of: Sequence[int]
) -> None:
    """Give pairs as many connections as they need, or are fixed, where the network is named; as :func:`measure`.

    Args:
        site_of: the site of each rank.
    """
    names, _, earlier = known.agree(share)
    sites = [[r for r, site in enumerate(site_of) if site == name] for name in dict.fromkeys(site_of)]
    party = _party(rank, ranks, widening, share, timeout_s)
    known.keep_lanes(rank, names, survey_lanes(party, QUICK, sites, earlier))


def _party(rank: int, ranks: int, widening: Widening, share: Share, timeout_s: float) -> Party:
    """This rank as one of those that measure together, which must agree on what is fixed."""
    fixed = share("connections", widening.fixed)
    if any(other != fixed[0] for other in fixed):
        raise InputError(f"ranks have different values: {', '.join(map(str, fixed))}", "STRETTO_CONNECTIONS")
    sockets = {r: widening.sockets(r)[:1] for r in range(ranks) if r != rank}
    return Party(rank, ranks, sockets, share, timeout_s, widening)


def _latencies(found: Survey) -> dict[tuple[int, int], float]:
    """Seconds that a transfer between two ranks takes besides its bytes: longer where the link of their sites loses
    packets, as BBR shows, which a pair gets there alone."""
    at = {v: i for i, site in enumerate(found.sites) for v in site}
    lossy = {ends for ends, lanes in found.lanes.items() if lanes.congestion == BBR}
    return {
        (a, b): p.latency_s.value * (LOSSY_LATENCIES if (min(at[a], at[b]), max(at[a], at[b])) in lossy else 1.0)
        for (a, b), p in found.pairs.items()
    }


def _alike(between: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """The rates between sites, with one for both directions where these may be the same.

    A network with more symmetry has better first plans (benchmarks/torch_wan.py --sites).
    """
    rates = {}
    for (a, b), there in between.items():
        back = between.get((b, a), there)
        rates[a, b] = (there + back) / 2 if max(there, back) <= SAME * min(there, back) else there
    return rates


def _agreed(rank: int, net: Topology, share: Share) -> Topology:
    """The network for which all ranks plan: rank 0 looks for one that an earlier job kept and that is like it."""
    folder = Kept.from_environment().folder
    if net.name == joined_by_one_switch(len(net.accelerators)).name:
        return net
    if rank == 0 and folder is not None:
        from ..choose.networks import kept_like  # it plans, and other ranks need no planners

        net = kept_like(net, folder)
    bandwidth, latency_s = share("network", [net.bandwidth.tolist(), net.latency_s.tolist()] if rank == 0 else None)[0]
    return replace(net, bandwidth=np.array(bandwidth), latency_s=np.array(latency_s))

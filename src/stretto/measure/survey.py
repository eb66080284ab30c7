"""Measure the network between the ranks of a group; all ranks learn the same numbers.

First every pair is measured, many pairs at once; the result tells which ranks form a site. Then come flows that share
something: one rank to all others and all others to one, which shows what its own link to the network has; a site to
another site, which shows what the link between them has, as a single pair cannot where many share it; a site to all
others, and each rank of a site to the next one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, permutations
from typing import Any

from ..model.measurements import SAME, Lanes, Measured, Pair, Survey, best, middle
from ..runtime.channel import Wire
from ..runtime.congestion import use_congestion
from ..runtime.probe import MOST_ROUNDS, Effort, Sockets, probe, rounds, together
from ..runtime.streams import Received, rate
from ..topologies.measured import SHARED, most_between, most_inside, sites_of
from .ladder import Climbed, Widening, climbed

LONG_S, MOST_BYTES = 0.3, 1 << 24
"""Seconds that the ranks of two sites send, at the rates measured one by one, and bytes a connection, where the effort
allows a pair fewer bytes: enough for TCP to speed up."""
MOST_PEERS = 64
"""The most flows of one rank at once."""
SEVERAL_TRIALS = 3
"""How often several flows are measured, unless the effort allows one trial: they take longer to find their rates than
one flow, and what goes the other way delays their acknowledgements."""

LONGER = 4.0
"""How many times as long streams last that decide whether flows share a link."""

Flows = Sequence[tuple[int, int]]
Share = Callable[[str, Any], list[Any]]
"""Publishes this rank's value under a name, and returns the values of all ranks once all have published theirs."""
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Earlier:
    """What ranks of this group have measured in an earlier one; every rank must give the same.

    Attributes:
        pairs: by the sending and the receiving rank, always both ways.
        between: for two ranks bytes/s from the site of the first to that of the second, and by how many flows.
        lanes: for two ranks, the lower first, the connections of their pair.
    """

    pairs: Mapping[tuple[int, int], Pair] = field(default_factory=dict)
    between: Mapping[tuple[int, int], tuple[Measured, int]] = field(default_factory=dict)
    lanes: Mapping[tuple[int, int], Lanes] = field(default_factory=dict)

    def of_sites(self, senders: Sequence[int], receivers: Sequence[int], flows: int) -> Measured | None:
        """Bytes/s between two sites, if that was measured by at least as many flows."""
        pairs = [self.between[a, b] for a in senders for b in receivers if (a, b) in self.between]
        return max((rate for rate, count in pairs if count >= flows), default=None)


@dataclass(frozen=True)
class Party:
    """One rank of those that measure together.

    Attributes:
        sockets: the connections to each other rank, as many as are to be measured at once.
        timeout_s: seconds for which a peer may be silent.
        widening: gives pairs more connections where these carry more; without it pairs keep those that they have.
    """

    rank: int
    ranks: int
    sockets: Sockets
    share: Share
    timeout_s: float
    widening: Widening | None = None


def no_progress(done: int, total: int, what: str) -> None:
    """Say nothing."""


def survey(
    party: Party, effort: Effort, noise_s: float | None = None, sites: Sequence[Sequence[int]] | None = None,
    progress: Progress = no_progress, earlier: Earlier | None = None,
) -> Survey:  # fmt: skip
    """Measure the network; every rank of the group must call this.

    Args:
        noise_s: see :func:`.sites_of`.
        sites: the ranks of each site; by default those that the pairs show.
        earlier: what need not be measured again.
    Raises:
        PeerFailed: a rank was silent, or is gone.
    """
    earlier = earlier or Earlier()
    pairs, moved = _pairs(party, effort, progress, earlier)
    if sites is None:
        near = {(a, b): (p.latency_s.value, p.rate.value) for (a, b), p in pairs.items() if a < b}
        sites = sites_of(party.ranks, near) if noise_s is None else sites_of(party.ranks, near, noise_s)
    found = Survey(party.ranks, pairs, sites, moved_bytes=moved)
    run = _Phases(party, effort, found, progress, earlier)
    if effort.shared and party.ranks > 2:
        run.hosts()
    if party.widening is not None:
        run.lanes(party.widening)
    run.between()
    if effort.shared:
        run.sites()
    return replace(run.survey, moved_bytes=run.moved_bytes)


def survey_lanes(party: Party, effort: Effort, sites: Sequence[Sequence[int]], earlier: Earlier) -> Survey:
    """Give pairs as many connections as they need where the network is known; every rank must call this."""
    pairs, moved = _pairs(party, effort, no_progress, earlier, {(min(w), max(w)) for w in _ways(sites).values()})
    run = _Phases(party, effort, Survey(party.ranks, pairs, sites, moved_bytes=moved), no_progress, earlier)
    if party.widening is not None:
        run.lanes(party.widening)
    return run.survey


def _ways(sites: Sequence[Sequence[int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """For each two sites, and each site of several ranks, the pair of ranks that stands for all others there."""
    ways = {(a, b): (sites[a][0], sites[b][0]) for a, b in combinations(range(len(sites)), 2)}
    return ways | {(a, a): (members[-2], members[-1]) for a, members in enumerate(sites) if len(members) > 1}


def _pairs(
    party: Party, effort: Effort, progress: Progress, earlier: Earlier, only: Collection[tuple[int, int]] | None = None
) -> tuple[dict[tuple[int, int], Pair], int]:
    """Measure the pairs of each round; of every pair that was measured both directions are known to all."""
    mine: list[Any] = []
    moved = 0
    schedule = [
        [pair for pair in pairs if pair not in earlier.pairs and (only is None or pair in only)]
        for pairs in rounds(party.ranks, MOST_ROUNDS if only is None else party.ranks)
    ]
    if not any(schedule):
        return dict(sorted(earlier.pairs.items())), 0
    for number, together_now in enumerate(schedule):
        progress(number, len(schedule), "pairs")
        for low, high in together_now:
            if party.rank in (low, high):
                peer = high if party.rank == low else low
                pair, more = probe(party.rank, peer, party.sockets[peer], effort, party.timeout_s)
                mine.append([peer, pair.to_json()])
                moved += more
    rows = party.share("pairs", [mine, moved])
    pairs = {(peer, rank): Pair.from_json(data) for rank, (found, _) in enumerate(rows) for peer, data in found}
    return dict(sorted({**earlier.pairs, **pairs}.items())), sum(more for _, more in rows)


class _Phases:
    """Flows that share something, one phase after the other; collects the results in ``survey``."""

    def __init__(self, party: Party, effort: Effort, found: Survey, progress: Progress, earlier: Earlier) -> None:
        self.party, self.effort, self.survey, self.progress, self.earlier = party, effort, found, progress, earlier
        self.moved_bytes = found.moved_bytes
        self.one_pair: dict[tuple[int, int], float] = {}
        """For two sites bytes/s from the first to the second, by one pair with all its connections."""

    def hosts(self) -> None:
        """From each rank to all others of its site, and from these to it; in a site of two, to all others."""
        ranks = range(self.party.ranks)
        to_all, from_all = {}, {}
        site_of = {v: members for members in self.survey.sites for v in members}
        for v in ranks:
            self.progress(v, len(ranks), "from each host to all, and to each from all")
            others = [w for w in (site_of[v] if len(site_of[v]) > 2 else ranks) if w != v][:MOST_PEERS]
            to_all[v] = self._of_host(f"from {v}", [(v, w) for w in others])
            from_all[v] = self._of_host(f"to {v}", [(w, v) for w in others])
        self.survey = replace(self.survey, to_all=to_all, from_all=from_all)

    def lanes(self, widening: Widening) -> None:
        """Find how many connections pairs need, by one pair for each two sites and for each site; then give all pairs
        as many."""
        self.progress(0, 1, "how many connections carry most")
        sites, party = self.survey.sites, self.party
        if widening.fixed is not None:
            over_network = [peer for peer in party.sockets if widening.sockets(peer)[0].family != socket.AF_UNIX]
            self._keep(widening, dict.fromkeys(over_network, widening.fixed), widening.fixed.connections)
            return
        ways = _ways(sites)
        all_pairs = {
            (a, b): [(min(v, w), max(v, w)) for v in sites[a] for w in sites[b] if a != b or v < w] for a, b in ways
        }
        known = {
            ends: next((self.earlier.lanes[pair] for pair in all_pairs[ends] if pair in self.earlier.lanes), None)
            for ends in ways
        }
        asked = {ends: (min(way), max(way)) for ends, way in ways.items() if known[ends] is None}
        pairs = self.survey.pairs
        at_once = {way: max(len(sites[a]), len(sites[b])) if a != b else 1 for (a, b), way in asked.items()}
        measured = {way: flows for way, flows in at_once.items() if way in pairs and way[::-1] in pairs}
        climbed_to = climbed(party.rank, measured, pairs, widening, party.share, party.timeout_s) if measured else {}
        alone = Climbed(Lanes(), (0.0, 0.0))
        found = {ends: known[ends] or climbed_to.get(asked.get(ends, (0, 0)), alone).lanes for ends in ways}
        for (a, b), (low, high) in asked.items():
            rates = climbed_to.get((low, high), alone).rates
            there, back = rates if low == ways[a, b][0] else rates[::-1]
            self.one_pair |= {(a, b): there or back, (b, a): back or there}  # alike where one was not measured
        mine = {
            (v if w == party.rank else w): lanes
            for ends, lanes in found.items()
            for v, w in all_pairs[ends]
            if party.rank in (v, w)
        }
        self._keep(widening, mine, max(lanes.connections for lanes in found.values()))
        self.survey = replace(self.survey, lanes=found)

    def _keep(self, widening: Widening, mine: Mapping[int, Lanes], most: int) -> None:
        """Give each of these peers as many connections; some rank has ``most`` with another one."""
        if most > 1:
            widening.open("lanes", {peer: lanes.connections for peer, lanes in mine.items()})
        for peer, lanes in mine.items():
            widening.keep(peer, lanes)
            use_congestion(widening.sockets(peer), lanes.congestion)

    def between(self) -> None:
        """From each site to each other one: all ranks at once, and one pair alone."""
        sites = self.survey.sites
        joined, alone = {}, {}
        for number, (a, b) in enumerate(islice(permutations(range(len(sites)), 2), MOST_ROUNDS)):
            self.progress(number, len(sites) * (len(sites) - 1), "from each site to each other one")
            flows = _crossing(sites[a], sites[b])
            joined[a, b] = self.earlier.of_sites(sites[a], sites[b], len(flows)) or self._joined(a, b, flows)
            if self.effort.shared:
                alone[a, b] = {
                    count: self._measure(f"alone from site {a} to {b}", flows[:1], connections=count)
                    for count in self.effort.connections
                }
        self.survey = replace(self.survey, between=joined, alone=alone)

    def sites(self) -> None:
        """From each site to all others and back, where there are several; and inside each site."""
        sites = self.survey.sites
        leaving, entering, inside = {}, {}, {}
        for number, members in enumerate(sites):
            self.progress(number, len(sites), "sites")
            others = [site for at, site in enumerate(sites) if at != number]
            if len(others) > 1:
                flows = [flow for site in others for flow in _crossing(members, site)]
                most = [most_between(self.survey, number, end) for end in (0, 1)]
                leaving[number] = self._confirmed(f"leaving {number}", flows, most[0])
                entering[number] = self._confirmed(f"entering {number}", [(b, a) for a, b in flows], most[1])
            if len(members) > 2:
                flows = list(zip(members, [*members[1:], members[0]], strict=True))
                inside[number] = self._confirmed(f"inside {number}", flows, most_inside(self.survey, number))
        self.survey = replace(self.survey, leaving=leaving, entering=entering, inside=inside)

    def _joined(self, a: int, b: int, flows: Flows) -> Measured:
        """Bytes/s from one site to another: at least what one pair carried with all its connections."""
        one = self.one_pair.get((a, b), 0.0)
        alone = Measured(one, one, one)
        if one and len(flows) == 1:
            return alone
        connections = self.survey.lanes.get((min(a, b), max(a, b)), Lanes()).connections
        name, effort = f"from site {a} to {b}", self._for_sites(flows, one, connections)
        if one:
            found = self._measure(name, flows, replace(effort, trials=1))
            if found.value <= SAME * one:
                return max(found, alone)
        return self._measure(f"{name} again", flows, effort)

    def _of_host(self, name: str, flows: Flows) -> Measured:
        rates = [self.survey.pairs[flow].rate.value for flow in flows if flow in self.survey.pairs]
        return self._confirmed(name, flows, sum(rates), max(rates, default=0.0))

    def _confirmed(self, name: str, flows: Flows, most: float, least: float = 0.0) -> Measured:
        """Bytes/s of all these flows together. If they seem to share a link, as they reach less than ``most``, but more
        than ``least``, longer streams decide: where hosts send and receive at once, acknowledgements wait, and TCP
        takes longer to find its rates."""
        found = self._measure(name, flows)
        clear = found.value >= SHARED * most or SHARED * found.value <= least
        if self.effort.trials == 1 or clear:
            return found
        longer = replace(self.effort, seconds=LONGER * self.effort.seconds)
        return max(found, self._measure(f"{name}, longer", flows, longer))

    def _for_sites(self, flows: Flows, expected: float, connections: int) -> Effort:
        """The effort for two sites: as many bytes as keep the link between them busy for a while."""
        measured = [self.survey.pairs[flow] for flow in flows if flow in self.survey.pairs]
        latency_s = min((p.latency_s.value for p in measured), default=0.0)
        width = max((expected, *(p.rate.value for p in measured)))
        size = min(MOST_BYTES, int(width * max(LONG_S, 10 * latency_s)) // connections)
        seconds = max(self.effort.seconds, LONG_S)
        return replace(self.effort, seconds=seconds, most_bytes=max(self.effort.most_bytes, size))

    def _measure(self, name: str, flows: Flows, effort: Effort | None = None, connections: int = 0) -> Measured:
        """Bytes/s of all these flows together."""
        party, use = self.party, effort or self.effort
        count = connections or use.connections[0]
        latency_s = self._latency_s(flows)
        trials = []
        turns = max(use.trials, SEVERAL_TRIALS if use.trials > 1 and len(flows) > 1 else 1)
        for turn in range(turns):
            outgoing = self._ends([b for a, b in flows if a == party.rank], count)
            incoming = self._ends([a for a, b in flows if b == party.rank], count)
            party.share(f"begin {name}, {turn}", None)
            mine = Received([], 0, 0.0)
            if outgoing or incoming:
                mine = together(outgoing, incoming, use, latency_s, party.timeout_s)
            came = [Received(*row) for row in party.share(f"{name}, {turn}", mine)]
            trials.append(rate(came, use.stream_s(latency_s)))
            self.moved_bytes += sum(part.total_bytes for part in came)
            if turns > use.trials == len(trials) and _agree(trials):
                break
        return middle(trials) if len({b for _, b in flows}) > 1 else best(trials)

    def _latency_s(self, flows: Flows) -> float:
        return max((self.survey.pairs[f].latency_s.value for f in flows if f in self.survey.pairs), default=0.0)

    def _ends(self, peers: Iterable[int], count: int) -> dict[tuple[int, int], Wire]:
        widening = self.party.widening
        if widening is not None:
            return {(w, i): sock for w in peers for i, sock in enumerate(widening.sockets(w))}
        return {(w, i): sock for w in peers for i, sock in enumerate(self.party.sockets[w][:count])}


def _agree(trials: Sequence[tuple[float, float, float]]) -> bool:
    """Whether trials show about the same rate, so that another one would say nothing new."""
    rates = [value for value, _, _ in trials]
    return max(rates) <= SAME * min(rates)


def _crossing(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Flows from one site to another that keep every rank of both busy, each about equally."""
    most = max(len(a), len(b))
    return list(dict.fromkeys((a[i % len(a)], b[i % len(b)]) for i in range(most)))

"""The network that measurements between its ranks show, with the range that each value is in.

Ranks near each other form a site. What several flows share becomes a link of its own where all of them together reach
less than the sum of what each reached alone:

- If every rank of a site has a link that its flows share, and these links explain what its pairs reach and how far
  apart they are, a switch joins them. Otherwise each pair has a link, from the rank's ``up`` node where its flows
  share a link, to the ``down`` node of the other where flows to it do.
- Sites are joined by a link for each two of them, from an ``out`` to an ``in`` node where a site's flows to all others
  share a link.

No route leads through a third site, or through another rank's link: where it could, nodes that send and nodes that
receive are apart. Switches do not copy, since IP networks do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from ..model.errors import InputError
from ..model.measurements import Measured, Pair, Survey
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from .values import entry, real, shown

SITE_BANDWIDTH_RATIO = 3.0
"""Two ranks of one site have at least the best bandwidth of either divided by this."""
SITE_LATENCY_RATIO = 2.0
"""Two ranks of one site are at most this many times as far apart as either is from its nearest one, and by"""
SITE_LATENCY_S = 2e-3
"""at most this much more, one way, seconds: what a quick measurement on a busy machine may be wrong by."""
SITE_MOST_S = 10e-3
"""Ranks of one site are at most this far apart, one way, seconds: 2,000 km of fibre."""
SHARED = 0.9
"""Flows share a link if together they reach less than this share of what each alone adds up to."""
EXPLAINED, EXPLAINED_S = 0.05, 50e-6
"""A switch explains the latency of a pair if it is right up to this share of it, or these seconds."""
RANGES = ("bandwidth_Bps", "latency_s", "message_s")
"""The quantities of a link that may have a range in a file."""
NOTHING = Measured(0.0, 0.0, 0.0)


def sites_of(
    count: int, pairs: Mapping[tuple[int, int], tuple[float, float]], noise_s: float = SITE_LATENCY_S
) -> list[list[int]]:
    """The ranks of each site.

    Two ranks are in one site if they are joined by a pair of high bandwidth and low latency, or by a chain of such
    pairs (``SITE_BANDWIDTH_RATIO``, ``SITE_LATENCY_RATIO``), but for pairs that are farther apart than ``SITE_MOST_S``.

    Args:
        pairs: for each two ranks, the lower first, the latency in seconds and the bandwidth in bytes/s, as measured.
        noise_s: seconds by which a latency may be wrong.
    """
    widest, nearest_s = [0.0] * count, [float("inf")] * count
    for pair, (latency_s, bandwidth) in pairs.items():
        for v in pair:
            widest[v], nearest_s[v] = max(widest[v], bandwidth), min(nearest_s[v], latency_s)
    site = list(range(count))
    for (a, b), (latency_s, bandwidth) in pairs.items():
        wide = SITE_BANDWIDTH_RATIO * bandwidth >= min(widest[a], widest[b])
        near_s = min(SITE_MOST_S, SITE_LATENCY_RATIO * min(nearest_s[a], nearest_s[b]) + noise_s)
        if wide and latency_s <= near_s:
            site = [site[a] if s == site[b] else s for s in site]
    return [[v for v in range(count) if site[v] == s] for s in sorted(set(site))]


@dataclass(frozen=True)
class Link:
    """A link of the network, as measured; ``message_s`` is None where it was not."""

    src: str
    dst: str
    bandwidth: Measured
    latency_s: Measured
    message_s: Measured | None


@dataclass(frozen=True)
class Shape:
    """What is shared, as a survey shows it.

    Attributes:
        star: the sites whose ranks a switch joins.
        up, down: the ranks, elsewhere, whose flows share a link.
        leaving, entering: the sites whose flows to, or from, all others share a link.
        inside: the sites whose switch carries less than its links.
    """

    star: frozenset[int]
    up: frozenset[int]
    down: frozenset[int]
    leaving: frozenset[int]
    entering: frozenset[int]
    inside: frozenset[int]


def shape_of(survey: Survey) -> Shape:
    """What flows share, as the survey shows it."""
    ports = _ports(survey)
    up = {v for v in survey.to_all if _shares(survey.to_all[v], (p for (a, b), p in _near(survey) if a == v))}
    down = {v for v in survey.from_all if _shares(survey.from_all[v], (p for (a, b), p in _near(survey) if b == v))}
    star = {s for s, members in enumerate(survey.sites) if _is_star(survey, members, ports, up & down)}
    leaving = {s for s, rate in survey.leaving.items() if rate.value < SHARED * most_between(survey, s, 0)}
    entering = {s for s, rate in survey.entering.items() if rate.value < SHARED * most_between(survey, s, 1)}
    inside = {s for s, rate in survey.inside.items() if s in star and rate.value < SHARED * most_inside(survey, s)}
    apart = {v for s, members in enumerate(survey.sites) if s not in star for v in members}
    return Shape(*map(frozenset, (star, up & apart, down & apart, leaving, entering, inside)))


Ports = tuple[Mapping[int, Measured], Mapping[int, Measured]]
"""What each rank sends at most, and what it receives at most, bytes/s."""


def _ports(survey: Survey) -> Ports:
    def largest(end: int, together: Mapping[int, Measured]) -> dict[int, Measured]:
        most: dict[int, Measured] = {}
        for pair, measured in survey.pairs.items():
            v = pair[end]
            most[v] = max(most.get(v, measured.rate), measured.rate, key=lambda rate: rate.value)
        for v, rate in together.items():
            # a sum of several flows is less exact, and counts only where it shows more than any pair
            if v not in most or rate.low > most[v].value:
                most[v] = rate
        return most

    return largest(0, survey.to_all), largest(1, survey.from_all)


def _near(survey: Survey) -> list[tuple[tuple[int, int], Pair]]:
    """The pairs of ranks of one site."""
    at = {v: s for s, members in enumerate(survey.sites) for v in members}
    return [(pair, measured) for pair, measured in survey.pairs.items() if at[pair[0]] == at[pair[1]]]


def _shares(together: Measured, pairs: Iterable[Pair]) -> bool:
    return together.value < SHARED * sum(pair.rate.value for pair in pairs)


def most_between(survey: Survey, site: int, end: int) -> float:
    """What the links to other sites, and those of its own ranks, let a site send (``end`` 0) or receive, bytes/s."""
    links = sum(rate.value for pair, rate in survey.between.items() if pair[end] == site)
    own = _ports(survey)[end]
    return min(links, sum(own[v].value for v in survey.sites[site]))


def most_inside(survey: Survey, site: int) -> float:
    """What the links of a site's ranks carry when each sends to the next one, bytes/s."""
    up, down = _ports(survey)
    members = survey.sites[site]
    following = [*members[1:], members[0]]
    return sum(min(up[a].value, down[b].value) for a, b in zip(members, following, strict=True))


def _is_star(survey: Survey, members: Sequence[int], ports: Ports, shared: set[int]) -> bool:
    if len(members) < 2 or survey.ranks == 2 or (len(members) > 2 and not {*members} <= shared):
        return False
    latency_s = _hops_s(survey, members)
    for a, b in permutations(members, 2):
        pair = survey.pairs.get((a, b))
        if pair is None:
            continue
        if pair.rate.value < SHARED * min(ports[0][a].value, ports[1][b].value):
            return False
        wrong_s = abs(_way_s(pair) - latency_s[a] - latency_s[b])
        if wrong_s > max(EXPLAINED * _way_s(pair), EXPLAINED_S):
            return False
    return True


def _way_s(pair: Pair) -> float:
    """The latency of a link that joins a pair: a small message then takes half of its round trip, as measured."""
    return max(0.0, pair.latency_s.value - (0.0 if pair.message_s is None else pair.message_s.value))


def _hops_s(survey: Survey, members: Sequence[int]) -> dict[int, float]:
    """How far each rank is from the switch of its site: the latencies, none below zero, that fit its pairs best."""
    pairs = [(a, b) for a in members for b in members if a < b and (a, b) in survey.pairs]
    if not pairs:
        return dict.fromkeys(members, 0.0)
    row = {v: i for i, v in enumerate(members)}
    matrix, way_s = np.zeros((len(pairs), len(members))), np.zeros(len(pairs))
    for k, (a, b) in enumerate(pairs):
        matrix[k, [row[a], row[b]]] = 1.0
        way_s[k] = (_way_s(survey.pairs[a, b]) + _way_s(survey.pairs[b, a])) / 2
    hops_s = np.maximum(np.linalg.lstsq(matrix, way_s, rcond=None)[0], 0.0)
    return dict(zip(members, hops_s.tolist(), strict=True))


def links_of(survey: Survey, names: Sequence[str], shape: Shape) -> list[Link]:
    """The links of a network of this shape, with the values that the survey has for them."""
    return _Network(survey, names, shape).links


def network_of(links: Sequence[Link], names: Sequence[str], sites: Sequence[Sequence[int]], title: str) -> Topology:
    """The topology of these links. Its first nodes are the ranks, in order."""
    inner = sorted({end for link in links for end in (link.src, link.dst)} - {*names})
    number = {name: v for v, name in enumerate([*names, *inner])}
    at = {names[v]: f"site{s}" for s, members in enumerate(sites) for v in members} if len(sites) > 1 else {}
    costs = [link.message_s for link in links]
    return make_topology(
        title,
        [ACCELERATOR] * len(names) + [SWITCH] * len(inner),
        [(number[e.src], number[e.dst], e.bandwidth.value, e.latency_s.value) for e in links],
        message_s=None if None in costs else [0.0 if cost is None else cost.value for cost in costs],
        names=[*names, *inner],
        sites=[at.get(name, name.partition(".")[0] if name.startswith("site") else "") for name in number],
        replicates=[False] * len(number),
    )


def check_ranges(link: Mapping[str, Any], where: str) -> None:
    """Check the ranges of a measured link (docs: topology-files). Planners take the values alone: ranges are not kept.

    Raises:
        InputError: ``measured`` is no object of ranges, or a value lies outside of its range.
    """
    for name, ends in entry(link, "measured", dict, where).items():
        if name not in RANGES or name not in link:
            raise InputError(
                f"'measured' may have {', '.join(RANGES)}, for what the link has, not {shown(name)}", where
            )
        if not isinstance(ends, list) or len(ends) != 2:
            raise InputError(f"the range of {name!r} must be a list of its two ends, not {shown(ends)}", where)
        low, high = (None if end is None else real(end, f"an end of the range of {name!r}", where) for end in ends)
        value = real(link[name], repr(name), where)
        if low is None or value < low or (high is not None and value > high):
            raise InputError(f"{name!r} must lie in its range {shown(ends)}", where)


class _Network:
    """Makes the links; ``links`` has them."""

    def __init__(self, survey: Survey, names: Sequence[str], shape: Shape) -> None:
        self.survey, self.names, self.shape = survey, names, shape
        self.ports = _ports(survey)
        self.links: list[Link] = []
        self.hops_s = dict.fromkeys(range(survey.ranks), 0.0)
        for number, members in enumerate(survey.sites):
            if number in shape.star:
                self.hops_s |= _hops_s(survey, members)
                self._star(number, members)
            else:
                self._pairs(number, members)
        if len(survey.sites) > 1:
            self._borders()

    def _apart(self, site: int) -> bool:
        """Whether nodes that send and nodes that receive are apart."""
        return len(self.survey.sites) > 2 or site in self.shape.inside or site not in self.shape.star

    def _gate(self, site: int, end: str) -> str:
        """The node of a site from which its ranks send to other sites (``up``), or receive from them (``down``)."""
        members = self.survey.sites[site]
        if len(members) == 1:
            return self.names[members[0]]
        name = f"site{site}" if len(self.survey.sites) > 1 else "switch"
        return f"{name}.{end}" if self._apart(site) else name

    def _star(self, site: int, members: Sequence[int]) -> None:
        up, down = self._gate(site, "up"), self._gate(site, "down")
        for v in members:
            hop_s = self._hop(v)
            self._add(self.names[v], up, self.ports[0][v], hop_s, self._message(v, 0))
            self._add(down, self.names[v], self.ports[1][v], hop_s, self._message(v, 1))
        if up != down:
            measured = self.survey.inside.get(site)
            least = sum(self.ports[0][v].value for v in members)
            core = measured if measured is not None and site in self.shape.inside else Measured(least, 0.0, None)
            self._add(up, down, core, NOTHING, self._none())

    def _pairs(self, site: int, members: Sequence[int]) -> None:
        for v in members:
            if v in self.shape.up:
                self._add(self.names[v], self._out_of(v), self.ports[0][v], NOTHING, self._none())
            if v in self.shape.down:
                self._add(self._into(v), self.names[v], self.ports[1][v], NOTHING, self._none())
        for a, b in permutations(members, 2):
            pair = self.survey.pairs.get((a, b))
            if pair is not None:
                self._add(self._out_of(a), self._into(b), pair.rate, self._way(pair), pair.message_s)
        if len(self.survey.sites) > 1 and len(members) > 1:
            for v in members:
                self._add(self._out_of(v), self._gate(site, "up"), self.ports[0][v], NOTHING, self._message(v, 0))
                self._add(self._gate(site, "down"), self._into(v), self.ports[1][v], NOTHING, self._message(v, 1))

    def _out_of(self, v: int) -> str:
        return f"{self.names[v]}.up" if v in self.shape.up else self.names[v]

    def _into(self, v: int) -> str:
        return f"{self.names[v]}.down" if v in self.shape.down else self.names[v]

    def _borders(self) -> None:
        survey, shape = self.survey, self.shape
        for site in shape.leaving:
            self._add(self._gate(site, "up"), f"site{site}.out", survey.leaving[site], NOTHING, self._none())
        for site in shape.entering:
            self._add(f"site{site}.in", self._gate(site, "down"), survey.entering[site], NOTHING, self._none())
        for a, b in permutations(range(len(survey.sites)), 2):
            crossing = {
                (x, y): survey.pairs[x, y]
                for x in survey.sites[a] for y in survey.sites[b] if (x, y) in survey.pairs
            }  # fmt: skip
            if not crossing:
                continue
            rate = survey.between.get((a, b)) or max((p.rate for p in crossing.values()), key=lambda m: m.value)
            if rate.value >= SHARED * self._reach(a, b):
                rate = Measured(rate.value, rate.low, None)  # limited by something else: it has at least as much
            far = [
                (_way_s(p) - self.hops_s[x] - self.hops_s[y], (p.latency_s.high or 0.0) - p.latency_s.value)
                for (x, y), p in crossing.items()
            ]
            least_s = max(0.0, statistics.median(t for t, _ in far))
            latency_s = Measured(least_s, max(0.0, min(t for t, _ in far)), least_s + max(more for _, more in far))
            src = f"site{a}.out" if a in shape.leaving else self._gate(a, "up")
            dst = f"site{b}.in" if b in shape.entering else self._gate(b, "down")
            single = len(survey.sites[a]) == 1 and len(survey.sites[b]) == 1
            message_s = next(iter(crossing.values())).message_s if single else self._none()
            self._add(src, dst, rate, latency_s, message_s)

    def _reach(self, a: int, b: int) -> float:
        """What the ranks of one site can send to another one at most, by their own links."""
        up, down = self.ports
        sites = self.survey.sites
        return min(sum(up[v].value for v in sites[a]), sum(down[v].value for v in sites[b]))

    def _hop(self, v: int) -> Measured:
        """From a rank to the switch of its site."""
        value = self.hops_s[v]
        near = [p.latency_s for pair, p in _near(self.survey) if v in pair]
        more = max(((t.high or t.value) / t.value for t in near if t.value > 0), default=1.0)
        return Measured(value, value, value * more)

    def _way(self, pair: Pair) -> Measured:
        value = _way_s(pair)
        return Measured(value, value, value + (pair.latency_s.high or pair.latency_s.value) - pair.latency_s.value)

    def _message(self, v: int, end: int) -> Measured | None:
        """What a message costs the rank that sends (``end`` 0) or receives it: the median over its pairs."""
        costs = [p.message_s for pair, p in self.survey.pairs.items() if pair[end] == v and p.message_s is not None]
        if not costs:
            return None
        low, high = min(cost.low for cost in costs), max(cost.high or cost.value for cost in costs)
        return Measured(statistics.median(cost.value for cost in costs), low, high)

    def _none(self) -> Measured | None:
        """The cost of a message on a link that costs its processes nothing."""
        return None if any(p.message_s is None for p in self.survey.pairs.values()) else NOTHING

    def _add(self, src: str, dst: str, bandwidth: Measured, latency_s: Measured, message_s: Measured | None) -> None:
        self.links.append(Link(src, dst, bandwidth, latency_s, message_s))

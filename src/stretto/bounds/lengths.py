"""Bounds for what is not copied, AllToAll above all: bytes times distance cannot exceed bandwidth times length.

Give every link a length; any lengths will do. A byte from u to v uses links that are together at least as long as the
distance from u to v. So the bytes of all pairs, each times its distance, are at most
``seconds * sum(bandwidth * length)``. By linear programming duality (Shahrokhi and Matula, J. ACM 1990) the best
lengths give exactly the time of the maximum concurrent flow. The lengths are the certificate: whole numbers, from which
the bound follows by shortest paths alone.

Which lengths are tried:

- equal lengths, which count hops: the best in tori of equal sides;
- in small networks the best lengths of all, by a linear program;
- in larger ones lengths by a good flow (:mod:`.concurrent`): its prices, or lengths only for the links that it fills;
- beyond these, in networks that look alike from all ranks, lengths for links of one kind alone: those along the longest
  side of a torus.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..model.arrays import Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .blocks import rank_symmetry
from .concurrent import concurrent_flow
from .model import Bound

SOLVED_UP_TO = 5000
"""The largest linear program that is solved, in rows (sources times links); it takes about a second."""

ROUTED_UP_TO = 20_000
"""The most pairs for which a flow is sought."""

MOST_KINDS = 8
"""Kinds of links that look alike, each of which is tried to have a length alone, at most."""

FULL = (0.1, 0.3, 0.5, 0.7)
"""How near a link must be to the busiest one to have a length; each of these is tried."""

FINEST = 1 << 20


@dataclass(frozen=True)
class Lengths:
    """A length for every link, and what follows from it."""

    length: Int64  # int64[links]
    byte_lengths: int  # bytes times the distance that they must go, added up over all pairs
    room: Fraction  # bandwidth times length, added up over all links, bytes/s

    @property
    def seconds(self) -> Fraction:
        """The time that no plan can beat."""
        return Fraction(self.byte_lengths) / self.room


def best_lengths(topology: Topology, collective: Collective) -> Lengths | None:
    """Of the lengths tried those with the largest bound; None where pieces are copied or summed."""
    single = (collective.holders.lengths == 1).all() and (collective.wanted.lengths == 1).all()
    if not single or collective.reduces or topology.planes:
        return None
    tried = [_measured(topology, collective, length) for length in _candidates(topology, collective)]
    return max(tried, key=lambda found: found.seconds)


def length_bound(topology: Topology, collective: Collective) -> Bound | None:
    """The best bound by lengths, with its reason in words."""
    found = best_lengths(topology, collective)
    if found is None:
        return None
    used = np.flatnonzero(found.length)
    share = found.byte_lengths / max(sum(map(int, collective.piece_bytes)), 1)
    if len(set(found.length.tolist())) == 1:
        words = f"a byte takes {share / max(int(found.length[0]), 1):.3g} hops on average, over all {len(used)} links"
    else:
        words = f"{len(used)} of {topology.link_count} links are full, however paths are chosen"
    nodes = tuple(sorted({*topology.src[used].tolist(), *topology.dst[used].tolist()}))
    seconds = collective.start_s + float(found.seconds)
    return Bound(seconds, "flow", words, nodes, tuple(used.tolist()))


def _measured(topology: Topology, collective: Collective, length: Int64) -> Lengths:
    work = float(topology.node_count) * topology.link_count
    # sums of whole numbers below 2^53, so exact
    distance = at_speed(paths_kernel.all_pairs, work)(
        *topology.out_links, topology.dst.astype(np.int64), length.astype(np.float64)
    )
    sender, receiver = collective.ranks[collective.holders.values], collective.ranks[collective.wanted.values]
    far = distance[sender, receiver].astype(np.int64)
    total = sum(a * b for a, b in zip(far.tolist(), collective.piece_bytes.tolist(), strict=True))
    used = np.flatnonzero(length)
    room = sum((Fraction(float(topology.bandwidth[i])) * int(length[i]) for i in used), Fraction(0))
    return Lengths(length, total, room)


def _candidates(topology: Topology, collective: Collective) -> Iterable[Int64]:
    """Lengths to try: hops; the time of a byte; the best of all where the program is small, else those by a flow."""
    yield np.ones(topology.link_count, dtype=np.int64)
    if len(np.unique(topology.bandwidth)) > 1:
        yield _whole(1.0 / topology.bandwidth)
    sources = np.unique(collective.holders.values)
    if len(sources) * topology.link_count <= SOLVED_UP_TO:
        solved = _solved(topology, collective, sources)
        if solved is not None and solved.max() > 0:
            yield _whole(solved)
    elif len(sources) > 1 and len(collective.piece_bytes) <= ROUTED_UP_TO:
        yield from _priced(topology, collective)
    else:
        yield from _of_orbits(topology, collective)


def _of_orbits(topology: Topology, collective: Collective) -> Iterable[Int64]:
    """Lengths for links alone that the symmetry of the network maps to each other, and those in the other direction."""
    symmetry = rank_symmetry(topology, collective)
    if symmetry is None:
        return
    orbit = symmetry.link_orbits
    back = symmetry.links_between(topology.dst, topology.src)
    # the best lengths are alike for links that look alike, by convexity
    kinds = np.unique(np.minimum(orbit, np.where(back >= 0, orbit[back], orbit)), return_inverse=True)[1].ravel()
    if 1 < kinds.max() + 1 <= MOST_KINDS:
        for kind in range(kinds.max() + 1):
            yield np.asarray(kinds == kind).astype(np.int64)


def _priced(topology: Topology, collective: Collective) -> Iterable[Int64]:
    """Lengths by how full a good flow makes each link."""
    source, goal = (collective.ranks[x.values].astype(np.int64) for x in (collective.holders, collective.wanted))
    chosen = np.flatnonzero(source != goal)
    chosen = chosen[np.argsort(source[chosen], kind="stable")]
    if not len(chosen):
        return
    size = collective.piece_bytes[chosen].astype(np.float64)
    full = concurrent_flow(topology, source[chosen], goal[chosen], size).full
    slowness = 1.0 / topology.bandwidth
    yield _whole(full * slowness)
    yield _whole(np.sqrt(full) * slowness)
    for least in FULL:
        yield _whole((full > least).astype(np.float64))
        yield _whole(np.where(full > least, slowness, 0.0))


def _whole(length: Float64) -> Int64:
    scaled: Int64 = np.rint(length / length.max() * FINEST).astype(np.int64)
    return scaled


def _solved(topology: Topology, collective: Collective, sources: Int32) -> Float64 | None:
    """The best lengths: they maximise bytes times distance while all bandwidth times length adds up to one.

    Distances are found for each source, not for each pair.
    """
    from ..solvers import INFINITY, Model, solve

    nodes, links = topology.node_count, topology.link_count
    width = topology.bandwidth / topology.bandwidth.max()
    amount = np.zeros((len(sources), nodes))
    at = np.searchsorted(sources, collective.holders.values)
    np.add.at(amount, (at, collective.ranks[collective.wanted.values]), collective.piece_bytes.astype(float))
    amount /= amount.max()
    own = np.zeros((len(sources), nodes), dtype=np.bool_)
    own[np.arange(len(sources)), collective.ranks[sources]] = True
    model = Model()
    length = model.columns(links, 0.0, INFINITY)
    distance = model.columns(
        len(sources) * nodes, 0.0, np.where(own, 0.0, INFINITY).ravel(), -np.where(own, 0.0, amount).ravel()
    )
    model.rows(1, 1.0, 1.0, (0, length, width))
    row = np.arange(len(sources) * links)
    source, link = np.divmod(row, links)
    model.rows(
        len(row), -INFINITY, 0.0,
        (row, distance[source * nodes + topology.dst[link]], 1.0),
        (row, distance[source * nodes + topology.src[link]], -1.0),
        (row, length[link], -1.0),
    )  # fmt: skip
    found = solve(model)
    return None if found.x is None else np.maximum(found.x[length], 0.0)

"""A network in which every site is one accelerator, and collectives among sites.

What lies inside a site takes no time there. Links that lead from the same site to the same node are one link of all
their bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...model.arrays import Bool, Int32, Int64, Ragged
from ...model.collective import Collective, Workload, make_collective
from ...model.errors import Unsupported
from ...model.topology import ACCELERATOR, SWITCH, Topology, make_topology


@dataclass(frozen=True, eq=False)
class Contraction:
    """Sites as single accelerators.

    Attributes:
        topology: the network; sites come first, in the order of their accelerators.
        node: int64[nodes of the network], the real node of each, -1 for sites.
        links: ragged, the real links of each link.
        site: int64[real nodes], the site of each accelerator, -1 for other nodes.
    """

    topology: Topology
    node: Int64
    links: Ragged
    site: Int64

    @classmethod
    def of(cls, topology: Topology, label: Int64) -> Contraction:
        """Accelerators with the same label are a site.

        Args:
            label: int64[nodes].
        """
        accelerators = topology.accelerators
        names, first, number = np.unique(label[accelerators], return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))
        site = np.full(topology.node_count, -1)
        site[accelerators] = place[number.ravel()]
        count = len(names)
        others = _between(topology, site)
        of = site.copy()
        of[others] = count + np.arange(len(others))
        ends = np.stack((of[topology.src], of[topology.dst]))
        real = np.flatnonzero((ends >= 0).all(axis=0) & (ends[0] != ends[1]))
        pairs, group = np.unique(ends[:, real], axis=1, return_inverse=True)
        group = group.ravel()
        links = Ragged.grouped(group, real, pairs.shape[1])
        lists = links.offsets[:-1]
        columns = [
            pairs[0], pairs[1], np.add.reduceat(topology.bandwidth[links.values], lists),
            np.maximum.reduceat(topology.latency_s[links.values], lists),
        ]  # fmt: skip
        kept = np.concatenate((np.full(count, -1), others))
        made = make_topology(
            f"the sites of {topology.name}",
            [*np.full(count, ACCELERATOR), *np.full(len(others), SWITCH)],
            np.stack(columns, axis=1).astype(np.float64),
            message_s=np.maximum.reduceat(topology.message_s[links.values], lists),
            replicates=[*np.zeros(count, dtype=bool), *topology.replicates[others]],
            transit=[*np.zeros(count, dtype=bool), *topology.transit[others]],
        )
        return cls(made, kept, links, site)

    def handled(self, c: Collective, share: float) -> Topology:
        """The network of sites, where messages cost something even if they are free: for plans of few chunks.

        Args:
            share: what such a message costs, of the time that all data takes into the site with the narrowest links.
        """
        net = self.topology
        into = np.bincount(net.dst, net.bandwidth, minlength=net.node_count)[np.unique(self.site[c.ranks])]
        if net.message_s.any() or not into.any():
            return net
        return replace(net, message_s=np.full(net.link_count, share * c.size_bytes / into[into > 0].min()))

    @cached_property
    def inner(self) -> Bool:
        """bool[links], which have no site at an end."""
        return (self.topology.src >= self.sites) & (self.topology.dst >= self.sites)

    @property
    def sites(self) -> int:
        return int(self.site.max()) + 1

    def workload(self, c: Collective) -> tuple[Workload, Int64]:
        """What sites must do for a collective, and int64[pieces] as which piece of it each piece goes.

        A piece that stays in its site goes as none, -1.
        """
        sites = self.site[c.ranks]
        ranks = np.unique(sites)
        place = np.searchsorted(ranks, sites)
        count, size, root = len(ranks), c.size_bytes, max(c.root, 0)
        even = np.ptp(np.bincount(place)) == 0
        if c.traits.whole:
            made = make_collective(c.kind, self.topology, size, ranks=ranks.tolist(), root=int(place[root]))
            return Workload((made,)), np.zeros(1, dtype=np.int64)
        if c.traits.pieces == "rank":
            of = place
        else:
            begin, end = (each.ravel() for each in np.meshgrid(place, place, indexing="ij"))
            of = np.where(begin == end, -1, begin * count + end)
        if even:
            return Workload((make_collective(c.kind, self.topology, size, ranks=ranks.tolist()),)), of
        names = np.unique(of[of >= 0])
        numbered = np.where(of >= 0, np.searchsorted(names, of), -1)
        return Workload((_uneven(c, names, numbered, ranks.astype(np.int32)),)), numbered


def _between(topology: Topology, site: Int64) -> Int64:
    """The nodes besides accelerators that lead from one site to another."""
    kept = ~topology.is_accelerator & topology.transit
    while True:
        of = np.where(kept, len(site) + np.arange(len(site)), site)
        ends = np.stack((of[topology.src], of[topology.dst]))
        ends = ends[:, (ends >= 0).all(axis=0) & (ends[0] != ends[1])]
        both = np.unique(np.concatenate((ends, ends[::-1]), axis=1), axis=1)
        fewer = kept & (np.bincount(both[0], minlength=2 * len(site))[len(site) :] > 1)
        if (fewer == kept).all():
            return np.flatnonzero(kept)
        kept = fewer


def _uneven(c: Collective, names: Int64, of: Int64, ranks: Int32) -> Collective:
    """A collective among sites of unlike sizes: of pieces that are as large as all that go as them."""
    count, goes = len(ranks), of >= 0
    size = np.bincount(of[goes], c.piece_bytes[goes]).astype(np.int64)
    every = np.arange(count)
    if c.traits.pieces == "pair":
        return Collective.uncut(
            "alltoallv", ranks, int(size.sum()), size, Ragged.single(names // count), Ragged.single(names % count)
        )
    own, all_sites = Ragged.single(names), Ragged.from_lengths(np.full(len(names), count), np.tile(every, len(names)))
    kind, ends = ("partial-sums", (all_sites, own)) if c.reduces else ("remainder", (own, all_sites))
    return Collective.uncut(kind, ranks, int(size.sum()), size, *ends)


def cut_in_order(c: Collective, between: Collective, of: Int64) -> tuple[Collective, Ragged]:
    """A collective whose pieces are cut where chunks end that they go as, and for each of these its own chunks.

    Pieces that go as one lie in it one after the other, so that a chunk has few of them.

    Args:
        between: the collective among sites, in chunks.
        of: int64[pieces], the piece among sites as which each piece goes, -1 for none.
    Raises:
        Unsupported: a chunk would be empty.
    """
    counts, first = between.cuts(np.arange(len(between.piece_bytes)))
    owner, begin, like = list[Int64](), list[Int64](), list[Int64]()
    for piece in np.unique(of).tolist():
        own = np.flatnonzero(of == piece)
        ends = np.cumsum(c.piece_bytes[own])
        edges = np.zeros(0, dtype=np.int64)
        if piece >= 0:
            chunks = slice(int(first[piece]), int(first[piece] + counts[piece]))
            shares = between.chunk_offset[chunks] / between.piece_bytes[piece]
            edges = np.rint(shares * ends[-1]).astype(np.int64)
            if np.diff(edges, append=ends[-1]).min() < 1:
                raise Unsupported(
                    "by-sites: pieces are too small for the chunks of the plan between sites; raise the size"
                )
        starts = np.union1d(edges, ends - c.piece_bytes[own])
        within = np.searchsorted(ends, starts, side="right")
        owner.append(own[within])
        begin.append(starts - (ends - c.piece_bytes[own])[within])
        at = first[piece] + np.searchsorted(edges, starts, side="right") - 1 if piece >= 0 else np.full(len(starts), -1)
        like.append(at)
    owners, begins, chunk = (np.concatenate(each) for each in (owner, begin, like))
    order = np.lexsort((begins, owners))
    owners, begins, chunk = owners[order], begins[order], chunk[order]
    last = np.append(np.diff(owners) != 0, True)
    size = np.where(last, c.piece_bytes[owners], np.append(begins[1:], 0)) - begins
    goes = chunk >= 0
    return replace(c, chunk_piece=owners.astype(np.int32), chunk_offset=begins, chunk_bytes=size), Ragged.grouped(
        chunk[goes], np.flatnonzero(goes), between.chunk_count
    )

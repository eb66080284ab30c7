"""Collectives of some accelerators among all of their servers, or of their torus (:mod:`stretto.schedule.carriers`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...model.arrays import Int32, Int64
from ...model.collective import Collective, make_collective
from ...model.topology import Topology
from ...schedule.algorithms import Algorithm
from ...schedule.carriers import Carriers, carriers, for_ranks
from ...schedule.job_loads import Candidate
from ...schedule.pipes import build_network
from ...schedule.servers import server_labels, too_many
from .neighbours import neighbours, product_among

MOST_NODES = 256
"""Accelerators among which a collective of some of them is planned, at most."""


@dataclass(frozen=True, eq=False)
class Wider:
    """A collective among ranks and other accelerators, as if all were ranks.

    Attributes:
        c: that collective; the ranks come first.
        labels: int64[nodes of the network], for each way to see servers the server of every node.
        ranks: how many of its ranks are those of the collective that is asked for.
        how: who carries what.
    """

    c: Collective
    labels: list[Int64]
    ranks: int
    how: list[Carriers | None]

    def algorithms(self, found: Iterable[Algorithm]) -> Iterator[Algorithm]:
        """Algorithms of :attr:`c` for the ranks alone, with each way to share out data."""
        for algorithm in found:
            for how in self.how:
                yield for_ranks(algorithm, self.c.kind, self.ranks, self._relays, how, None)[0]

    def candidates(self, found: Iterable[Candidate]) -> Iterator[Candidate]:
        """The same for candidates."""
        for each in found:
            for how in self.how:
                made, of = for_ranks(each.algorithm, self.c.kind, self.ranks, self._relays, how, each.carried)
                carried = None
                if each.carried is not None:
                    number = {-1: -1} | {k: place for place, k in enumerate(of.tolist())}
                    carried = [tuple(number[k] for k in each.carried[step] if k in number) for step in of.tolist()]
                phase = np.where(of < 0, -1, each.phase[of])
                yield Candidate(made, phase, each.direct[of] & (of >= 0), carried)

    @property
    def _relays(self) -> tuple[int, ...]:
        return tuple(self.c.ranks[self.ranks :].tolist())


@lru_cache(2)
def wider(topology: Topology, c: Collective) -> list[Wider]:
    """The collective among all accelerators of the servers that have ranks, for each way to see servers in which these
    are equally large; or among all accelerators where these are joined to neighbours alone."""
    every = topology.accelerators
    if len(every) == len(c.ranks) or c.traits.rooted or not c.is_whole or topology.planes or too_many(topology):
        return []
    work = float(len(every)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    by_nodes: dict[bytes, tuple[Int32, list[Int64]]] = {}
    for label in server_labels(topology, network, every):
        here = every[np.isin(label[every], label[c.ranks])]
        count = np.unique(label[here], return_counts=True)[1]
        if len(count) > 1 and (count == count[0]).all():
            by_nodes.setdefault(here.tobytes(), (here, []))[1].append(label)
    if not by_nodes and (neighbours(topology, every) or product_among(topology, every)):
        by_nodes[b""] = every, []
    found = []
    for here, labels in by_nodes.values():
        nodes = np.concatenate((c.ranks, np.setdiff1d(here, c.ranks))).astype(c.ranks.dtype)
        few = len(c.ranks) < len(nodes) <= min(MOST_NODES, c.size_bytes)
        if few and topology.store_and_forward[nodes].all():
            found.append(_among(topology, c, nodes, labels))
    return found


def _among(topology: Topology, c: Collective, nodes: Int32, labels: list[Int64]) -> Wider:
    """The collective among these nodes, the ranks first; each with as many bytes as a rank has."""
    ranks, all_alike = len(c.ranks), c.traits.reduces_to_all
    size_bytes = c.size_bytes if all_alike else c.size_bytes * len(nodes) // ranks
    wide = make_collective(c.kind, topology, size_bytes, ranks=nodes.tolist())
    alone = all_alike or c.traits.pieces == "pair"
    return Wider(wide, labels, ranks, [None] if alone else [*carriers(topology, c, nodes, labels)])

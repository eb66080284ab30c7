"""Collectives of some accelerators among all of their servers, or of their torus (:mod:`stretto.schedule.carriers`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...model.arrays import Int32, Int64
from ...model.collective import Collective, make_collective
from ...model.topology import ACCELERATOR, Topology
from ...schedule.algorithms import Algorithm
from ...schedule.carriers import Carriers, carriers, for_ranks
from ...schedule.cutting import messages_cost
from ...schedule.job_loads import Candidate
from ...schedule.pipes import build_network
from ...schedule.servers import grids, server_labels, too_many
from .neighbours import neighbours, product_among

MOST_NODES = 256
"""Accelerators among which a collective of some of them is planned, at most."""


@dataclass(frozen=True, eq=False)
class Wider:
    """A collective among ranks and other accelerators, as if all were ranks.

    Attributes:
        c: that collective; the ranks come first.
        cells: grids of the numbers of its ranks, as of :func:`~stretto.schedule.servers.grids`; none on a torus.
        asked: the collective that is asked for.
        how: who carries what.
    """

    c: Collective
    cells: list[tuple[Int64, int]]
    asked: Collective
    how: list[Carriers | None]

    def algorithms(self, found: Iterable[Algorithm]) -> Iterator[Algorithm]:
        """Algorithms of :attr:`c` for the ranks alone, with each way to share out data."""
        for algorithm in found:
            yield from (made for made, _ in self._for_ranks(algorithm, None))

    def candidates(self, found: Iterable[Candidate]) -> Iterator[Candidate]:
        """The same for candidates."""
        for each in found:
            for made, of in self._for_ranks(each.algorithm, each.carried):
                carried = None
                if each.carried is not None:
                    number = {-1: -1} | {k: place for place, k in enumerate(of.tolist())}
                    carried = [tuple(number[k] for k in each.carried[step] if k in number) for step in of.tolist()]
                phase = np.where(of < 0, -1, each.phase[of])
                yield Candidate(made, phase, each.direct[of] & (of >= 0), carried)

    def _for_ranks(
        self, algorithm: Algorithm, carried: Sequence[tuple[int, ...]] | None
    ) -> Iterator[tuple[Algorithm, Int64]]:
        """See :func:`~stretto.schedule.carriers.for_ranks`; without what cuts pieces into more blocks than bytes."""
        kind, ranks, piece_bytes = self.asked.kind, len(self.asked.ranks), int(self.asked.piece_bytes.min())
        relays = tuple(self.c.ranks[ranks:].tolist())
        for how in self.how:
            made, of = for_ranks(algorithm, kind, ranks, relays, how, carried)
            if made.blocks(kind, ranks, piece_bytes) <= piece_bytes:
                yield made, of


@lru_cache(2)
def wider(topology: Topology, c: Collective) -> list[Wider]:
    """The collective among all accelerators of the servers that have ranks, for each way to see servers in which these
    are equally large; or among all accelerators where these are joined to neighbours alone."""
    every, most = topology.accelerators, min(MOST_NODES, c.size_bytes)
    if len(every) == len(c.ranks) or c.traits.rooted or not c.is_whole or topology.planes or too_many(topology):
        return []
    work = float(len(every)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    labels = server_labels(topology, network, every)
    by_nodes: dict[bytes, tuple[Int32, list[Int64]]] = {}
    for label in labels:
        here = every[np.isin(label[every], label[c.ranks])]
        count = np.unique(label[here], return_counts=True)[1]
        if len(c.ranks) < len(here) <= most and len(count) > 1 and (count == count[0]).all():
            by_nodes.setdefault(here.tobytes(), (here, []))[1].append(label)
    joined_by_links = (topology.forwarding == ACCELERATOR).all()
    if not labels and len(every) <= most and joined_by_links and messages_cost(topology):
        if neighbours(topology, every) is not None or product_among(topology, every) is not None:
            by_nodes[b""] = every, []
    found = (_among(topology, c, here, of) for here, of in by_nodes.values())
    return [each for each in found if topology.store_and_forward[each.c.ranks].all()]


def _among(topology: Topology, c: Collective, here: Int32, labels: list[Int64]) -> Wider:
    """The collective among these accelerators, each with as many bytes as a rank has."""
    nodes = np.concatenate((c.ranks, np.setdiff1d(here, c.ranks))).astype(c.ranks.dtype)
    all_alike = c.traits.reduces_to_all
    size_bytes = c.size_bytes if all_alike else c.size_bytes * len(nodes) // len(c.ranks)
    wide = make_collective(c.kind, topology, size_bytes, ranks=nodes.tolist())
    order = np.argsort(nodes)  # in their servers, places are in the order of nodes
    cells = [(order[place], across) for place, across in grids(nodes[order], labels) if across >= 0]
    alone = all_alike or c.traits.pieces == "pair"
    return Wider(wide, cells, c, [None] if alone else [*carriers(topology, c, nodes, labels)])

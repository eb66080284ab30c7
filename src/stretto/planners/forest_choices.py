"""Forests to choose from: such as fill the network, shallow ones, and such as fill the time where latency counts."""

from __future__ import annotations

import numpy as np

from ..bounds import distances
from ..collective import Collective, Workload
from ..topology import Topology
from .forest_budget import limited
from .forest_priced import priced_forest, priced_trees
from .forest_relays import find_relays
from .forest_shares import balanced
from .forest_trees import Forest, Routed, Segment, forests_of, varied_trees

FINEST = 150_000
"""Into about so many transfers data is cut at most."""

LONG = 0.02
"""Of the time that a plan takes the part from which on the longest way has a say in the shares of trees."""

BALANCED_UP_TO = 160
"""Links up to which it has."""

NEARNESSES = (0.3, 1.0, 3.0, 10.0)
"""What the mean length of a link costs, relative to the cheapest one, in trees to choose from."""

MOST, USES = 64, 2_500
"""How many there are of each, at most, and for how many times that any of them could use a link."""


def filling(topology: Topology, workload: Workload, most: int) -> list[list[Forest]]:
    """Of all collectives, some times: trees that fill the network.

    Args:
        most: how many there may be, for each rank.
    """
    kinds = [_filling(topology, c, most) for c in workload.collectives]
    return [[some[min(k, len(some) - 1)] for some in kinds] for k in range(max(map(len, kinds)))]


def _filling(topology: Topology, c: Collective, most: int) -> list[Forest]:
    """Where accelerators are no ranks, also trees of an AllReduce that add and fork there too."""
    found = [limited(topology, some, most, len(c.ranks)) for some in forests_of(topology, c, FINEST)]
    if c.kind == "allreduce" and find_relays(topology, c.ranks).any():
        through = priced_forest(topology, c, found[0], _part(c), most * len(c.ranks))
        found += [through] if through is not None else []
    return found


def shallow(topology: Topology, workload: Workload, known: list[Forest], most: int) -> list[list[Forest]]:
    """Priced trees for what is summed and copied, the known ones for all else; none if there are none."""
    found = [
        priced_forest(topology, c, forest, _part(c), most * len(c.ranks)) if c.kind == "allreduce" else None
        for c, forest in zip(workload.collectives, known, strict=True)
    ]
    return _instead(known, found)


def timed(
    topology: Topology, workload: Workload, known: list[list[Forest]], took_s: float, most: int
) -> list[list[Forest]]:
    """Trees with shares by when links are needed, for what is summed and copied where the longest way has a say.

    Args:
        known: forests of all collectives, some times.
        took_s: how long the best of these take.
    """
    varied: list[Forest | None] = []
    priced: list[Forest | None] = []
    for number, c in enumerate(workload.collectives):
        far = float(distances(topology, 0.0)[np.ix_(c.ranks, c.ranks)].max())
        if c.kind != "allreduce" or topology.link_count > BALANCED_UP_TO or far <= LONG * took_s:
            varied.append(None)
            priced.append(None)
            continue
        forests, part, count = [some[number] for some in known], _part(c), min(MOST, USES // topology.link_count)
        own = [(root, s) for forest in forests for root, some in forest.segments.items() for s in some]
        more = [t for near in NEARNESSES for t in priced_trees(topology, c, forests[0], part, count, near)]
        varied.append(_best(topology, c, own, varied_trees(topology, c, part), took_s, most))
        priced.append(_best(topology, c, own, more, took_s, most))
    return _instead(known[0], varied) + _instead(known[0], priced)


def _best(
    topology: Topology,
    c: Collective,
    own: list[tuple[int, Segment]],
    more: list[tuple[int, Segment]],
    took_s: float,
    most: int,
) -> Forest | None:
    """Of the trees that are known, and of more, those that fill the time best; None if there are no more."""
    if not more:
        return None
    unlike = {(root, s.twin, *map(_ways, (s.up, s.down))): (root, s) for root, s in own + more}
    found = balanced(topology, list(unlike.values()), _part(c), c.size_bytes, took_s)
    return limited(topology, found, most, len(c.ranks)) if found is not None else None


def _ways(tree: Routed | None) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple(sorted(tree.links.items())) if tree is not None else ()


def _instead(known: list[Forest], found: list[Forest | None]) -> list[list[Forest]]:
    """Known forests, where others were found these; nothing where there are none."""
    return [[new or old for new, old in zip(found, known, strict=True)]] if any(found) else []


def _part(c: Collective) -> float:
    """Bytes of the smallest part of an AllReduce: their time is a length to be kept short, as latency is."""
    return 2 * (len(c.ranks) - 1) * c.size_bytes / FINEST

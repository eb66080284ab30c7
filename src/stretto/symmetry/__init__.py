"""Finding the symmetry of a network, whatever numbers its nodes and links have.

:func:`find_symmetry` returns commuting permutations of the nodes that map links to links of equal bandwidth, latency
and cost of a message (:class:`stretto.model.symmetry.Symmetry`). Candidates come from coordinates of accelerators
(``coordinates``: what switches join, level by level), each extended to switches (``extend``). Where these leave
accelerators that look alike in several orbits, as in a torus, more are grown from where one goes (``grow``). Every
candidate is tested exactly before it is returned (``graph``).
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Bool, Int64
from ..model.symmetry import Symmetry
from ..model.topology import Topology
from .coordinates import free_shifts, shifts
from .graph import Graph, graph_of, mixed
from .grow import grow

__all__ = ["find_symmetry"]


def find_symmetry(
    topology: Topology,
    colours: Int64 | None = None,
    counted: Bool | None = None,
    groups: Int64 | None = None,
    *,
    partly: bool = False,
) -> Symmetry | None:
    """The largest commutative group of symmetries that was found: the one that leaves the fewest orbits.

    An orbit of accelerators has one accelerator for each element of the group, or one in all, which the whole group
    leaves where it is; unless ``partly`` allows others. The generators are ordered from the outermost, which exchanges
    servers, to the innermost, which exchanges accelerators in a server.

    Args:
        colours: int64[nodes], nodes of different colours are not mapped to each other; by default all have one colour.
        counted: bool[nodes], the accelerators whose orbits have the sizes named above, all by default. The orbits of
            the others may have any size.
        groups: int64[nodes], the group that each node is in, such as its collective, -1 for none; the symmetry maps
            each group to a group.
        partly: whether orbits of accelerators may have any size, as long as one has an accelerator for each element.
            With a root on ``h100:64`` the group then exchanges not only the 63 other servers, but also the seven rails
            that the root is not on.
    Returns:
        None if no symmetry was found, if nothing joins the nodes, or if bandwidths change with time.
    """
    if topology.changes or len(topology.accelerators) < 2:
        return None
    graph = graph_of(topology, groups)
    if not len(graph.tail):
        return None
    structure = graph.refined(mixed(graph.node_kind))[0]
    refined = structure
    if colours is not None:
        given = np.zeros(graph.count, dtype=np.int64)
        given[: graph.nodes] = np.unique(colours, return_inverse=True)[1].reshape(-1) + 1
        refined = graph.refined(mixed(structure + mixed(given)))[0]
    counts = np.ones(graph.count, dtype=np.bool_)
    if counted is not None:
        counts[: graph.nodes] = counted
    if len(np.unique(refined[graph.accelerators])) == len(graph.accelerators):
        return None
    chosen = free_shifts(graph, shifts(graph, refined, structure), counts, partly)
    group = grow(graph, refined, counts, [shift.image for shift in chosen], [shift.order for shift in chosen])
    if not group.images:
        return None
    order = _outermost_first(graph, group.images)
    images = np.array([group.images[k][: graph.nodes] for k in order])
    return Symmetry(topology, images.astype(np.int32), np.array(group.orders, dtype=np.int64)[order])


def _outermost_first(graph: Graph, images: list[Int64]) -> list[int]:
    """The order of generators: first those that move an accelerator farthest.

    The distance is the number of links on the way; of equal numbers the way with the narrowest link is the farthest.
    """
    moved = np.array([image[graph.accelerators] != graph.accelerators for image in images])
    start = int(graph.accelerators[moved.sum(axis=0).argmax()])
    hops = np.full(graph.count, -1, dtype=np.int64)
    width = np.zeros(graph.count)
    hops[start], width[start], reached = 0, np.inf, 0
    targets = [int(image[start]) for image in images]
    while True:
        step = (hops[graph.tail] == reached) & (hops[graph.head] < 0) & ~graph.to_groups
        if not step.any() or all(hops[target] >= 0 for target in targets):
            break
        tail, head = graph.tail[step], graph.head[step]
        np.maximum.at(width, head, np.minimum(width[tail], graph.bandwidth[step]))
        reached += 1
        hops[head] = reached
    return sorted(range(len(images)), key=lambda k: (-hops[targets[k]], width[targets[k]], k))

"""What a step copies from one rank to several at once: one transfer that branches, where switches on the way copy.

What several are to add goes to each of them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..model.arrays import Int32, Int64, Ragged
from ..model.plan import COPY
from ..model.topology import Topology
from .algorithms import Lowered, Step

RoutesTo = Callable[[int, tuple[int, ...]], list[list[int]]]
"""From a node to several others: the links of one way that branches, or of a way to each of them."""


def branching(topology: Topology, routes: Sequence[list[int]]) -> list[int] | None:
    """The links of routes from one node as one way that branches; None where they meet again, or cannot branch."""
    if not all(routes) or len({route[0] for route in routes}) > 1:
        return None
    links = list(dict.fromkeys(link for route in routes for link in route))
    leaves = Counter(topology.src[links].tolist())
    ends = topology.dst[[route[-1] for route in routes]].tolist()
    forks = [node for node, count in leaves.items() if count > 1 or node in ends]
    tree = len(set(topology.dst[links].tolist())) == len(links)
    return links if tree and topology.replicates[forks].all() else None


def sent(step: Step, nodes: Int32, routes: RoutesTo) -> tuple[Ragged, Int64, Int64]:
    """The ways that a step goes, how many blocks go each of them, and the way of each row."""
    carried = step.block if step.op == COPY else np.arange(len(step.block))
    ways = list(_ways(nodes[step.src], nodes[step.dst], carried, routes))
    of = np.empty(len(step.block), dtype=np.int64)
    for number, (_, _, each) in enumerate(ways):
        of[np.concatenate(each)] = number
    return Ragged.of([way for way, _, _ in ways]), np.array([len(each) for _, _, each in ways]), of


def joined(lowered: Lowered, routes: RoutesTo) -> tuple[Int64, Ragged, Ragged]:
    """An algorithm's transfers, those of a chunk that one rank copies to several in the same step as one.

    Of a step, what goes the same way stands together.

    Returns:
        The transfer of each row of ``lowered``, and of each transfer its receivers and its links.
    """
    transfer = np.empty(len(lowered.chunk), dtype=np.int64)
    receivers, links = list[tuple[int, ...]](), list[list[int]]()
    for first, end in pairwise(np.flatnonzero(np.diff(lowered.group, prepend=-1, append=-1)).tolist()):
        own = slice(first, end)
        carried = lowered.chunk[own] if (lowered.op[own] == COPY).all() else np.arange(end - first)
        for way, ends, each in _ways(lowered.src[own], lowered.dst[own], carried, routes):
            for rows in each:
                transfer[first + np.array(rows)] = len(links)
                receivers.append(ends)
                links.append(way)
    return transfer, Ragged.of(receivers), Ragged.of(links)


def _ways(
    src: Int32, dst: Int32, carried: Int32 | Int64, routes: RoutesTo
) -> Iterator[tuple[list[int], tuple[int, ...], list[list[int]]]]:
    """Each way that rows of a step go, its receivers, and the rows that go it: a list for each thing carried."""
    sends: dict[tuple[int, int], list[int]] = {}
    for row, send in enumerate(zip(src.tolist(), carried.tolist(), strict=True)):
        sends.setdefault(send, []).append(row)
    goals: dict[tuple[int, tuple[int, ...]], list[list[int]]] = {}
    for (node, _), rows in sends.items():
        goals.setdefault((node, tuple(dst[rows].tolist())), []).append(rows)
    for (node, ends), each in goals.items():
        ways = routes(node, ends)
        if len(ways) == 1:
            yield ways[0], ends, each
        else:
            yield from ((way, ends[k : k + 1], [rows[k : k + 1] for rows in each]) for k, way in enumerate(ways))

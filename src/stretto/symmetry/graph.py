"""A network as a coloured directed graph, its colour refinement, and the exact test of permutations.

An optical plane becomes a node of its own, and so does each of its ports: the plane is joined to its ports, a port to
the node behind it, and a port to the port to which the plane's first matching leads.

Colour refinement (the one-dimensional Weisfeiler-Leman method) colours nodes by their neighbours' colours until no
class of equal colour splits. Colours are 64-bit hashes that depend on no numbering, so the colours of two refinements
can be compared. What two hashes that are equal by chance would claim wrongly, :meth:`Graph.is_automorphism` refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Int64
from ..model.topology import ACCELERATOR, Topology

Hash = NDArray[np.uint64]

PLANE, PORT, GROUP = 10, 11, 12
"""Kinds of the nodes that stand for planes, their ports, and groups of nodes, besides those of a topology's nodes."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes and directed arcs, each of a kind.

    Attributes:
        nodes: how many of the nodes are the network's; planes, ports and groups follow.
        base: int64[n], what a node is: accelerator, router, switch, plane, port or group.
        node_kind: int64[n], equal where nodes have equal properties, the caller's colours not counted.
        tail, head: int64[arcs], end nodes; no two arcs have both ends alike.
        arc_kind: int64[arcs], equal where arcs have equal properties.
        bandwidth: float64[arcs], bytes/s.
    """

    nodes: int
    base: Int64
    node_kind: Int64
    tail: Int64
    head: Int64
    arc_kind: Int64
    bandwidth: NDArray[np.float64]

    @property
    def count(self) -> int:
        """How many nodes the graph has, planes and ports included."""
        return len(self.base)

    @cached_property
    def to_groups(self) -> Bool:
        """bool[arcs], the arcs that say which group a node is in, and are no links."""
        grouped: Bool = (self.base[self.tail] == GROUP) | (self.base[self.head] == GROUP)
        return grouped

    @cached_property
    def accelerators(self) -> Int64:
        return np.flatnonzero(self.base == ACCELERATOR)

    @cached_property
    def arc_hash(self) -> Hash:
        return mixed(self.arc_kind)

    @cached_property
    def sorted_keys(self) -> tuple[Int64, Int64]:
        """The key ``tail * n + head`` of every arc, ascending, and the arcs in that order."""
        key = self.tail * self.count + self.head
        order = np.argsort(key)
        return key[order], order

    def arcs_between(self, tail: Int64, head: Int64) -> Int64:
        """int64[pairs], the arc that leads from each node to the other, -1 where there is none."""
        keys, order = self.sorted_keys
        if not len(keys):
            return np.full(len(tail), -1, dtype=np.int64)
        key = tail * self.count + head
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[at] == key, order[at], -1)

    def beside(self, node: int) -> Int64:
        """int64[neighbours], the nodes to which arcs lead from a node."""
        keys, order = self.sorted_keys
        low, high = np.searchsorted(keys, [node * self.count, (node + 1) * self.count])
        return self.head[order[low:high]]

    def common(self, node: int, others: list[int]) -> list[Int64]:
        """For each of ``others`` the nodes to which arcs lead both from it and from ``node``, each once."""
        if not others:
            return []
        near = np.zeros(self.count, dtype=np.bool_)
        near[self.beside(node)] = True
        keys, order = self.sorted_keys
        ends = np.searchsorted(keys, np.array(others, dtype=np.int64)[:, None] * self.count + [0, self.count])
        found = [head[near[head]] for head in (self.head[order[low:high]] for low, high in ends.tolist())]
        # in ascending order, so equal ones, over parallel arcs, follow each other
        return [nodes[np.append(True, nodes[1:] != nodes[:-1])] if len(nodes) > 1 else nodes for nodes in found]

    @cached_property
    def _rows(self) -> tuple[tuple[Int64, Int64, Int64], ...]:
        """By tail and by head: the arcs in that order, where each owner's arcs begin, and the owners that have any."""
        out = []
        for owner in (self.tail, self.head):
            order = np.argsort(owner, kind="stable")
            owners, first = np.unique(owner[order], return_index=True)
            out.append((order, first, owners))
        return tuple(out)

    def sums(self, values: Hash) -> tuple[Hash, Hash]:
        """uint64[n] twice: the sum of the values of the arcs that leave each node, and of those that enter it."""
        out = []
        for order, first, owners in self._rows:
            total = np.zeros(self.count, dtype=np.uint64)
            if len(order):
                total[owners] = np.add.reduceat(values[order], first)
            out.append(total)
        return out[0], out[1]

    def neighbour_hash(self, value: Hash, counted: Bool | None = None) -> Hash:
        """uint64[n], a hash of the values of each node's neighbours and the kinds of the arcs to and from them.

        Args:
            counted: bool[n], the neighbours that count, by default all. Nodes without such neighbours have hash 0.
        """
        forth, back = mixed(value[self.head] ^ self.arc_hash), mixed(value[self.tail] * np.uint64(3) ^ self.arc_hash)
        if counted is not None:
            forth[~counted[self.head]] = 0
            back[~counted[self.tail]] = 0
        leaving, entering = self.sums(forth)[0], self.sums(back)[1]
        return leaving + entering * np.uint64(5)

    def refined(self, colours: Hash, rounds: int | None = None) -> tuple[Hash, int]:
        """Refine colours until no class splits, or for a number of rounds.

        Returns:
            uint64[n], the colours, and how many rounds were made.
        """
        classes, done = len(np.unique(colours)), 0
        while done != rounds:
            colours = mixed(colours + mixed(self.neighbour_hash(colours)))
            done += 1
            if rounds is None:
                before, classes = classes, len(np.unique(colours))
                if classes == before:
                    break
        return colours, done

    def is_automorphism(self, image: Int64) -> bool:
        """Whether a permutation, int64[n], maps nodes and arcs to nodes and arcs of the same kinds."""
        if image.min() < 0 or (np.bincount(image, minlength=self.count) != 1).any():
            return False
        if not np.array_equal(self.node_kind[image], self.node_kind):
            return False
        keys, order = self.sorted_keys
        mapped = image[self.tail] * self.count + image[self.head]
        to = np.argsort(mapped)
        return np.array_equal(mapped[to], keys) and np.array_equal(self.arc_kind[to], self.arc_kind[order])


def graph_of(topology: Topology, groups: Int64 | None = None) -> Graph:
    """The graph of a network whose bandwidths do not change with time.

    Args:
        groups: int64[nodes], the group that each node is in, -1 for none. Each group is a node of the graph that is
            joined to its members, so permutations map groups to groups.
    """
    t, n = topology, topology.node_count
    flags = np.stack([t.kind, t.transit, t.replicates, t.reduces]).astype(np.float64)
    links = np.stack([t.bandwidth, t.latency_s, t.message_s])
    base = [t.kind.astype(np.int64)]
    node_columns, arc_columns = [np.vstack([flags, np.zeros((3, n))])], [np.vstack([links, np.zeros(t.link_count)])]
    tails, heads = [t.src.astype(np.int64)], [t.dst.astype(np.int64)]
    for plane in t.planes:
        number = sum(map(len, base))
        ports = number + 1 + np.arange(len(plane.nodes))
        own = np.zeros((7, 1 + len(ports)))
        own[0], own[0, 0] = PORT, PLANE
        own[4:] = [[plane.bandwidth], [plane.latency_s], [plane.reconfiguration_s]]
        base.append(own[0].astype(np.int64))
        node_columns.append(own)
        lit = plane.matching >= 0
        hub = np.full(len(ports), number)
        tails += [hub, ports, ports, plane.nodes.astype(np.int64), ports[lit]]
        heads += [ports, hub, plane.nodes.astype(np.int64), ports, ports[plane.matching[lit]]]
        lengths = [len(ports)] * 4 + [int(lit.sum())]
        arcs = np.zeros((4, sum(lengths)))
        arcs[0], arcs[3] = plane.bandwidth, np.repeat([1, 2, 3, 3, 4], lengths)
        arc_columns.append(arcs)
    if groups is not None:
        first, members = sum(map(len, base)), np.flatnonzero(groups >= 0)
        numbers, at = np.unique(groups[members], return_inverse=True)
        own = np.zeros((7, len(numbers)))
        own[0] = GROUP
        base.append(own[0].astype(np.int64))
        node_columns.append(own)
        hubs = first + at.reshape(-1)
        tails, heads = [*tails, members, hubs], [*heads, hubs, members]
        arc_columns.append(np.repeat([[0.0], [0.0], [0.0], [5.0]], 2 * len(members), axis=1))
    arcs = np.hstack(arc_columns)
    return Graph(
        n, np.concatenate(base), _alike(np.hstack(node_columns)), np.concatenate(tails), np.concatenate(heads),
        _alike(arcs), arcs[0],
    )  # fmt: skip


def _alike(columns: NDArray[np.float64]) -> Int64:
    """int64[things], numbers that are equal where things have equal values in all rows of ``columns``."""
    out = np.zeros(columns.shape[1], dtype=np.int64)
    for row in columns:
        if len(row) and (row != row[0]).any():
            values, number = np.unique(row, return_inverse=True)
            out = np.unique(out * len(values) + number.reshape(-1), return_inverse=True)[1].reshape(-1)
    return out.astype(np.int64)


def mixed(values: NDArray[Any]) -> Hash:
    """uint64, values scrambled (the finaliser of SplitMix64)."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def components(count: int, a: Int64, b: Int64) -> Int64:
    """int64[count], for each node the least node that pairs (a, b) join it to."""
    label = np.arange(count)
    while len(a):
        low, high = np.minimum(label[a], label[b]), np.maximum(label[a], label[b])
        apart = low != high
        a, b = a[apart], b[apart]
        np.minimum.at(label, high[apart], low[apart])
        while not np.array_equal(label[label], label):
            label = label[label]
    return label

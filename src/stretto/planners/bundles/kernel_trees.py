"""Trees by which a root's data goes out in bundles: how they grow, and when each node has its data."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


class Ways(NamedTuple):
    """The ways from one node to another that a message may take; nodes are numbered from the root, which is 0.

    Attributes:
        src, dst: int64[ways], nodes.
        first, links: the links of each way, as lists: those of way w are ``links[first[w]:first[w + 1]]``.
        hop_s: float64[links of ways], how much later than its source each link carries a message.
        latency_s: float64[ways].
        copies: bool[ways], whether a message may fork on the way: every node that it passes copies.
        into_first, into: for each node the ways that lead to it, as lists.
        message_s, s_per_byte: float64[links], what a message and a byte cost.
    """

    src: Int64
    dst: Int64
    first: Int64
    links: Int64
    hop_s: Float64
    latency_s: Float64
    copies: Bool
    into_first: Int64
    into: Int64
    message_s: Float64
    s_per_byte: Float64


class Vertices(NamedTuple):
    """What may be in a tree: each node several times, a vertex for each bundle that comes to it. The first is the root.

    Attributes:
        node: int64[vertices].
        own_bytes: float64[vertices], what is for the vertex itself; 0 where it only passes data on.
        first, of: for each node its vertices, as lists.
    """

    node: Int64
    own_bytes: Float64
    first: Int64
    of: Int64


class Tree(NamedTuple):
    """Where each vertex gets its data.

    Attributes:
        parent: int64[vertices], -1 for the root and for vertices outside the tree.
        way: int64[vertices], from the parent's node to the vertex's; -1 likewise.
        message: int64[vertices], the number of the message that comes to each, from 1 on; -1 likewise. One message goes
            to several children of a vertex if it leaves over one link and forks later.
    """

    parent: Int64
    way: Int64
    message: Int64


class Course(NamedTuple):
    """When a tree's messages come. A message goes to each vertex but the root; all but ``order`` are by vertex.

    Attributes:
        arrival_s: float64[vertices], when the message is there; infinite for vertices outside the tree.
        tail_s: float64[vertices], how long after that the last vertex below has its data, if no other messages are met.
        order: int64[messages], vertices in the order in which their messages are served.
    """

    arrival_s: Float64
    tail_s: Float64
    order: Int64


def course(ways: Ways, vertices: Vertices, tree: Tree) -> Course:
    """When each vertex of a tree has its data.

    A node sends at once to each of its children what is for these and for those below, first to those with the longest
    way ahead. Links serve messages in the order in which they are ready.
    """
    way, message = tree.way, tree.message
    count = len(way)
    child_first, child = _children(tree.parent)
    down = np.empty(count, dtype=np.int64)
    down[0] = 0
    reached, k = 1, 0
    while k < reached:
        for i in range(child_first[down[k]], child_first[down[k] + 1]):
            down[reached] = child[i]
            reached += 1
        k += 1
    carried, tail_s = vertices.own_bytes.copy(), np.zeros(count)
    ahead_s, bytes_, seconds = np.zeros(count), np.zeros(count), np.zeros(count)  # by message
    free_s = np.zeros(len(ways.message_s))
    for k in range(reached - 1, -1, -1):
        v = down[k]
        begin, end = child_first[v], child_first[v + 1]
        for i in range(begin, end):
            c, m = child[i], message[child[i]]
            if carried[c] > 0:
                ahead_s[m] = max(ahead_s[m], ways.latency_s[way[c]] + tail_s[c])
                bytes_[m] += carried[c]
                free_s[ways.links[ways.first[way[c]]]] = 0.0
        for i in range(begin, end):
            c, m = child[i], message[child[i]]
            carried[v] += carried[c]
            for j in range(ways.first[way[c]], ways.first[way[c] + 1]):
                link = ways.links[j]
                seconds[m] = max(seconds[m], ways.message_s[link] + bytes_[m] * ways.s_per_byte[link])
        _order(message, ahead_s, child, begin, end)
        last = 0
        for i in range(begin, end):
            c, m = child[i], message[child[i]]
            if carried[c] > 0:
                port = ways.links[ways.first[way[c]]]
                if m != last:
                    free_s[port] += seconds[m]
                    last = m
                tail_s[v] = max(tail_s[v], free_s[port] + ways.latency_s[way[c]] + tail_s[c])
    arrival_s = np.full(count, np.inf)
    arrival_s[0] = 0.0
    order = np.empty(count, dtype=np.int64)
    sent = 0
    free_s[:] = 0.0
    heap = [(0.0, 0, 0)]
    while len(heap) > 0:
        now, _, v = heappop(heap)
        i = child_first[v]
        while i < child_first[v + 1]:
            m, first, begin_s = message[child[i]], i, now
            while i < child_first[v + 1] and message[child[i]] == m:
                w = way[child[i]]
                for j in range(ways.first[w], ways.first[w + 1]):
                    begin_s = max(begin_s, free_s[ways.links[j]] - ways.hop_s[j])
                i += 1
            if bytes_[m] == 0:
                continue
            for k in range(first, i):
                c = child[k]
                if carried[c] == 0:
                    continue
                for j in range(ways.first[way[c]], ways.first[way[c] + 1]):
                    free_s[ways.links[j]] = begin_s + ways.hop_s[j] + seconds[m]
                arrival_s[c] = begin_s + seconds[m] + ways.latency_s[way[c]]
                order[sent] = c
                sent += 1
                heappush(heap, (arrival_s[c], sent, c))
    return Course(arrival_s, tail_s, order[:sent])


def _children(parent: Int64) -> tuple[Int64, Int64]:
    """The children of each vertex, as lists."""
    count = len(parent)
    first = np.zeros(count + 1, dtype=np.int64)
    for v in range(1, count):
        if parent[v] >= 0:
            first[parent[v] + 1] += 1
    for v in range(count):
        first[v + 1] += first[v]
    fill, child = first[:count].copy(), np.empty(first[count], dtype=np.int64)
    for v in range(1, count):
        if parent[v] >= 0:
            child[fill[parent[v]]] = v
            fill[parent[v]] += 1
    return first, child


def _order(message: Int64, ahead_s: Float64, child: Int64, begin: int, end: int) -> None:
    """Put children first whose message has the longest way ahead; those of a message stand together."""
    for i in range(begin + 1, end):
        moved = child[i]
        key = (-ahead_s[message[moved]], message[moved])
        j = i
        while j > begin and (-ahead_s[message[child[j - 1]]], message[child[j - 1]]) > key:
            child[j] = child[j - 1]
            j -= 1
        child[j] = moved


def cost_of(made: Course, own_bytes: Float64, unit_s: float) -> float:
    """What a tree is judged by: the last ends count most, and those before them a little."""
    cost = 0.0
    for v in range(1, len(own_bytes)):
        if own_bytes[v] > 0:
            power = made.arrival_s[v] / unit_s
            for _ in range(5):
                power *= power
            cost += power
    return cost


def end_s(made: Course, own_bytes: Float64) -> float:
    """When the last vertex has its data."""
    last_s = 0.0
    for v in range(1, len(own_bytes)):
        if own_bytes[v] > 0:
            last_s = max(last_s, made.arrival_s[v])
    return last_s


def grow(ways: Ways, own_bytes: Float64, bundle: float, shared: bool) -> Int64:
    """A tree that reaches, one after another, the node that can have its data first.

    Args:
        bundle: for how many nodes a message has data, as is guessed.
        shared: whether messages wait for each other where they share links.
    Returns:
        int64[nodes], the way by which each gets its data, -1 for the root and nodes that are not reached.
    """
    nodes = len(own_bytes)
    way = np.full(nodes, -1, dtype=np.int64)
    there_s = np.full(nodes, np.inf)
    there_s[0] = 0.0
    free_s = np.zeros(len(ways.message_s))
    mean = own_bytes.sum() / max(1, (own_bytes > 0).sum()) * bundle
    seconds = np.zeros(len(ways.src))
    for w in range(len(ways.src)):
        for j in range(ways.first[w], ways.first[w + 1]):
            link = ways.links[j]
            seconds[w] = max(seconds[w], ways.message_s[link] + mean * ways.s_per_byte[link])
    for _ in range(nodes):
        chosen, soonest_s = -1, np.inf
        for w in range(len(ways.src)):
            if there_s[ways.src[w]] < np.inf and there_s[ways.dst[w]] == np.inf:
                begin_s = there_s[ways.src[w]]
                for j in range(ways.first[w], ways.first[w + 1]):
                    begin_s = max(begin_s, free_s[ways.links[j]] - ways.hop_s[j])
                if begin_s + seconds[w] + ways.latency_s[w] < soonest_s:
                    chosen, soonest_s = w, begin_s + seconds[w] + ways.latency_s[w]
        if chosen < 0:
            break
        begin_s = soonest_s - seconds[chosen] - ways.latency_s[chosen]
        if shared:
            for j in range(ways.first[chosen], ways.first[chosen + 1]):
                free_s[ways.links[j]] = begin_s + ways.hop_s[j] + seconds[chosen]
        way[ways.dst[chosen]], there_s[ways.dst[chosen]] = chosen, soonest_s
    return way

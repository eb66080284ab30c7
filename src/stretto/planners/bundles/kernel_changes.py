"""How a tree of bundles is made better: changed for as long as that gains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_trees import Course, Tree, Vertices, Ways, cost_of, course, end_s

Int64 = NDArray[np.int64]

LEAST_GAIN = 1e-6
"""Share of its cost that a change of a tree must gain."""

WHOLE, ALONE, BESIDE, JOINED = 0, 1, 2, 3
"""How a vertex moves: with what is below it, without, to a new bundle beside the other vertex's, or, from JOINED on, to
the message of vertex 0, 1, and so on."""


class Judged(NamedTuple):
    """A tree, when its messages come, and what it is judged by."""

    tree: Tree
    made: Course
    cost: float


def improve(ways: Ways, vertices: Vertices, tree: Tree, beside: bool, most: int) -> tuple[Tree, int]:
    """Change a tree for as long as that gains.

    A vertex moves to another parent, with what is below it or without, or to a message that its new parent sends the
    same way; or it changes places with its parent.

    Args:
        beside: whether a vertex may also move to a new bundle that goes beside another vertex's to the same node.
        most: messages of all trees that are looked at, about, at most.
    Returns:
        The tree, and how many messages were looked at.
    """
    count = len(tree.way)
    made = course(ways, vertices, tree)
    unit_s = end_s(made, vertices.own_bytes)
    best = Judged(_copy(tree), made, cost_of(made, vertices.own_bytes, unit_s))
    looked, unchanged, v, turn = len(made.order), 0, 0, 0
    asked = np.zeros(count, dtype=np.int64)  # by message the last turn in which a vertex was to join it
    while unchanged < count and looked < most:
        v = v % (count - 1) + 1
        unchanged += 1
        if best.tree.way[v] < 0:
            continue
        before = best.cost
        for i in range(ways.into_first[vertices.node[v]], ways.into_first[vertices.node[v] + 1]):
            w = ways.into[i]
            for j in range(vertices.first[ways.src[w]], vertices.first[ways.src[w] + 1]):
                other = vertices.of[j]
                if best.made.arrival_s[other] < np.inf and not _is_below(best.tree, other, v):
                    turn += 1
                    best, tried = _moved_to(ways, vertices, best, v, w, other, beside, unit_s, asked, turn)
                    looked += tried * len(made.order)
        changed = _copy(best.tree)
        if _swap(ways, vertices, changed, v):
            looked += len(made.order)
            best = _better(ways, vertices, best, changed, unit_s)
        if best.cost < before:
            unchanged = 0
            for u in range(1, count):
                if best.made.arrival_s[u] == np.inf:
                    best.tree.parent[u] = best.tree.way[u] = best.tree.message[u] = -1
    return best.tree, looked


def _moved_to(
    ways: Ways, vertices: Vertices, best: Judged, vertex: int, way: int, other: int, beside: bool, unit_s: float,
    asked: Int64, turn: int,
) -> tuple[Judged, int]:  # fmt: skip
    """The best of a tree and of those in which a vertex gets its data from another one, and how many were looked at."""
    tried = 0
    # after the other changes, one for each message that the other vertex sends the same way
    for change in range(JOINED + (len(asked) if ways.copies[way] else 0)):
        mate = change - JOINED
        if change == BESIDE and not beside:
            continue
        if mate >= 0 and (mate == vertex or best.tree.parent[mate] != other):
            continue
        if mate >= 0 and not _may_join(ways, vertices.node, best.tree, vertex, way, mate, asked, turn):
            continue
        last_s = end_s(best.made, vertices.own_bytes)
        if not _may_gain(ways, best.tree, best.made, vertex, way, other, change, last_s):
            continue
        changed = _copy(best.tree)
        if _moved(ways, vertices, changed, vertex, way, other, change):
            tried += 1
            best = _better(ways, vertices, best, changed, unit_s)
    return best, tried


def _better(ways: Ways, vertices: Vertices, best: Judged, changed: Tree, unit_s: float) -> Judged:
    """A changed tree if that gains, else the best one so far."""
    made = course(ways, vertices, changed)
    cost = cost_of(made, vertices.own_bytes, unit_s)
    return Judged(changed, made, cost) if cost < best.cost * (1 - LEAST_GAIN) else best


def _copy(tree: Tree) -> Tree:
    return Tree(tree.parent.copy(), tree.way.copy(), tree.message.copy())


def _may_join(ways: Ways, node: Int64, tree: Tree, vertex: int, way: int, mate: int, asked: Int64, turn: int) -> bool:
    """Whether a vertex may share the message of another one, and was not asked that in this turn."""
    message, other = tree.message[mate], tree.way[mate]
    if message == tree.message[vertex] or asked[message] == turn or not ways.copies[other]:
        return False
    asked[message] = turn
    for v in range(1, len(tree.message)):
        if tree.message[v] == message and node[v] == node[vertex]:
            return False
    return bool(ways.links[ways.first[way]] == ways.links[ways.first[other]])


def _may_gain(
    ways: Ways, tree: Tree, made: Course, vertex: int, way: int, other: int, change: int, last_s: float
) -> bool:
    """Whether a vertex that gets its data from another one may end before the last one does now."""
    tail_s = made.tail_s[vertex]
    if change == BESIDE:
        if other == 0:
            return False
        before_s = made.arrival_s[tree.parent[other]] + ways.latency_s[tree.way[other]]
        return bool(before_s + ways.latency_s[way] + tail_s < last_s)
    if change < JOINED and tree.parent[vertex] == other and tree.way[vertex] == way:
        shared = 0
        for v in range(1, len(tree.message)):
            shared += tree.message[v] == tree.message[vertex]
        if change != WHOLE or shared < 2:
            return False
    return bool(made.arrival_s[other] + ways.latency_s[way] + (0.0 if change == ALONE else tail_s) < last_s)


def _moved(ways: Ways, vertices: Vertices, tree: Tree, vertex: int, way: int, other: int, change: int) -> bool:
    """Let a vertex get its data from another one; False if that cannot be."""
    if change == ALONE and not _hand_over(ways, vertices, tree, vertex):
        return False
    if change == BESIDE:
        bundle = _free(vertices, tree, other)
        if bundle < 0:
            return False
        tree.parent[bundle], tree.way[bundle] = tree.parent[other], tree.way[other]
        _alone(tree, bundle)
        other = bundle
    tree.parent[vertex], tree.way[vertex] = other, way
    if change >= JOINED:
        tree.message[vertex] = tree.message[change - JOINED]
    else:
        _alone(tree, vertex)
    return True


def _alone(tree: Tree, vertex: int) -> None:
    """Let a message of its own come to a vertex."""
    used = np.zeros(len(tree.message), dtype=np.bool_)
    for v in range(1, len(tree.message)):
        if v != vertex and tree.message[v] > 0:
            used[tree.message[v]] = True
    number = vertex
    while used[number]:
        number = number % (len(used) - 1) + 1
    tree.message[vertex] = number


def _free(vertices: Vertices, tree: Tree, other: int) -> int:
    """A vertex outside the tree for a further bundle to the node of another one, -1 for none."""
    node = vertices.node[other]
    for i in range(vertices.first[node], vertices.first[node + 1]):
        v = vertices.of[i]
        if tree.way[v] < 0:
            return int(v)
    return -1


def _is_below(tree: Tree, vertex: int, above: int) -> bool:
    """Whether a vertex is another one or below it."""
    while vertex != above and vertex > 0:
        vertex = tree.parent[vertex]
    return vertex == above


def _between(ways: Ways, src: int, dst: int) -> int:
    """The first way from a node to another one, -1 for none."""
    for i in range(ways.into_first[dst], ways.into_first[dst + 1]):
        if ways.src[ways.into[i]] == src:
            return int(ways.into[i])
    return -1


def _hand_over(ways: Ways, vertices: Vertices, tree: Tree, vertex: int) -> bool:
    """Let the children of a vertex be those of its parent; False if it has none or they cannot."""
    some, parent = False, tree.parent[vertex]
    for c in range(1, len(tree.way)):
        if tree.parent[c] == vertex:
            some = True
            tree.parent[c], tree.way[c] = parent, _between(ways, vertices.node[parent], vertices.node[c])
            if tree.way[c] < 0:
                return False
            _alone(tree, c)
    return some


def _swap(ways: Ways, vertices: Vertices, tree: Tree, vertex: int) -> bool:
    """Let a vertex be the parent of its parent; False if it cannot."""
    parent = tree.parent[vertex]
    if parent == 0:
        return False
    above = tree.parent[parent]
    up = _between(ways, vertices.node[above], vertices.node[vertex])
    down = _between(ways, vertices.node[vertex], vertices.node[parent])
    tree.parent[vertex], tree.way[vertex] = above, up
    tree.parent[parent], tree.way[parent] = vertex, down
    _alone(tree, vertex)
    _alone(tree, parent)
    return up >= 0 and down >= 0

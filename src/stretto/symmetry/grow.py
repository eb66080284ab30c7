"""Symmetries of networks whose coordinates say nothing, such as tori: grown from where one accelerator goes.

Suppose that a symmetry maps accelerator a to b. Give a a colour of its own on the left, and b the same colour on the
right, and refine both: if the colours of the two sides differ, there is no such symmetry; if every node has a colour of
its own, it is found. Otherwise say where one more node goes, first b: so the cycle of a grows. Since the symmetry shall
commute with those known (the group), all images of a node under the group are given colours together.

Of the nodes that one may go to, those come first that lie to it as b lies to a: in a network whose accelerators all
look alike, a symmetry that commutes with all others moves every accelerator as it moves a. What is found is
tested as any candidate is. Rounds of refinement are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..model.arrays import Bool, Int64
from .coordinates import commute, power
from .graph import Graph, Hash, components, mixed

MOST_WORK = 32_000_000
"""Arcs that may be looked at in all rounds of refinement together: about a second of CPU. Each row of ``WAYS`` may use
half of what the rows before it left. The shifts of a torus of 16 x 16 x 16 take a third."""

MOST_WORK_BESIDE = 2_000_000
"""Arcs that may be looked at where coordinates have given a group already. Growing seldom adds to it; in a torus of
servers it does."""

LEAST_WORK = 4_000
"""The least number of arcs that a round of refinement is counted as: in a small network other work decides."""

MOST_TARGETS = 64
"""Accelerators, each of another orbit, that are tried as the image of one."""

MOST_BRANCHES = 4
"""Nodes that are tried as the image of one that is not decided."""

WAYS = ((True, True, False), (True, True, True), (True, False, False), (False, True, False), (False, False, False))
"""Ways to search, one after the other. Each says whether symmetries must move all accelerators alike, whether the first
symmetry to the nearest accelerator is taken, and whether short cycles come first. The second way finds the shifts of a
torus of 4 x 4 x 4, in which not only rows and columns are cycles of four."""


@dataclass
class Group:
    """Commuting permutations, their orders, and the work that is left for finding more."""

    graph: Graph
    images: list[Int64]
    orders: list[int]
    work_left: float = 0.0
    alike: bool = True  # whether a generator must move all accelerators that look alike in the same way
    short: bool = False  # whether cycles are closed as soon as possible
    hops: dict[int, Int64] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return int(np.prod(self.orders, dtype=np.int64))

    def orbit(self, node: int) -> Int64:
        """int64[elements], the images of a node; the exponent of the last generator counts least."""
        out = np.array([node])
        for image, order in zip(self.images[::-1], self.orders[::-1], strict=True):
            powers = [out]
            for _ in range(order - 1):
                powers.append(image[powers[-1]])
            out = np.concatenate(powers)
        return out

    def element(self, number: int) -> Int64:
        """int64[n], the permutation with that place in :meth:`orbit`."""
        out = np.arange(self.graph.count)
        for image, order in zip(self.images[::-1], self.orders[::-1], strict=True):
            number, exponent = divmod(number, order)
            out = power(image, exponent)[out]
        return out


def grow(graph: Graph, colours: Hash, counted: Bool, images: list[Int64], orders: list[int]) -> Group:
    """The group with more generators, while some are found for accelerators of equal colour in several orbits.

    Several ways are tried, until accelerators of equal colour are one orbit; else the one with the fewest orbits is
    taken: symmetries that move all accelerators alike, then any; the nearest ones with long cycles, then with short
    cycles, then those of the largest order.
    """
    accelerators = graph.accelerators[counted[graph.accelerators]]
    classes = len(np.unique(colours[accelerators]))
    work_left: float = MOST_WORK_BESIDE if images else MOST_WORK
    best, fewest = Group(graph, images, orders), len(accelerators) + 1
    for alike, near, short in WAYS:
        group = Group(graph, list(images), list(orders), work_left / 2, alike, short)
        while group.work_left > 0 and _one_more(group, colours, accelerators, near):
            pass
        orbits = len(np.unique(_orbits(graph.count, group.images)[accelerators]))
        if orbits < fewest:
            best, fewest = group, orbits
        work_left -= work_left / 2 - group.work_left
        if fewest == classes:
            break
    return best


def _one_more(group: Group, colours: Hash, accelerators: Int64, near: bool) -> bool:
    """Find one more generator, from where the first accelerator of the largest divided class goes.

    Args:
        near: whether the nearest accelerator will do; else the largest order of several is taken.
    """
    label = _orbits(group.graph.count, group.images)
    first = np.unique(label[accelerators], return_index=True)[1]
    leads = accelerators[first]
    _, at, count = np.unique(colours[leads], return_inverse=True, return_counts=True)
    if count.max(initial=1) == 1:
        return False
    start = int(leads[at == count.argmax()][0])
    beside = _hops(group, start)
    alike = accelerators[(colours[accelerators] == colours[start]) & (label[accelerators] != label[start])]
    near_first = alike[np.argsort(beside[alike], kind="stable")]
    tried = np.unique(label[near_first], return_index=True)[1]
    found: list[tuple[Int64, int]] = []
    for target in near_first[np.sort(tried)][:MOST_TARGETS].tolist():
        joined = _search(group, colours, accelerators, start, target)
        found += [joined] if joined is not None else []
        if group.work_left <= 0 or (found and near):
            break
    if found:
        image, order = max(found, key=lambda one: one[1])
        group.images.append(image)
        group.orders.append(order)
    return bool(found)


def _search(group: Group, colours: Hash, accelerators: Int64, start: int, target: int) -> tuple[Int64, int] | None:
    """A symmetry that maps ``start`` to ``target`` and can join the group, and its order."""
    wanted = _relations(group.graph, colours, start, [target])[0]
    served = np.zeros(group.graph.count, dtype=np.bool_)
    served[accelerators] = group.alike
    stack = [(colours, colours, start, target, 0)]
    while stack and group.work_left > 0:
        left, right, node, image, depth = stack.pop()
        both = _refined(group, *_named(group, left, right, node, image, depth))
        if both is None:
            continue
        left, right = both
        classes, at, count = np.unique(left, return_inverse=True, return_counts=True)
        if len(classes) == group.graph.count:
            found = np.empty(group.graph.count, dtype=np.int64)
            found[np.argsort(left)] = np.argsort(right)
            group.work_left -= max(len(group.graph.tail), LEAST_WORK)
            joined = None
            if not group.alike or _moves_alike(group.graph, colours, accelerators, found, (start, target)):
                joined = _joined(group, accelerators, start, found)
            if joined is not None:
                return joined
            continue
        many = count[at.reshape(-1)]
        following = image if many[image] > 1 else _undecided(group, many, start)
        choices = np.flatnonzero(right == left[following])
        ranked = _ranked(group, colours, (start, following), choices.tolist(), wanted)
        if served[following]:
            alike = colours[following] == colours[start]
            ranked = [(w, relation) for w, relation in ranked if w != following and not (alike and relation != wanted)]
        stack += [(left, right, following, w, depth + 1) for w, _ in ranked[:MOST_BRANCHES][::-1]]
    return None


def _ranked(
    group: Group, colours: Hash, ends: tuple[int, int], choices: list[int], wanted: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Where a node may go, the likeliest first, with how that lies to the node.

    Args:
        ends: where the cycle begins, and the node.
        wanted: how the image of the start lies to it.
    """
    start, node = ends
    group.work_left -= LEAST_WORK * len(choices)
    related = list(zip(choices, _relations(group.graph, colours, node, choices), strict=True))
    # straight on: to a node that has few neighbours in common with where the cycle begins, or many over switches
    sign = -1 if wanted[0] == -1 else 1
    beside = {w: sign * len(common) for w, common in zip(choices, group.graph.common(start, choices), strict=True)}

    def rank(one: tuple[int, tuple[int, ...]]) -> tuple[bool, bool, int, bool]:
        return one[1] != wanted, (one[0] == start) != group.short, beside[one[0]], one[0] != node

    return sorted(related, key=rank)


def _moves_alike(graph: Graph, colours: Hash, accelerators: Int64, found: Int64, ends: tuple[int, int]) -> bool:
    """Whether all accelerators move, and those of the start's colour over the kind of link over which the start moves.

    Args:
        ends: the start and its image. Where no link joins them, it is enough that all accelerators move.
    """
    if (found[accelerators] == accelerators).any():
        return False
    arc = int(graph.arcs_between(np.array([ends[0]]), np.array([ends[1]]))[0])
    alike = accelerators[colours[accelerators] == colours[ends[0]]]
    over = graph.arcs_between(alike, found[alike])
    return arc < 0 or bool(((over >= 0) & (graph.arc_kind[over] == graph.arc_kind[arc])).all())


def _named(group: Group, left: Hash, right: Hash, node: int, image: int, depth: int) -> tuple[Hash, Hash]:
    """Both sides with colours of their own for all images of a node and of where it goes."""
    name = mixed(np.arange(group.size) + (depth + 1) * (1 << 32))
    left, right = left.copy(), right.copy()
    for side, orbit in ((left, group.orbit(node)), (right, group.orbit(image))):
        nodes, first = np.unique(orbit, return_index=True)
        side[nodes] = mixed(side[nodes] ^ name[first])
    return left, right


def _refined(group: Group, left: Hash, right: Hash) -> tuple[Hash, Hash] | None:
    """Both sides refined; None where they differ."""
    if not np.array_equal(np.sort(left), np.sort(right)):
        return None
    left, rounds = group.graph.refined(left)
    right, _ = group.graph.refined(right, rounds)
    group.work_left -= 2 * rounds * max(len(group.graph.tail), LEAST_WORK)
    return (left, right) if np.array_equal(np.sort(left), np.sort(right)) else None


def _undecided(group: Group, many: Int64, start: int) -> int:
    """A node that shares its colour: an accelerator if there is one, of the smallest class, near the start."""
    nodes = np.flatnonzero(many > 1)
    served = group.graph.base[nodes] != 0
    return int(nodes[np.lexsort((_hops(group, start)[nodes], many[nodes], served))[0]])


def _joined(group: Group, accelerators: Int64, start: int, found: Int64) -> tuple[Int64, int] | None:
    """A symmetry as one more generator of the group, and its order; None where the group would not be free."""
    if not all(commute(found, image) for image in group.images) or not group.graph.is_automorphism(found):
        return None
    orbit = group.orbit(start)
    again, order = found, 1
    while not (orbit == again[start]).any():
        again, order = found[again], order + 1
    number = int(np.flatnonzero(orbit == again[start])[0])
    # found^order is an element of the group: undo it, if that has a root of that order
    for k in range(len(group.orders) - 1, -1, -1):
        number, exponent = divmod(number, group.orders[k])
        root = next((r for r in range(group.orders[k]) if (order * r + exponent) % group.orders[k] == 0), None)
        if root is None:
            return None
        found = power(group.images[k], root)[found]
    if not np.array_equal(power(found, order), np.arange(group.graph.count)):
        return None
    label = _orbits(group.graph.count, [*group.images, found])
    size = np.bincount(label[group.graph.accelerators], minlength=group.graph.count)[label[accelerators]]
    free = ((size == 1) | (size == group.size * order)).all()
    return (found, order) if order > 1 and free else None


def _orbits(count: int, images: list[Int64]) -> Int64:
    """int64[n], the least node of each node's orbit."""
    every = np.arange(count)
    return components(count, np.tile(every, len(images)), np.concatenate([every[:0], *images]))


def _relations(graph: Graph, colours: Hash, a: int, others: list[int]) -> list[tuple[int, ...]]:
    """How one node lies to each of others: the link that joins them, or else the colours of what both are joined to."""
    arcs = graph.arcs_between(np.full(len(others), a), np.array(others, dtype=np.int64))
    joined = [(int(graph.arc_kind[arc]),) if arc >= 0 else None for arc in arcs.tolist()]
    over = graph.common(a, [b for b, link in zip(others, joined, strict=True) if link is None])
    shared = ((-1, *sorted(colours[common].tolist())) for common in over)
    return [next(shared) if link is None else link for link in joined]


def _hops(group: Group, start: int) -> Int64:
    """int64[n], how many arcs each node is away; nodes that are not joined are farthest."""
    if start not in group.hops:
        graph, hops = group.graph, np.full(group.graph.count, group.graph.count, dtype=np.int64)
        hops[start], reached = 0, 0
        while True:
            step = (hops[graph.tail] == reached) & (hops[graph.head] == graph.count)
            if not step.any():
                break
            reached += 1
            hops[graph.head[step]] = reached
        group.hops[start] = hops
    return group.hops[start]

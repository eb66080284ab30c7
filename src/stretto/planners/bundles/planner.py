"""One tree from the root, whose messages carry bundles: what is for their receiver and for all nodes below it.

Where messages cost, a root that sends to each rank by itself is busy with messages, and where it hands data to others
to send on, these messages come one after another. Which node should send to which depends on the latency of each way,
on what messages and bytes cost its links, and on how much there is to send below. So a tree grows by the node that can
have its data first, as in the postal model (Bar-Noy and Kipnis, Mathematical Systems Theory 1994; for unlike ways Bhat,
Raghavendra and Prasanna, JPDC 2003), and is then changed for as long as its last nodes have their data sooner. Large
data is cut into parts, each with a tree of its own; all use the links together.

Where switches copy, one message may go to several nodes, with what is for each of them and below: it costs its sender
one message. A Gather is a Scatter on the network with every link turned round, backwards in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, Int64, Ragged
from ...model.changes import NO_CHANGES
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.plan import Plan, make_plan
from ...model.topology import Topology
from ...schedule.backwards import backwards
from ...schedule.best import best
from ...schedule.cutting import is_too_fine, messages_cost, share_of_bytes
from ...schedule.effort import Budget
from ...schedule.trees import divide
from .. import Candidate, Request, over_links, register
from . import kernel_changes, kernel_trees
from .kernel_trees import Course, Tree, Vertices, Ways
from .ways import nodes_of, ways_among

STARTS = ((0.0, True), (1.0, True), (8.0, True), (1.0, False))
"""For how many nodes a message has data, as is guessed while a tree grows, and whether messages wait for each other:
each guess gives a tree."""

MOST_RANKS = 512
"""Ranks beyond which ways between all of them take too long to find."""

SEARCH_STEPS, RANK_STEPS = 300_000.0, 1_500.0
"""Steps that changing trees may take where messages decide; where bytes alone do, for each rank. With 300,000
everywhere ``auto`` lacks effort for rerouting: Scatter of 16 MB on zoo:282891:some?message=2us then takes 1.035 times
as long (benchmarks/heldout.py)."""

LEVEL_SHARE = 0.7
"""Share of the steps that are left for the trees of each number of parts."""

MOST_LATER = 2.0
"""Times the completion of the best tree up to which other trees are changed, too."""

FAR = 1.2
"""Times the completion of a tree up to which that of the same tree for each of two parts is worth changing."""

BUNDLES_OF_NODE = 2
"""Bundles of a part of the data that may come to a node, each with what is for other nodes below."""

MOST_PARTS = 8
"""Parts of each piece at most."""

COSTS = {"way": 4.0, "message": 0.25}
"""Steps (:mod:`stretto.schedule.effort`) of a way that is found, and of a message of a tree that is looked at."""

KERNEL_STEPS, LIKELY_SWEEPS = 10.0, 3.0
"""Steps of the kernel's inner loop for each message of a tree that is looked at, and how often every way is tried for
every vertex, about."""


def _refusal(topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    reason = over_links(topology, workload)
    if reason is None and len(workload.collectives) > 1:
        reason = "it plans one collective at a time"
    if reason is None and not topology.store_and_forward[workload.collectives[0].ranks].all():
        reason = "routes pass through its ranks, which send on what still comes"
    if reason is None and len(workload.collectives[0].ranks) > MOST_RANKS:
        reason = f"it seeks ways among {MOST_RANKS} ranks at most"
    return reason


def _steps(request: Request) -> float:
    ranks = len(request.workload.collectives[0].ranks)
    return COSTS["way"] * ranks**2 + min(_search_steps(request), COSTS["message"] * ranks**3)


def _search_steps(request: Request) -> float:
    """Steps for changes of trees: where bytes decide, planners that fill links make better use of the effort."""
    share = share_of_bytes(request.topology, request.workload)
    by_rank = RANK_STEPS * len(request.workload.collectives[0].ranks)
    return share * min(by_rank, SEARCH_STEPS) + (1 - share) * SEARCH_STEPS


@register(
    "bundles",
    collectives=("scatter", "gather"),
    topologies="where nodes that store lead from the root to all ranks, without planes",
    paper="our own; postal model, Bar-Noy and Kipnis, 1994",
    messages=True,
    cuts=True,
    serves=_refusal,
    auto=Candidate(
        _steps,
        leads=True,
        few_messages=True,
        asked=lambda r: r.several_chunks and messages_cost(r.topology),
    ),
)
def bundles(request: Request) -> Plan:
    """A tree of bundles for each part of the data.

    Returns:
        A plan in ready-order, or with times where data comes in.
    Raises:
        Unsupported: some rank has no way from the root.
    """
    case = _Case.of(request.topology, request.workload.collectives[0])
    request.budget.with_costs(COSTS).spend(way=len(case.ways.src))
    budget = request.budget.with_costs(COSTS).within(_search_steps(request))
    plans: list[Plan] = []
    parts, trees = 1, case.grown()
    while True:
        cut = _Cut.of(case, parts)
        tree = cut.improved(trees, budget)
        plans.append(cut.plan(tree, request.several_chunks))
        parts, trees = 2 * parts, [_in_two(tree)]
        finer = parts <= min(MOST_PARTS, int(case.c.piece_bytes.min())) and not budget.exhausted
        if not finer or is_too_fine(plans) or _Cut.of(case, parts).end_s(trees[0]) > FAR * cut.end_s(tree):
            return best(plans)


def _in_two(tree: Tree) -> Tree:
    """The same tree for each of the two parts into which every part is cut."""
    others = len(tree.parent) - 1
    further = np.where(tree.parent[1:] > 0, tree.parent[1:] + others, tree.parent[1:])
    message = np.where(tree.message[1:] > 0, tree.message[1:] + others, tree.message[1:])
    return Tree(*map(np.concatenate, ((tree.parent, further), (tree.way, tree.way[1:]), (tree.message, message))))


@dataclass(frozen=True)
class _Case:
    """A collective from one root, or backwards in time to one.

    Attributes:
        asked, topology: the network; the same, with every link turned round where data comes in.
        nodes: int64[nodes], the root, the other ranks and relays.
        ways, routes: how nodes reach each other.
    """

    asked: Topology
    topology: Topology
    c: Collective
    nodes: Int64
    ways: Ways
    routes: Ragged

    @classmethod
    def of(cls, topology: Topology, c: Collective) -> _Case:
        turned = topology
        if c.traits.wanted == "root":
            turned = replace(topology, src=topology.dst, dst=topology.src, changes=NO_CHANGES)
        nodes = nodes_of(topology, c.ranks, int(c.ranks[c.root]))
        return cls(topology, turned, c, nodes, *ways_among(turned, nodes, turned is topology))

    @property
    def inward(self) -> bool:
        """Whether data comes in to the root."""
        return self.c.traits.wanted == "root"

    def grown(self) -> list[Tree]:
        """The trees in one part from which changes begin.

        Raises:
            Unsupported: some rank has no way from the root.
        """
        others = len(self.nodes) - 1
        own_bytes = _Cut.of(self, 1).vertices.own_bytes[: 1 + others]
        grow = at_speed(kernel_trees.grow, len(STARTS) * len(self.nodes) * float(len(self.ways.src)))
        found = {
            way.tobytes(): way for way in (grow(self.ways, own_bytes, bundle, shared) for bundle, shared in STARTS)
        }
        for way in found.values():
            missing = np.flatnonzero((way < 0) & (own_bytes > 0))
            if len(missing):
                name = self.topology.names[self.nodes[missing[0]]]
                raise Unsupported(
                    f"bundles does not serve {self.topology.name}: nodes that store do not lead to {name}"
                )
        further = np.full((BUNDLES_OF_NODE - 1) * others, -1)
        trees = []
        for way in found.values():
            parent = np.where(way < 0, -1, self.ways.src[way])
            for message in self._messages(parent, way):
                trees.append(Tree(*(np.concatenate((each, further)) for each in (parent, way, message))))
        return trees

    def _messages(self, parent: Int64, way: Int64) -> Iterator[Int64]:
        """The message to each vertex: one to each, or one to all that get data from a node over one of its links."""
        reached = np.flatnonzero(way >= 0)
        message, used = np.where(way < 0, -1, np.arange(len(way))), way[reached]
        yield message
        port = np.where(self.ways.copies[used], self.ways.links[self.ways.first[used]], -1 - reached)
        _, first, of = np.unique((parent[reached], port), axis=1, return_index=True, return_inverse=True)
        if len(first) < len(reached):
            message = message.copy()
            message[reached] = reached[first[of.ravel()]]
            yield message


@dataclass(frozen=True)
class _Cut:
    """A case whose pieces are cut into parts.

    Vertex 0 is the root. The others are the nodes but the root, BUNDLES_OF_NODE times for each part; what is for a node
    itself comes to the first of these.

    Attributes:
        c: the collective with its chunks.
        vertex: int64[chunks], for whom each is: 0 for the root.
    """

    case: _Case
    c: Collective
    vertex: Int64
    vertices: Vertices

    @classmethod
    def of(cls, case: _Case, parts: int) -> _Cut:
        c, part = divide(case.c, parts)
        others = len(case.nodes) - 1
        node = np.concatenate(([0], np.tile(np.arange(1, 1 + others), parts * BUNDLES_OF_NODE)))
        place = np.zeros(case.topology.node_count, dtype=np.int64)
        place[case.nodes] = np.arange(1 + others)
        goal = place[c.ranks[c.chunk_piece]]
        vertex = np.where(goal > 0, goal + part * BUNDLES_OF_NODE * others, 0)
        own_bytes: Float64 = np.bincount(vertex, c.chunk_bytes, len(node)).astype(np.float64)
        own_bytes[0] = 0.0
        of = Ragged.grouped(node, np.arange(len(node)), 1 + others)
        return cls(case, c, vertex, Vertices(node, own_bytes, of.offsets, of.values.astype(np.int64)))

    def improved(self, trees: Sequence[Tree], budget: Budget) -> Tree:
        """The best of some trees that have been changed for as long as that gains, or the effort lasts."""
        share, least_s = budget.share(LEVEL_SHARE), min(map(self.end_s, trees))
        near = [tree for tree in trees if self.end_s(tree) <= MOST_LATER * least_s]
        parts = [share.within(share.steps / (2 * len(near))) for _ in near]
        begun = [self._changed(tree, False, part) for tree, part in zip(near, parts, strict=True)]
        ended = []
        for tree, part in sorted(zip(begun, parts, strict=True), key=lambda each: self.end_s(each[0])):
            whole = self._changed(tree, False, share) if part.exhausted else tree
            ended.append(self._changed(whole, True, share))
        return min(ended, key=self.end_s)

    def _changed(self, tree: Tree, beside: bool, budget: Budget) -> Tree:
        likely = LIKELY_SWEEPS * len(self.case.ways.src) * len(tree.way)
        improve = at_speed(kernel_changes.improve, KERNEL_STEPS * min(likely, budget.units("message")))
        changed, looked = improve(self.case.ways, self.vertices, tree, beside, int(budget.units("message")))
        budget.spend(message=looked)
        return changed

    def course(self, tree: Tree) -> Course:
        course = at_speed(kernel_trees.course, KERNEL_STEPS * len(tree.way))
        return course(self.case.ways, self.vertices, tree)

    def end_s(self, tree: Tree) -> float:
        """When the last rank has its data by a tree."""
        return float(self.course(tree).arrival_s[self.vertices.own_bytes > 0].max())

    def plan(self, tree: Tree, several_chunks: bool) -> Plan:
        """The plan of a tree."""
        case, order = self.case, self.course(tree).order
        first = np.flatnonzero(np.diff(tree.message[order], prepend=-1))  # those of a message stand together
        number = np.cumsum(np.diff(tree.message[order], prepend=-1) != 0) - 1
        to_vertex = np.full(len(tree.way), -1)  # the message to each vertex
        to_vertex[order] = number
        before = to_vertex[tree.parent[order[first]]]
        message, chunk = self._carried(to_vertex, before)
        onward, row = np.flatnonzero(before[message] >= 0), message * self.c.chunk_count + chunk
        awaited = np.searchsorted(row, before[message[onward]] * self.c.chunk_count + chunk[onward])
        node = case.nodes[self.vertices.node]
        routes = case.routes.take(tree.way[order])
        _, once = np.unique(number[routes.owners] * case.topology.link_count + routes.values, return_index=True)
        once.sort()
        route = Ragged.grouped(number[routes.owners[once]], routes.values[once], len(first))
        src = node[tree.parent[order[first]]]
        sent = make_plan(
            case.topology, Workload((self.c,)), "ready-order", chunk=chunk, src=src[message],
            dst=Ragged.grouped(number, node[order], len(first)).take(message), route=route.take(message),
            depends=Ragged.grouped(onward, awaited, len(message)), message=message if several_chunks else None,
        )  # fmt: skip
        return backwards(sent, case.asked, sent.workload) if case.inward else sent

    def _carried(self, to_vertex: Int64, before: Int64) -> tuple[Int64, Int64]:
        """Which message carries which chunk, by message.

        Args:
            to_vertex: int64[vertices], the message to each.
            before: int64[messages], the message that brings what each sends on, -1 for one from the root.
        """
        message, chunk = [], []
        some = np.flatnonzero(self.vertex > 0)
        at = to_vertex[self.vertex[some]]
        while len(some):
            message.append(at)
            chunk.append(some)
            at = before[at]
            some, at = some[at >= 0], at[at >= 0]
        messages, chunks = np.concatenate(message), np.concatenate(chunk)
        by_message = np.lexsort((chunks, messages))
        return messages[by_message], chunks[by_message]

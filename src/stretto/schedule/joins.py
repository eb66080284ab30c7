"""Lower trees through switches that sum: what comes to a switch over several edges goes on as one transfer.

Here trees also have switches among their nodes. A switch stores nothing, so all that meets in neighbouring switches on
the way up is one transfer from several sources, and all that a switch sends down is one transfer to several receivers
(the same, with time reversed). An AllReduce needs only one pass where its tree is rooted at a switch. So it does where
the root's sum comes from the switch to which the root sends copies: then the root sends its own sum to the switch and
gets the whole from there, over the same two links. Where the root sums and copies over an edge to a node that stores,
the two swap their sums over this edge, so that both have the whole at once.

Where a switch on the way cannot sum or replicate, each source or receiver has a transfer of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..model.arrays import Bool, Int64, Ragged
from ..model.collective import Workload
from ..model.errors import Unsupported
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology
from .trees import Trees

Links = list[int]


class Pass(NamedTuple):
    """One transfer of a chunk."""

    sources: list[int]
    receivers: list[int]
    op: int
    route: Links
    after: list[int]  # the earlier passes of the chunk that it waits for


def lower_joined(
    topology: Topology, workload: Workload, tree: Int64, up: Trees, down: Trees, meta: dict[str, Any] | None = None
) -> Plan:  # fmt: skip
    """A plan in ready-order in which every chunk follows its tree; see :func:`stretto.schedule.trees.lower`."""
    piece = np.concatenate([c.chunk_piece for c in workload.collectives])
    keys = np.stack((tree, workload.chunk_collective, piece), axis=1)
    _, first, alike = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    scalars: list[tuple[Int64, Int64, Int64]] = []
    columns: list[tuple[Ragged, Ragged, Ragged, Ragged]] = []
    base = 0
    for number, chunk in enumerate(first.tolist()):
        chunks = np.flatnonzero(alike.reshape(-1) == number)
        sums = workload.chunk_reduces[chunk]
        sources, receivers = workload.chunk_holders[chunk].tolist(), workload.chunk_wanted[chunk].tolist()
        own = _Branches(topology, int(up.root[tree[chunk]]), sources, receivers)
        rising = own.pruned(up, int(tree[chunk]), sources if sums else [])
        falling = own.pruned(down, int(tree[chunk]), receivers)
        passes = own.passes(rising, falling)
        if not passes:
            continue
        count, times = len(passes), len(chunks)
        rows = np.tile(np.arange(count), times)
        after = Ragged.of([p.after for p in passes]).take(rows)
        after = after.with_values(after.values + base + (np.arange(times) * count)[after.owners // count])
        lists = ([p.sources[1:] for p in passes], [p.receivers for p in passes], [p.route for p in passes])
        others, ends, routes = (Ragged.of(column).take(rows) for column in lists)
        src = np.array([p.sources[0] for p in passes], dtype=np.int64)[rows]
        op = np.array([p.op for p in passes], dtype=np.int64)[rows]
        scalars.append((np.repeat(chunks, count), src, op))
        columns.append((others, ends, routes, after))
        base += count * times
    chunk_of, src, op = (np.concatenate(column) for column in zip(*scalars, strict=True))
    others, ends, routes, after = (Ragged.concatenate(column) for column in zip(*columns, strict=True))
    return make_plan(
        topology, workload, "ready-order", chunk=chunk_of, src=src, other_src=others, op=op, dst=ends, route=routes,
        depends=after, meta=meta,
    )  # fmt: skip


class _Tree(NamedTuple):
    """The edges of a tree that a chunk uses."""

    edge: dict[int, tuple[int, Links]]  # for each node but the root its parent, and the links between
    children: dict[int, list[int]]
    order: list[int]  # the nodes, parents first

    @classmethod
    def of(cls, root: int, edge: dict[int, tuple[int, Links]]) -> _Tree:
        children: dict[int, list[int]] = {}
        for v, (parent, _) in edge.items():
            children.setdefault(parent, []).append(v)
        order = [root]
        for v in order:
            order += children.get(v, [])
        return cls(edge, children, order)


class _Branches:
    """The passes of one chunk along its trees."""

    def __init__(self, topology: Topology, root: int, sources: list[int], receivers: list[int]) -> None:
        self.root = root
        self.root_holds, self.root_wants = root in sources, root in receivers
        self.link_src, self.link_dst = topology.src, topology.dst
        self.is_switch: Bool = topology.is_switch
        self.reduces, self.replicates = topology.reduces, topology.replicates
        self.made: list[Pass] = []
        self.brought: dict[int, list[int]] = {}

    def pruned(self, trees: Trees, row: int, targets: Iterable[int]) -> _Tree:
        """The edges between the root and the targets."""
        edge: dict[int, tuple[int, Links]] = {}
        for v in targets:
            while v != self.root and v not in edge:
                edge[v] = int(trees.toward[row, v]), trees.routes[trees.hop[row, v]].tolist()
                v = edge[v][0]
        return _Tree.of(self.root, edge)

    def from_switch(self, up: _Tree, down: _Tree) -> tuple[_Tree, _Tree]:
        """The trees with a switch as their root, where that is the only neighbour of a root that stores."""
        root, nearest = self.root, up.children.get(self.root, [])
        if self.is_switch[root] or nearest != down.children.get(root) or len(nearest) != 1:
            return up, down
        switch = nearest[0]
        if not self.is_switch[switch]:
            return up, down
        self.root = switch
        # the root sends to the switch over the links of the out-tree
        turned = (
            up.edge | ({root: (switch, down.edge[switch][1])} if self.root_holds else {}),
            down.edge | ({root: (switch, up.edge[switch][1])} if self.root_wants else {}),
        )
        for edge in turned:
            del edge[switch]
        return _Tree.of(switch, turned[0]), _Tree.of(switch, turned[1])

    def passes(self, up: _Tree, down: _Tree) -> list[Pass]:
        """All transfers of the chunk, in an order in which each waits for earlier ones only."""
        up, down = self.from_switch(up, down)
        swapping = self.swapping_source(up, down)
        for v in reversed(up.order[1:]):
            if not self.is_switch[v] and v != swapping:
                for child in up.children.get(v, []):
                    self.sum_up(up, child, v)
        if swapping >= 0:
            whole = self.swap_beside_switch(up, down, swapping)
        else:
            whole = self.pass_at_switch(up, down) if self.is_switch[self.root] else self.sum_at_root(up, down)
        for v in down.order:
            if not self.is_switch[v]:
                for child in down.children.get(v, []):
                    if (v, child) != whole:
                        self.copy_down(down, v, child)
        return self.made

    def sum_at_root(self, up: _Tree, down: _Tree) -> tuple[int, int]:
        """Sum at a root that stores: by a swap with a child that stores, else in one pass with copies over a switch.

        Returns:
            The edge of the copies that have been made: the root and its child, or -1.
        """
        root, depth = self.root, self.depths(up)
        # what takes longest to come goes on at once
        children = sorted(up.children.get(root, []), key=lambda v: -depth[v])
        both = [v for v in children if down.edge.get(v, (-1,))[0] == root]
        storing = [v for v in both if not self.is_switch[v]]
        switches = [v for v in both if self.is_switch[v]]
        # what comes over the other children is in the root's own sum, too
        gives = [root] if self.root_holds or len(children) > 1 else []
        # of several children that store only one could swap, and the others would wait for it
        if gives and (len(storing) == 1 or (storing and not switches)):
            for child in children:
                if child != storing[0]:
                    self.sum_up(up, child, root)
            self.swap(root, storing[0], down.edge[storing[0]][1], up.edge[storing[0]][1])
            return root, storing[0]
        for s in switches:
            sources, into = self.gather(up, s)
            receivers, out = self.scatter(down, s)
            into, out = into + (down.edge[s][1] if gives else []), up.edge[s][1] + out
            if len(sources) + len(gives) > 1 and self.can_meet([*sources, *gives], into, out):
                for child in children:
                    if child != s:
                        self.sum_up(up, child, root)
                self.make([*sources, *gives], [root, *receivers], COPY, into + out)
                return root, s
        for child in children:
            self.sum_up(up, child, root)
        return root, -1

    def pass_at_switch(self, up: _Tree, down: _Tree) -> tuple[int, int]:
        """Sum and copy at a root that is a switch; where it cannot do both, at the first source that wants the sum."""
        (sources, into), (receivers, out) = self.gather(up, self.root), self.scatter(down, self.root)
        if len(sources) > 1 and self.can_meet(sources, into, out):
            self.make(sources, receivers, COPY, into + out)
            return self.root, -1
        # a single source has the whole sum, whether the switch sends it back or not
        alone = sources[0] if len(sources) == 1 else receivers[0]
        middle = next((v for v in sources if v in receivers), alone)
        for v in sources:
            if v != middle:
                to_middle = self.way(down, middle, self.root)[::-1]
                self.make([v], [middle], REDUCE, self.way(up, v, self.root) + to_middle)
        if middle not in up.edge and receivers != [middle]:
            raise Unsupported(
                "no node beside the switch at the root of a tree both sends to it and gets the sum from it"
            )
        from_middle = self.way(up, middle, self.root) if middle in up.edge else []
        for w in receivers:
            if w != middle:
                self.make([middle], [w], COPY, from_middle + self.way(down, w, self.root)[::-1])
        return self.root, -1

    def swapping_source(self, up: _Tree, down: _Tree) -> int:
        """The one node beside a root that is a switch whose child it can swap sums with; -1 if there is none.

        Then the sums on both sides are made side by side, where one pass over the switch would wait for the child's.
        """
        root = self.root
        sources = self.gather(up, root)[0] if self.is_switch[root] else []
        inner = [v for v in sources if up.children.get(v)]
        if len(inner) != 1 or len(sources) < 3 or up.edge[v := inner[0]][0] != root or v not in down.edge:
            return -1
        twin = up.children[v][0]
        same = down.edge[v][0] == root and down.edge.get(twin, (-1,))[0] == v
        if len(up.children[v]) > 1 or self.is_switch[twin] or not same:
            return -1
        others, into, _, out = self.beside(up, down, v)
        return v if self.can_meet(others, into, []) and self.can_branch(out) else -1

    def beside(self, up: _Tree, down: _Tree, v: int) -> tuple[list[int], Links, list[int], Links]:
        """What comes to ``v`` over the switch at the root, and what goes from it: the nodes, and the links."""
        (others, into), (receivers, out) = self.gather(up, self.root, but=v), self.scatter(down, self.root, but=v)
        return others, into + down.edge[v][1], receivers, up.edge[v][1] + out

    def swap_beside_switch(self, up: _Tree, down: _Tree, v: int) -> tuple[int, int]:
        """Sum at ``v``, beside the switch at the root, what comes over that switch; swap with the child of ``v``."""
        others, into, receivers, out = self.beside(up, down, v)
        twin = up.children[v][0]
        self.make(others, [v], REDUCE, into)
        self.swap(v, twin, down.edge[twin][1], up.edge[twin][1])
        self.make([v], receivers, COPY, out)
        return v, twin

    def swap(self, v: int, twin: int, forth: Links, back: Links) -> None:
        """Two nodes send each other their sums, and both have the sum of the two."""
        sums = sorted(self.brought.get(v, [])), sorted(self.brought.get(twin, []))
        for (a, b), route, after in zip(((twin, v), (v, twin)), (back, forth), sums[::-1], strict=True):
            self.brought[b] = [*self.brought.get(b, []), len(self.made)]
            self.made.append(Pass([a], [b], REDUCE, route, after))

    def sum_up(self, up: _Tree, child: int, v: int) -> None:
        """What comes from a child, or over a switch from several nodes, is added up at ``v``."""
        sources, links = self.gather(up, child) if self.is_switch[child] else ([child], [])
        links = links + up.edge[child][1]
        if len(sources) == 1 or self.can_meet(sources, links, []):
            self.make(sources, [v], REDUCE, links)
            return
        for s in sources:
            self.make([s], [v], REDUCE, self.way(up, s, v))

    def copy_down(self, down: _Tree, v: int, child: int) -> None:
        """What ``v`` has goes to a child, or over a switch to several nodes."""
        receivers, links = self.scatter(down, child) if self.is_switch[child] else ([child], [])
        links = down.edge[child][1] + links
        if len(receivers) == 1 or self.can_branch(links):
            self.make([v], receivers, COPY, links)
            return
        for w in receivers:
            self.make([v], [w], COPY, self.way(down, w, v)[::-1])

    def make(self, sources: list[int], receivers: list[int], op: int, route: Links) -> None:
        """Add a pass, which waits for all that has come to its sources.

        Ways to a switch and from it may share routers. From one node to another the pass makes no circle there.
        """
        if len(sources) == len(receivers) == 1:
            route = self.straight(route, sources[0])
        after = sorted({k for v in sources for k in self.brought.get(v, [])})
        for v in receivers:
            # after a copy nothing else counts
            self.brought[v] = [*self.brought.get(v, []), len(self.made)] if op == REDUCE else [len(self.made)]
        self.made.append(Pass(sources, receivers, op, route, after))

    def gather(self, up: _Tree, switch: int, but: int = -1) -> tuple[list[int], Links]:
        """The nodes (not ``but``) whose data comes to a switch over switches only, and the links, far ones first."""
        sources: list[int] = []
        links: Links = []
        for child in up.children.get(switch, []):
            if child == but:
                continue
            beyond = self.gather(up, child) if self.is_switch[child] else ([child], [])
            sources += beyond[0]
            links += beyond[1] + up.edge[child][1]
        return sources, links

    def scatter(self, down: _Tree, switch: int, but: int = -1) -> tuple[list[int], Links]:
        """The nodes (not ``but``) to which data goes from a switch over switches only, and the links, nearest first."""
        receivers: list[int] = []
        links: Links = []
        for child in down.children.get(switch, []):
            if child == but:
                continue
            beyond = self.scatter(down, child) if self.is_switch[child] else ([child], [])
            receivers += beyond[0]
            links += down.edge[child][1] + beyond[1]
        return receivers, links

    def way(self, tree: _Tree, v: int, end: int) -> Links:
        """The links between a node and one above it, edge by edge from the node; each edge as bytes take it up.

        For a tree that leads down, edge by edge and link by link against the direction of the bytes.
        """
        links: Links = []
        while v != end:
            parent, edge = tree.edge[v]
            rises = int(self.link_dst[edge[-1]]) == parent
            links += edge if rises else edge[::-1]
            v = parent
        return links

    def straight(self, links: Links, begin: int) -> Links:
        """A path without the circles in it."""
        kept: Links = []
        nodes = [begin]
        for link in links:
            end = int(self.link_dst[link])
            if end in nodes:
                kept, nodes = kept[: nodes.index(end)], nodes[: nodes.index(end) + 1]
            else:
                kept.append(link)
                nodes.append(end)
        return kept

    def can_meet(self, sources: list[int], into: Links, out: Links) -> bool:
        """Whether links join the sources where nodes sum, and branch where nodes replicate; no link is used twice."""
        parts = Counter([*sources, *self.link_dst[into].tolist()])
        leaves = Counter(self.link_src[into].tolist())
        sums = all(self.reduces[v] for v, count in parts.items() if count > 1 and v in leaves)
        ends = [v for v in parts if v not in leaves]
        sums = sums and len(ends) == 1 and (parts[ends[0]] == 1 or bool(self.reduces[ends[0]]))
        once = max(leaves.values()) == 1 and len({*into, *out}) == len(into) + len(out)
        return sums and once and self.can_branch(out)

    def can_branch(self, links: Links) -> bool:
        """Whether links are a tree that branches where nodes replicate."""
        entered, left = Counter(self.link_dst[links].tolist()), Counter(self.link_src[links].tolist())
        return all(n == 1 for n in entered.values()) and all(self.replicates[v] for v, n in left.items() if n > 1)

    def depths(self, tree: _Tree) -> dict[int, int]:
        """For each node the most edges to a node below it."""
        depth: dict[int, int] = {}
        for v in reversed(tree.order):
            depth[v] = max((depth[w] + 1 for w in tree.children.get(v, [])), default=0)
        return depth

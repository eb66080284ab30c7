"""Blocks of ranks that come together in switches, and the trees of links over which these sum and copy.

A *block* is coordinates of the network's group. Its ranks are joined by a tree of switches that sum and replicate, with
one *top* switch. In a transfer bytes rise from all sources to the top and fall from there to the receivers, and no
switch may be passed twice: so where switches of several levels come together, sums go to one rank, and copies from it.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int32, Int64
from ...model.plan import COPY, REDUCE
from ...model.symmetry import Symmetry
from ...model.topology import Topology
from .chains import Digits

MOST_ROOTS = 8
"""Switches at the top of a block's trees, at most, that parts take in turns."""


class Tree(NamedTuple):
    """The links of a transfer through switches, of the first rank's block.

    Attributes:
        delay_s: float64[links], how much later than its start the transfer comes to each.
        lag_s: from start to the last receiver.
        sources, receivers: elements.
    """

    links: Int64
    delay_s: Float64
    lag_s: float
    sources: Int64
    receivers: Int64
    op: int


class Block(NamedTuple):
    """Coordinates whose ranks come together in switches.

    Attributes:
        elements: the identity first.
        sums, copies, meetings: trees to the first rank, from it, and from all to all; one for each top switch. Where
            switches of several levels come together there are no meetings.
    """

    elements: Int64
    sums: list[Tree]
    copies: list[Tree]
    meetings: list[Tree]


def find_blocks(symmetry: Symmetry, at: Int32, digits: Digits) -> list[tuple[Digits, Block]] | None:
    """The fewest blocks of consecutive coordinates, the outermost first; None where some come together nowhere."""
    t = symmetry.topology
    used = tuple(k for k in digits if symmetry.orders[k] > 1)
    sums = t.is_switch & t.transit & t.reduces & t.replicates
    if not sums.any() or not used:
        return None
    known: dict[Digits, Block | None] = {}

    def block(some: Digits) -> Block | None:
        if some not in known:
            grid = np.indices(tuple(symmetry.orders[list(some)].tolist())).reshape(len(some), -1)
            known[some] = _block(t, sums, at, (grid * symmetry.strides[list(some)][:, None]).sum(axis=0))
        return known[some]

    for cuts in sorted(product((0, 1), repeat=len(used) - 1), key=lambda each: (sum(each), each)):
        ends_ = [k + 1 for k, cut in enumerate(cuts) if cut] + [len(used)]
        parts = [used[a:b] for a, b in zip([0, *ends_[:-1]], ends_, strict=True)]
        found = [(part, each) for part in parts if (each := block(part)) is not None]
        if len(found) == len(parts):
            return found
    return None


def _block(t: Topology, sums: Bool, at: Int32, elements: Int64) -> Block | None:
    """The trees over the ranks of ``elements`` through the nearest switches where all of them come together."""
    nodes = at[elements]
    near = _Ways.of(t, sums, int(nodes[0]), into=False)
    tops = np.flatnonzero(sums & (near.hops >= 0))
    found = Block(elements, [], [], [])
    every, far = np.arange(len(elements)), t.node_count
    for top in tops[np.argsort(near.hops[tops], kind="stable")].tolist():
        if near.hops[top] > far or len(found.sums) == MOST_ROOTS:
            break
        up, down = (_Ways.of(t, sums, top, into) for into in (True, False))
        if (up.hops[nodes] < 0).any() or (down.hops[nodes] < 0).any():
            continue
        for trees, sources, receivers, op in (
            (found.sums, every[1:], every[:1], REDUCE), (found.copies, every[:1], every[1:], COPY),
            (found.meetings, every, every, COPY),
        ):  # fmt: skip
            rise, fall = up.links(nodes[sources])[::-1], down.links(nodes[receivers])
            if len(np.intersect1d(t.dst[rise], t.src[fall])) > 1:
                continue  # a route may pass each switch once
            far = int(near.hops[top])
            latest_s = float(up.seconds[nodes[sources]].max())
            delay_s = np.concatenate((latest_s - up.seconds[t.src[rise]], latest_s + down.seconds[t.src[fall]]))
            lag_s = latest_s + float(down.seconds[nodes[receivers]].max())
            links = np.concatenate((rise, fall))
            trees.append(Tree(links, delay_s, lag_s, elements[sources], elements[receivers], op))
    return found if found.sums and len(found.sums) == len(found.copies) else None


class _Ways(NamedTuple):
    """Ways through some switches to a node, or from it, of fewest hops.

    Attributes:
        link: int64[nodes], the link that leads on from each node, or by which it is reached; -1 where there is no way,
            and at the top.
        onward: int64[nodes], the node to which that leads, or from which it comes.
        hops, seconds: int64[nodes], -1 where there is no way; float64[nodes], the latency.
    """

    link: Int64
    onward: Int64
    hops: Int64
    seconds: Float64

    @classmethod
    def of(cls, t: Topology, passed: Bool, top: int, into: bool) -> _Ways:
        near, far, links_of = (t.dst, t.src, t.in_links) if into else (t.src, t.dst, t.out_links)
        link, onward, hops = (np.full(t.node_count, -1, dtype=np.int64) for _ in range(3))
        seconds = np.zeros(t.node_count)
        hops[top], frontier = 0, np.array([top])
        while len(frontier):
            links = links_of.take(frontier).values.astype(np.int64)
            new, first = np.unique(far[links], return_index=True)
            new, first = new[hops[new] < 0], first[hops[new] < 0]
            link[new] = links[first]
            onward[new] = near[link[new]]
            hops[new] = hops[onward[new]] + 1
            seconds[new] = seconds[onward[new]] + t.latency_s[link[new]]
            frontier = new[passed[new]]
        return cls(link, onward, hops, seconds)

    def links(self, nodes: Int32) -> Int64:
        """The links on the ways of some nodes, the nearest to the top first."""
        passed = [here := np.unique(nodes).astype(np.int64)]
        while (self.hops[here] > 1).any():
            passed.append(here := np.unique(self.onward[here[self.hops[here] > 1]]))
        every = np.unique(np.concatenate(passed))
        return self.link[every[np.argsort(self.hops[every], kind="stable")]]

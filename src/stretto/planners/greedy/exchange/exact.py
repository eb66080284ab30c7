"""An AllReduce in the fewest hops there can be, exactly, by CP-SAT: for small networks, where latency decides.

Among accelerators with links of equal latency: can all ranks end after as many hops as the farthest is away, or one
more? In each hop a link carries one message at most, which is added or replaces what was there. A message starts from
its source's contribution or from a copy that came there, adds some of the sums that came after that, and must hold
whatever happened before it there (docs/decisions/0003). So ranks can swap contributions first, and send each other's
alone: a ring of 8 takes 4 hops, and 5 where messages are only added. What is found goes, a part of the buffer each,
through its images under the network's automorphisms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....bounds import distances
from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan
from ....model.topology import Topology
from ....schedule.dispatch import dispatched
from ....schedule.trees import divide
from ....solvers import Model, solve
from .blocks import Block, assembled
from .images import automorphisms

MOST_MESSAGES = 72
"""Links times hops that are looked at: the model grows with the square of them."""

MORE_HOPS = 1
"""Than the farthest rank is away: odd rings need one more."""

EFFORT = 1.5
"""CP-SAT's units of work, about a second each, after which it gives up."""

MOST_IMAGES = 64
"""Into how many parts the buffer is cut at most, each through an image of its own."""


def in_fewest_hops(topology: Topology, workload: Workload, seed: int = 0) -> Plan | None:
    """An AllReduce in as many hops as the farthest rank is away, or in one more.

    Returns:
        None where the network is no such small one, or there is no such plan, or it is not found soon.
    """
    c = workload.collectives[0]
    if len(workload.collectives) > 1 or c.kind != "allreduce" or len(c.ranks) < topology.node_count:
        return None
    latency = topology.latency_s
    if topology.planes or not topology.is_accelerator.all() or not 0 < latency.min() == latency.max():
        return None
    far = float(distances(topology, 0.0).max())
    most = MOST_MESSAGES // topology.link_count
    for hops in range(round(min(far / latency[0], most + 1)), most + 1)[: 1 + MORE_HOPS]:
        found = exchange(topology, hops)
        if found is not None:
            return _planned(topology, workload, found, seed)
    return None


@dataclass(frozen=True)
class Message:
    """Over a link, after the messages that brought what it holds, or that it must not overtake."""

    link: int
    copy: bool
    after: tuple[int, ...]


class Question:
    """Messages are numbered by link and hop; ``before[p]`` may bring what ``after[p]`` sends on."""

    def __init__(self, net: Topology, hops: int) -> None:
        self.model, self.nodes = Model(), net.node_count
        self.link = np.arange(net.link_count).repeat(hops)
        self.src, self.dst = net.src.astype(np.int64)[self.link], net.dst.astype(np.int64)[self.link]
        self.hop = np.tile(np.arange(hops), net.link_count)
        self.count = len(self.link)
        earlier = self.hop[:, None] < self.hop
        self.before, self.after = np.nonzero((self.dst[:, None] == self.src) & earlier)
        every, some, m, n = np.arange(self.count), np.arange(len(self.before)), self.model, self.nodes
        self.used, self.copy, own = (m.columns(self.count, integer=True) for _ in range(3))
        self.adds, self.starts = (m.columns(len(some), integer=True) for _ in range(2))
        content = m.columns(self.count * n, integer=True).reshape(self.count, n)
        self.at_most(0, self.copy, self.used, -1)
        self.at_most(0, self.adds, self.used[self.before], -1)
        self.at_most(1, self.adds, self.copy[self.before], 1)
        self.at_most(0, self.starts, self.copy[self.before], -1)
        m.rows(self.count, 0, 0, (every, own, 1), (self.after, self.starts, 1), (every, self.used, -1))
        # sums are added to a copy that came before them, and a copy comes alone
        came = self.hop[self.before]
        p, q = np.nonzero((self.after[:, None] == self.after) & (came[:, None] <= came))
        self.at_most(1, self.adds[p], self.starts[q], 1)
        a, b = np.nonzero((self.dst[:, None] == self.dst) & (self.hop[:, None] == self.hop) & (every[:, None] != every))
        self.at_most(1, self.copy[a], self.used[b], 1)
        self._holds(every.repeat(n), content, own, self.src, self._both(self.adds, self.starts, content[self.before]))
        self._ends(content, earlier)
        self._happened(earlier)

    def at_most(self, bound: float, a: Any, b: Any, sign: int) -> None:
        """``a + sign x b <= bound``, one by one."""
        rows = np.arange(len(a))
        self.model.rows(len(rows), -np.inf, bound, (rows, a, 1), (rows, b, sign))

    def product(self, flag: Any, content: Any) -> Any:
        """Columns that are both, a row of contents for each flag."""
        found = self.model.columns(content.size, integer=True)
        flags, rows = np.repeat(flag, self.nodes), np.arange(content.size)
        self.at_most(0, found, flags, -1)
        self.at_most(0, found, content.ravel(), -1)
        self.model.rows(len(rows), -np.inf, 1, (rows, flags, 1), (rows, content.ravel(), 1), (rows, found, -1))
        return found

    def _both(self, adds: Any, starts: Any, content: Any) -> tuple[Any, Any]:
        return self.product(adds, content), self.product(starts, content)

    def _holds(self, rows: Any, content: Any, own: Any, source: Any, brought: tuple[Any, Any]) -> None:
        """What a message holds: its source's contribution or a copy, and what is added."""
        n, cells = self.nodes, np.arange(content.size)
        mine = (source[:, None] == np.arange(n)).astype(float)
        into = (self.after[:, None] * n + np.arange(n)).ravel()
        self.model.rows(
            len(cells), 0, 0, (cells, content.ravel(), 1), (cells, own[rows], -mine.ravel()),
            (into, brought[0], -1), (into, brought[1], -1),
        )  # fmt: skip

    def _ends(self, content: Any, earlier: Any) -> None:
        """Every rank ends with all, each once: its own contribution or the last copy, and every sum after that."""
        m, n, count = self.model, self.nodes, self.count
        every, ranks = np.arange(count), np.arange(n)
        last, least = m.columns(count, integer=True), m.columns(n, integer=True)
        kept = m.columns(count, integer=True)
        brought = self._both(kept, last, content)
        self.at_most(0, kept, self.used, -1)
        self.at_most(1, kept, self.copy, 1)
        self.at_most(0, last, self.copy, -1)
        self.at_most(1, least[self.dst], self.copy, 1)
        m.rows(n, 1, 1, (ranks, least, 1), (self.dst, last, 1))
        here = self.dst[:, None] == self.dst
        a, b = np.nonzero(here & ~earlier.T)  # b no earlier than a
        self.at_most(1, kept[a], last[b], 1)
        m.rows(count, 0, np.inf, (every, kept, 1), (every, self.used, -1), (every, self.copy, 1), (a, last[b], 1))
        a, b = np.nonzero(here & earlier)
        self.at_most(1, last[a], self.copy[b], 1)
        gets, cells = (self.dst[:, None] * n + ranks).ravel(), np.arange(n * n)
        m.rows(n * n, 1, 1, (gets, brought[0], 1), (gets, brought[1], 1), (cells, least.repeat(n), np.eye(n).ravel()))

    def _happened(self, earlier: Any) -> None:
        """What happened before a message at its source is in it, or was replaced by the copy that it starts from."""
        m, count = self.model, self.count
        x, y = np.nonzero(earlier)
        number = np.full((count, count), -1)
        number[x, y] = m.columns(len(x), integer=True)

        def implied(first: Any, a: Any, b: Any, least: int) -> None:
            rows = np.arange(len(first))
            m.rows(len(rows), least, np.inf, (rows, first, 1), (rows, a, -1), (rows, b, -1))

        implied(number[self.before, self.after], self.adds, self.starts, 0)
        a, b = np.nonzero((self.dst[:, None] == self.dst) & earlier)
        implied(number[a, b], self.copy[b], self.used[a], -1)
        implied(number[a, b], self.copy[a], self.used[b], -1)
        joined = earlier & ((self.dst[:, None] == self.src) | (self.dst[:, None] == self.dst))
        first, then = np.nonzero(joined)
        for k in range(count):
            some = earlier[k, first]
            implied(number[k, then[some]], number[k, first[some]], number[first[some], then[some]], -1)
        rows, came = np.arange(len(self.before)), self.hop[self.before]
        p, q = np.nonzero((self.after[:, None] == self.after) & (came[:, None] < came))
        m.rows(
            len(rows), 0, np.inf, (rows, self.adds, 1), (rows, self.starts, 1),
            (rows, number[self.before, self.after], -1), (p, self.starts[q], 1),
        )  # fmt: skip


def exchange(net: Topology, hops: int) -> list[Message] | None:
    """Messages in their order, None if there are none that bring all to all in so many hops, or none is found soon."""
    asked = Question(net, hops)
    found = solve(asked.model, solver="cp-sat", gap=0.0, effort=EFFORT)
    if found.x is None:
        return None
    used, copy = found.x[asked.used] > 0.5, found.x[asked.copy] > 0.5
    holds = (found.x[asked.adds] > 0.5) | (found.x[asked.starts] > 0.5)
    order = [int(k) for k in np.argsort(asked.hop, kind="stable") if used[k]]
    after: dict[int, set[int]] = {}
    for k in order:
        there = [j for j in order if asked.dst[j] == asked.dst[k] and asked.hop[j] < asked.hop[k]]
        after[k] = {j for j in there if copy[j] or copy[k]} | set(asked.before[holds & (asked.after == k)].tolist())
    place = {k: number for number, k in enumerate(order)}
    return [Message(int(asked.link[k]), bool(copy[k]), tuple(sorted(place[j] for j in after[k]))) for k in order]


def _planned(net: Topology, load: Workload, found: list[Message], seed: int) -> Plan:
    """A part of the buffer through each image of an exchange."""
    c = load.collectives[0]
    nodes = automorphisms(net, c.ranks, MOST_IMAGES, seed)[: int(c.chunk_bytes.min())]
    parts = Workload((divide(c, len(nodes))[0],))
    after, op = Ragged.of([m.after for m in found]), np.array([COPY if m.copy else REDUCE for m in found])
    used = np.array([m.link for m in found])
    by_ends = np.zeros((net.node_count, net.node_count), dtype=np.int32)
    by_ends[net.src, net.dst] = np.arange(net.link_count)
    blocks = []
    for node in nodes:
        src, dst = node[net.src[used]], node[net.dst[used]]
        blocks.append(Block(src, dst, op, Ragged.single(by_ends[src, dst]), after))
    plan = assembled(net, parts, blocks)
    # copies come before sums here, too
    return dispatched(plan, np.zeros(parts.chunk_count), apart=False)

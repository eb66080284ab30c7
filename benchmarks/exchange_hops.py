"""In how few hops can sums meet? Exactly, by CP-SAT, as a plan that is verified and simulated.

python benchmarks/exchange_hops.py [-t ring:6 ring:8 ...] [--shard 1KB]

The bound by distance asks that each rank's farthest contribution comes to it. Among accelerators with links of equal
latency this asks whether all can end in as many hops, and then in one more and so on: in each hop a link carries one
message at most, which is added or replaces what was there. A message starts from its source's contribution or from a
copy that came there, adds some of the sums that came after that, and must hold whatever happened before it there
(docs/decisions/0003). What is found goes, a part of the buffer each, through its images under the network's
automorphisms. "None" is for one message a link and hop.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.bounds import bounds
from stretto.bounds.latency import distances
from stretto.collective import Ragged, Workload, make_collective
from stretto.plan import COPY, REDUCE, Plan, make_plan
from stretto.planners import run_planner
from stretto.planners.dispatch import dispatched
from stretto.planners.symmetries import automorphisms
from stretto.simulate import simulate
from stretto.solvers import Model, solve
from stretto.topologies import load_topology
from stretto.topology import ACCELERATOR, Topology
from stretto.units import parse_size
from stretto.verify import verify

MOST_IMAGES = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", nargs="*", default=("ring:6", "ring:8"))
    parser.add_argument("--shard", default="1KB", help="of a rank")
    given = parser.parse_args()
    for spec in given.topologies:
        net = load_topology(spec)
        hops = int(np.round(distances(net, 0.0) / net.latency_s[0]).max())
        assert (net.kind == ACCELERATOR).all() and np.ptp(net.latency_s) == 0, f"{spec}: accelerators, equal latencies"
        cpu = time.process_time()
        found = exchange(net, hops)
        while found is None:
            print(f"{spec:8} an exchange in {hops} hops: none ({time.process_time() - cpu:.1f} s)")
            hops, cpu = hops + 1, time.process_time()
            found = exchange(net, hops)
        cpu = time.process_time() - cpu
        load = Workload((make_collective("allreduce", net, shard_bytes=parse_size(given.shard, "--shard")),))
        plan = planned(net, load, found)
        verdict = verify(plan)
        assert verdict.ok, verdict.finding
        bound, ends = bounds(net, load)[0].seconds, simulate(plan).completion_s
        greedy = simulate(run_planner("greedy", net, load)).completion_s
        copies = sum(m.copy for m in found)
        print(
            f"{spec:8} an exchange in {hops} hops: {len(found)} messages, {copies} copies ({cpu:.1f} s); bound "
            f"{bound * 1e6:.3f} us, its images {ends * 1e6:.3f} ({ends / bound:.3f}), greedy {greedy * 1e6:.3f}"
        )


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
    """Messages in their order, None if there are none that bring all to all in so many hops."""
    asked = Question(net, hops)
    found = solve(asked.model, solver="cp-sat", time_limit_s=600.0, gap=0.0)
    assert found.status in ("optimal", "infeasible"), f"not decided: {found.status}"
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


def planned(net: Topology, load: Workload, found: list[Message]) -> Plan:
    """A part of the buffer through each image of an exchange."""
    nodes = automorphisms(net, net.accelerators, MOST_IMAGES, 0)
    size = load.collectives[0].size_bytes
    parts = Workload((make_collective("allreduce", net, size, chunks=len(nodes)),))
    link = {pair: k for k, pair in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True))}
    chunk, route, op, after = [], [], [], []
    for number, node in enumerate(nodes.tolist()):
        for message in found:
            a, b = int(net.src[message.link]), int(net.dst[message.link])
            chunk.append(number)
            route.append(link[node[a], node[b]])
            op.append(COPY if message.copy else REDUCE)
            after.append([number * len(found) + k for k in message.after])
    plan = make_plan(
        net, parts, "ready-order", chunk=chunk, src=net.src[route], op=op, dst=Ragged.single(net.dst[route]),
        route=Ragged.single(np.array(route, dtype=np.int32)), depends=Ragged.of(after),
    )  # fmt: skip
    return dispatched(plan, np.zeros(len(nodes)))


if __name__ == "__main__":
    main()

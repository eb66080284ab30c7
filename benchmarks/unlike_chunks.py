"""How soon can a Broadcast among servers with one NIC out and one in end, if chunks have unlike sizes?

    python benchmarks/unlike_chunks.py                       16 MB on ndv2:10 in 8 and in 9 chunks
    python benchmarks/unlike_chunks.py -k 7,8,9,10 --seeds 3 --steps 1000000

Simulated annealing over the sizes of chunks and over priorities of messages between servers: whenever a NIC out and a
NIC in are idle, the message with the least number goes. Inside a server each chunk follows a fixed tree. The best
schedule becomes a plan, the linear program of ``stretto.schedule.sizing`` gives its chunks their best sizes, the
referee checks it, and its completion is the simulator's. The ratio is to the default plan where switches copy, as in
``benchmarks/targets.py``. Nothing of this is a planner: 700,000 steps take 10 to 15 s of CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from grid import workload
from piped import run
from stretto.model.arrays import Ragged
from stretto.model.chunks import cut, weighted
from stretto.model.collective import Workload
from stretto.model.plan import Plan, make_plan
from stretto.model.targets import TARGETS
from stretto.model.topology import Topology
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.schedule.effort import EFFORTS, Budget
from stretto.schedule.fitting import seen_by_target
from stretto.schedule.sizing import sized
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

GPUS, OUT, IN = 8, 0, 1
"""GPUs of an ndv2 server, the one whose link leads to the switch, and the one at which the link from it ends."""

HUB = -1
"""The switch, where GPUs are numbered from 0. In the network it is the node before the first GPU."""

TREE = ((IN, 0), (IN, 2), (IN, 3), (IN, 5), (0, 4), (2, 6), (3, 7))
ROOT_TREE = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 6), (3, 7))
"""Who sends to whom inside a server that gets a chunk, and inside the root's."""

LEAST_BYTES = 20e3
"""Bytes of a chunk, at least, while sizes are searched."""

MEAN_SHARE = 0.2
"""Weight of the mean end of servers in what annealing makes small; the last end has the rest. With the last end alone
most steps change nothing."""

Array = NDArray[Any]


@njit
def schedule(size, costs, keys_from, keys_to, weights, rows):  # type: ignore[no-untyped-def]
    """Send each chunk to each server, by priorities.

    Args:
        size: float64[chunks], bytes.
        costs: float64[3, 2], seconds and seconds a byte: a NIC, from NIC in to NIC out, from NIC in to all GPUs.
        keys_from, keys_to: float64[servers, chunks], parts of the number of a message.
        weights: float64[3], of messages a chunk had so far, of chunks its receiver has, and of the former at the root.
        rows: float64[messages, 4], filled: sender, receiver, chunk, start.
    Returns:
        Seconds: the last end, and the mean over servers.
    """
    servers, chunks = keys_from.shape
    out_free, in_free, end = np.zeros(servers), np.zeros(servers), np.zeros(servers)
    at = np.full((servers, chunks), np.inf)
    at[0, :] = 0.0
    lacks = np.ones((servers, chunks), np.bool_)
    copies, held = np.zeros(chunks), np.zeros(servers)
    now, done = 0.0, 0
    while done < (servers - 1) * chunks:
        least, chosen, then = np.inf, (-1, -1, -1), np.inf
        for s in range(servers):
            if out_free[s] > now:
                then = min(then, out_free[s])
                continue
            for c in range(chunks):
                if at[s, c] > now:
                    then = min(then, at[s, c])
                    continue
                for r in range(1, servers):
                    if not lacks[r, c]:
                        continue
                    if in_free[r] > now:
                        then = min(then, in_free[r])
                        continue
                    rare = weights[0] + (weights[2] if s == 0 else 0.0)
                    key = keys_from[s, c] + keys_to[r, c] + rare * copies[c] + weights[1] * held[r]
                    if key < least:
                        least, chosen = key, (s, r, c)
        s, r, c = chosen
        if s < 0:
            now = then
            continue
        over = now + costs[0, 0] + size[c] * costs[0, 1]
        out_free[s] = in_free[r] = over
        at[r, c] = over + costs[1, 0] + size[c] * costs[1, 1]
        end[r] = max(end[r], over + costs[2, 0] + size[c] * costs[2, 1])
        lacks[r, c] = False
        copies[c] += 1
        held[r] += 1
        rows[done, 0], rows[done, 1], rows[done, 2], rows[done, 3] = s, r, c, now
        done += 1
    return end.max(), end[1:].mean()


@njit
def anneal(size, costs, keys_from, keys_to, weights, steps, seed, hot_s, cold_s, least, share):  # type: ignore[no-untyped-def]
    """The sizes and priorities with which the last message ends soonest, of those tried; the rows of that schedule."""
    np.random.seed(seed)
    servers, chunks = keys_from.shape
    rows = np.zeros(((servers - 1) * chunks, 4))
    last, mean = schedule(size, costs, keys_from, keys_to, weights, rows)
    score = best = last + share * (mean - last)
    best_size, best_rows = size.copy(), rows.copy()
    for step in range(steps):
        heat = hot_s * (cold_s / hot_s) ** (step / steps)
        x, a, b, w = size.copy(), keys_from.copy(), keys_to.copy(), weights.copy()
        kind, c = np.random.random(), np.random.randint(chunks)
        if kind < 0.4:
            other = np.random.randint(chunks)
            moved = min(np.random.exponential(0.07 * size.mean()), x[c] - least)
            if moved <= 0 or other == c:
                continue
            x[c] -= moved
            x[other] += moved
        elif kind < 0.6:
            a[np.random.randint(servers), c] += np.random.normal()
        elif kind < 0.9:
            b[np.random.randint(1, servers), c] += np.random.normal()
        elif kind < 0.95:
            w[np.random.randint(3)] += 0.3 * np.random.normal()
        else:
            a[:, c] += np.random.normal()
        last, mean = schedule(x, costs, a, b, w, rows)
        new = last + share * (mean - last)
        if new <= score or np.random.random() < np.exp((score - new) / heat):
            size, keys_from, keys_to, weights, score = x, a, b, w, new
            if new < best:
                best, best_size, best_rows = new, x.copy(), rows.copy()
    return best_size, best_rows


def costs_of(net: Topology, link: Callable[[int, int], int]) -> Array:
    """float64[3, 2], seconds and seconds a byte, as :func:`schedule` takes them."""

    def of(a: int, b: int) -> Array:
        k = link(a, b)
        return np.array([net.message_s[k] + net.latency_s[k], 1 / net.bandwidth[k]])

    nic, switch = link(OUT, HUB), link(HUB, IN + GPUS)
    lag = np.array([net.latency_s[nic] + net.latency_s[switch], 0.0])
    inside = [of(IN, 2) + of(2, 6), of(IN, 3) + of(3, 7)]
    return np.array([[net.message_s[nic], 1 / net.bandwidth[nic]], lag + of(IN, OUT), lag + np.max(inside, axis=0)])


def plan_of(net: Topology, work: Workload, rows: Array, link: Callable[[int, int], int]) -> Plan:
    """The plan of a schedule: messages between servers in its order on each NIC, and the trees inside."""
    bytes_ = work.collectives[0].chunk_bytes
    brought = dict[tuple[int, int], tuple[int, float]]()
    columns: list[tuple[int, int, int, list[int], list[int], float, float]] = []
    free: dict[int, float] = {}

    def send(c: int, a: int, b: int, route: list[int]) -> None:
        before, ready_s = brought.get((a, c), (-1, 0.0))
        start_s = max([ready_s, *(free.get(k, 0.0) for k in route)])
        over_s = start_s + max(float(net.message_s[k] + bytes_[c] / net.bandwidth[k]) for k in route)
        free.update(dict.fromkeys(route, over_s))  # in times of the sender: all ways to the switch are equally long
        brought[b, c] = len(columns), over_s + sum(float(net.latency_s[k]) for k in route)
        columns.append((c, a - HUB, b - HUB, route, [before] if before >= 0 else [], start_s, over_s))

    def tree(c: int, server: int, edges: tuple[tuple[int, int], ...]) -> None:
        for a, b in edges:
            send(c, server * GPUS + a, server * GPUS + b, [link(server * GPUS + a, server * GPUS + b)])

    for c in range(len(bytes_)):
        tree(c, 0, ROOT_TREE)
    for s, r, c in rows[:, :3].astype(int).tolist():
        a, b = s * GPUS + OUT, r * GPUS + IN
        send(c, a, b, [link(a, HUB), link(HUB, b)])
        tree(c, r, TREE)
    chunk, src, dst, route, depends, start_s, finish_s = zip(*columns, strict=True)
    return make_plan(
        net, work, "timed", chunk=chunk, src=src, dst=Ragged.of([[v] for v in dst]), route=Ragged.of(route),
        depends=Ragged.of(depends), start_s=start_s, finish_s=finish_s, meta={},
    )  # fmt: skip


def best_plan(net: Topology, work: Workload, chunks: int, steps: int, seed: int) -> Plan:
    """The best plan of one annealing, with sizes by the linear program."""
    number = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}
    servers, random = (net.node_count - 1) // GPUS, np.random.default_rng(seed)
    (c,) = work.collectives

    def link(a: int, b: int) -> int:
        return number[a - HUB, b - HUB]

    size, keys = np.full(chunks, c.size_bytes / chunks), np.zeros((servers, chunks))
    size, rows = anneal(
        size, costs_of(net, link), keys, keys + 0.15 * random.normal(size=keys.shape), np.array([1.0, 0.3, 2.0]), steps,
        seed, 4e-6, 5e-7, LEAST_BYTES, MEAN_SHARE,
    )  # fmt: skip
    alike = cut(c, chunks)
    sizes = weighted(alike, size / alike.chunk_bytes)
    assert sizes is not None, "no chunk is empty"
    return sized(plan_of(net, Workload((sizes,)), rows, link), Budget(EFFORTS["thorough"]), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--servers", type=int, default=10)
    parser.add_argument("-s", "--size", default="16MB")
    parser.add_argument("-k", "--chunks", default="8,9", help="by comma")
    parser.add_argument("--steps", type=int, default=700_000)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    net = costing(assume_messages(load_topology(f"ndv2:{given.servers}")), TARGETS["torch"].message_s)
    work = workload(net, "broadcast", given.size)
    without_s = simulate(run_planner("auto", net, work)).completion_s
    seen = seen_by_target(TARGETS["torch"], net, work)
    print(f"where switches copy: {1e3 * without_s:.4f} ms\n")
    print("| chunks | seed | ms | ratio | CPU s | MB of chunks |\n|---|---|---|---|---|---|")
    for chunks in map(int, given.chunks.split(",")):
        for seed in range(given.seeds):
            begin = time.process_time()
            plan = best_plan(seen, work, chunks, given.steps, seed)
            finding = verify(plan).finding
            assert finding is None, finding
            end_s, sizes = simulate(plan).completion_s, plan.workload.collectives[0].chunk_bytes / 1e6
            print(
                f"| {chunks} | {seed} | {1e3 * end_s:.4f} | {end_s / without_s:.4f} | "
                f"{time.process_time() - begin:.1f} | {' '.join(f'{x:.2f}' for x in sizes)} |",
                flush=True,
            )


if __name__ == "__main__":
    run(main)

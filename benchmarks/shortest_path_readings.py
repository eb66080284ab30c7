"""What SCALE-CCL's paper may have run as shortest paths (SPH): readings, and the completion that each gives.

Section 5 says that SPH "routes each subchunk along a minimum-latency path (Dijkstra over per-link delays) and serves
packets in FIFO order without duplicate elimination or load-aware re-routing", and prints two completions: 340,062.6 us
(256 "MB", 1 subchunk, "250 us") and 11,566 us (16 "MB", 2 subchunks, "500 us"). The script simulates every combination
of what that leaves open, with a simulator of its own of first-come-first-served links:

- paths: shortest by delay, by hops, or by delay and transmission; of equal ones the first or the last node's;
- copies: one for each receiver ("unicast"), or one over each link of a source's tree ("tree");
- routers: cut through, store whole subchunks, or join their links to one pipe, all of whose links a copy holds at once;
- order: which receiver a source serves first, where all of its copies are ready at once: by rank, from its own rank on,
  nearest first, or farthest first;
- service: a link takes the next subchunk when the last has left it, or when it has arrived (stop and wait).

    python benchmarks/shortest_path_readings.py [--arrangements] [--all]

A table comes first: what the paper prints, what stretto's planner takes, and from what to what the readings take.
Without --all only readings within 1 % of a published completion are printed, the extremes and the nearest. The two
completions are 17.003 and 9.253 times what a rank's chunk takes on a link of 12.5 GB/s; what each reading says of their
ratio is printed, too. With --arrangements the ten pipelined readings of paths by delay and receivers by rank are
simulated on all arrangements of 12 GPUs that ``scale_ccl_arrangement.py`` tries (minutes).
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from scale_ccl_arrangement import arrangements
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

POINTS = ((250_000_000, 1, 50, 340_062.6), (15_625_000, 2, 100, 11_566.0))
"""Bytes of a rank, subchunks, km, and the completion that the paper prints, us."""

POINT_NAMES = ("256 MB, 1 subchunk, 50 km", "16 MB, 2 subchunks, 100 km")

NARROW = 12.5e9
"""Bytes/s of the links between accelerators and routers, and between sites."""

PLAIN = "sites:3,4?connectivity=0.5"
PATHS, TIES = ("delay", "hops", "delay and transmission"), ("first", "last")
COPIES, ROUTERS = ("unicast", "tree"), ("cut-through", "store", "pipe")
ORDERS = ("rank", "from its own", "nearest", "farthest")
SERVICES = ("pipelined", "stop and wait")


NEAR = 0.01
"""How far from a published completion a reading may be to be printed, as a share of it."""


class Unreachable(Exception):
    """Some accelerator cannot reach another."""


class Reading(NamedTuple):
    """One combination of what the paper leaves open."""

    paths: str
    ties: str
    copies: str
    routers: str
    order: str
    service: str


def readings() -> Iterator[Reading]:
    every = (Reading(*choice) for choice in product(PATHS, TIES, COPIES, ROUTERS, ORDERS, SERVICES))
    yield from (r for r in every if (r.copies, r.routers) != ("tree", "pipe"))  # that is stretto's planner


def parents(net: Topology, root: int, size: float, reading: Reading) -> tuple[list[float], list[int]]:
    """The distance of each node from the root, and the link by which its shortest path ends; -1 at the root.

    Paths pass accelerators and routers alike.
    """
    cost = {
        "delay": net.latency_s,
        "hops": net.latency_s * 0 + 1,
        "delay and transmission": net.latency_s + size / net.bandwidth,
    }[reading.paths].tolist()
    sign = 1 if reading.ties == "first" else -1
    far, last = [float("inf")] * net.node_count, [-1] * net.node_count
    far[root] = 0.0
    queue, done = [(0.0, 0, root)], set()
    while queue:
        d, _, u = heapq.heappop(queue)
        if u in done:
            continue
        done.add(u)
        for i in net.out_links[u].tolist():
            v = int(net.dst[i])
            shorter = d + cost[i] < far[v] * (1 - 1e-12)
            if shorter or (d + cost[i] <= far[v] * (1 + 1e-12) and reading.ties == "last" and v not in done):
                far[v], last[v] = min(far[v], d + cost[i]), i
                heapq.heappush(queue, (far[v], sign * v, v))
    if any(far[v] == float("inf") for v in net.accelerators.tolist()):
        raise Unreachable(net.name)
    return far, last


def served(net: Topology, source: int, far: list[float], order: str) -> list[int]:
    """The receivers of a source, in the order in which it serves them."""
    ranks = net.accelerators.tolist()
    others = [v for v in ranks if v != source]
    n, own = len(ranks), ranks.index(source)
    keys = {
        "rank": lambda v: v,
        "from its own": lambda v: (ranks.index(v) - own) % n,
        "nearest": lambda v: far[v],
        "farthest": lambda v: -far[v],
    }
    return sorted(others, key=keys[order])


def completion_us(net: Topology, shard: int, chunks: int, reading: Reading) -> float:
    """When the last rank has the last subchunk, us."""
    size = shard / chunks
    seconds, late = (size / net.bandwidth).tolist(), net.latency_s.tolist()
    cuts = (net.is_router & (reading.routers == "cut-through")).tolist()
    # what is to be sent: a pipe of links (one, unless routers join them), and what comes after it
    jobs: list[tuple[float, int, tuple]] = []
    for source in net.accelerators.tolist():
        far, last = parents(net, source, size, reading)
        routes = []
        for v in served(net, source, far, reading.order):
            links, at = [], v
            while at != source:
                links.append(last[at])
                at = int(net.src[last[at]])
            routes.append(_pipes(net, links[::-1], reading.routers == "pipe"))
        starts = [_chain(route) for route in routes] if reading.copies == "unicast" else _tree(routes)
        jobs += [(0.0, number, tree) for number, tree in enumerate(starts * chunks, len(jobs))]
    heapq.heapify(jobs)
    free, number, end = [0.0] * net.link_count, len(jobs), 0.0
    while jobs:
        ready, _, (pipe, onward) = heapq.heappop(jobs)
        ahead = [sum(late[i] for i in pipe[:k]) for k in range(len(pipe) + 1)]
        begin = max(ready, *(free[i] - by for i, by in zip(pipe, ahead, strict=False)))
        takes = max(seconds[i] for i in pipe)
        head, whole = begin + ahead[-1], begin + ahead[-1] + takes
        for i, by in zip(pipe, ahead, strict=False):
            free[i] = begin + by + takes + (late[i] if reading.service == "stop and wait" else 0.0)
        end = max(end, whole if net.is_accelerator[net.dst[pipe[-1]]] else 0.0)
        for tree in onward:
            number += 1
            at = max(head, whole - seconds[tree[0][0]]) if cuts[net.dst[pipe[-1]]] else whole
            heapq.heappush(jobs, (at, number, tree))
    return 1e6 * end


def _pipes(net: Topology, route: list[int], joined: bool) -> list[tuple[int, ...]]:
    """A route as pipes: of one link each, or where routers join them from accelerator to accelerator."""
    pipes: list[tuple[int, ...]] = []
    for i in route:
        if joined and pipes and net.is_router[net.src[i]]:
            pipes[-1] += (i,)
        else:
            pipes.append((i,))
    return pipes


def _chain(route: list[tuple[int, ...]]) -> tuple:
    tree: tuple = ()
    for pipe in reversed(route):
        tree = ((pipe, tree),)
    return tree[0]


def _tree(routes: list[list[tuple[int, ...]]]) -> list[tuple]:
    """Routes from one source with what they share joined."""
    first: dict[tuple[int, ...], list[list[tuple[int, ...]]]] = {}
    for route in routes:
        if route:
            first.setdefault(route[0], []).append(route[1:])
    return [(pipe, tuple(_tree(rest))) for pipe, rest in first.items()]


def planned_us(net: Topology, shard: int, chunks: int, copy: bool, cost: str) -> float:
    """What stretto's own planner takes, us."""
    work = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("shortest-path", net, work, options={"copy": copy, "cost": cost})
    return 1e6 * simulate(plan).completion_s


def simulated(spec: str, tried: list[Reading]) -> list[dict]:
    """Both completions of each reading on one arrangement."""
    nets = [load_topology(f"{spec}&km={km}") for _, _, km, _ in POINTS]
    rows = []
    for one in tried:
        us = [completion_us(net, p[0], p[1], one) for net, p in zip(nets, POINTS, strict=True)]
        rows.append({"topology": spec, **one._asdict(), "us": us})
    return rows


def chunk_times(us: list[float]) -> list[float]:
    """Completions in units of a rank's chunk on a narrow link."""
    return [t * NARROW / (1e6 * p[0]) for t, p in zip(us, POINTS, strict=True)]


def show_table(rows: list[dict]) -> None:
    """The paper's completions, those of stretto's planner, and the span of the readings by how a chunk is copied."""
    print(f"| | {' | '.join(POINT_NAMES)} |\n{'|---' * (1 + len(POINTS))}|")
    print(_line("the paper", [f"{p[3]:,.1f} us" for p in POINTS]))
    nets = [load_topology(f"{PLAIN}&km={km}") for _, _, km, _ in POINTS]
    for copy, cost in product((True, False), ("alpha-beta", "alpha")):
        ours = [planned_us(net, p[0], p[1], copy, cost) for net, p in zip(nets, POINTS, strict=True)]
        print(_line(f"`copy={str(copy).lower()}`, `cost={cost}`", [f"{t:,.1f} us" for t in ours]))
    for copies, words in (
        ("tree", "one copy over each link of a source's tree"),
        ("unicast", "a copy for each receiver"),
    ):
        own = [row["us"] for row in rows if row["copies"] == copies]
        spans = [f"{min(us):,.1f} to {max(us):,.1f} us" for us in zip(*own, strict=True)]
        print(_line(f"readings: {words}", spans))


def _line(name: str, cells: list[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"


def show(rows: list[dict], everything: bool) -> None:
    """The extremes, the nearest, the largest ratio, and the rows within ``NEAR``."""
    for k, p in enumerate(POINTS):
        times = sorted({round(row["us"][k], 1) for row in rows})
        nearest = min(times, key=lambda t, want=p[3]: abs(t - want))
        print(f"  {p[3]:,.1f} us published: {times[0]:,.1f} to {times[-1]:,.1f}, nearest {nearest:,.1f}")
    ratios = [a / b for a, b in (chunk_times(row["us"]) for row in rows)]
    want = chunk_times([p[3] for p in POINTS])
    print(f"  first / second in chunk times: {min(ratios):.3f} to {max(ratios):.3f}; published {want[0] / want[1]:.3f}")
    off = [[abs(t / p[3] - 1) for t, p in zip(row["us"], POINTS, strict=True)] for row in rows]
    print(f"  within {100 * NEAR:.0f} %: of the first {sum(o[0] < NEAR for o in off)}, of the second "
          f"{sum(o[1] < NEAR for o in off)}, of both {sum(max(o) < NEAR for o in off)} of {len(rows)}")  # fmt: skip
    for row, o in zip(rows, off, strict=True):
        if everything or min(o) < NEAR:
            texts = ", ".join(row[name] for name in Reading._fields)
            print(f"  {row['topology']}  {texts}: " + ", ".join(f"{t:,.1f} us" for t in row["us"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrangements", action="store_true", help="other arrangements, too")
    parser.add_argument("--all", action="store_true", help="print every reading")
    args = parser.parse_args()
    rows = simulated(PLAIN, list(readings()))
    show_table(rows)
    print(f"\n{PLAIN}: {len(rows)} readings")
    show(rows, args.all)
    if args.arrangements:
        tried = [r for r in readings() if (r.paths, r.order, r.service) == ("delay", "rank", "pipelined")]
        more = []
        for spec in arrangements():
            with suppress(Unreachable):
                more += simulated(spec, tried)
        print(f"\n{len({row['topology'] for row in more})} arrangements, {len(tried)} readings on each")
        show(more, args.all)
        rows += more
    place = Path(__file__).parent / "out"
    place.mkdir(exist_ok=True)
    (place / "shortest_path_readings.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

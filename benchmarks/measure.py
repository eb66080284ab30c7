"""How close does ``stretto measure`` come to known links? Hosts in network namespaces (root) measure each other.

Three networks: hosts at one switch, one of which sends more slowly; two sites whose hosts share a link; hosts that are
joined pairwise. For each the table has every link with its known and measured bandwidth, and every pair with its known
and measured latency; only the least, the median and the most of measured / known unless ``--all`` is given. A survey
sleeps most of its time: the table says what it took and what CPU time its processes used, here threads of one process.
Writes benchmarks/out/measure.json.

    python benchmarks/measure.py --connections 1,4 --seconds 0.5
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from stretto.emulator import refusal
from stretto.measure.rank import NOISE_S
from stretto.model.measurements import Survey
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.runtime.probe import Effort
from stretto.topologies.measured import links_of, shape_of
from surveys import surveyed

OUT = Path(__file__).parent / "out" / "measure.json"


def at_one_switch(ups: list[float], downs: list[float], latency_s: float) -> Topology:
    """Hosts that send and receive at these rates."""
    n = len(ups)
    links = [(v, n, w, latency_s) for v, w in enumerate(ups)] + [(n, v, w, latency_s) for v, w in enumerate(downs)]
    return make_topology("one switch", [ACCELERATOR] * n + [SWITCH], links)


def two_sites(hosts: int, rate: float, shared: float, latency_s: float) -> Topology:
    """Two sites of that number of hosts, whose switches are joined by one link."""
    links = [end for v in range(2 * hosts) for s in [2 * hosts + v // hosts] for end in ((v, s), (s, v))]
    wide = [(a, b, rate, 0.0) for a, b in links]
    narrow = [(2 * hosts, 2 * hosts + 1, shared, latency_s), (2 * hosts + 1, 2 * hosts, shared, latency_s)]
    return make_topology("two sites", [ACCELERATOR] * 2 * hosts + [SWITCH] * 2, wide + narrow)


def pairwise(hosts: int, rate: float, latency_s: float) -> Topology:
    """Hosts with a link for each pair, of which some are slower."""
    links = [(a, b, rate / (1 + (a + b) % 2), latency_s) for a in range(hosts) for b in range(hosts) if a != b]
    return make_topology("pairwise", [ACCELERATOR] * hosts, links)


NETWORKS = {
    "4 hosts at a switch, 2.5 to 5 MB/s, 10 ms": at_one_switch([5e6, 2.5e6, 5e6, 5e6], [5e6, 5e6, 5e6, 3e6], 5e-3),
    "two sites of 3 hosts, 5 MB/s, joined by 4 MB/s and 20 ms": two_sites(3, 5e6, 4e6, 20e-3),
    "4 hosts with a link for each pair, 2 and 4 MB/s, 10 ms": pairwise(4, 4e6, 10e-3),
}
"""Their hosts come first, then their switches, in the order of the names that a survey gives them."""


def compared(net: Topology, survey: Survey) -> dict[str, Any]:
    """Measured over known: of each link of the network that was found, and of each pair."""
    names = [net.names[v] for v in net.accelerators]
    links = links_of(survey, names, shape_of(survey))
    switches = sorted({end for link in links for end in (link.src, link.dst)} - {*names})
    node = {name: v for v, name in enumerate([*names, *switches])}
    known = {(int(a), int(b)): float(w) for a, b, w in zip(net.src, net.dst, net.bandwidth, strict=True)}
    rates = {
        f"{link.src} to {link.dst}": link.bandwidth.value / known.get((node[link.src], node[link.dst]), np.nan)
        for link in links
    }
    latencies = {
        f"{names[a]} to {names[b]}": pair.latency_s.value / known_s
        for (a, b), pair in survey.pairs.items() if (known_s := distance_s(net, a, b)) > 0
    }  # fmt: skip
    found = {*known} == {(node[link.src], node[link.dst]) for link in links}
    costs = [pair.message_s.value for pair in survey.pairs.values() if pair.message_s is not None]
    return {"found": found, "rates": rates, "latencies": latencies, "message_s": statistics.median(costs)}


def distance_s(net: Topology, a: int, b: int) -> float:
    """The latency of the shortest way."""
    far = {a: 0.0}
    for _ in range(net.node_count):
        for u, v, t in zip(net.src.tolist(), net.dst.tolist(), net.latency_s.tolist(), strict=True):
            if u in far:
                far[v] = min(far.get(v, np.inf), far[u] + t)
    return float(far[b])


def spread(ratios: dict[str, float]) -> str:
    values = sorted(ratios.values())
    return f"{values[0]:.3f} {statistics.median(values):.3f} {values[-1]:.3f}" if values else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", default="1")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--only", type=int, choices=range(1, len(NETWORKS) + 1), help="one network, by its row")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    reason = refusal()
    if reason is not None:
        sys.exit(reason)
    counts = tuple(map(int, options.connections.split(",")))
    effort = Effort(20, 16, options.seconds, 1 << 40, options.trials, counts, shared=True)
    rows = []
    print("| network | links found | bandwidth | latency of pairs | sent | took | CPU |")
    print("|---" * 7 + "|", flush=True)
    for number, (name, net) in enumerate(NETWORKS.items(), 1):
        if options.only not in (None, number):
            continue
        began, began_cpu = time.monotonic(), time.process_time()
        survey = surveyed(net, effort, NOISE_S)
        row = compared(net, survey) | {
            "network": name, "moved_bytes": survey.moved_bytes, "wall_s": time.monotonic() - began,
            "cpu_s": time.process_time() - began_cpu,
        }  # fmt: skip
        rows.append(row)
        found = "all" if row["found"] else "others"
        spent = f"{row['moved_bytes'] / 1e6:.0f} MB | {row['wall_s']:.0f} s | {row['cpu_s']:.1f} s"
        print(f"| {name} | {found} | {spread(row['rates'])} | {spread(row['latencies'])} | {spent} |", flush=True)
    for row in rows if options.all else ():
        for kind in ("rates", "latencies"):
            for what, ratio in row[kind].items():
                print(f"  {row['network']}, {kind} {what}: {ratio:.3f}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

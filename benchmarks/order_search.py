"""What the order of machines is worth, and what finding it costs.

    python benchmarks/order_search.py               40 random sets of 8 of the 63 cloud regions; hundreds of machines
    python benchmarks/order_search.py --regions 12  sets of 12: beyond what is proven

For each set the time of an AllReduce with machines sorted by name, as torchrun numbers them, over the time in the best
order; both are the simulator's. Then larger networks: the time before and after, over what no order can beat, and CPU
seconds in a process that has loaded its kernels. Prints tables and writes JSON with ``-o``.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import stretto as st
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.topologies.cloud import measured_regions

SETS = 40
"""Random sets of regions."""


def random_sets(regions: int) -> list[str]:
    """Specs of the same random sets on every machine."""
    names, random = measured_regions().names, np.random.default_rng(0)
    return ["cloud:" + ",".join(random.choice(names, regions, replace=False).tolist()) for _ in range(SETS)]


def regions_rows(regions: int, library: str, size: str) -> dict[str, Any]:
    """Sorted over best, for each set."""
    ratios, proven, cpu_s, over_bound = [], 0, [], []
    for spec in random_sets(regions):
        began = time.process_time()
        found = st.order(spec, library, "allreduce", size, given="sorted")
        cpu_s.append(time.process_time() - began)
        ratios.append(found.before_s / found.after_s)
        over_bound.append(found.after_s / found.bound_s)
        proven += found.proven
    return {
        "library": library, "size": size, "regions": regions, "ratios": ratios, "proven": proven, "cpu_s": cpu_s,
        "over_bound": over_bound,
    }  # fmt: skip


def leaves(hosts: int, hosts_a_leaf: int, oversubscription: float) -> Topology:
    """Hosts with 25 GB/s under leaf switches, which share a spine; hosts are numbered across the leaves."""
    count = hosts // hosts_a_leaf
    up = 25e9 * hosts_a_leaf / oversubscription
    links = [(v, hosts + v % count, 25e9, 2e-6) for v in range(hosts)]
    links += [(hosts + k, hosts + count, up, 1e-6) for k in range(count)]
    links += [(b, a, w, t) for a, b, w, t in links]
    kinds = [ACCELERATOR] * hosts + [SWITCH] * (count + 1)
    return make_topology(f"{count} leaves of {hosts_a_leaf} hosts", kinds, links, message_s=[1e-6] * len(links))


def places(hosts: int) -> Topology:
    """Hosts at random places, each pair joined by a link that is slower and later the farther they are apart."""
    random = np.random.default_rng(0)
    at = random.uniform(0, 1, (hosts, 2))
    a, b = np.nonzero(~np.eye(hosts, dtype=np.bool_))
    apart = np.sqrt(((at[a] - at[b]) ** 2).sum(axis=1))
    links = np.stack((a, b, 1e9 * random.uniform(0.3, 1, len(a)) / (0.1 + apart), 1e-3 + 0.1 * apart), axis=1)
    return make_topology(f"{hosts} places", [ACCELERATOR] * hosts, links, message_s=np.full(len(a), 50e-6))


LARGE = (
    (lambda: places(64), "gloo", "allreduce"),
    (lambda: places(512), "gloo", "allreduce"),
    (lambda: places(512), "openmpi", "allreduce"),
    (lambda: leaves(512, 16, 4), "gloo", "allreduce"),
    (lambda: leaves(512, 16, 4), "openmpi", "allreduce"),
    (lambda: leaves(512, 16, 4), "openmpi", "broadcast"),
)
"""Network, library and collective."""


def large_rows() -> list[dict[str, Any]]:
    """One row a network, library and collective; everything runs twice, and the second time counts."""
    rows = []
    for network, library, collective in LARGE:
        net = network()
        for _ in range(2):
            began = time.process_time()
            found = st.order(net, library, collective, "1GB")
            cpu_s = time.process_time() - began
        rows.append(
            {"network": net.name, "library": library, "collective": collective, "cpu_s": cpu_s} | found.to_json()
        )
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", type=int, default=8, help="regions of each set")
    parser.add_argument("--library", help="only this library, and no large networks")
    parser.add_argument("-o", "--output", help="JSON file")
    chosen = parser.parse_args()
    pairs = [(chosen.library, "1GB")] if chosen.library else [("gloo", "1GB"), ("openmpi", "1GB"), ("openmpi", "1MB")]
    print(f"AllReduce among {chosen.regions} random cloud regions, {SETS} sets: sorted by name / best order")
    print("| library | size | median | mean | most | proven | after / bound, most | CPU a set, median |")
    print("|---|---|---|---|---|---|---|---|")
    sets = []
    for library, size in pairs:
        row = regions_rows(chosen.regions, library, size)
        sets.append(row)
        r = np.array(row["ratios"])
        print(f"| {library} | {size} | {np.median(r):.2f} | {r.mean():.2f} | {r.max():.2f} | {row['proven']} of {SETS} "
              f"| {max(row['over_bound']):.3f} | {np.median(row['cpu_s']):.2f} s |", flush=True)  # fmt: skip
    large = [] if chosen.library else large_rows()
    if large:
        print("\n1 GB among many machines\n| network | library | collective | before | after | after / bound | CPU |")
        print("|---|---|---|---|---|---|---|")
    for row in large:
        gap = f"{row['after_s'] / row['bound_s']:.3f}" if row["bound_s"] else "no bound"
        what = f"{row['network']} | {row['library']} | {row['collective']}, {row['algorithm']}"
        print(f"| {what} | {row['before_s']:.3g} s | {row['after_s']:.3g} s | {gap} | {row['cpu_s']:.1f} s |")
    if chosen.output:
        with open(chosen.output, "w", encoding="utf-8") as file:
            json.dump({"sets": sets, "large": large}, file, indent=1)


if __name__ == "__main__":
    main()

"""Beside TACOS (Won et al., MICRO 2024) on its own meshes and tori: AllGather, completion and planning CPU, one run.

python benchmarks/tacos.py --source DIRECTORY [--large] [--networks SPEC ...] [--links homogeneous|heterogeneous]
    [--limit SECONDS]

DIRECTORY (or the environment variable TACOS_SOURCE) is a checkout of github.com/astra-sim/tacos, which is compiled
with one `g++ -O3` and a driver of ours that reads links from standard input; without it the benchmark says so and
ends. Under TACOS's rule latency occupies a link on every hop: a link is one of no latency that takes
latency + size / bandwidth for a chunk, and so is ours here ("its rule"); ours under the physics of this project
stands beside it. Each is held against the least time of whole chunks under its rule ("m-bound").

CPU seconds of TACOS are those of `solve`, in a process that has a topology (with who is joined to whom) and a
collective (with who holds and who wants what), and repeats it: it sets up its links and matches, and gives one time, no
schedule. "Matching" is the same of ours, repeated likewise on a topology and a workload with the same: from there to
all transfers with their times. "All" is from the request, a collective's name, to the finished plan with its checks.
Both processes are warm (ours keeps, with a topology, whether it looks the same from all nodes and is
connected), and the least of as many runs counts: calls of less than a millisecond take longer where
others use the machine, too.

TACOS takes no seed: the best of its times counts. Its times on heterogeneous networks cannot be checked (when a
duplicate arrives it may swap in a chunk that the sender got only later), so they are marked; ours are verified and
simulated. TACOS is stopped after a limit of seconds ("not ended", its CPU "> ...").
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.greedy.search import Search
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

GIB, SHARD = 2.0**30, 1 << 20
SMALL = ("torus:4x4", "mesh:4x4", "torus:2x2x4", "mesh:2x2x4", "torus:8x8", "mesh:8x8")
NETWORKS = (*SMALL, "torus:16x16", "mesh:16x16", "torus:8x8x8")
LARGE = ("torus:32x32", "mesh:32x32")
WIDTHS = {"homogeneous": (50.0, 50.0, 50.0), "heterogeneous": (50.0, 75.0, 100.0)}
LATENCY_S = 0.5e-6

WORK, LEAST_WORK, TRIES = 0.004, 200, 2_000
"""Our search may try so many deliveries times the cube of the ranks, as TACOS's cost grows, or so many a rank."""

FINER = 100
"""Up to so many ranks each chunk is cut into 4 under our physics, else into 2."""

RUNS = ((32, 200), (100, 20), (300, 3))
"""Up to how many ranks both are run how often; beyond these once."""

DRIVER = """
#include <cstdio>
#include <ctime>
#include <iostream>
#include <tacos/collective/all_gather.h>
#include <tacos/synthesizer/synthesizer.h>
#include <tacos/topology/topology.h>
struct Links : tacos::Topology {
    Links() {
        int nodes, links, a, b;
        double width, latency;
        std::cin >> nodes >> links;
        setNpusCount_(nodes);
        while (links-- && std::cin >> a >> b >> width >> latency) connect_(a, b, width, latency);
    }
};
int main() {
    Links net;
    double bytes;
    int runs, chunks;
    std::cin >> bytes >> runs >> chunks;
    const auto gather = tacos::AllGather(net.npusCount(), chunks);
    while (runs--) {
        const auto began = std::clock();
        const double us = tacos::Synthesizer().solve(net, gather, bytes);
        std::printf("%.9f %.6f\\n", us, double(std::clock() - began) / CLOCKS_PER_SEC);
    }
}
"""


def network(spec: str, kind: str) -> Topology:
    """A mesh or torus whose links have the bandwidth of their dimension."""
    net = load_topology(spec)
    sides = [int(s) for s in spec.partition(":")[2].split("x")]
    a, b = (np.stack(np.unravel_index(ends, sides)) for ends in (net.src, net.dst))
    axis = np.argmax(a != b, axis=0)
    width = np.array(WIDTHS[kind])[axis] * GIB
    return replace(net, bandwidth=width, latency_s=np.full(net.link_count, LATENCY_S))


def under_its_rule(net: Topology) -> Topology:
    """Links without latency that take latency + size / bandwidth."""
    return replace(net, bandwidth=SHARD / (net.latency_s + SHARD / net.bandwidth), latency_s=np.zeros(net.link_count))


def compiled(source: Path, folder: Path) -> Path:
    driver, binary = folder / "driver.cpp", folder / "tacos"
    driver.write_text(DRIVER)
    parts = [p for p in (source / "src").rglob("*.cpp") if p.name != "main.cpp"]
    subprocess.run(
        ["g++", "-O3", "-std=c++17", f"-I{source / 'include'}", str(driver), *map(str, parts), "-o", str(binary)],
        check=True,
    )
    return binary


def theirs(
    binary: Path, net: Topology, runs: int, limit_s: float, shard_bytes: int = SHARD, chunks: int = 1
) -> tuple[float | None, float]:
    """Seconds of the collective, CPU seconds of its planning, the least of each; None and those so far if stopped."""
    rows = "\n".join(
        f"{a} {b} {w / GIB!r} {t * 1e6!r}"
        for a, b, w, t in zip(
            net.src.tolist(), net.dst.tolist(), net.bandwidth.tolist(), net.latency_s.tolist(), strict=True
        )
    )
    text = f"{net.node_count} {net.link_count}\n{rows}\n{shard_bytes / chunks!r} {runs} {chunks}\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        done = subprocess.run([str(binary)], input=text, capture_output=True, text=True, check=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    us, cpu = np.loadtxt(done.stdout.splitlines(), ndmin=2).min(axis=0)
    return float(us) * 1e-6, float(cpu)


@dataclass(frozen=True)
class Ours:
    """Completion, its bound, and CPU seconds in this warm process: of matching alone, and of all planning."""

    seconds: float
    bound_s: float
    matching_cpu_s: float
    cpu_s: float


def ours(net: Topology, parts: int, work: int, runs: int) -> Ours:
    load = Workload((make_collective("allgather", net, shard_bytes=SHARD, chunks=parts),))
    # what TACOS's topology and collective have when its clock starts
    _ = net.accelerators, net.forwarding, net.out_links, net.in_links
    _ = load.chunk_holders, load.chunk_wanted, load.chunk_bytes, load.chunk_reduces, load.chunk_start_s
    matching, everything = [], []
    for _ in range(runs):
        cpu = time.process_time()
        Search(work, TRIES, 0)(net, load, False)
        matching.append(time.process_time() - cpu)
    for _ in range(runs):
        cpu = time.process_time()
        asked = Workload((make_collective("allgather", net, shard_bytes=SHARD),))
        plan = run_planner("greedy", net, asked, options={"parts": parts, "work": work, "tries": TRIES})
        everything.append(time.process_time() - cpu)
    assert verify(plan).ok
    bound = bounds(net, plan.workload, whole_chunks=parts == 1)[0].seconds
    return Ours(simulate(plan).completion_s, bound, min(matching), min(everything))


def cell(binary: Path, spec: str, kind: str, limit_s: float) -> dict[str, Any]:
    net = network(spec, kind)
    runs = next((times for ranks, times in RUNS if net.node_count <= ranks), 1)
    seconds, cpu = theirs(binary, net, runs, limit_s)
    work = max(int(WORK * net.node_count**3), LEAST_WORK * net.node_count)
    same, finer = ours(under_its_rule(net), 1, work, runs), ours(net, 4 if net.node_count <= FINER else 2, 0, 1)
    return {
        "network": spec, "links": kind, "ranks": net.node_count, "theirs_s": seconds,
        "theirs_cpu_s": cpu, "theirs_checked": kind == "homogeneous",
        "same_rule": asdict(same), "own_rule": asdict(finer),
    }  # fmt: skip


COLUMNS = ("network", "links", "TACOS", "greedy", "TACOS CPU s", "matching CPU s", "all CPU s", "matching / TACOS")
"""Columns of the table: both completions over the m-bound, and CPU seconds under TACOS's rule."""

LINKS = {"homogeneous": "equal", "heterogeneous": "by dimension"}


def line(r: dict[str, Any]) -> str:
    """A row of the table."""
    same = r["same_rule"]
    ended, spent, ours_s = r["theirs_s"] is not None, r["theirs_cpu_s"], same["matching_cpu_s"]
    mark = "" if r["theirs_checked"] else " (unchecked)"
    ratio = f"{r['theirs_s'] / same['bound_s']:.4f}{mark}" if ended else "not ended"
    cells = (
        r["network"].replace(":", " "), LINKS[r["links"]], ratio, f"{same['seconds'] / same['bound_s']:.4f}",
        _digits(spent, 5) if ended else f"> {spent:.0f}", _digits(ours_s, 5), _digits(same["cpu_s"], 5),
        "" if not spent else f"{'' if ended else '< '}{_digits(ours_s / spent, 4)}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _digits(value: float, decimals: int) -> str:
    """Three digits of a number; of small ones so many decimals."""
    return f"{value:.{decimals}f}" if value < 0.1 ** (decimals - 3) else f"{value:.3g}"


def under_our_physics(r: dict[str, Any]) -> str:
    """What planning under the physics of this project gives, in words."""
    own = r["own_rule"]
    return f"{r['network']}, {LINKS[r['links']]}: {own['seconds'] / own['bound_s']:.4f} in {own['cpu_s']:.3f} CPU s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=os.environ.get("TACOS_SOURCE"))
    parser.add_argument("--large", action="store_true", help="1,024 ranks too: minutes of TACOS")
    parser.add_argument("--networks", nargs="*")
    parser.add_argument("--links", choices=(*WIDTHS,), help="these alone")
    parser.add_argument("--limit", type=float, default=1200, help="seconds after which TACOS is stopped (default 1200)")
    given = parser.parse_args()
    if given.source is None or not (given.source / "include" / "tacos").is_dir():
        print("TACOS is not here: give --source or TACOS_SOURCE, a checkout of github.com/astra-sim/tacos; skipped")
        return
    rows = []
    ours(network("torus:4x4", "homogeneous"), 1, 0, 2)  # loads the kernels
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        binary = compiled(given.source, Path(folder))
        for spec in given.networks or (*NETWORKS, *(LARGE if given.large else ())):
            for kind in [given.links] if given.links else WIDTHS:
                r = cell(binary, spec, kind, given.limit)
                rows.append(r)
                print(line(r), flush=True)
    print("\nOf the bound under our physics, with CPU seconds of all planning:")
    print(*map(under_our_physics, rows), sep="\n")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "tacos.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

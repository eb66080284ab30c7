"""How fast is ``all_reduce`` by stretto beside gloo? On loopback, and between two emulated sites.

Eight ranks, both backends in the same processes, turns taken repeat by repeat. Loopback is given no topology; the
sites are four ranks each, joined by one link ten times narrower than those inside, of network namespaces (root).
Ranks are numbered site after site (``sites``), site by site in turn (``turns``), or as they happen to arrive at a
rendezvous, which is how torchrun numbers nodes (``arrival``: a shuffle for each of ``--seeds``). Prints how often a
ring in the order of ranks crosses from one site to the other, seconds, CPU seconds over all ranks, and gloo's time
over stretto's; writes benchmarks/out/torch_backend.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path

RANKS = 8
SITES = 2
INSIDE_GBPS, BETWEEN_GBPS = 0.05, 0.005
NETWORKS = ("loopback", "sites", "arrival", "turns")
BACKENDS = ("gloo", "stretto")
OUT = Path(__file__).parent / "out"


def worker(rank: int, folder: str, sizes: list[int], repeats: int) -> None:
    """One rank: seconds and CPU seconds of every repeat, into a file."""
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    groups = {"gloo": None, "stretto": dist.new_group(list(range(RANKS)), backend="stretto")}
    rows = []
    for size in sizes:
        tensor = torch.empty(size // 4)
        for repeat in range(-1, repeats):  # the first connects and plans
            for name in BACKENDS:
                tensor.fill_(1.0)
                dist.barrier()
                wall, cpu = time.perf_counter(), time.process_time()
                dist.all_reduce(tensor, group=groups[name])
                dist.barrier()
                spent = time.perf_counter() - wall, time.process_time() - cpu
                assert bool((tensor == RANKS).all()), f"{name} summed wrongly"
                if repeat >= 0:
                    rows.append({"backend": name, "size_bytes": size, "wall_s": spent[0], "cpu_s": spent[1]})
    Path(folder, f"rows{rank}").write_text(json.dumps(rows))
    dist.destroy_process_group()


def order(network: str, seed: int) -> list[int]:
    """The site of each rank, none on loopback."""
    by_site = [r * SITES // RANKS for r in range(RANKS)]
    arrived = random.Random(seed).sample(by_site, RANKS)
    return {"loopback": [], "sites": by_site, "arrival": arrived, "turns": [r % SITES for r in range(RANKS)]}[network]


def crossings(site: list[int]) -> int:
    """How often a ring in the order of ranks goes from one site to the other, in each direction."""
    return sum(a < b for a, b in pairwise([*site, *site[:1]]))


def sites(site: list[int]) -> dict:
    """Ranks linked inside their site, and by its router to the other, as a topology file."""
    ranks = [{"id": r, "kind": "gpu", "site": f"s{site[r]}"} for r in range(RANKS)]
    routers = [{"id": RANKS + s, "kind": "router", "site": f"s{s}"} for s in range(SITES)]
    pairs = [
        (a["id"], b["id"], INSIDE_GBPS if a["site"] == b["site"] else BETWEEN_GBPS)
        for a, b in permutations([*ranks, *routers], 2)
        if a["site"] == b["site"] or a["kind"] == b["kind"] == "router"
    ]
    links = [{"src": a, "dst": b, "bandwidth_GBps": wide, "latency_us": 0.0} for a, b, wide in pairs]
    return {"name": "two sites", "nodes": [*ranks, *routers], "links": links}


@contextlib.contextmanager
def prefixes(site: list[int], folder: str) -> Iterator[list[list[str]]]:
    """For each rank what its command begins with."""
    if not site:
        yield [[]] * RANKS
        return
    from stretto import emulator
    from stretto.topologies import load_topology

    file = Path(folder, "sites.json")
    file.write_text(json.dumps(sites(site)))
    topology = load_topology(str(file))
    with emulator.built(topology) as places:
        there = [places[int(v)] for v in topology.accelerators]
        env = ["env", f"STRETTO_TOPOLOGY={file}", "STRETTO_FRAMES=plain"]  # gloo protects nothing either
        yield [["ip", "netns", "exec", p.argument, *env, f"STRETTO_HOST={p.host}"] for p in there]


def measured(network: str, seed: int, sizes: list[int], repeats: int) -> list[dict]:
    """Rows of one network: the slowest rank's seconds, the sum of the CPU seconds."""
    environment, site = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, order(network, seed)
    with tempfile.TemporaryDirectory() as folder, prefixes(site, folder) as before:
        tail = [folder, ",".join(map(str, sizes)), str(repeats)]
        commands = [[*before[r], sys.executable, __file__, "--worker", str(r), *tail] for r in range(RANKS)]
        running = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(f"a rank failed: {codes}")
        ranks = [json.loads(Path(folder, f"rows{r}").read_text()) for r in range(RANKS)]
    return [
        {
            **same[0],
            "network": f"{network} {seed}" if network == "arrival" else network,
            "crossings": crossings(site),
            "wall_s": max(r["wall_s"] for r in same),
            "cpu_s": sum(r["cpu_s"] for r in same),
        }
        for same in zip(*ranks, strict=True)
    ]


def table(rows: list[dict]) -> None:
    """Medians, and gloo's time over stretto's repeat by repeat."""
    print("| network | crossings | size | gloo s | stretto s | gloo / stretto | spread | gloo CPU s | stretto CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for network, crossed, size in dict.fromkeys((r["network"], r["crossings"], r["size_bytes"]) for r in rows):
        mine = [[r for r in rows if (r["network"], r["size_bytes"], r["backend"]) == (network, size, b)]
                for b in BACKENDS]  # fmt: skip
        ratios = [a["wall_s"] / b["wall_s"] for a, b in zip(*mine, strict=True)]
        wall = [statistics.median(r["wall_s"] for r in side) for side in mine]
        cpu = [statistics.median(r["cpu_s"] for r in side) for side in mine]
        spread = f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {network} | {crossed} | {size / 1e6:.0f} MB | {wall[0]:.3f} | {wall[1]:.3f} | {spread} | "
              f"{cpu[0]:.2f} | {cpu[1]:.2f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of arrivals")
    parser.add_argument("--sizes", default="16e6,64e6", help="bytes, by comma")
    arguments = parser.parse_args()
    sizes = [int(float(s)) for s in arguments.sizes.split(",")]
    rows = [
        row
        for network in ([arguments.only] if arguments.only else NETWORKS)
        for seed in (arguments.seeds if network == "arrival" else [0])
        for row in measured(network, seed, sizes, arguments.repeats)
    ]
    table(rows)
    OUT.mkdir(exist_ok=True)
    (OUT / "torch_backend.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        rank, folder, sizes, repeats = sys.argv[2:]
        worker(int(rank), folder, [int(s) for s in sizes.split(",")], int(repeats))
    else:
        main()

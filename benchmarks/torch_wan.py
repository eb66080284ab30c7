"""How fast are collectives by stretto beside gloo on networks as clouds and long links are? In namespaces (root).

Two ranks, or two sites of two ranks, whose link of 4 MB/s caps each flow at an eighth (``capped``), loses 1 % of
packets of 1,500 bytes at a round trip of 100 ms (``lossy``), or does neither (``clean``, a round trip of 40 ms). A
process passes the packets on and does all that; the kernel's token buckets are the bandwidths. No topology is given:
stretto measures the network, and how many connections a pair needs. Its better plans are awaited before anything
counts (``--first``: first plans are used). Both backends run in the same processes, repeat by repeat. Prints what share
of the link each has (the bytes that must cross it, over its bandwidth and the time), seconds, and gloo's time over
stretto's, and below the table what connecting and measuring took; writes benchmarks/out/torch_wan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINK = 4e6
ROUGH = {"clean": {}, "capped": {"cap": LINK / 8, "packet_bytes": 1500}, "lossy": {"loss": 0.01, "packet_bytes": 1500}}
LATENCY_MS = {"clean": 20, "capped": 20, "lossy": 50}
BACKENDS = ("gloo", "stretto")
KINDS = ("allreduce", "broadcast")
CHANGES, PLANNED_S = 5, 90
"""Calls after which all ranks have changed to a better plan that is there, and seconds that may take to make."""
OUT = Path(__file__).parent / "out"


def worker(rank: int, ranks: int, folder: str, size: int, repeats: int, kinds: list[str], backends: list[str]) -> None:
    """One rank: seconds of every repeat, and what the group has measured, into a file."""
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    groups = {"gloo": None, "stretto": dist.new_group(list(range(ranks)), backend="stretto")}
    tensor, rows, began = torch.empty(size // 4), [], time.perf_counter()
    if "stretto" in backends:
        dist.barrier(group=groups["stretto"])
    measuring_s = time.perf_counter() - began

    def call(kind: str, name: str) -> None:
        if kind == "allreduce":
            dist.all_reduce(tensor, group=groups[name])
        else:
            dist.broadcast(tensor, 0, group=groups[name])

    if "stretto" in backends and os.environ["STRETTO_EFFORT"] != "none":
        for kind in kinds * 2:
            call(kind, "stretto")
        await_plans(rank, kinds)
        for kind in kinds * CHANGES:
            call(kind, "stretto")
    for repeat in range(-1, repeats):  # the first connects and plans
        for kind in kinds:
            for name in backends:
                if repeat < 0 and name == "gloo":
                    continue
                tensor.fill_(1.0)
                dist.barrier()
                wall, cpu = time.perf_counter(), time.process_time()
                call(kind, name)
                ended, cpu = time.perf_counter(), time.process_time() - cpu
                assert bool((tensor == (ranks if kind == "allreduce" else 1)).all()), f"{name} ended with wrong numbers"
                if repeat >= 0:
                    rows.append({"kind": kind, "backend": name, "began": wall, "ended": ended, "cpu_s": cpu})
    mesh = dist.distributed_c10d._world.pg_map  # which connections the group has
    group = next((g for g in mesh if type(g).__name__ == "StrettoGroup"), None)
    lanes = [] if group is None else [len(to[0].lanes) for to in group._links.mesh().peers.values()]
    Path(folder, f"rows{rank}").write_text(
        json.dumps({"rows": rows, "connections": max(lanes, default=1), "measuring_s": measuring_s})
    )
    dist.barrier()
    dist.destroy_process_group()


def await_plans(rank: int, kinds: list[str]) -> None:
    """Return at all ranks when better plans have been made, as the folder of kept plans says."""
    import torch
    import torch.distributed as dist

    until, there = time.monotonic() + PLANNED_S, torch.zeros(1)
    while not there.item():
        time.sleep(1)
        made = all(any(Path(os.environ["STRETTO_CACHE"]).glob(f"*-{kind}-*.plan")) for kind in kinds)
        there.fill_(float(made or time.monotonic() > until))
        dist.broadcast(there, 0)


def topology(sites: bool, latency_ms: float) -> str:
    if not sites:
        return f"line:2?bandwidth={LINK:.0f}B/s&latency={latency_ms}ms"
    wan = f"wan_bandwidth={LINK:.0f}B/s&wan_latency={latency_ms}ms"
    return f"sites:2,2?bandwidth=20MB/s&router_bandwidth=20MB/s&latency=0s&{wan}"


def measured(
    case: str, sites: bool, size: int, repeats: int, kinds: list[str], backends: list[str], effort: str
) -> list[dict]:
    """Rows of one network."""
    from stretto import emulator
    from stretto.topologies import load_topology

    net = load_topology(topology(sites, LATENCY_MS[case]))
    wan = {
        (min(a, b), max(a, b))
        for a, b, late in zip(net.src.tolist(), net.dst.tolist(), net.latency_s.tolist(), strict=True)
        if late >= LATENCY_MS[case] / 2e3
    }
    rough = dict.fromkeys(wan, emulator.Rough(**ROUGH[case]))
    nodes = net.accelerators.tolist()
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "STRETTO_EFFORT": effort}
    with tempfile.TemporaryDirectory() as folder, emulator.built(net, relayed=True, rough=rough) as places:
        environment["STRETTO_CACHE"] = f"{folder}/plans"
        tail = [str(len(nodes)), folder, str(size), str(repeats), ",".join(kinds), ",".join(backends)]
        commands = [
            ["ip", "netns", "exec", places[v].argument, "env", f"STRETTO_HOST={places[v].host}",
             sys.executable, __file__, "--worker", str(r), *tail]
            for r, v in enumerate(nodes)
        ]  # fmt: skip
        running = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(f"a rank failed: {codes}")
        ranks = [json.loads(Path(folder, f"rows{r}").read_text()) for r in range(len(nodes))]
    return [
        {"network": case, "ranks": len(nodes), "kind": same[0]["kind"], "backend": same[0]["backend"],
         "wall_s": max(r["ended"] for r in same) - min(r["began"] for r in same), "size_bytes": size,
         "cpu_s": sum(r["cpu_s"] for r in same),
         "connections": max(r["connections"] for r in ranks), "measuring_s": max(r["measuring_s"] for r in ranks)}
        for same in zip(*(r["rows"] for r in ranks), strict=True)
    ]  # fmt: skip


def table(rows: list[dict]) -> None:
    print("| network | ranks | collective | connections | gloo: share of the link | stretto | gloo, s | stretto, s "
          "| gloo / stretto |")  # fmt: skip
    print("|---" * 9 + "|")
    for network, ranks, kind in dict.fromkeys((r["network"], r["ranks"], r["kind"]) for r in rows):
        of = [[r for r in rows if (r["network"], r["ranks"], r["kind"], r["backend"]) == (network, ranks, kind, b)]
              for b in BACKENDS]  # fmt: skip
        wall = [statistics.median(r["wall_s"] for r in side) for side in of if side]
        blank = [""] * (len(BACKENDS) - len(wall))  # without gloo
        share = blank + [f"{of[1][0]['size_bytes'] / LINK / w:.2f}" for w in wall]
        over = blank or [f"{wall[0] / wall[1]:.1f}"]
        cells = [*share, *blank, *(f"{w:.3g}" for w in wall), *over]
        print(f"| {network} | {ranks} | {kind} | {of[1][0]['connections']} | {' | '.join(cells)} |")
    print()
    for network, ranks in dict.fromkeys((r["network"], r["ranks"]) for r in rows):
        took_s = max(r["measuring_s"] for r in rows if (r["network"], r["ranks"]) == (network, ranks))
        print(f"connecting and measuring, {network}, {ranks} ranks: {took_s:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=ROUGH, help="one network")
    parser.add_argument("--sites", action="store_true", help="two sites of two ranks instead of two ranks")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=float, default=16e6, help="bytes")
    parser.add_argument("--kinds", default=",".join(KINDS), help="by comma")
    parser.add_argument("--alone", action="store_true", help="without gloo, which is slow where flows are capped")
    parser.add_argument("--first", action="store_true", help="by first plans")
    arguments = parser.parse_args()
    effort = "none" if arguments.first else "normal"
    backends = list(BACKENDS[arguments.alone :])
    rows = [
        row
        for case in ([arguments.only] if arguments.only else ROUGH)
        for row in measured(
            case, arguments.sites, int(arguments.size), arguments.repeats, arguments.kinds.split(","), backends, effort
        )
    ]
    table(rows)
    OUT.mkdir(exist_ok=True)
    (OUT / "torch_wan.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        rank, ranks, folder, size, repeats, kinds, backends = sys.argv[2:]
        worker(int(rank), int(ranks), folder, int(size), int(repeats), kinds.split(","), backends.split(","))
    else:
        main()

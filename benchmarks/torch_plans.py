"""What do plans cost the processes of PyTorch? The first call of each shape, and the better plan that comes later.

``--ranks`` processes on loopback plan for two sites of half as many ranks each, joined by one link twenty times
narrower than those inside. After all are connected, every call is made twice: the difference is what its plan costs.
Then the first call is repeated until all ranks run it by the better plan, or the planner's process has
answered that there is none. Prints for each call, the first time and the second, the CPU seconds of the rank that spent
most and seconds until the last rank had its result; below it the better plan, and CPU seconds of the planner's process.
Nothing is kept on disk, unless ``--again`` runs the whole a second time with the plans of the first. Writes
benchmarks/out/torch_plans.json.

``--parts`` takes the first collective apart instead: for each part the CPU seconds and the seconds that the threads of
a rank were in it, without those of parts inside it, with the two sites as a topology and with a measured network. Of
several numbers of ranks only the CPU seconds of whole steps, the mean of the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

INSIDE, BETWEEN = 1e9, 5e7
CALLS = (
    ("all_reduce", 1 << 24), ("all_reduce", 1 << 23), ("all_reduce", 1 << 20), ("all_reduce", 1 << 12),
    ("all_gather", 1 << 20), ("reduce_scatter", 1 << 20), ("broadcast", 1 << 24), ("broadcast", 1 << 12),
    ("barrier", 1),
)  # fmt: skip
"""Function and bytes: of the buffer, or of the piece of a rank."""
FIRST_CALLS = (
    ("first collective", "all_reduce", 1 << 20), ("the same again", "all_reduce", 1 << 20),
    ("new size", "all_reduce", 1 << 24), ("the same again", "all_reduce", 1 << 24),
)  # fmt: skip
"""Step, function and bytes of the calls that ``--parts`` takes apart."""
PATIENCE_S = 300.0
"""Seconds for which the better plan is waited for."""
OUT = Path(__file__).parent / "out"


def worker(rank: int, folder: str) -> None:
    """One rank: a row for each call, into a file."""
    began_cpu = time.process_time()
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401
    from stretto.choose.planning import planner

    torch.set_num_threads(1)
    imported_cpu = time.process_time()
    ranks = int(os.environ["RANKS"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    group = dist.new_group(list(range(ranks)), backend="stretto")
    group.monitored_barrier()
    rows = [{"call": "import", "cpu_s": imported_cpu - began_cpu, "wall_s": 0.0},
            {"call": "connect", "cpu_s": time.process_time() - imported_cpu, "wall_s": 0.0}]  # fmt: skip
    for name, size in CALLS:
        call = call_of(name, size, ranks, group)
        for time_number in ("first", "second"):
            rows.append({"call": shown(name, size), "time": time_number, **timed(call, dist)})
    call, began, change = call_of(*CALLS[0], ranks, group), time.monotonic(), 0
    while time.monotonic() - began < PATIENCE_S:
        row = timed(call, dist)
        change += 1
        came = torch.tensor([better(group), int(rank > 0 or bool(planner()._asked))])
        dist.all_reduce(came, op=dist.ReduceOp.MIN)
        if came[0]:
            rows.append({"call": f"better plan from call {change} on, after {time.monotonic() - began:.0f} s", **row})
            break
        if not came[1]:
            rows.append({"call": f"first plan is as good, said after {time.monotonic() - began:.0f} s", **row})
            break
        time.sleep(0.05)
    if rank == 0:
        rows.append({"call": "planner's process", "cpu_s": planner_cpu_s(), "wall_s": 0.0})
    Path(folder, f"rows{rank}").write_text(json.dumps(rows))
    dist.destroy_process_group()


def first_call(rank: int, folder: str) -> None:
    """One rank: the parts of connecting, of the first call and of the next new size, into a file."""
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401
    from call_parts import Stopwatch

    torch.set_num_threads(1)
    ranks, rows = int(os.environ["RANKS"]), []
    store = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), ranks, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    from stretto.torch import group as _  # noqa: F401

    watch = Stopwatch()

    def note(step: str, run) -> None:
        dist.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rows.append({"step": step, "cpu_s": cpu, "wall_s": wall, "parts": watch.taken()})

    groups = []

    def connect() -> None:
        groups.append(dist.new_group(list(range(ranks)), backend="stretto"))
        groups[0].monitored_barrier()

    note("connecting", connect)
    for step, name, size in FIRST_CALLS:
        note(step, call_of(name, size, ranks, groups[0]))
    dist.barrier()
    Path(folder, f"rows{rank}").write_text(json.dumps(rows))
    dist.destroy_process_group()


def call_of(name: str, size: int, ranks: int, group: object):
    """A call without arguments."""
    import torch
    import torch.distributed as dist

    own = torch.ones(max(1, size // 4))
    if name == "all_reduce":
        return lambda: dist.all_reduce(own.fill_(1.0), group=group)
    if name == "broadcast":
        return lambda: dist.broadcast(own, 0, group=group)
    if name == "barrier":
        return lambda: dist.barrier(group=group)
    whole = torch.ones(len(own) * ranks)
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, own, group=group)
    return lambda: dist.reduce_scatter_tensor(own, whole, group=group)


def timed(call, dist) -> dict:
    """Seconds and CPU seconds of a call that all ranks begin together."""
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def better(group) -> int:
    """Whether the first call of :data:`CALLS` runs by a plan of ``auto``."""
    uses = group._collectives.plans._uses
    (use,) = (use for shape, use in uses.items() if (shape.kind, shape.size_bytes) == ("allreduce", CALLS[0][1]))
    return int(use.recipe.program.plan.meta["planner"] == "auto")


def planner_cpu_s() -> float:
    """CPU seconds of the planner's process so far."""
    from stretto.choose.planning import planner

    process = planner()._process
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def two_sites(ranks: int) -> dict:
    """Two sites, each with a switch, as a topology file."""
    nodes = [{"id": r, "kind": "gpu"} for r in range(ranks)] + [{"id": ranks + s, "kind": "switch"} for s in (0, 1)]
    pairs = [(r, ranks + (2 * r) // ranks, INSIDE) for r in range(ranks)] + [(ranks, ranks + 1, BETWEEN)]
    links = [{"src": a, "dst": b, "bandwidth_GBps": width / 1e9, "latency_us": 100.0}
             for x, y, width in pairs for a, b in ((x, y), (y, x))]  # fmt: skip
    return {"name": "two sites", "nodes": nodes, "links": links}


def run_ranks(ranks: int, cache: str, role: str, named: bool = True) -> list[list[dict]]:
    """The rows of all ranks.

    Args:
        role: what the processes do.
        named: whether the network is named, or else measured.
    """
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        file = Path(folder, "sites.json")
        file.write_text(json.dumps(two_sites(ranks)))
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "STRETTO_TOPOLOGY": str(file) if named else "",
                       "RANKS": str(ranks), "PORT": str(free.getsockname()[1]), "STRETTO_CACHE": cache,
                       "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::FutureWarning"}  # fmt: skip
        free.close()
        commands = [[sys.executable, __file__, role, str(r), folder] for r in range(ranks)]
        running = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(f"a rank failed: {codes}")
        return [json.loads(Path(folder, f"rows{r}").read_text()) for r in range(ranks)]


def print_parts(ranks: int, named: bool) -> list[list[dict]]:
    """Print what each step of ``--parts`` took: of all ranks the mean, and the most."""
    of_ranks = run_ranks(ranks, "", "--first", named)
    print(f"\n{ranks} ranks, {'two sites as a topology' if named else 'network measured'}\n")
    print("| step | part | times | CPU s, mean | most | s, mean | most |\n|---|---|---|---|---|---|---|")
    for k, row in enumerate(of_ranks[0]):
        whole = [(own[k]["cpu_s"], own[k]["wall_s"]) for own in of_ranks]
        _print_part(row["step"], "all", "", whole)
        for part in dict.fromkeys(part for own in of_ranks for part in own[k]["parts"]):
            each = [own[k]["parts"].get(part, (0.0, 0.0, 0)) for own in of_ranks]
            _print_part("", part, f"{max(times for *_, times in each)}", [(cpu, wall) for cpu, wall, _ in each])
    return of_ranks


def _print_part(step: str, part: str, times: str, each: list[tuple[float, float]]) -> None:
    """A row: CPU seconds and seconds of the ranks."""
    cpu, wall = zip(*each, strict=True)
    mean = [sum(column) / len(each) for column in (cpu, wall)]
    print(f"| {step} | {part} | {times} | {mean[0]:.4f} | {max(cpu):.4f} | {mean[1]:.4f} | {max(wall):.4f} |")


def print_steps(ranks: list[int]) -> list[list[list[dict]]]:
    """Print the CPU seconds of each step of ``--parts``, the mean of the ranks."""
    results = []
    steps = ["connecting", *(step for step, *_ in FIRST_CALLS)]
    print(f"| ranks | network | {' | '.join(steps)} |\n|---|---{'|---' * len(steps)}|", flush=True)
    for count, named in product(ranks, (True, False)):
        results.append(of_ranks := run_ranks(count, "", "--first", named))
        means = [sum(own[k]["cpu_s"] for own in of_ranks) / count for k in range(len(steps))]
        cells = " | ".join(f"{mean:.3f}" for mean in means)
        print(f"| {count} | {'named' if named else 'measured'} | {cells} |", flush=True)
    return results


def print_calls(rows: list[dict]) -> None:
    """Print the calls that were made twice, and what else was noted."""
    twice = [(row, rows[k + 1]) for k, row in enumerate(rows) if row.get("time") == "first"]
    print("| call | first, CPU s | second | first, s | second |\n|---|---|---|---|---|")
    for first, second in twice:
        spent = " | ".join(f"{row[key]:.2f}" for key in ("cpu_s", "wall_s") for row in (first, second))
        print(f"| {first['call']} | {spent} |")
    print()
    for row in rows:
        if "time" not in row:
            print(f"{row['call']}: {row['cpu_s']:.3f} CPU s of a rank at most, {row['wall_s']:.3f} s")


def shown(name: str, size: int) -> str:
    """A call as a table has it."""
    amount = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
    return f"`{name}`" if name == "barrier" else f"`{name}`, {amount}"


def measured(ranks: int, cache: str) -> list[dict]:
    """A row for each call: the most CPU seconds of a rank, and the seconds of the last one."""
    of_ranks = run_ranks(ranks, cache, "--worker")
    longest = max(of_ranks, key=len)
    rows = [[own[k] for own in of_ranks if k < len(own)] for k in range(len(longest))]
    return [
        {**longest[k], "cpu_s": max(r["cpu_s"] for r in same), "wall_s": max(r["wall_s"] for r in same)}
        for k, same in enumerate(rows)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[16])
    parser.add_argument("--again", action="store_true", help="run once more with the plans that were kept")
    parser.add_argument("--parts", action="store_true", help="take the first collective apart")
    arguments = parser.parse_args()
    results: list = []
    if arguments.parts:
        results = print_steps(arguments.ranks) if len(arguments.ranks) > 1 else [
            print_parts(arguments.ranks[0], named) for named in (True, False)
        ]  # fmt: skip
        OUT.mkdir(exist_ok=True)
        (OUT / "torch_plans_parts.json").write_text(json.dumps(results, indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as cache:
        for ranks, number in product(arguments.ranks, range(1 + arguments.again)):
            results.append(rows := measured(ranks, cache if arguments.again else ""))
            print(f"{'with kept plans' if number else 'from nothing'}, {ranks} ranks\n")
            print_calls(rows)
    OUT.mkdir(exist_ok=True)
    (OUT / "torch_plans.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] in (["--worker"], ["--first"]):
        (worker if sys.argv[1] == "--worker" else first_call)(int(sys.argv[2]), sys.argv[3])
    else:
        main()

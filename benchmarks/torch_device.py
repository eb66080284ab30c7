"""How fast is ``all_reduce`` of tensors on GPUs by stretto, and is it right? Needs a GPU; says so where there is none.

Starts ``--ranks`` processes, which share the GPUs of this machine in turn, as sites of equal size on a network that is
named (``--sites``), so that plans cross between sites as they would in two datacenters. Where each rank has a GPU of
its own, ranks of a site use NCCL among themselves, and NCCL alone is measured beside it; where ranks share a GPU, which
NCCL refuses, the executor moves all through pinned host memory, as gloo does, which is measured beside it.
Every sum is compared with the right one. Prints, for each size, milliseconds by the device's clock from the call until
the caller's stream has the result, how long the call and ``wait`` kept the host, and CPU seconds of all ranks; writes
benchmarks/out/torch_device.json.
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
from typing import Any

OUT = Path(__file__).parent / "out"


def worker(rank: int, ranks: int, sizes: list[int], repeats: int, folder: Path) -> None:
    """One rank: the times of every repeat, into a file."""
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401

    gpus = torch.cuda.device_count()
    torch.cuda.set_device(rank % gpus)
    store = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": ranks}
    dist.init_process_group("cpu:stretto,cuda:stretto", **store)
    groups: dict[str, Any] = {"stretto": None}
    if gpus >= ranks:
        groups["nccl"] = dist.new_group(list(range(ranks)), backend="cpu:stretto,cuda:nccl")
    else:
        groups["gloo"] = dist.new_group(list(range(ranks)), backend="gloo")
    rows = []
    for size in sizes:
        for repeat in range(-2, repeats):  # the first two connect, plan, and change to a better plan
            for name, group in groups.items():
                tensor = torch.full((size // 4,), rank + 1.0, device="cuda")
                began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                dist.barrier()
                cpu_s, at = time.process_time(), time.perf_counter()
                began.record()
                work = dist.all_reduce(tensor, group=group, async_op=True)
                called_s = time.perf_counter() - at
                work.wait()
                ended.record()
                waited_s = time.perf_counter() - at
                torch.cuda.synchronize()
                spent_s = time.process_time() - cpu_s
                assert bool((tensor == ranks * (ranks + 1) / 2).all()), f"{name} summed {size} bytes wrongly"
                if repeat >= 0:
                    device_s = began.elapsed_time(ended) / 1e3
                    rows.append([name, size, device_s, called_s, waited_s, spent_s])
    (folder / f"rows{rank}").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def measure(ranks: int, sites: int, sizes: list[int], repeats: int, inner: str) -> list[dict[str, Any]]:
    """The medians over repeats, of the slowest rank."""
    spec = f"sites:{sites},{ranks // sites}"
    environment = {**os.environ, "STRETTO_TOPOLOGY": spec, "STRETTO_INNER": inner}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--sizes", *map(str, sizes), "--repeats", str(repeats)]
        command += ["--ranks", str(ranks), "--folder", folder]
        running = [subprocess.Popen([*command, "--rank", str(r)], env=environment) for r in range(ranks)]
        codes = [process.wait() for process in running]
        if any(codes):
            sys.exit("a rank has failed")
        by_rank = [json.loads(Path(folder, f"rows{r}").read_text()) for r in range(ranks)]
    times: dict[tuple[str, int], list[list[float]]] = {}
    for of_all in zip(*by_rank, strict=True):
        device_s, called_s, waited_s = (max(column) for column in list(zip(*of_all, strict=True))[2:5])
        times.setdefault((of_all[0][0], of_all[0][1]), []).append(
            [device_s, called_s, waited_s, sum(row[5] for row in of_all)]
        )
    names = ("device_s", "call_s", "wait_s", "cpu_s")
    return [
        {"backend": name, "size_bytes": size, "ranks": ranks, "sites": sites, "inner": inner or "default"}
        | {key: statistics.median(column) for key, column in zip(names, zip(*rows, strict=True), strict=True)}
        for (name, size), rows in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 16e6, 256e6], help="bytes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes]
    if given.rank is not None:
        worker(given.rank, given.ranks, sizes, given.repeats, given.folder)
        return
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: nothing was run")
        return
    inner = "" if torch.cuda.device_count() >= given.ranks else "none"
    rows = measure(given.ranks, given.sites, sizes, given.repeats, inner)
    print(f"{given.ranks} ranks at {given.sites} sites on {torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    print("backend    MB     device ms   call ms   wait ms   CPU s")
    for row in rows:
        times = (f"{row[key] * 1e3:9.2f}" for key in ("device_s", "call_s", "wait_s"))
        print(f"{row['backend']:8} {row['size_bytes'] / 1e6:6.0f}  {' '.join(times)} {row['cpu_s']:7.2f}")
    OUT.mkdir(exist_ok=True)
    (OUT / "torch_device.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

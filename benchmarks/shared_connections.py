"""What does it cost a collective that groups share its connections?

Processes on this machine are in groups of all ranks: one with connections of its own, one whose connections serve other
groups, too, first alone and then beside a group that does nothing. They take turns, repeat by repeat. Prints the time
of the slowest rank over connections of the group's own, and the median over repeats of what shared ones take divided by
that; the same of CPU seconds of all ranks; and how many sockets a process has.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

BYTES, MOST_CALLS = 8e6, 60
"""A repeat makes as many calls as move ``BYTES``, at most ``MOST_CALLS``."""
Times = dict[str, list[tuple[float, float]]]
"""For each group the seconds and the CPU seconds of a call, by repeat."""


def call_of(kind: str, size: int, ranks: int, group: Any) -> Callable[[], Any]:
    """A collective of ``size`` bytes, the larger of input and output."""
    import torch
    import torch.distributed as dist

    each = max(1, size // 4 // ranks)
    whole, part, many, other = (
        torch.zeros(max(1, size // 4)),
        *(torch.zeros(n) for n in (each, each * ranks, each * ranks)),
    )
    return {
        "allreduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "allgather": lambda: dist.all_gather_into_tensor(many, part, group=group),
        "alltoall": lambda: dist.all_to_all_single(many, other, group=group),
        "barrier": lambda: dist.barrier(group=group),
    }[kind]


def measure(ranks: int, groups: dict[str, Any], kind: str, size: int, repeats: int) -> Times:
    """Let groups take turns."""
    import torch.distributed as dist

    calls = {name: call_of(kind, size, ranks, group) for name, group in groups.items()}
    count = max(1, min(MOST_CALLS, int(BYTES / size)))
    for call in calls.values():
        for _ in range(3):
            call()
    found: Times = {name: [] for name in groups}
    for _ in range(repeats):
        for name, call in calls.items():
            dist.barrier()
            cpu_s, began = time.process_time(), time.perf_counter()
            for _ in range(count):
                call()
            seconds = time.perf_counter() - began
            dist.barrier(group=groups[name])
            found[name].append((seconds / count, (time.process_time() - cpu_s) / count))
    return found


def sockets() -> int:
    """How many sockets this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


def worker(rank: int, ranks: int, folder: str, work: Sequence[tuple[str, int]], repeats: int, found: Any) -> None:
    """One rank; what it has measured goes to ``found``."""
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401
    from stretto.torch import links

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    counts = [sockets()]

    def group() -> Any:
        made = dist.new_group(list(range(ranks)), backend="stretto")
        dist.barrier(group=made)
        dist.barrier()
        counts.append(sockets())
        return made

    shares, links.Links._share_roads = links.Links._share_roads, lambda self: None  # type: ignore[method-assign]
    own = group()
    links.Links._share_roads = shares  # type: ignore[method-assign]
    first = group()
    rows = {("one", *what): measure(ranks, {"own": own, "shared": first}, *what, repeats) for what in work}
    second = group()
    rows |= {("two", *what): measure(ranks, {"own": own, "shared": first}, *what, repeats) for what in work}
    found.put((rank, rows, [after - before for before, after in pairwise(counts)]))
    dist.barrier(group=second)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sizes", default="4,1024,65536,1048576,16777216")
    parser.add_argument("--kinds", default="allreduce,allgather,alltoall,barrier,broadcast")
    arguments = parser.parse_args()
    ranks, kinds, sizes = arguments.ranks, arguments.kinds.split(","), [int(s) for s in arguments.sizes.split(",")]
    work = [(kind, size) for kind in kinds for size in (sizes if kind != "barrier" else [4])]
    os.environ |= {"STRETTO_EFFORT": "none", "STRETTO_CACHE": "", "STRETTO_KERNELS": "compiled", "OMP_NUM_THREADS": "1"}
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        found = context.Queue()
        fixed = ranks, folder, work, arguments.repeats, found
        processes = [context.Process(target=worker, args=(rank, *fixed)) for rank in range(ranks)]
        for process in processes:
            process.start()
        told = [found.get() for _ in processes]
        for process in processes:
            process.join()
    print(f"further sockets of a process by the group of its own, the first that shares, and the second: {told[0][2]}")
    print("groups | collective | bytes | own, us | shared / own | own, CPU us of all ranks | shared / own")
    for key in told[0][1]:
        times = {name: list(zip(*(rows[key][name] for _, rows, _ in told), strict=True)) for name in ("own", "shared")}
        wall = {name: [max(s for s, _ in repeat) for repeat in repeats] for name, repeats in times.items()}
        cpu = {name: [sum(s for _, s in repeat) for repeat in repeats] for name, repeats in times.items()}
        cells = [
            f"{1e6 * statistics.median(of['own']):.0f} | "
            f"{statistics.median(b / a for a, b in zip(of['own'], of['shared'], strict=True)):.3f}"
            for of in (wall, cpu)
        ]
        print(" | ".join([*map(str, key), *cells]))


if __name__ == "__main__":
    main()

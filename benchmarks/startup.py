"""What does a whole process cost? CPU seconds (user and system) of commands as a user runs them.

Prints a table and writes benchmarks/out/startup.json. The cold run has an empty kernel cache, so
it compiles; the run after it loads what that one compiled.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = [sys.executable, "-c", "from stretto.cli import main; main()"]
NDV2 = ["plan", "allgather", "-t", "ndv2:10", "--shard", "31.25MB", "-p", "mtegcca"]
COMMANDS = (
    "--help",
    "topologies ndv2:4",
    "plan allgather -t ndv2:4 --shard 31.25MB",
    "bound allgather -t ndv2:4 --shard 31.25MB",
    "compare allreduce -t sites:3,4 --size 1MB,64MB -p ring,auto",
    "plan allreduce -t ring:4 --size 1MB",
    "plan allreduce -t h100:8 --size 64MB",
    "plan alltoall -t zoo:Abilene --size 64MB",
    " ".join(NDV2),
)
REPEATS = 5


def cpu_s(arguments: list[str], **environment: str) -> float:
    """CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PROGRAM, *arguments], check=True, capture_output=True, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rows = []
    print("| command | CPU s, median | min | max |")
    print("|---|---|---|---|")

    def report(name: str, times: list[float]) -> None:
        rows.append({"command": name, "cpu_s": times})
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |", flush=True)

    for command in COMMANDS:
        report(f"stretto {command}", [cpu_s(command.split()) for _ in range(REPEATS)])
    with tempfile.TemporaryDirectory() as cache:
        forced = {"STRETTO_KERNELS": "compiled", "NUMBA_CACHE_DIR": cache}
        report("the same, cold, every kernel compiled", [cpu_s(NDV2, **forced)])
        report("the same, a second process", [cpu_s(NDV2, **forced) for _ in range(REPEATS)])
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "startup.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Does MSCCL++ load what we export, and does it make of it what we meant? On a CPU, with its own sources.

Compiles src/core/executor/execution_plan.cc of microsoft/mscclpp as it is, with `mscclpp_loader.cc` around it, and
loads
plans of a grid of networks, collectives and planners for every rank: operations with their offsets, channels, remote
buffers and semaphores must be those of the program that was exported. Runs each program of `--to mscclpp-dsl` with
MSCCL++'s language (python/mscclpp/language): its plan must be the one of `--to mscclpp`.

Needs `MSCCLPP_SOURCE`, a clone of that repository, g++ with C++20, and headers: nlohmann/json and CUDA's runtime.
They are looked for among Python's packages (`pip install nlohmann-json nvidia-cuda-runtime nvidia-cuda-crt
nvidia-cuda-cccl`), in CUDA_HOME and /usr/local/cuda*, and in the folders of `MSCCLPP_INCLUDE`, parted by colons.
Without them it says so.

    MSCCLPP_SOURCE=mscclpp python benchmarks/mscclpp_loader.py [--net NET...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from stretto.formats import mscclpp, mscclpp_dsl
from stretto.formats.mscclpp_of_plan import plan_of
from stretto.formats.mscclpp_program import Chunks, ExecutionPlan, Gpu, Operation
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

NETS = ("ring:4", "star:4", "dgx1", "ndv2:2")
KINDS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
PLANNERS = ("mtegcca", "shortest-path", "scale-ccl", "ring", "nccl")
CHUNK_BYTES = 1 << 14
"""Size of a chunk with which plans are loaded. Any multiple of 16 would do."""
NAMES = (
    *(
        "nop",
        "barrier",
        "put",
        "ppkt",
        "rppkt",
        "pws",
        "pwsf",
        "get",
        "copy",
        "cpkt",
        "upkt",
        "signal",
        "wait",
        "flush",
    ),
    *("re", "repkt", "recpkt", "res", "respkt", "recspkt", "rre", "rres", "glres", "rlxsignal", "rlxwait", "pipeline"),
    *("sem_release", "sem_acquire", "gstore", "gstorepkt"),
)
"""OperationType of execution_common.hpp, in its order."""
HERE = Path(__file__).parent


class Missing(Exception):
    """Something that the loader needs is not on this machine; the text says what."""


def source() -> Path:
    """The folder of MSCCL++'s sources."""
    folder = os.environ.get("MSCCLPP_SOURCE")
    if not folder or not (Path(folder) / "src/core/executor/execution_plan.cc").exists():
        raise Missing("MSCCLPP_SOURCE names no clone of microsoft/mscclpp")
    return Path(folder)


def include_folders() -> list[Path]:
    """Folders with the headers of nlohmann/json and CUDA's runtime."""
    packages = [Path(p) for p in sys.path if p.endswith("site-packages")]
    places = [Path(p) for p in os.environ.get("MSCCLPP_INCLUDE", "").split(":") if p]
    places += [f for p in packages for f in (p / "nlohmann_json/include", *p.glob("nvidia/*/include"))]
    places += [Path(os.environ["CUDA_HOME"]) / "include"] if "CUDA_HOME" in os.environ else []
    places += sorted(Path("/usr/local").glob("cuda*/include"))
    for header in ("nlohmann/json.hpp", "cuda_runtime.h"):
        if not any((place / header).exists() for place in places):
            raise Missing(f"no header {header}: see MSCCLPP_INCLUDE in {Path(__file__).name}")
    return [place for place in places if place.exists()]


def build(folder: Path) -> Path:
    """Compile the loader; its path."""
    if shutil.which("g++") is None:
        raise Missing("no g++")
    root, includes = source(), include_folders()
    version = (root / "include/mscclpp/version.hpp.in").read_text()
    (folder / "mscclpp").mkdir(exist_ok=True)
    (folder / "mscclpp/version.hpp").write_text(re.sub(r"@\w+@", "0", version))
    units = [HERE / "mscclpp_loader.cc", root / "src/core/executor/execution_plan.cc", root / "src/core/errors.cc"]
    paths = [folder, root / "include", root / "src/core/include", *includes]
    command = ["g++", "-std=c++20", "-O1", *(f"-I{p}" for p in paths), *map(str, units), "-o", str(folder / "loader")]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise Missing(f"the loader does not compile: {made.stderr.strip().splitlines()[-1]}")
    return folder / "loader"


def load(loader: Path, file: Path, plan: ExecutionPlan, chunk_bytes: int = CHUNK_BYTES) -> list[dict[str, Any]]:
    """What the loader makes of a file, rank by rank."""
    sizes = (str(n * chunk_bytes) for n in (plan.gpus[0].inputs, plan.gpus[0].outputs))
    command = [str(loader), str(file), str(len(plan.gpus)), *sizes]
    return [json.loads(line) for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()]


def difference(plan: ExecutionPlan, loaded: list[dict[str, Any]], chunk_bytes: int = CHUNK_BYTES) -> str | None:
    """Where what was loaded is not what was meant, in words; None if it is."""
    for rank, (gpu, got) in enumerate(zip(plan.gpus, loaded, strict=True)):
        if "refused" in got:
            return f"rank {rank}: {got['refused']}"
        facts = {
            "peers": {"memory": gpu.memory, "port": gpu.port},
            "unpaired": 0,
            "semaphores": len(gpu.semaphores),
            "scratch": gpu.scratch * chunk_bytes,
        }
        for name, wanted in facts.items():
            if got[name] != wanted:
                return f"rank {rank}: {name} {got[name]} instead of {wanted}"
        blocks = [[_resolved(op, rank, own, got["remote"], chunk_bytes) for op in own["ops"]] for own in got["blocks"]]
        for number, (meant, found) in enumerate(zip(gpu.blocks, blocks, strict=True)):
            for place, (op, other) in enumerate(zip(meant, found, strict=True)):
                if _unordered(op) != _unordered(other):
                    return f"rank {rank}, threadblock {number}, operation {place}: {other} instead of {op}"
    return None


def _unordered(op: Operation) -> Operation:
    """An operation whose channels, each used by a thread of its own, are sorted; a put's are known by its buffers."""
    return op._replace(channels=() if op.name in ("put", "res") else tuple(sorted(op.channels)))


def _resolved(op: dict[str, Any], rank: int, block: dict[str, Any], remote: list[Any], chunk_bytes: int) -> Operation:
    """An operation of the loader with its references resolved as the executor resolves them."""
    name, via = NAMES[op["type"]], ("", "memory", "port", "switch")[op["channel"]]
    if "semaphores" in op:
        return Operation(name, semaphores=tuple(op["semaphores"]))
    buffers = [(peer, buffer) for peer, buffer, kind in remote if kind == via]

    def chunks(ref: list[int], far: bool) -> Chunks:
        number, offset, size = ref
        owner, buffer = rank, number
        if far:
            place, kind = block[f"{via}_buffers"][number]
            owner, buffer = buffers[place]
            assert buffer == kind
        assert offset % chunk_bytes == 0 and size % chunk_bytes == 0
        return Chunks(owner, "ios"[buffer], offset // chunk_bytes, size // chunk_bytes)

    local = {"put": 0, "pws": 0, "pwsf": 0, "res": 1}.get(name, len(op["dst"]))  # how many of dst are the rank's own
    src = tuple(chunks(ref, False) for ref in op["src"])
    dst = tuple(chunks(ref, place >= local) for place, ref in enumerate(op["dst"]))
    return Operation(name, src, dst, tuple(block[via][c] for c in op["channels"]) if op["channels"] else (), via)


RUN = """
import runpy, sys, types
package = types.ModuleType("mscclpp")
package.__path__ = [sys.argv[1]]
sys.modules["mscclpp"] = package
runpy.run_path(sys.argv[2], run_name="__main__")
"""
"""Run a program with MSCCL++'s language alone: its package imports a compiled module, which the language does not
use."""


def plan_of_language(file: Path) -> dict[str, Any]:
    """The execution plan that a program of MSCCL++'s language prints."""
    command = [sys.executable, "-c", RUN, str(source() / "python/mscclpp"), str(file)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(made.stderr.strip().splitlines()[-1])
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def sorted_channels(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan whose signals and waits name their channels in order: the language keeps them as sets."""
    for op in (op for gpu in plan["gpus"] for block in gpu["threadblocks"] for op in block["ops"]):
        if op["name"] in ("signal", "wait"):
            op["channel_ids"].sort()
    return plan


def row_of(loader: Path, folder: Path, net: str, kind: str, planner: str) -> dict[str, Any] | None:
    """One plan exported, loaded and compared; None where the planner does not make such a plan."""
    topology = load_topology(net)
    count = len(topology.accelerators)
    try:
        timeline = simulate(run_planner(planner, topology, Workload((make_collective(kind, topology, count << 20),))))
        plan, proof, _ = plan_of(timeline)
    except Unsupported:
        return None
    form = mscclpp.to_json(plan)
    file, program = folder / "plan.json", folder / "program.py"
    file.write_text(json.dumps(form))
    mscclpp_dsl.write(timeline, str(program))
    wrong = difference(plan, load(loader, file, plan))
    same = sorted_channels(plan_of_language(program)) == sorted_channels(form)
    names = Counter(op.name for gpu in plan.gpus for block in gpu.blocks for op in block)
    return {
        "net": net,
        "collective": kind,
        "planner": planner,
        "ranks": count,
        "threadblocks": proof.blocks,
        "operations": proof.operations,
        "channels": max(_channels(gpu) for gpu in plan.gpus),
        "by_port": names["pws"] + names["pwsf"],
        "sums_sent": names["res"],
        "loaded": wrong is None,
        "difference": wrong,
        "language": same,
    }


def print_row(row: dict[str, Any]) -> None:
    """A line of the table."""
    verdict = "as meant" if row["loaded"] else row["difference"]
    own = "the same" if row["language"] else "ANOTHER PLAN"
    print(
        f"{row['net']:10} {row['collective']:14} {row['planner']:14} threadblocks {row['threadblocks']:3} "
        f"operations {row['operations']:6} channels {row['channels']:3}  loaded: {verdict}  language: {own}",
        flush=True,
    )


def _channels(gpu: Gpu) -> int:
    return len(gpu.memory) + len(gpu.port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="+", default=NETS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        try:
            loader = build(Path(name))
        except Missing as missing:
            print(f"skipped: {missing}")
            return
        cases = ((n, k, p) for n in args.net for k in KINDS for p in PLANNERS)
        rows = []
        for case in cases:
            row = row_of(loader, Path(name), *case)
            if row is not None:
                rows.append(row)
                print_row(row)
    loaded, same = (sum(row[key] for row in rows) for key in ("loaded", "language"))
    print(f"{len(rows)} plans: {loaded} loaded as meant, {same} the same from MSCCL++'s language")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if loaded < len(rows) or same < len(rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

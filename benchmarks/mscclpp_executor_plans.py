"""The executor of MSCCL++ as a library, and plans for it to run: what `mscclpp_executor.py` needs where it runs.

Compiles src/core of microsoft/mscclpp as it is, without InfiniBand, NVML, GDRCopy and libnuma, with
`mscclpp_executor.cc` around it, and its kernels: by nvcc in `mscclpp_executor_gpu.cu` for a GPU, or by g++ in
`mscclpp_executor_cpu.cc` for this CPU, which `mscclpp_executor_cpu_runtime.cc` lets stand in for a GPU. Plans are ours
as `stretto export --to mscclpp` writes them, those that MSCCL++ ships or its language generates, and damaged ones.

Needs `MSCCLPP_SOURCE`, a clone of that repository, g++ with C++20, the headers of nlohmann/json and of CUDA's runtime
(see `mscclpp_loader.py`); for a GPU also nvcc with its static runtime. A GPU is only needed to run there.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mscclpp_loader import KINDS, PLANNERS, Missing, include_folders, source
from referee import fitting, generated, installed, judge, shipped
from stretto.formats import mscclpp
from stretto.formats.mscclpp_json import read_program
from stretto.formats.mscclpp_program import ExecutionPlan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Fault, InputError, Unsupported
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

NETS = ("ring:4", "star:4", "sites:2,2", "dgx1", "sites:2,4", "star:8")
"""Networks of at most 8 ranks: with more, streams of ranks and proxies would share the 32 queues of a GPU."""
SEVERAL = ("bruck", "rabenseifner", "hierarchical")
"""Planners, besides `auto`, for networks on which messages cost (`--net "star:8?message=20us"`): their messages have
several chunks."""
RANK_BYTES, SMALL_RANK_BYTES = 1 << 20, 1 << 13
"""Size for which a plan is made, for each rank; where messages cost, such that several chunks go in one."""
MOST_RANKS, MOST_BLOCKS = 8, 124
"""Ranks, and threadblocks of all ranks, that one H100 takes at once (132 multiprocessors, some spare)."""
SMALL, LARGE = 65536, 1 << 21
"""Bytes of the larger buffer, about, in longer runs; besides one, and thirteen, units of 16 bytes a chunk."""
RUNS, LARGE_RUNS = 20, 4
CONTROL_BYTES = 1 << 16
"""The size for which MSCCL++'s own plans are refereed."""
ARCHITECTURE = "90"
POLL = "_ZN7mscclpp4Fifo4pollERNS_12ProxyTriggerE"
"""Fifo::poll, with which a proxy asks for work."""
HERE = Path(__file__).parent
LEFT_OUT = ("numa.cc", "algorithm.cc", "executor.cc")
"""Of src/core: needs libnuma; is not used; is part of mscclpp_executor.cc."""
Case = dict[str, Any]


def build(folder: Path, on: str, nets: list[str] | None = None) -> None:
    """Write the executor, the plans, what they must give, and the script that runs them."""
    folder.mkdir(parents=True, exist_ok=True)
    executor(folder, on)
    plans = folder / "plans"
    shutil.rmtree(plans, ignore_errors=True)
    plans.mkdir()
    cases = [*theirs(plans)] if nets is None else []
    own = [case for net in nets or NETS for case in ours(plans, net)]
    first, second = ([case for case in own if (case["group"] in NETS[:3]) == early] for early in (True, False))
    wrong, hung = ([case for case in damaged(plans, own, on) if case["expect"] == end] for end in ("wrong", "hung"))
    cases += [
        *first,
        *wrong,
        *second,
        *hung,
    ]  # controls before the many, and what may leave a GPU in disorder at the end
    manifest = {"seed": 23, "on": on, "made": made_of(on), "cases": cases}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.copyfile(HERE / "mscclpp_executor.py", folder / "mscclpp_executor.py")
    print(f"{len(cases)} plans and executor.so in {folder}")


def made_of(on: str) -> dict[str, str]:
    """The versions of what was built."""
    compiler = "nvcc" if on == "gpu" else "g++"
    lines = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.strip().splitlines()
    return {"mscclpp": (source() / "VERSION").read_text().strip(), compiler: lines[-1 if on == "gpu" else 0]}


def executor(folder: Path, on: str) -> None:
    """Compile the library, for kernels on a GPU or on this CPU."""
    for tool in ("g++", "nvcc") if on == "gpu" else ("g++",):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool}")
    root, headers = source(), folder / "build"
    (headers / "mscclpp").mkdir(parents=True, exist_ok=True)
    version = (root / "include/mscclpp/version.hpp.in").read_text()
    (headers / "mscclpp/version.hpp").write_text(re.sub(r"@\w+@", "0", version))
    (headers / "nvml.h").write_text("// none: MSCCL++ then knows GPUs that reach each other by their host\n")
    core = root / "src/core"
    units = [*core.glob("*.cc"), *core.glob("*.cpp"), *core.glob("bootstrap/*.cc"), *core.glob("executor/*.cc")]
    units = [unit for unit in units if unit.name not in LEFT_OUT] + [HERE / "mscclpp_executor.cc"]
    paths = [headers, root / "include", core / "include", core / "executor", *include_folders()]
    paths += [path / "cccl" for path in paths if (path / "cccl").exists()]
    # functions and their variables are each copy's own: no symbol is unique in the process
    common = ["-std=c++20", "-DMSCCLPP_USE_CUDA", *(f"-I{path}" for path in paths)]
    host = ["g++", "-O1", "-fPIC", "-fno-gnu-unique", *common]
    code = f"arch=compute_{ARCHITECTURE},code=sm_{ARCHITECTURE}"
    device = ["nvcc", "-O2", "-gencode", code, "-Xcompiler", "-fPIC,-fno-gnu-unique", *common]
    kernels = {
        "gpu": [(device, HERE / "mscclpp_executor_gpu.cu")],
        "cpu": [(host, HERE / "mscclpp_executor_cpu.cc"), (host, HERE / "mscclpp_executor_cpu_runtime.cc")],
    }
    commands = [*kernels[on], *((host, unit) for unit in units)]

    def compiled(command: tuple[list[str], Path]) -> Path:
        made = headers / f"{command[1].name}.o"
        _run([*command[0], "-c", str(command[1]), "-o", str(made)])
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [*pool.map(compiled, commands)]
    apart = ["-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL", "-Wl,--wrap=cudaIpcGetMemHandle", "-s"]
    linked = [*(_runtime() if on == "gpu" else [f"-Wl,--wrap={POLL}"]), "-lrt", "-lpthread", "-ldl"]
    _run(["g++", "-shared", "-o", str(folder / "executor.so"), *map(str, objects), *apart, *linked])
    shutil.rmtree(headers)


def _runtime() -> list[str]:
    """How to link CUDA's static runtime."""
    folder = next((path for path in _libraries() if (path / "libcudart_static.a").exists()), None)
    if folder is None:
        raise Missing("no libcudart_static.a beside nvcc")
    return [f"-L{folder}", "-l:libcudart_static.a"]


def _libraries() -> Iterator[Path]:
    """Folders where CUDA's runtime may be."""
    printed = subprocess.run(["nvcc", "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr
    found = re.search(r"_HERE_=(\S+)", printed)
    for home in filter(None, (found and Path(found[1]).parent, Path("/usr/local/cuda"))):
        yield from (home / "lib64", home / "lib", *home.glob("targets/*/lib"))


def _run(command: list[str]) -> None:
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        wrong = [line for line in made.stderr.splitlines() if "error" in line] or made.stderr.splitlines()[-1:]
        raise Missing(f"{command[0]} refuses {command[-3]}: {wrong[0]}")


def ours(plans: Path, net: str) -> Iterator[Case]:
    """The plans of all planners, and of `plan --for mscclpp`, for a network; equal programs once."""
    topology, known = load_topology(net), set()
    several = bool(topology.message_s.any())
    size = len(topology.accelerators) * (SMALL_RANK_BYTES if several else RANK_BYTES)
    for kind in KINDS:
        workload = Workload((make_collective(kind, topology, size),))
        for planner in ("auto", *(SEVERAL if several else PLANNERS)):
            name = f"{net} {kind} {planner}"
            path = plans / f"{re.sub('[^a-z0-9]+', '-', name)}.json"
            target = {"target": TARGETS["mscclpp"]} if planner == "auto" else {}
            try:
                notes = mscclpp.write(simulate(run_planner(planner, topology, workload, **target)), str(path))
            except Unsupported:
                continue
            program = read_program(str(path))
            case = case_of(name, net, path, program, 0)
            if repr(program.gpus) in known or case["threadblocks"] > MOST_BLOCKS:
                path.unlink()
                continue
            known.add(repr(program.gpus))
            one = kind == "allreduce" or kind in ("allgather", "reducescatter")
            case["buffers"] = [False, True] if one and "input and output may be one buffer" in notes else [False]
            yield case | {"origin": "stretto", "expect": "right"}


def case_of(name: str, group: str, path: Path, program: ExecutionPlan, root: int) -> Case:
    """What a plan's run needs to know."""
    chunks = {(gpu.inputs, gpu.outputs) for gpu in program.gpus}
    assert len(chunks) == 1, f"{name}: ranks have buffers of different sizes"
    inputs, outputs = chunks.pop()
    unit, most = program.alignment, max(inputs, outputs)
    sizes = []
    for times, runs in ((1, RUNS), (13, RUNS), (SMALL // (unit * most), RUNS), (LARGE // (unit * most), LARGE_RUNS)):
        full = unit * times * (outputs if program.collective == "allgather" else inputs)
        if times and program.least_bytes <= full <= program.most_bytes:
            kinds = ["int32", "float32", "float16"] if times == SMALL // (unit * most) else ["int32"]
            sizes.append([unit * times * inputs, unit * times * outputs, runs, kinds])
    return {
        "name": name, "group": group, "file": f"{path.parent.name}/{path.name}", "kind": program.collective,
        "root": root, "ranks": len(program.gpus), "threadblocks": sum(len(gpu.blocks) for gpu in program.gpus),
        "ports": any(gpu.port for gpu in program.gpus), "sizes": sizes, "buffers": [program.inplace],
    }  # fmt: skip


def theirs(plans: Path) -> Iterator[Case]:
    """Plans of MSCCL++ that this GPU and this harness can run, with the referee's verdict."""
    package = types.ModuleType("mscclpp")
    package.__path__ = [str(source() / "python/mscclpp")]
    sys.modules["mscclpp"] = package  # without the compiled module that the package itself imports
    known = set()
    for group in (shipped, generated, installed):
        for number, (name, text) in enumerate(group(source())):
            path = plans / f"{group.__name__}-{number}.json"
            path.write_text(text)
            try:
                program = read_program(str(path))
            except (Fault, InputError):
                program = None
            case = None if program is None else runnable(name, path, program)
            if case is None or repr(program) in known:
                path.unlink()
                continue
            known.add(repr(program))
            verdict = judge(str(path), fitting(program, CONTROL_BYTES))["verdict"]
            expect = "right" if verdict == "correct" else "unknown"
            yield case | {"origin": "mscclpp", "expect": expect, "note": f"referee: {verdict}"}


def runnable(name: str, path: Path, program: ExecutionPlan) -> Case | None:
    """The case of a plan that needs no switch that sums or copies, and promises a collective."""
    ops = [o for gpu in program.gpus for block in gpu.blocks for op in block for o in (op, *op.inner)]
    even = len({(gpu.inputs, gpu.outputs) for gpu in program.gpus}) == 1 and program.gpus[0].outputs
    fits = len(program.gpus) <= MOST_RANKS and sum(len(gpu.blocks) for gpu in program.gpus) <= MOST_BLOCKS
    if any(op.via == "switch" for op in ops) or not even or not fits or program.collective not in KINDS:
        return None
    case = case_of(f"mscclpp {'/'.join(Path(name).parts[-2:])}", "mscclpp", path, program, 0)
    return case if case["sizes"] else None


Damage = Callable[[dict[str, Any]], None]


def _moved(form: dict[str, Any]) -> None:
    """The first data that rank 0 puts into an output goes to the next chunk."""
    gpu = form["gpus"][0]
    for block in gpu["threadblocks"]:
        for op in block["ops"]:
            if op["name"] in ("put", "pws", "pwsf"):
                place = op["dst_buff"][0]
                place["index"] += 1 if place["index"] == 0 else -1
                return


def _twice(form: dict[str, Any]) -> None:
    """The first sum of rank 0 adds one summand twice."""
    for block in form["gpus"][0]["threadblocks"]:
        for op in block["ops"]:
            if op["name"] in ("re", "res"):
                op["src_buff"].append(op["src_buff"][-1])
                return


def _silent(form: dict[str, Any]) -> None:
    """The last signal of rank 0 is not sent."""
    for block in reversed(form["gpus"][0]["threadblocks"]):
        for place in reversed(range(len(block["ops"]))):
            if block["ops"][place]["name"] == "signal":
                block["ops"][place] = {"name": "nop"}
                return


def _hasty(form: dict[str, Any]) -> None:
    """Rank 0 waits for nobody in its last wait of a threadblock that then sums."""
    for block in form["gpus"][0]["threadblocks"]:
        ops = block["ops"]
        for place in reversed(range(len(ops))):
            if ops[place]["name"] == "wait" and any(op["name"] in ("re", "res") for op in ops[place:]):
                ops[place] = {"name": "nop"}
                return


def _apart(form: dict[str, Any]) -> None:
    """Threads of a threadblock of rank 0 never meet."""
    for block in form["gpus"][0]["threadblocks"]:
        block["ops"] = [op for op in block["ops"] if op["name"] != "nop"]


DAMAGES: tuple[tuple[str, Damage, str], ...] = (
    ("a put one chunk off", _moved, "wrong"),
    ("a summand twice", _twice, "wrong"),
    ("a wait less", _hasty, "wrong"),
    ("a signal less", _silent, "hung"),
)
CPU_DAMAGES: tuple[tuple[str, Damage, str], ...] = (*DAMAGES, ("threads that do not meet", _apart, "wrong"))
"""On a GPU, threads of a threadblock may keep together by chance; on a CPU they do not."""


def damaged(plans: Path, own: list[Case], on: str) -> Iterator[Case]:
    """Plans of ours with a fault each, and those in one buffer that must have two: the harness must see it."""
    for case in own:
        if case["kind"] == "allgather" and case["buffers"] == [False]:
            yield case | {
                "name": f"damaged {case['name']}: in one buffer", "group": "damaged in one buffer",
                "origin": "damaged", "buffers": [True], "expect": "wrong", "note": "its notes ask for two buffers",
            }  # fmt: skip
        if case["name"] not in ("ring:4 allreduce ring", "star:8 allreduce ring"):
            continue
        form = json.loads((plans / Path(case["file"]).name).read_text())
        for what, damage, expect in CPU_DAMAGES if on == "cpu" else DAMAGES:
            broken = copy.deepcopy(form)
            damage(broken)
            assert broken != form, f"{case['name']}: nothing to damage for {what}"
            path = plans / f"damaged-{re.sub('[^a-z0-9]+', '-', case['name'] + ' ' + what)}.json"
            broken["name"] += f", {what}"
            path.write_text(json.dumps(broken))
            yield case | {
                "name": f"damaged {case['name']}: {what}", "group": f"damaged {what}", "origin": "damaged",
                "file": f"{plans.name}/{path.name}", "buffers": [False], "expect": expect, "note": what,
            }  # fmt: skip

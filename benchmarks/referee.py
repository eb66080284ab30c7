"""Referee every execution plan that MSCCL++ ships: its tests' files, what its DSL's tests generate, its default plans.

    MSCCLPP_SOURCE=FOLDER python benchmarks/referee.py [--size 1MiB] [-o FILE.json]

FOLDER is a checkout of microsoft/mscclpp. Its DSL is imported without its compiled module. Each plan is printed with
its verdict, its time and its distance from the bound on one NVSwitch server, or where it has port channels among more
than 8 GPUs on servers of 8 with a network card each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import re
import runpy
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stretto.bounds import bounds
from stretto.formats import Size
from stretto.formats.mscclpp_in import default_topology, referee
from stretto.formats.mscclpp_json import read_program
from stretto.formats.mscclpp_program import ExecutionPlan
from stretto.formats.mscclpp_ranges import COLLECTIVES
from stretto.formats.mscclpp_traffic import plan_of
from stretto.model.errors import Fault, InputError
from stretto.model.units import parse_size
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

GIVEN = {"name": "plan", "num_gpus": "8", "gpus_per_node": "8", "tbg_size": "4", "tbg": "4"}
"""Arguments of the DSL's scripts that have no default."""
SERVER = 8
LARGE = 1 << 28
"""The size at which programs with loops through shared scratch are asked again: there these come round."""


def shipped(source: Path) -> Iterator[tuple[str, str]]:
    """The plans in the repository."""
    for path in sorted((source / "test").rglob("*.json")):
        text = path.read_text()
        if '"gpus"' in text:
            yield str(path.relative_to(source)), text


def generated(source: Path) -> Iterator[tuple[str, str]]:
    """What the DSL's tests print; a script that does not run is what its error says."""
    scripts = [
        *(source / "python/mscclpp/language/tests").rglob("*.py"),
        *(source / "test/executor-tests").rglob("*.py"),
    ]
    for path in sorted(scripts):
        asked = re.findall(r'add_argument\("--(\w+)"', path.read_text())
        given = {key: value for key, value in GIVEN.items() if key in asked}
        if "multi_node" in path.parts and "num_gpus" in given:
            given["num_gpus"] = "16"
        out = io.StringIO()
        before, sys.argv = sys.argv, [str(path), *(word for k, v in given.items() for word in (f"--{k}", v))]
        try:
            with contextlib.redirect_stdout(out):
                runpy.run_path(str(path), run_name="__main__")
            yield str(path.relative_to(source)), out.getvalue()
        except Exception as error:
            yield str(path.relative_to(source)), f"does not run: {type(error).__name__}: {error}"
        finally:
            sys.argv = before


def installed(source: Path) -> Iterator[tuple[str, str]]:
    """The plans that ``python -m mscclpp --install`` writes, and its other default algorithms."""
    main = runpy.run_path(str(source / "python/mscclpp/__main__.py"), run_name="mscclpp.__main__")
    for config in main["default_algo_configs"]:
        yield config["filename"], config["function"](config["spec"], **config["additional_kwargs"]).to_json()
    algorithms, spec = main["def_algo"], main["default_algo_configs"][0]["spec"]
    for kind, function, more in (
        ("AllGather", algorithms.allgather_multi_nodes, {}),
        ("ReduceScatter", algorithms.reducescatter_multi_nodes, {"thread_block_group_size": 4}),
    ):
        own = vars(spec) | {"name": kind, "collective": main[kind](16, 1, True), "max_message_size": 8 << 20}
        made = function(type(spec)(**own), **dict(zip(list(function.__code__.co_varnames)[1:2], more.values())))
        yield f"default {kind.lower()}, 2 nodes", made.to_json()


def reduced(source: Path) -> Iterator[tuple[str, str]]:
    """Small programs, ours, in the DSL: each shows one thing that the DSL writes otherwise than its calls say."""
    d = {k: v for m in MODULES for k, v in vars(importlib.import_module(f"mscclpp.language.{m}")).items()}

    def made(body: Callable[..., None], kind: str, **more: Any) -> str:
        with d["CollectiveProgram"]("reduced", d[kind](2, 1, kind == "AllReduce"), 2, **more) as program:
            scratch = [d["Buffer"](r, 4) for r in range(2)]
            switch = d["SwitchChannel"](rank_list=[0, 1], buffer_type=d["BufferType"].scratch)
            channels = [d["MemoryChannel"](1 - r, r) for r in range(2)]
            for r in range(2):
                body(r, d["Rank"](r), scratch, channels[r], switch.at_rank(r))
            return program.to_json()

    def broadcast(r: int, rank: Any, s: Any, channel: Any, switch: Any) -> None:
        data = rank.get_input_buffer()
        for step in range(3):
            if step == 0:
                rank.copy(s[r][0:2], data[0:2], tb=0)
            elif step == 1:
                switch.reduce(buffer_offset=r, size=1, dst_chunk=s[r][r : r + 1], tb=0)
                switch.broadcast(src_chunk=s[r][r : r + 1], buffer_offset=2 + r, size=1, tb=0)
            else:
                rank.copy(data[0:2], s[r][2:4], tb=0)
            channel.signal(tb=0)
            channel.wait(tb=0)

    def packets(r: int, rank: Any, s: Any, channel: Any, switch: Any) -> None:
        data = rank.get_input_buffer()
        channel.put_packets(s[1 - r][0:1], data[1 - r : 2 - r], tb=0)
        rank.reduce(data[r : r + 1], [s[r][0:1]], tb=0, packet=True)
        rank.copy_packets(s[r][2:3], data[r : r + 1], tb=0)
        channel.read_put_packets(s[1 - r][1:2], s[r][2:3], tb=0)
        rank.unpack_packets(data[1 - r : 2 - r], s[r][1:2], tb=0)

    def copied(r: int, rank: Any, s: Any, channel: Any, switch: Any) -> None:
        data = rank.get_input_buffer()
        channel.put_packets(s[1 - r][0:1], data[1 - r : 2 - r], tb=0)
        rank.copy(s[r][1:2], data[r : r + 1], tb=0)
        rank.reduce(s[r][1:2], [s[r][0:1]], tb=0, packet=True, dst_chunk=rank.get_output_buffer()[0:1])

    low = {"protocol": "LL", "use_double_scratch_buffer": True}
    yield "reduced: switch reduce, then broadcast to another offset", made(broadcast, "AllReduce")
    yield "reduced: reduce, copy_packets and read_put_packets, 1 instance", made(packets, "AllReduce", **low)
    yield (
        "reduced: reduce, copy_packets and read_put_packets, 2 instances",
        made(packets, "AllReduce", instances=2, **low),
    )
    yield "reduced: copy, then a reduction of packets that reads it", made(copied, "ReduceScatter", **low)


MODULES = ("internal.types", "channel", "rank", "collectives", "program")


def network(program: ExecutionPlan, path: str) -> str:
    """Where a plan is timed."""
    ranks = len(program.gpus)
    ports = any(gpu.port for gpu in program.gpus)
    if ports and ranks > SERVER and ranks % SERVER == 0:
        return f"h100:{ranks // SERVER}?pod=1&spines=1&message=0"
    return default_topology(path)


def fitting(program: ExecutionPlan, wanted: int) -> int:
    """The size next to the one wanted that a plan takes."""
    ways = program.gpus[0].inputs or 1
    unit = program.alignment * ways * (len(program.gpus) if program.collective == "allgather" else 1)
    size = min(max(wanted, program.least_bytes), program.most_bytes)
    return max(size // unit, 1) * unit


def judge(path: str, wanted: int) -> dict[str, Any]:
    """The verdict on one plan."""
    try:
        program = read_program(path)
        size = fitting(program, wanted)
        contents, note = referee(program, path, Size(size, None))
        if program.collective not in COLLECTIVES:
            return {"verdict": "promises nothing; no deadlock, no race"}
        net = load_topology(network(program, path))
        plan = plan_of(contents, net)
        finding = verify(plan).finding
        if finding is not None:
            return {"verdict": f"the plan does not verify: {finding.message}"}
    except Fault as fault:
        return {"verdict": f"[{fault.code}] {fault.message}", "code": fault.code}
    except InputError as error:
        return {"verdict": f"not read: {str(error).removeprefix(path).strip(', :')}", "code": "not read"}
    if program.reuse_resources and any(op.inner for gpu in program.gpus for block in gpu.blocks for op in block):
        try:
            referee(program, path, Size(fitting(program, LARGE), None))
        except Fault as fault:
            return {"verdict": f"[{fault.code} at {LARGE} bytes] {fault.message}", "code": fault.code}
    timeline = simulate(plan)
    bound = bounds(plan.topology, plan.workload)[0]
    return {
        "verdict": "correct", "how": note, "collective": program.collective, "ranks": len(program.gpus),
        "size_bytes": size, "topology": net.name, "transfers": plan.transfer_count,
        "completion_s": timeline.completion_s, "completion_over_bound": timeline.completion_s / bound.seconds,
        "notes": plan.meta.get("notes", []),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1MiB", help="full buffer; the next size that a plan takes")
    parser.add_argument("-o", help="write JSON to this file")
    args = parser.parse_args()
    source = os.environ.get("MSCCLPP_SOURCE")
    if not source:
        print("MSCCLPP_SOURCE does not name a checkout of microsoft/mscclpp: nothing is refereed")
        return
    package = types.ModuleType("mscclpp")
    package.__path__ = [f"{source}/python/mscclpp"]
    sys.modules["mscclpp"] = package  # without the compiled module that the package itself imports
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for group in (shipped, generated, installed, reduced):
            for name, text in group(Path(source)):
                if text.startswith("does not run"):
                    row: dict[str, Any] = {"verdict": text, "code": "does not run"}
                else:
                    path = f"{folder}/plan.json"
                    Path(path).write_text(text)
                    row = judge(path, parse_size(args.size, "--size"))
                rows.append({"plan": name} | row)
                time = ""
                if "completion_s" in row:
                    took = f"{row['completion_s'] * 1e6:.1f} us, {row['completion_over_bound']:.2f} of the bound"
                    time = f", {took}, {row['size_bytes']} bytes on {row['topology']}"
                if row.get("how", "").startswith("that no"):
                    time += f"; {row['how']}"
                print(f"{name}: {row['verdict']}{time}", flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in Counter(r.get("code", r["verdict"]) for r in rows).most_common()))
    if args.o:
        Path(args.o).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

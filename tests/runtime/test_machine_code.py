"""The loop's machine code in a file: it serves without Numba, and what does not fit counts as missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stretto import kernels
from stretto.runtime.native import engine, kernel_engine, machine_code

GATHER = """
import sys
import numpy as np
from meshes import meshes
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.native import engine
from stretto.topologies import load_topology
net = load_topology("fullmesh:2")
plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 8000),)))
programs, loop, made, outputs, runs = lower(plan), engine.hold(), meshes([0, 1]), {}, []
for v, mesh in made.items():
    steps = programs[v].steps
    outputs[v] = content.outputs(plan, steps.wanted)
    how = {"sizes": None, "dtype": np.uint8, "reduce": np.add, "timeout_s": 20, "call": bytes(24)}
    runs.append(loop.begin(mesh, programs[v], content.inputs(plan, steps.held, v), outputs[v], **how))
assert all(run.wait(20) and run.failure is None for run in runs)
print([content.wrong_chunks(plan, outputs[v]) for v in made], "numba" in sys.modules)
for mesh in made.values():
    mesh.leave()
"""


@pytest.fixture
def file(monkeypatch, tmp_path):
    """A file with the code of the loop, which this process has not loaded."""
    from llvmlite import binding

    if not kernels.ready(kernel_engine.serve, 0):
        kernels.dispatcher(kernel_engine.serve).compile(kernels.loading.types_of((0,)))
    monkeypatch.setattr(machine_code, "_LOADED", [])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    machine_code.keep(kernels.dispatcher(kernel_engine.serve))
    return machine_code._path(binding)


def test_the_loop_serves_from_its_file_without_numba(file):
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(file.parent), "STRETTO_KERNELS": "auto"}
    process = subprocess.run([sys.executable, "-c", GATHER], env=environment, capture_output=True, text=True)
    assert process.stdout == "[[], []] False\n", process.stderr


def test_code_that_is_damaged_or_made_from_another_source_counts_as_missing(file, monkeypatch):
    content = file.read_bytes()
    assert machine_code.load() is machine_code.load() is not None
    for changed in (content[:-1] + b"?", content.replace(b"stretto-loop-1", b"stretto-loop-0"), content[:100], b""):
        monkeypatch.setattr(machine_code, "_LOADED", [])
        file.write_bytes(changed)
        assert machine_code.load() is None
    file.write_bytes(content)
    for mode in (0o664, 0o646):  # others may write it
        file.chmod(mode)
        assert machine_code.load() is None
    file.chmod(0o644)
    with monkeypatch.context() as patch:
        patch.setattr("os.getuid", lambda: file.stat().st_uid + 1)
        if file.stat().st_uid:
            assert machine_code.load() is None
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert machine_code.load() is None
    monkeypatch.delenv("NUMBA_CPU_NAME")
    assert engine.compiling.code(compiles=False) is machine_code.load() is not None


def test_code_that_needs_what_this_process_has_not_counts_as_missing(file):
    magic, head, code = file.read_bytes().split(b"\n", 2)
    described = json.loads(head.partition(b" ")[2])
    assert described["needs"] == machine_code.needed(code) and {"epoll_wait", "sendmsg"} <= {*described["needs"]}
    text = json.dumps({**described, "needs": [*described["needs"], "no_such_function"]}).encode()
    file.write_bytes(b"\n".join((magic, machine_code._digest(text + code).encode() + b" " + text, code)))
    assert machine_code.load() is None
    with pytest.raises(ValueError, match="not an object file"):
        machine_code.needed(b"\x7fELF\x01 of 32 bits")

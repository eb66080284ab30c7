"""Programs in MSCCL++'s language: one call for each operation. What they make is tested in test_mscclpp_loader.py."""

from __future__ import annotations

import ast
from collections import Counter

from stretto.formats import exporters
from stretto.formats.mscclpp_of_plan import plan_of
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def test_a_program_calls_the_language_once_for_each_part_of_an_operation(tmp_path):
    topology = load_topology("dgx1")
    timeline = simulate(run_planner("ring", topology, Workload((make_collective("allreduce", topology, 8 << 20),))))
    notes = exporters()["mscclpp-dsl"].write(timeline, str(tmp_path / "program.py"), (1 << 20, 1 << 24))
    assert any("no interleaving of threadblocks deadlocks or races" in note for note in notes)
    tree = ast.parse((tmp_path / "program.py").read_text())
    calls = Counter(
        n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    )
    plan, _, _ = plan_of(timeline)
    wanted: Counter[str] = Counter()
    for op in (op for gpu in plan.gpus for block in gpu.blocks for op in block):
        wanted["put"] += op.name in ("put", "res")
        wanted["reduce"] += op.name in ("re", "res")
        wanted["barrier"] += op.name == "nop"
        wanted["signal"] += len(op.channels) * (op.name == "signal")
        wanted["wait"] += len(op.channels) * (op.name == "wait")
        wanted["release"] += len(op.semaphores) * (op.name == "sem_release")
    assert wanted["put"] > 0 and {name: calls[name] for name in wanted} == wanted
    spec = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "AlgoSpec")
    sizes = {k.arg: ast.literal_eval(k.value) for k in spec.keywords if "message_size" in str(k.arg)}
    assert sizes == {"min_message_size": 1 << 20, "max_message_size": 1 << 24}

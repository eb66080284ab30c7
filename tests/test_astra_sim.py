"""Our Chakra traces, run by ASTRA-sim on its congestion-aware analytical network, beside our simulator.

Where ASTRA_SIM names the program, or AstraSim_Analytical_Congestion_Aware is on the PATH; skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from stretto.formats import Size, exporters, importers
from stretto.formats.protobuf import block, number, sized
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.topologies.files import WRITERS
from stretto.verify import verify

COLLECTIVES = {
    "allreduce": (0, "all-reduce"), "allgather": (2, "all-gather"),
    "alltoall": (6, "all-to-all"), "reducescatter": (7, "reduce-scatter"),
}  # fmt: skip
"""Of the enum CollectiveCommType, and as the system file calls them."""
SIZE = 8_000_000
NETWORKS = ("ring:8", "fullmesh:8", "star:8")
PLANS = {
    "allgather": (("mtegcca", 1), ("mtegcca", 4), ("ring", 1), ("ring", 8), ("scale-ccl", 4)),
    "allreduce": (
        ("ring", 1),
        ("ring", 32),
        ("scale-ccl", 4),
        ("shortest-path", 2),
        ("nccl-tree", 1),
        ("nccl-ring", 2),
    ),
    "reducescatter": (("ring", 1), ("shortest-path", 4), ("scale-ccl", 2)),
    "alltoall": (("scale-ccl", 4), ("shortest-path", 1), ("shortest-path", 8)),
}
"""Planner and chunks a piece."""
DIRECT = {
    "allgather": (("recursive-doubling", 2), ("rabenseifner", 4)),
    "allreduce": (("rabenseifner", 1), ("recursive-doubling", 16), ("two-trees", 4)),
    "alltoall": (("pairwise", 1), ("pairwise", 8), ("bruck", 1)),
}
"""Where no rank is between two others."""


def cases(net: str, kind: str) -> tuple[tuple[str, int], ...]:
    """The plans that are tried."""
    return PLANS[kind] + (() if net == "ring:8" else DIRECT.get(kind, ()))


def whole_collective(kind: str) -> bytes:
    """A trace that asks for one collective, which the system file says how to do."""
    node = number(1, 1) + block(2, b"all of it") + number(3, 7)
    for name, value in (
        ("is_cpu_op", number(27, 0)),
        ("comm_type", number(9, COLLECTIVES[kind][0])),
        ("comm_size", number(9, SIZE)),
    ):
        node += block(10, block(1, name.encode()) + value)
    return sized(block(1, b"0.0.4")) + sized(node)


def run_astra_sim(folder, topology, kind: str, one_at_a_time: bool) -> float:
    """Seconds until the last rank ends; the traces are ``folder/plan.RANK.et``."""
    program = os.environ.get("ASTRA_SIM") or shutil.which("AstraSim_Analytical_Congestion_Aware")
    if not program:
        pytest.skip("neither ASTRA_SIM nor the PATH names AstraSim_Analytical_Congestion_Aware")
    ranks = len(topology.accelerators)
    (folder / "network.yml").write_text(WRITERS["astra-sim"](topology, "network.yml"))
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    system = {"scheduling-policy": "FIFO", "preferred-dataset-splits": 1, "local-mem-bw": 50}
    if one_at_a_time:
        system |= {f"{name}-implementation": ["ring"] for _, name in COLLECTIVES.values()}
    else:
        system[f"{COLLECTIVES[kind][1]}-implementation-custom"] = [str(folder / "plan")]
    (folder / "system.json").write_text(json.dumps(system))
    for r in range(ranks):
        (folder / f"whole.{r}.et").write_bytes(whole_collective(kind))
    done = subprocess.run(
        [
            program,
            f"--workload-configuration={folder / ('plan' if one_at_a_time else 'whole')}",
            f"--system-configuration={folder / 'system.json'}",
            f"--network-configuration={folder / 'network.yml'}",
            f"--remote-memory-configuration={folder / 'memory.json'}",
        ],
        capture_output=True, text=True, timeout=120, cwd=folder,
    )  # fmt: skip
    ends = [int(ns) for ns in re.findall(r"finished, (\d+) cycles", done.stdout)]
    assert len(ends) == ranks, done.stdout[-500:] + done.stderr[-500:]
    return max(ends) / 1e9


@dataclass(frozen=True)
class Times:
    """Seconds: of the plan, of its trace where switches store, and what ASTRA-sim says of the trace."""

    plan: float
    trace: float
    astra_sim: float


def times(folder, case: tuple[str, str, str, int], one_at_a_time: bool = False) -> Times:
    """Of a plan of ``SIZE`` bytes: network, kind, planner, chunks."""
    net, kind, planner, chunks = case
    topology = load_topology(net)
    plan = run_planner(planner, topology, Workload((make_collective(kind, topology, SIZE, chunks=chunks),)))
    timeline = simulate(plan)
    exporters()["chakra"].write(timeline, str(folder / "plan"))
    stores = load_topology(f"{net}?switches=store") if net.startswith("star") else None
    size = Size(SIZE, None) if stores is None else Size(None, None)
    back = importers()["chakra"].read(str(folder / "plan"), stores or topology, size)
    assert verify(back).ok
    return Times(
        timeline.completion_s, simulate(back).completion_s, run_astra_sim(folder, topology, kind, one_at_a_time)
    )


@pytest.mark.parametrize(("net", "kind"), [(net, kind) for net in NETWORKS for kind in COLLECTIVES])
def test_astra_sim_takes_as_long_as_our_simulator_says(net, kind, tmp_path):
    """Every plan: as it is on the ring and the mesh, and with switches that store, as ASTRA-sim's do, on the star."""
    for planner, chunks in cases(net, kind):
        found = times(tmp_path, (net, kind, planner, chunks))
        assert found.astra_sim == pytest.approx(found.trace, rel=0.005), (planner, chunks)
        assert net == "star:8" or found.astra_sim == pytest.approx(found.plan, rel=0.05), (planner, chunks)


def test_as_a_workload_a_rank_sends_one_message_at_a_time(tmp_path):
    found = times(tmp_path, ("fullmesh:8", "allgather", "mtegcca", 1), one_at_a_time=True)
    assert found.astra_sim == pytest.approx(7 * found.plan, rel=0.001)

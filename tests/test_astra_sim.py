"""Our Chakra traces, run by ASTRA-sim on its congestion-aware analytical network, beside our simulator.

Where ASTRA_SIM names the program, or AstraSim_Analytical_Congestion_Aware is on the PATH; skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from stretto.collective import Workload, make_collective
from stretto.formats import exporters
from stretto.formats.protobuf import block, number, sized
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.topologies.files import WRITERS

COLLECTIVES = {
    "allreduce": (0, "all-reduce"), "allgather": (2, "all-gather"),
    "alltoall": (6, "all-to-all"), "reducescatter": (7, "reduce-scatter"),
}  # fmt: skip
"""Of the enum CollectiveCommType, and as the system file calls them."""
SIZE = 8_000_000


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


def times(folder, case: tuple[str, str, str, int], one_at_a_time: bool = False) -> tuple[float, float]:
    """Seconds that our simulator and that ASTRA-sim says."""
    net, kind, planner, chunks = case
    topology = load_topology(net)
    plan = run_planner(planner, topology, Workload((make_collective(kind, topology, SIZE, chunks=chunks),)))
    timeline = simulate(plan)
    exporters()["chakra"].write(timeline, str(folder / "plan"))
    return timeline.completion_s, run_astra_sim(folder, topology, kind, one_at_a_time)


@pytest.mark.parametrize(
    "case",
    [
        ("ring:8", "allgather", "mtegcca", 1),
        ("ring:8", "allgather", "mtegcca", 4),
        ("ring:8", "alltoall", "scale-ccl", 4),
        ("ring:8", "reducescatter", "shortest-path", 4),
        ("fullmesh:8", "allgather", "mtegcca", 4),
        ("fullmesh:8", "allreduce", "rabenseifner", 1),
        ("fullmesh:8", "alltoall", "bruck", 1),
        ("star:8", "allgather", "ring", 8),
        ("star:8", "allreduce", "ring", 32),
        ("star:8", "allreduce", "recursive-doubling", 16),
    ],
    ids=lambda case: "-".join(map(str, case)),
)
def test_astra_sim_takes_as_long_as_our_simulator_says(case, tmp_path):
    ours, theirs = times(tmp_path, case)
    assert theirs == pytest.approx(ours, rel=0.05)


def test_a_switch_of_astra_sim_stores_what_it_forwards(tmp_path):
    """One chunk a step: the second link begins when the first has ended, where ours begins with it."""
    net, kind, planner, chunks = "star:8", "allreduce", "ring", 1
    ours, theirs = times(tmp_path, (net, kind, planner, chunks))
    topology = load_topology(net)
    again = 14 * SIZE / 8 / float(topology.bandwidth[0])
    assert theirs == pytest.approx(ours + again, rel=0.001)


def test_as_a_workload_a_rank_sends_one_message_at_a_time(tmp_path):
    ours, theirs = times(tmp_path, ("fullmesh:8", "allgather", "mtegcca", 1), one_at_a_time=True)
    assert theirs == pytest.approx(7 * ours, rel=0.001)

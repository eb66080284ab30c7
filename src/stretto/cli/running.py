"""What ``stretto run`` does: real bytes, and whether they came out right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from .output import print_table

if TYPE_CHECKING:
    from ..plan import Plan

MOST_LISTED = 100


def run_answer(plan: Plan, file: str, seed: int, pace: float | None, timeout_s: float) -> dict[str, Any]:
    """Run a plan on local processes and say what came of it."""
    from ..runtime.local import run_local
    from ..simulate import simulate
    from .work import header

    began = time.monotonic()
    outcome = run_local(plan, seed=seed, pace=pace, timeout_s=timeout_s)
    simulated = simulate(plan).completion_s
    return header(plan.topology, plan.workload) | {
        "file": file,
        "processes": len(outcome.traces),
        "transfers": plan.transfer_count,
        "moved_bytes": int((plan.size_bytes * plan.dst.lengths).sum()),
        "completion_s": outcome.completion_s,
        "simulated_s": simulated * (1.0 if pace is None else pace),
        "paced": pace,
        "wall_s": time.monotonic() - began,
        "correct": not outcome.wrong,
        "wrong": [{"node": plan_node(plan, v), "chunk": c} for v, c in outcome.wrong[:MOST_LISTED]],
    }


def plan_node(plan: Plan, node: int) -> str:
    return plan.topology.names[node]


def show_run(data: dict[str, Any]) -> None:
    from ..units import format_size, format_time

    rows = [
        ("processes", str(data["processes"])),
        ("transfers", f"{data['transfers']}, {format_size(data['moved_bytes'])} in all"),
        ("completion", f"{format_time(data['completion_s'])} on this machine"),
        ("simulated", f"{format_time(data['simulated_s'])} on {data['topology']}"),
        ("every byte right", "yes" if data["correct"] else f"no: {len(data['wrong'])} chunks are wrong"),
    ]
    print_table(f"{data['collective']} among {data['ranks']} ranks, run for real", ("", ""), rows)


def check(data: dict[str, Any]) -> None:
    """Exit with 1 if some byte is wrong."""
    if not data["correct"]:
        raise typer.Exit(1)

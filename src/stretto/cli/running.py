"""``stretto run`` and ``stretto emulate``: send real bytes by a plan and check the result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model.errors import InputError
from .arguments import FileArgument, JsonOption
from .output import answer, print_line, print_table
from .work import read_verified

if TYPE_CHECKING:
    from ..model.plan import Plan
    from ..runtime.local import Outcome

MOST_LISTED = 100
"""Wrong chunks that an answer lists."""


def run_answer(plan: Plan, file: str, seed: int, pace: float | None, timeout_s: float) -> dict[str, Any]:
    """Run a plan on local processes: its times, and whether the result is right."""
    from ..runtime.local import run_local
    from ..simulate import simulate

    began = time.monotonic()
    outcome = run_local(plan, seed=seed, pace=pace, timeout_s=timeout_s)
    simulated = simulate(plan).completion_s * (1.0 if pace is None else pace)
    return _answer(plan, file, outcome, simulated, pace) | {"paced": pace, "wall_s": time.monotonic() - began}


def emulate_answer(
    plan: Plan, file: str, scale: float | None, shrink: float | None, timeout_s: float
) -> dict[str, Any]:
    """Run a plan in namespaces. Simulated times are those of the network as it was built."""
    from ..emulator import emulate, fitting

    run = emulate(plan, fitting(plan, scale, shrink), timeout_s)
    arrived: list[dict[str, Any]] = [
        {
            "transfer": k, "to": plan_node(plan, v), "simulated_s": expected, "measured_s": measured,
            "simulated_start_s": run.departures[k][0], "measured_start_s": run.departures[k][1],
        }
        for k, v, expected, measured in run.arrivals
    ]  # fmt: skip
    over = sorted(a["measured_s"] / a["simulated_s"] for a in arrived) or [1.0]
    return _answer(plan, file, run.outcome, run.simulated_s, run.pace) | {
        "scale": run.scaling.bandwidth,
        "sizes_divided_by": run.scaling.size,
        "times_multiplied_by": run.scaling.time,
        "moved_bytes": moved_bytes(run.plan),
        "delays_by": run.delays_by,
        "shares_by": run.shares_by,
        "measured_over_simulated": run.outcome.completion_s / run.simulated_s,
        "transfer_over_simulated": {"least": over[0], "median": over[len(over) // 2], "most": over[-1]},
        "arrivals": arrived,
    }


def clean_answer() -> list[str]:
    from ..emulator import clean

    return clean()


def _answer(plan: Plan, file: str, outcome: Outcome, simulated_s: float, pace: float | None) -> dict[str, Any]:
    from ..report.facts import request_facts

    return request_facts(plan.topology, plan.workload) | {
        "file": file,
        "processes": len(outcome.traces),
        "transfers": plan.transfer_count,
        "moved_bytes": moved_bytes(plan),
        "completion_s": outcome.completion_s,
        "simulated_s": simulated_s,
        "paced_by": _paced_by(outcome, pace),
        "correct": not outcome.wrong,
        "wrong": [{"node": plan_node(plan, v), "chunk": c} for v, c in outcome.wrong[:MOST_LISTED]],
    }


def moved_bytes(plan: Plan) -> int:
    """Bytes that all transfers carry, counted at each receiver."""
    return int((plan.size_bytes * plan.dst.lengths).sum())


def _paced_by(outcome: Outcome, pace: float | None) -> str:
    """What keeps transfers to their rates."""
    if pace is None:
        return "the network"
    by_kernel = any(trace.by_kernel for trace in outcome.traces.values())
    return "the kernel, and token buckets where transfers share a connection" if by_kernel else "token buckets"


def plan_node(plan: Plan, node: int) -> str:
    return plan.topology.names[node]


def show_run(data: dict[str, Any]) -> None:
    from ..model.units import format_size, format_time

    rows = [
        ("processes", str(data["processes"])),
        ("transfers", f"{data['transfers']}, {format_size(data['moved_bytes'])} in all"),
        ("completion", f"{format_time(data['completion_s'])} on this machine"),
        ("simulated", f"{format_time(data['simulated_s'])} on {data['topology']}"),
        ("rates kept by", data["paced_by"] + (f"; shares by {data['shares_by']}" if "shares_by" in data else "")),
        ("every byte right", "yes" if data["correct"] else f"no: {len(data['wrong'])} chunks are wrong"),
    ]
    if "scale" in data:
        rows[3] = ("simulated", f"{format_time(data['simulated_s'])}, {_factors(data)}")
        rows.insert(
            4, ("measured / simulated", f"{data['measured_over_simulated']:.3f} (delays by {data['delays_by']})")
        )
        over = data["transfer_over_simulated"]
        rows.insert(
            5,
            (
                "each transfer's arrival",
                f"{over['least']:.3f} to {over['most']:.3f} of simulated, median {over['median']:.3f}",
            ),
        )
    print_table(f"{data['collective']} among {data['ranks']} ranks, run on real bytes", ("", ""), rows)


def _factors(data: dict[str, Any]) -> str:
    """How the emulated plan was scaled."""
    scale, size, time = (data[key] for key in ("scale", "sizes_divided_by", "times_multiplied_by"))
    times = "times as planned" if time == 1 else f"times multiplied by {time:.4g}"
    return f"bandwidths divided by {scale:.4g}, sizes by {size:.4g}, {times}"


def check(data: dict[str, Any]) -> None:
    """Exit with 1 if a byte is wrong."""
    if not data["correct"]:
        raise typer.Exit(1)


def run(
    file: FileArgument,
    paced: Annotated[
        float | None,
        typer.Option(
            "--paced",
            help="Keep the plan's start times and rates: seconds of real time for each second of the plan.",
            min=0.0,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds without news after which a process counts as failed.", min=0.1)
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed for the random test data.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a plan on this machine: one process for each node, real bytes over TCP, the result checked byte for byte."""
    subject = read_verified(file, as_json)
    data = run_answer(subject, file, seed, paced, timeout)
    answer(as_json, data, lambda: show_run(data))
    check(data)


def emulate(
    file: Annotated[str | None, typer.Argument(help="A plan file.")] = None,
    scale: Annotated[
        float | None,
        typer.Option("--scale", help="Divide bandwidths by this. Default: what this machine can emulate.", min=1e-6),
    ] = None,
    shrink: Annotated[
        float | None,
        typer.Option(
            "--shrink",
            help="Divide sizes by this; 1 keeps sizes, and times grow as bandwidths shrink. Default: as bandwidths, so "
            "that times are those of the plan, if the plan takes two seconds or more and transfers keep 64 KiB.",
            min=1.0,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds without news after which a process counts as failed.", min=0.1)
    ] = 60.0,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove the network namespaces that killed emulations left.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a plan on an emulated network: network namespaces with shaped links (needs root)."""
    if clean:
        removed = clean_answer()
        answer(as_json, {"removed": removed}, lambda: print_line(f"removed {len(removed)} namespaces"))
        return
    if file is None:
        raise InputError("give a plan file, or --clean", "FILE")
    data = emulate_answer(read_verified(file, as_json), file, scale, shrink, timeout)
    answer(as_json, data, lambda: show_run(data))
    check(data)

"""``stretto run`` and ``stretto emulate``: send real bytes by a plan and check the result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from ..model.errors import InputError
from . import arguments
from .output import answer, print_line, print_table
from .work import read_verified

if TYPE_CHECKING:
    from ..model.plan import Plan
    from ..runtime.local import Outcome

MOST_LISTED = 100
"""Wrong chunks that an answer lists."""


def run(
    file: arguments.File,
    paced: Annotated[
        float | None,
        Option(
            help="Keep the plan's start times and rates: seconds of real time for each second of the plan.", min=0.0
        ),
    ] = None,
    timeout: arguments.Timeout = 60.0,
    seed: Annotated[int, Option(help="Seed for the random test data.", min=0)] = 0,
    as_json: arguments.Json = False,
) -> None:
    """Run a plan on this machine: one process for each node, real bytes over TCP, the result checked byte for byte."""
    from ..runtime.local import run_local
    from ..simulate import simulate

    plan = read_verified(file, as_json)
    began = time.monotonic()
    outcome = run_local(plan, seed=seed, pace=paced, timeout_s=timeout)
    simulated_s = simulate(plan).completion_s * (1.0 if paced is None else paced)
    data = _answer(plan, file, outcome, simulated_s, paced) | {"paced": paced, "wall_s": time.monotonic() - began}
    _finish(data, as_json)


def emulate(
    file: Annotated[str | None, Argument(help="A plan file.")] = None,
    scale: Annotated[
        float | None, Option(help="Divide bandwidths by this. Default: what this machine can emulate.", min=1e-6)
    ] = None,
    shrink: Annotated[
        float | None,
        Option(
            help="Divide sizes by this; 1 keeps sizes, and times grow as bandwidths shrink. Default: as bandwidths, so "
            "that times are those of the plan, if the plan takes two seconds or more and transfers keep 64 KiB.",
            min=1.0,
        ),
    ] = None,
    timeout: arguments.Timeout = 60.0,
    clean: Annotated[
        bool, Option("--clean", help="Only remove the network namespaces that killed emulations left.")
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """Run a plan on an emulated network: network namespaces with shaped links (needs root)."""
    from .. import emulator

    if clean:
        removed = emulator.clean()
        answer(as_json, {"removed": removed}, lambda: print_line(f"removed {len(removed)} namespaces"))
        return
    if file is None:
        raise InputError("give a plan file, or --clean", "FILE")
    plan = read_verified(file, as_json)
    run = emulator.emulate(plan, emulator.fitting(plan, scale, shrink), timeout)
    arrived: list[dict[str, Any]] = [
        {
            "transfer": k, "to": plan.topology.names[v], "simulated_s": expected, "measured_s": measured,
            "simulated_start_s": run.departures[k][0], "measured_start_s": run.departures[k][1],
        }
        for k, v, expected, measured in run.arrivals
    ]  # fmt: skip
    over = sorted(a["measured_s"] / a["simulated_s"] for a in arrived) or [1.0]
    data = _answer(plan, file, run.outcome, run.simulated_s, run.pace) | {
        "scale": run.scaling.bandwidth,
        "sizes_divided_by": run.scaling.size,
        "times_multiplied_by": run.scaling.time,
        "moved_bytes": _moved_bytes(run.plan),
        "delays_by": run.delays_by,
        "shares_by": run.shares_by,
        "measured_over_simulated": run.outcome.completion_s / run.simulated_s,
        "transfer_over_simulated": {"least": over[0], "median": over[len(over) // 2], "most": over[-1]},
        "arrivals": arrived,
    }
    _finish(data, as_json)


def _answer(plan: Plan, file: str, outcome: Outcome, simulated_s: float, pace: float | None) -> dict[str, Any]:
    """What ``--json`` says of a run of either kind."""
    from ..report.facts import request_facts

    return request_facts(plan.topology, plan.workload) | {
        "file": file,
        "processes": len(outcome.traces),
        "transfers": plan.transfer_count,
        "moved_bytes": _moved_bytes(plan),
        "completion_s": outcome.completion_s,
        "simulated_s": simulated_s,
        "paced_by": "the network" if pace is None else "token buckets",
        "correct": not outcome.wrong,
        "wrong": [{"node": plan.topology.names[v], "chunk": c} for v, c in outcome.wrong[:MOST_LISTED]],
    }


def _moved_bytes(plan: Plan) -> int:
    """Bytes that all transfers carry, counted at each receiver."""
    return int((plan.size_bytes * plan.dst.lengths).sum())


def _finish(data: dict[str, Any], as_json: bool) -> None:
    """Print the answer, and exit with 1 if a byte is wrong."""
    answer(as_json, data, lambda: _show(data))
    if not data["correct"]:
        raise Exit(1)


def _show(data: dict[str, Any]) -> None:
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
        over = data["transfer_over_simulated"]
        spread = f"{over['least']:.3f} to {over['most']:.3f} of simulated, median {over['median']:.3f}"
        factor = data["times_multiplied_by"]
        divided = f"bandwidths divided by {data['scale']:.4g}, sizes by {data['sizes_divided_by']:.4g}"
        times = "times as planned" if factor == 1 else f"times multiplied by {factor:.4g}"
        rows[3:4] = [
            ("simulated", f"{format_time(data['simulated_s'])}, {divided}, {times}"),
            ("measured / simulated", f"{data['measured_over_simulated']:.3f} (delays by {data['delays_by']})"),
            ("each transfer's arrival", spread),
        ]
    print_table(f"{data['collective']} among {data['ranks']} ranks, run on real bytes", ("", ""), rows)

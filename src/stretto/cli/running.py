"""``stretto run`` and ``stretto emulate``: send real bytes by a plan and check the result."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Exit, Option

from ..model.errors import InputError
from . import arguments, protecting, recording
from .output import answer, message_rows
from .progress import show_progress, waiting
from .tables import print_below, print_line, print_table
from .timeouts import check_memory, timeout_s
from .work import accept, given_options, read_request, read_verified, say_planning

if TYPE_CHECKING:
    from ..model.plan import Plan
    from ..runtime.local import Outcome

MOST_LISTED = 100
"""Wrong chunks that an answer lists."""

NEITHER = "give a plan file alone, or a collective with -t TOPOLOGY and --size SIZE"

SUBJECT = Argument(help="A plan file; or, with -t, a collective, to be planned as `stretto plan` does.")
Network = Annotated[
    str | None,
    Option(
        "-t",
        "--topology",
        help="Plan for this network, where a message costs at least what it costs these processes: a spec or a file.",
        autocompletion=arguments.complete_topology,
    ),
]
Timeout = Annotated[
    float | None,
    Option(
        help="Seconds without news after which a process counts as failed. Default: 60, or four times what the run "
        "should take where that is more.",
        min=0.1,
    ),
]
Seed = Annotated[int, Option(help="Seed for the random test data, and for planners that draw random numbers.", min=0)]


class Request(NamedTuple):
    """What to plan, as the options of ``stretto plan`` say it."""

    topology: str | None
    size: str | None
    shard: str | None
    demand: str | None
    planner: str
    chunks: int
    root: int
    option: list[str] | None
    seed: int
    effort: str | None
    time_limit: float | None


def run(
    subject: Annotated[str, SUBJECT],
    topology: Network = None,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    planner: arguments.Planner = "auto",
    chunks: arguments.Chunks = 1,
    root: arguments.Root = 0,
    option: arguments.Options = None,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    paced: Annotated[
        float | None,
        Option(
            help="Keep the plan's start times and rates: seconds of real time for each second of the plan.", min=0.0
        ),
    ] = None,
    timeout: Timeout = None,
    seed: Seed = 0,
    trace: recording.Trace = None,
    switch: Annotated[
        str | None,
        Option(
            help="A program that turns optical planes: it reads the circuits of each turn, one JSON object a line, and "
            "answers `up`. Default: a turn takes its time, and nothing is turned.",
            envvar="STRETTO_SWITCH",
        ),
    ] = None,
    secret_file: protecting.SecretFile = None,
    frames: protecting.Frames = "plain",
    tls_cert: protecting.TlsCert = None,
    tls_key: protecting.TlsKey = None,
    tls_ca: protecting.TlsCa = None,
    tls_name: protecting.TlsName = None,
    as_json: arguments.Json = False,
) -> None:
    """Run a plan on this machine: one process for each node, real bytes over TCP, the result checked byte for byte."""
    from ..formats import check_writable
    from ..model.targets import MESSAGE_S
    from ..runtime.cost import as_run
    from ..runtime.local import run_local
    from ..runtime.switches import switch_of
    from ..simulate import simulate

    credentials = protecting.credentials_of(secret_file, frames, (tls_cert, tls_key, tls_ca, tls_name))
    request = Request(topology, size, shard, demand, planner, chunks, root, option, seed, effort, time_limit)
    message_s = MESSAGE_S / (paced or 1.0)
    if trace is not None:
        check_writable(trace, recording.ENDINGS)
    plan = _plan(subject, request, message_s, as_json)
    check_memory(plan, 1.0, "--size" if topology else subject)
    simulated_s = simulate(as_run(plan, message_s)).completion_s * (1.0 if paced is None else paced)
    timeout = timeout or timeout_s(plan, 0.0 if paced is None else simulated_s)
    began = time.monotonic()
    outcome = run_local(
        plan,
        seed=seed,
        pace=paced,
        timeout_s=timeout,
        switch=partial(switch_of, switch),
        credentials=credentials,
        progress=show_progress,
    )
    file = None if topology else subject
    data = _answer(plan, file, outcome, simulated_s, paced) | {"paced": paced, "wall_s": time.monotonic() - began}
    if trace is not None:
        recording.write_trace(plan, outcome, simulated_s, trace)
    _finish(data, _cheaper(plan, message_s), as_json)


def emulate(
    subject: Annotated[str | None, SUBJECT] = None,
    topology: Network = None,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    planner: arguments.Planner = "auto",
    chunks: arguments.Chunks = 1,
    root: arguments.Root = 0,
    option: arguments.Options = None,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
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
    timeout: Timeout = None,
    seed: Seed = 0,
    trace: recording.Trace = None,
    clean: Annotated[
        bool, Option("--clean", help="Only remove the network namespaces that killed emulations left.")
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """Run a plan on an emulated network: network namespaces with shaped links (needs root)."""
    from .. import emulator
    from ..formats import check_writable
    from ..model.targets import MESSAGE_S
    from ..simulate import simulate

    if clean:
        removed = emulator.clean()
        answer(as_json, {"removed": removed}, lambda: print_line(f"removed {len(removed)} namespaces"))
        return
    if subject is None:
        raise InputError(f"{NEITHER}; or --clean", "FILE")
    request = Request(topology, size, shard, demand, planner, chunks, root, option, seed, effort, time_limit)
    if trace is not None:
        check_writable(trace, recording.ENDINGS)
    plan = _plan(subject, request, MESSAGE_S, as_json)
    scaling = emulator.fitting(plan, scale, shrink)
    if topology is not None and scaling.time != 1.0:
        # processes take as long for a message in stretched time
        plan = _plan(subject, request, MESSAGE_S / scaling.time, as_json)
        scaling = emulator.fitting(plan, scale, shrink)
    check_memory(plan, scaling.size, "--size" if topology else subject)
    takes_s = simulate(plan).completion_s * scaling.time
    timeout = timeout or timeout_s(plan, takes_s, scaling.size)
    waiting(f"running {plan.transfer_count} transfers on the emulated network", takes_s)
    run = emulator.emulate(plan, scaling, timeout, seed)
    arrived: list[dict[str, Any]] = [
        {
            "transfer": k, "to": plan.topology.names[v], "simulated_s": expected, "measured_s": measured,
            "simulated_start_s": run.departures[k][0], "measured_start_s": run.departures[k][1],
        }
        for k, v, expected, measured in run.arrivals
    ]  # fmt: skip
    over = sorted(a["measured_s"] / a["simulated_s"] for a in arrived) or [1.0]
    data = _answer(plan, None if topology else subject, run.outcome, run.simulated_s, run.pace) | {
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
    if trace is not None:
        recording.write_trace(run.plan, run.outcome, run.simulated_s, trace)
    _finish(data, _cheaper(run.plan, MESSAGE_S), as_json)


def _plan(subject: str, request: Request, message_s: float, as_json: bool) -> Plan:
    """The plan to run, verified: from a file, or made for processes, which a message costs at least ``message_s``."""
    from .. import face
    from ..face.objects import of_topology
    from ..model.kinds import EVERY_KIND
    from ..runtime.cost import served

    if request.topology is None:
        sized = (request.size or request.shard or request.demand) is not None
        if sized or (subject in EVERY_KIND and not Path(subject).exists()):
            raise InputError(NEITHER, subject)
        return read_verified(subject, as_json)
    amounts = request.size, request.shard, request.demand
    net, workload = read_request(subject, request.topology, *amounts, chunks=request.chunks, root=request.root)
    say_planning(request.planner, request.effort, workload)
    plan = face.plan(
        workload, of_topology(served(net, message_s)), planner=request.planner, seed=request.seed,
        effort=request.effort, time_limit=request.time_limit, options=given_options(request.option),
        several_chunks=False, progress=show_progress,  # which cost Python's loop as much as they save
    )  # fmt: skip
    accept(plan, as_json)
    return plan


def _cheaper(plan: Plan, message_s: float) -> str:
    """A line for a plan that was made for cheaper messages than the ``message_s`` of these processes, else nothing."""
    from ..model.units import format_time

    least_s = float(plan.topology.message_s.min(initial=message_s))
    if least_s >= message_s * (1 - 1e-9):
        return ""
    return (
        f"planned for messages that cost {format_time(least_s)}; here one costs {format_time(message_s)} or more, "
        "which simulated times include"
    )


def _answer(plan: Plan, file: str | None, outcome: Outcome, simulated_s: float, pace: float | None) -> dict[str, Any]:
    """What ``--json`` says of a run of either kind."""
    from ..report.facts import request_facts

    return (
        request_facts(plan.topology, plan.workload)
        | {
            "file": file,
            "planner": plan.meta.get("planner"),
            "processes": len(outcome.traces),
            "transfers": plan.transfer_count,
            "moved_bytes": _moved_bytes(plan),
            "completion_s": outcome.completion_s,
            "simulated_s": simulated_s,
            "paced_by": "the network" if pace is None else "token buckets",
            "correct": not outcome.wrong,
            "wrong": [{"node": plan.topology.names[v], "chunk": c} for v, c in outcome.wrong[:MOST_LISTED]],
        }
        | recording.planes_answer(plan, outcome)
    )


def _moved_bytes(plan: Plan) -> int:
    """Bytes that all transfers carry, counted at each receiver."""
    return int((plan.size_bytes * plan.dst.lengths).sum())


def _finish(data: dict[str, Any], note: str, as_json: bool) -> None:
    """Print the answer and a note, and exit with 1 if a byte is wrong or was on a plane that turned."""
    answer(as_json, data | ({"note": note} if note else {}), lambda: _show(data, note))
    if not data["correct"] or data.get("circuits", {}).get("off_circuits"):
        raise Exit(1)


def _show(data: dict[str, Any], note: str) -> None:
    from ..model.units import format_size, format_time

    rows = [
        ("planner", data["planner"] or "unknown"),
        ("processes", str(data["processes"])),
        ("transfers", f"{data['transfers']}, {format_size(data['moved_bytes'])} in all"),
        ("completion", f"{format_time(data['completion_s'])} on this machine"),
        ("simulated", f"{format_time(data['simulated_s'])} on {data['topology']}"),
        ("rates kept by", data["paced_by"]),
        ("every byte right", "yes" if data["correct"] else f"no: {len(data['wrong'])} chunks are wrong"),
        *recording.planes_rows(data),
    ]
    if data.get("shares_by", "no one") != "no one":
        rows.insert(6, ("shares kept by", data["shares_by"]))
    if "scale" in data:
        over = data["transfer_over_simulated"]
        spread = f"{over['least']:.3f} to {over['most']:.3f} of simulated, median {over['median']:.3f}"
        factor = data["times_multiplied_by"]
        divided = f"bandwidths divided by {data['scale']:.4g}, sizes by {data['sizes_divided_by']:.4g}"
        times = "times as planned" if factor == 1 else f"times multiplied by {factor:.4g}"
        rows[4:5] = [
            ("simulated", f"{format_time(data['simulated_s'])}, {divided}, {times}"),
            ("measured / simulated", f"{data['measured_over_simulated']:.3f} (delays by {data['delays_by']})"),
            ("each transfer's arrival", spread),
        ]
    if not note:
        # in real time, as processes see it, not in the plan's time
        stretched = data.get("times_multiplied_by") or data.get("paced") or 1.0
        rows[3:3] = message_rows(data | {"message_s": [cost_s * stretched for cost_s in data["message_s"]]})
    print_table(f"{data['collective']} among {data['ranks']} ranks, run on real bytes", ("", ""), rows)
    if note:
        print_below(note)

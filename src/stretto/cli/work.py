"""What the commands do before they print: read requests and plan files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from ..model.errors import Fault, InputError, nearest
from .output import answer
from .progress import doing, show_progress
from .tables import print_line

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..face import Plan, Topology
    from ..model import topology as model
    from ..model.collective import Workload
    from ..model.timeline import Timeline

Format = TypeVar("Format")

TOPOLOGY_ENDINGS = {"json": ("json",), "graphml": ("graphml",), "astra-sim": ("yml", "yaml")}
"""The endings of files that topologies are written to, by format."""


def read_request(
    collectives: str | None, topology: str, size: str | None, shard: str | None, demand: str | None,
    jobs: str | None = None, **how: int,
) -> tuple[Topology, Workload]:  # fmt: skip
    """The topology and the workload that the command line asks for."""
    from .. import face

    asked = requested(collectives, size, shard, demand, jobs)
    doing(f"reading the network {topology}")
    net = face.request_topology(topology)
    doing("making the collectives")
    return net, face.workload(asked, net, size, shard=shard, demand=demand, **how)


def requested(
    collectives: str | None, size: str | None, shard: str | None, demand: str | None, jobs: str | None
) -> str | list[dict[str, Any]]:
    """The collectives, or the jobs of a file, where the command line says their sizes once.

    Jobs may also be written as collectives are, each with its size.
    """
    amounts = (size or shard) is not None
    if jobs is not None:
        from ..face.jobs import read_jobs
        from ..model.kinds import BY_NAME

        if collectives is not None or amounts or demand is not None:
            raise InputError("jobs say what is planned; leave out the collective and its size", "--jobs")
        kinds = {part.partition(":")[0].strip() for part in jobs.split(",")}
        return jobs if kinds <= {*BY_NAME} and not os.path.exists(jobs) else read_jobs(jobs)
    if collectives is None:
        raise InputError("name a collective, or a file of jobs with --jobs")
    if demand is not None and amounts:
        raise InputError("the matrix says how many bytes there are; leave out --size and --shard", "demand")
    sized = all(":" in part for part in collectives.split(","))
    if sized and amounts:
        raise InputError("each collective says its own size; leave out --size and --shard")
    if demand is None and not sized and not amounts and ":" in collectives:
        bare = next(part for part in collectives.split(",") if ":" not in part)
        raise InputError(f"{bare} says no size; write {bare}:SIZE, or give --size for those that say none")
    if demand is None and not sized and (size is None) == (shard is None):
        raise InputError("give either --size or --shard")
    return collectives


def find_format(formats: Mapping[str, Format], name: str, flag: str, others: Sequence[str] = ()) -> Format:
    """The format of a name; errors list ``others`` too."""
    if name not in formats:
        raise InputError(f"there is no format {name!r}; {nearest(name, (*formats, *others))}", flag)
    return formats[name]


def chosen_ranks(text: str, count: int) -> list[int]:
    """The ranks that ``--ranks`` names, such as ``0-7,12``, of ``count``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"{part!r} must be a rank or a range of ranks such as 0-7", "--ranks")
        low, high = int(first), int(last or first)
        if not low <= high < count:
            raise InputError(f"{part!r} must be a rank or a range within 0 to {count - 1}", "--ranks")
        found.update(range(low, high + 1))
    return sorted(found)


def given_options(texts: Sequence[str] | None) -> dict[str, str]:
    """Options by name, from texts ``name=value``."""
    given = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} must be name=value", "option")
        given[name] = value
    return given


def chunk_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of chunks", "chunks")
    return int(text)


def say_planning(planner: str, effort: str | None, workload: Workload) -> None:
    """Say that a plan is being made, and how long that takes at most where the effort limits it."""
    from ..schedule.effort import STEPS_A_SECOND, steps_of

    steps = math.inf if effort is None else steps_of(effort, len({c.alike for c in workload.collectives}))
    if math.isinf(steps):
        doing(f"planning by {planner}")
    else:
        show_progress.at_most(f"planning by {planner}", steps / STEPS_A_SECOND)


def accept(plan: Plan, as_json: bool) -> None:
    """Refuse a plan that is not correct (exit code 1), since its times mean nothing."""
    doing(f"verifying {plan.transfer_count} transfers")
    finding = plan.verify().finding
    doing("simulating")
    if finding is not None:
        data = {"verified": False, "finding": asdict(finding), "transfers": plan.transfer_count}
        answer(as_json, data, lambda: print_line(f"not correct [{finding.code}]: {finding.message}"))
        raise typer.Exit(1)


def refuse(as_json: bool, fault: Fault) -> NoReturn:
    """Say what is wrong with a program of another tool (exit code 1)."""
    place: dict[str, Any] = getattr(fault.place, "_asdict", dict)()
    data = {"verified": False, "finding": {"code": fault.code, "message": str(fault)} | place}
    answer(as_json, data, lambda: print_line(f"not correct [{fault.code}]: {fault}"))
    raise typer.Exit(1)


def read_verified(file: str, as_json: bool) -> Plan:
    """The plan in a file, refused if it is not correct."""
    from ..face import load

    doing(f"reading {file}")
    plan = load(file)
    accept(plan, as_json)
    return plan


def judge(plan: Plan, barriers: bool = True) -> tuple[Timeline, tuple[Bound, ...]]:
    """How long a plan takes, and its lower bounds."""
    from ..bounds import bounds

    doing("simulating")
    timeline = plan.simulate(barriers=barriers)
    doing("computing lower bounds")
    return timeline, bounds(plan.topology, plan.workload)


def judge_changed(plan: Plan, changes: str, barriers: bool) -> tuple[Timeline, tuple[Bound, ...]]:
    """The same on a network whose bandwidths change as a file says, whatever the plan was made for."""
    from ..bounds import bounds

    doing("simulating")
    timeline = plan.simulate(barriers=barriers, changes=changes)
    doing("computing lower bounds")
    return timeline, bounds(timeline.plan.topology, plan.workload)


def write_topology(net: model.Topology, to: str | None, output: str | None) -> dict[str, Any]:
    """Write a topology in another format, if ``--to`` asks for it; what ``--json`` says of it."""
    from ..formats import atomic_file, check_writable
    from ..topologies.files import WRITERS

    if to is None and output is None:
        return {}
    if output is None:
        raise InputError("give a file with -o", "--to")
    if to is None:
        ending = os.path.splitext(output)[1][1:].lower()
        to = next((name for name, endings in TOPOLOGY_ENDINGS.items() if ending in endings), "json")
    write = find_format(WRITERS, to, "--to")
    check_writable(output, TOPOLOGY_ENDINGS[to])
    text = write(net, "--to astra-sim" if to == "astra-sim" else output)
    with atomic_file(output) as file:
        file.write(text)
    return {"file": output, "format": to}

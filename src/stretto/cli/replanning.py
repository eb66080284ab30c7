"""``stretto replan``: plan the rest of a collective again, on the network as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import EffortOption, FileArgument, JsonOption, LimitOption, OptionsOption, SeedOption, complete_planner
from .output import answer, print_line, show_summary
from .work import accept, given_options, judge, read_verified

if TYPE_CHECKING:
    from ..choose.replan import Replanned
    from ..model.plan import Plan

MOST_NAMED = 100
"""Lost chunks that an answer names."""


def plan_again(
    old: Plan, file: str, at: str | None, planner: str | None, options: Sequence[str] | None, seed: int,
    effort: str | None, time_limit_s: float | None,
) -> Replanned:  # fmt: skip
    """Read the telemetry, and plan what is left."""
    from ..choose.replan import replan
    from ..formats.telemetry import read_telemetry
    from ..model.units import parse_time

    news = read_telemetry(file, old.topology, old.workload.chunk_count)
    if at is not None:
        news = replace(news, at_s=parse_time(at, "--at"))
    return replan(old, news, planner=planner, seed=seed, effort=effort, time_limit_s=time_limit_s,
                  options=given_options(options))  # fmt: skip


def answer_of(old: Plan, done: Replanned) -> dict[str, Any]:
    """How many chunks were delivered before, are planned now, or are lost; the first lost ones by name."""
    names = old.topology.names
    return {
        "delivered": done.delivered,
        "left": int(done.plan.workload.chunk_wanted.lengths.sum()) if done.plan is not None else 0,
        "lost_count": len(done.lost),
        "lost": [{"chunk": int(c), "node": names[int(v)]} for c, v in done.lost[:MOST_NAMED]],
    }


def show_answer(data: dict[str, Any]) -> None:
    """The summary for people."""
    if "planner" in data:
        show_summary(data)
    print_line(f"  delivered before      {data['delivered']} chunks at their ranks")
    if "planner" not in data:
        print_line("  nothing is left to plan")
    for row in data["lost"][:10]:
        print_line(f"  lost                  chunk {row['chunk']} for {row['node']}: nobody within reach holds it")
    if data["lost_count"] > 10:
        print_line(f"  lost                  {data['lost_count'] - 10} more")


def replan(
    file: FileArgument,
    telemetry: Annotated[
        str, typer.Option("--telemetry", help="A JSON file: measured links, links and nodes that are down, and when.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="Moment of the change, in the plan's time. Default: the moment that the telemetry gives."
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--planner",
            help="Planner to use. Default: the planner that made the original plan.",
            autocompletion=complete_planner,
        ),
    ] = None,
    option: OptionsOption = None,
    seed: SeedOption = 0,
    effort: EffortOption = None,
    time_limit: LimitOption = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the new plan to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan what is left of a plan again, on the network as it is now."""
    from ..face import of_model
    from ..report.facts import plan_facts

    old = read_verified(file, as_json)
    done = plan_again(old, telemetry, at, planner, option, seed, effort, time_limit)
    data: dict[str, Any] = {}
    if done.plan is not None:
        plan = of_model(done.plan)
        accept(plan, as_json)
        data = plan_facts(*judge(plan), True)
        if output is not None:
            plan.save(output)
            data["file"] = output
    data |= answer_of(old, done)
    answer(as_json, data, lambda: show_answer(data))
    if data["lost_count"]:
        raise typer.Exit(1)

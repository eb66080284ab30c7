"""``stretto replan``: plan the rest of a collective again, on the network as it is now."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from . import arguments
from .output import answer, print_line, show_summary
from .work import accept, given_options, judge, read_verified

MOST_NAMED = 100
"""Lost chunks that an answer names."""


def replan(
    file: arguments.File,
    telemetry: Annotated[
        str, typer.Option(help="A JSON file: measured links, links and nodes that are down, and when.")
    ],
    at: Annotated[
        str | None,
        typer.Option(help="Moment of the change, in the plan's time. Default: the moment that the telemetry gives."),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--planner",
            help="Planner to use. Default: the planner that made the original plan.",
            autocompletion=arguments.complete_planner,
        ),
    ] = None,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the new plan to this file.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Plan what is left of a plan again, on the network as it is now."""
    from ..choose import replan
    from ..face import of_model
    from ..formats.telemetry import read_telemetry
    from ..model.units import parse_time
    from ..report.facts import plan_facts

    old = read_verified(file, as_json)
    news = read_telemetry(telemetry, old.topology, old.workload.chunk_count)
    if at is not None:
        news = replace(news, at_s=parse_time(at, "--at"))
    done = replan.replan(
        old, news, planner=planner, seed=seed, effort=effort, time_limit_s=time_limit, options=given_options(option)
    )
    data: dict[str, Any] = {}
    if done.plan is not None:
        plan = of_model(done.plan)
        accept(plan, as_json)
        data = plan_facts(*judge(plan), True)
        if output is not None:
            plan.save(output)
            data["file"] = output
    data |= {
        "delivered": done.delivered,
        "left": int(done.plan.workload.chunk_wanted.lengths.sum()) if done.plan is not None else 0,
        "lost_count": len(done.lost),
        "lost": [{"chunk": int(c), "node": old.topology.names[int(v)]} for c, v in done.lost[:MOST_NAMED]],
    }
    answer(as_json, data, lambda: _show(data))
    if data["lost_count"]:
        raise typer.Exit(1)


def _show(data: dict[str, Any]) -> None:
    if "planner" in data:
        show_summary(data)
    print_line(f"  delivered before      {data['delivered']} chunks at their ranks")
    if "planner" not in data:
        print_line("  nothing is left to plan")
    for row in data["lost"][:10]:
        print_line(f"  lost                  chunk {row['chunk']} for {row['node']}: nobody within reach holds it")
    if data["lost_count"] > 10:
        print_line(f"  lost                  {data['lost_count'] - 10} more")

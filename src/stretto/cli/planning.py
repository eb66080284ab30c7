"""``stretto plan``, ``compare``, and ``replan``: plan the rest of a collective again, on the network as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from ..model.errors import InputError, StrettoError, none_of
from . import arguments
from .output import answer, show_comparison, show_summary
from .progress import doing, show_progress
from .tables import print_below
from .work import accept, chunk_count, given_options, judge, read_request, read_verified, requested, say_planning

if TYPE_CHECKING:
    from ..face import Front, Topology
    from ..model.collective import Workload

MOST_NAMED = 100
"""Lost chunks that an answer names."""


def plan(
    *,
    collective: arguments.CollectiveOrJobs = None,
    topology: arguments.Topology,
    jobs: arguments.Jobs = None,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    planner: arguments.Planner = "auto",
    chunks: arguments.Chunks = 1,
    root: arguments.Root = 0,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    target: arguments.For = None,
    tuning: Annotated[str | None, Option(help="Take planner and chunks from this table of `stretto tune`.")] = None,
    objective: Annotated[
        str,
        Option(
            help="What the plan shall be best in: time, or cost, where links have prices. cost also prints plans that "
            "trade one for the other."
        ),
    ] = "time",
    budget: Annotated[
        float | None, Option(help="Most US dollars that a plan may cost: the fastest such plan is taken.", min=0.0)
    ] = None,
    points: Annotated[
        int, Option(help="With --objective cost: how many budgets are tried for plans that trade one for the other.")
    ] = 5,
    output: Annotated[str | None, Option("-o", "--output", help="Write the plan to this file.")] = None,
    check: Annotated[bool, Option("--verify/--no-verify", help="Whether to verify the plan.")] = True,
    as_json: arguments.Json = False,
) -> None:
    """Make a plan, verify it, simulate it, and print a summary."""
    from .. import face
    from ..formats import PLAN, check_writable
    from ..report.facts import plan_facts

    if output is not None:
        check_writable(output, PLAN)
    net, workload = read_request(collective, topology, size, shard, demand, jobs, chunks=chunks, root=root)
    if tuning is not None:
        from .tuning import choice_of_table

        if collective is None:
            raise InputError("a table has no jobs; name a collective", "--tuning")
        size_bytes = workload.collectives[0].size_bytes
        planner, chunks, tuned_for = choice_of_table(tuning, topology, collective, size_bytes)
        target = target or tuned_for
        net, workload = read_request(collective, topology, size, shard, demand, chunks=chunks, root=root)
    how: dict[str, Any] = {
        "planner": planner, "seed": seed, "effort": effort, "time_limit": time_limit, "options": given_options(option),
        "progress": show_progress, "target": target,
    }  # fmt: skip
    front = _priced_front(workload, net, objective, budget, points, how)
    say_planning(planner, effort, workload)
    place = 0 if front is None or budget is None else front.place(budget)
    result = face.plan(workload, net, **how) if front is None else front[place]
    if check:
        accept(result, as_json)
    if output is not None:
        result.save(output)
    data = plan_facts(*judge(result), True if check else None) | ({"file": output} if output else {})
    if front is not None:
        data |= {"front": list(front.rows), "least_usd": front.least_usd}
    answer(as_json, data, lambda: show_summary(data, front, place))


def _priced_front(
    workload: Workload, net: Topology, objective: str, budget: float | None, points: int, how: dict[str, Any]
) -> Front | None:
    """The plans that trade time for money, where the command line asks for the cheapest, or for one within a budget."""
    from .. import face

    if objective not in ("time", "cost"):
        raise InputError(none_of(objective, ("time", "cost")), "--objective")
    if objective == "time" and budget is None:
        return None
    if how.pop("target") is not None:
        raise InputError("plans that trade time for money are for no target; leave out --objective, --budget", "--for")
    return face.front(workload, net, points=points, budget=budget, **how)


def compare(
    *,
    collective: arguments.CollectiveOrJobs = None,
    topology: arguments.Topology,
    jobs: arguments.Jobs = None,
    size: arguments.Sizes = None,
    shard: arguments.Shards = None,
    demand: arguments.Demand = None,
    planner: arguments.Planners = "auto",
    chunks: Annotated[
        str, Option(help="Number of chunks into which each piece is cut, or several separated by commas.")
    ] = "1",
    root: arguments.Root = 0,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    target: arguments.For = None,
    output: Annotated[
        str | None, Option("-o", "--output", help="Write a page to this file, or a picture if it ends in .svg.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Compare planners over sizes (both separated by commas) with the lower bound."""
    from .. import face
    from ..formats import PAGE, check_writable

    asked = requested(collective, size, shard, demand, jobs)
    counts = [chunk_count(text) for text in chunks.split(",")]
    if output is not None:
        check_writable(output, PAGE)
    comparison = face.compare(
        asked, topology, size, shard=shard, demand=demand, planner=planner, chunks=counts, root=root, seed=seed,
        effort=effort, time_limit=time_limit, options=given_options(option), target=target,
        progress=show_progress,
    )  # fmt: skip
    if not any(comparison.plans):
        raise StrettoError(f"no planner serves this: {comparison[0]['failed']}")
    if output is not None:
        doing(f"drawing {output}")
        comparison.report(output)
    data = {"rows": list(comparison)} | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_comparison(comparison, output))


def replan(
    file: arguments.File,
    telemetry: Annotated[str, Option(help="A JSON file: measured links, links and nodes that are down, and when.")],
    at: Annotated[
        str | None,
        Option(help="Moment of the change, in the plan's time. Default: the moment that the telemetry gives."),
    ] = None,
    planner: Annotated[
        str | None,
        Option(
            "-p",
            "--planner",
            help="Planner to use. Default: the planner that made the original plan, or auto.",
            autocompletion=arguments.complete_planner,
        ),
    ] = None,
    anew: Annotated[
        bool, Option("--anew", help="Keep nothing of what was delivered: ranks still have what they held at first.")
    ] = False,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    output: Annotated[str | None, Option("-o", "--output", help="Write the new plan to this file.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Plan what is left of a plan again, on the network as it is now."""
    from ..face import of_model
    from ..face import replan as replan_rest
    from ..formats import PLAN, check_writable

    if output is not None:
        check_writable(output, PLAN)
    old = read_verified(file, as_json)
    doing("planning what is left")
    done = replan_rest(
        old, telemetry, at=at, planner=planner, anew=anew, seed=seed, effort=effort, time_limit=time_limit,
        options=given_options(option), progress=show_progress,
    )  # fmt: skip
    data: dict[str, Any] = {}
    if done.plan is not None:
        plan = of_model(done.plan)
        accept(plan, as_json)
        data = plan.summary()
        if output is not None:
            plan.save(output)
            data["file"] = output
    data |= {
        "delivered": done.delivered,
        "left": int(done.plan.workload.chunk_wanted.lengths.sum()) if done.plan is not None else 0,
        "as_planned_s": done.as_planned_s,
        "anew_s": done.anew_s,
        "lost_count": len(done.lost),
        "lost": [{"chunk": int(c), "node": old.topology.names[int(v)]} for c, v in done.lost[:MOST_NAMED]],
    }
    answer(as_json, data, lambda: _show_rest(data))
    if data["lost_count"]:
        raise Exit(1)


def _show_rest(data: dict[str, Any]) -> None:
    from ..model.units import format_time

    if "planner" in data:
        show_summary(data)
    print_below(f"  delivered before      {data['delivered']} chunks at their ranks")
    if "planner" not in data:
        print_below("  nothing is left to plan")
    elif data["as_planned_s"] is None:
        print_below("  finished as planned   never: a link that the old plan needs is down")
    else:
        sooner = "; keep to the old plan" if data["as_planned_s"] <= data["completion_s"] else ""
        print_below(f"  finished as planned   in {format_time(data['as_planned_s'])}{sooner}")
    if data["anew_s"] is not None:
        ends_sooner = data["anew_s"] < data["completion_s"]
        sooner = "; sooner: add --anew if ranks still have what they held at first" if ends_sooner else ""
        print_below(f"  planned from scratch  {format_time(data['anew_s'])}{sooner}")
    for row in data["lost"][:10]:
        print_below(f"  lost                  chunk {row['chunk']} for {row['node']}: nobody within reach holds it")
    if data["lost_count"] > 10:
        print_below(f"  lost                  {data['lost_count'] - 10} more")

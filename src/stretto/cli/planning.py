"""``stretto plan`` and ``stretto compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from ..model.errors import InputError, StrettoError
from . import arguments
from .output import answer, show_comparison, show_summary
from .work import accept, chunk_count, given_options, judge, read_request, show_progress


def plan(
    collective: arguments.Collective,
    topology: arguments.Topology,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    planner: arguments.Planner = "auto",
    chunks: Annotated[int, typer.Option(help="Number of chunks into which each piece is cut.", min=1)] = 1,
    root: arguments.Root = 0,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    tuning: Annotated[
        str | None, typer.Option(help="Take planner and chunks from this table of `stretto tune`.")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the plan to this file.")] = None,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Whether to verify the plan.")] = True,
    as_json: arguments.Json = False,
) -> None:
    """Make a plan, verify it, simulate it, and print a summary."""
    from .. import face
    from ..formats import check_writable
    from ..report.facts import plan_facts

    if output is not None:
        check_writable(output)
    net, workload = read_request(collective, topology, size, shard, demand, chunks=chunks, root=root)
    if tuning is not None:
        from .tuning import choice_of_table

        planner, chunks = choice_of_table(tuning, topology, collective, workload.collectives[0].size_bytes)
        net, workload = read_request(collective, topology, size, shard, demand, chunks=chunks, root=root)
    result = face.plan(
        workload, net, planner=planner, seed=seed, effort=effort, time_limit=time_limit,
        options=given_options(option), progress=show_progress,
    )  # fmt: skip
    verdict = accept(result, as_json) if check else None
    if output is not None:
        result.save(output)
    data = plan_facts(*judge(result), verdict.ok if verdict else None) | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_summary(data))


def compare(
    collective: arguments.Collective,
    topology: arguments.Topology,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    planner: arguments.Planner = "auto",
    chunks: Annotated[
        str,
        typer.Option(help="Number of chunks into which each piece is cut, or several separated by commas."),
    ] = "1",
    root: arguments.Root = 0,
    option: arguments.Options = None,
    seed: arguments.Seed = 0,
    effort: arguments.Effort = None,
    time_limit: arguments.TimeLimit = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Write a page to this file, or a picture if it ends in .svg.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Compare planners over sizes (both separated by commas) with the lower bound."""
    from .. import face
    from ..formats import check_writable

    if demand is None and (size is None) == (shard is None):
        raise InputError("give either --size or --shard")
    counts = [chunk_count(text) for text in chunks.split(",")]
    if output is not None:
        check_writable(output)
    comparison = face.compare(
        collective, topology, size, shard=shard, demand=demand, planner=planner, chunks=counts, root=root, seed=seed,
        effort=effort, time_limit=time_limit, options=given_options(option), progress=show_progress,
    )  # fmt: skip
    if not any(comparison.plans):
        raise StrettoError(f"no planner serves this: {comparison[0]['failed']}")
    if output is not None:
        comparison.report(output)
    data = {"rows": list(comparison)} | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_comparison(comparison, output))

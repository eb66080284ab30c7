"""``stretto plan`` and ``stretto compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model.errors import InputError, StrettoError
from .arguments import (
    ChunksOption,
    CollectiveArgument,
    DemandOption,
    EffortOption,
    JsonOption,
    LimitOption,
    OptionsOption,
    PlannerOption,
    RootOption,
    SeedOption,
    ShardOption,
    SizeOption,
    TopologyOption,
)
from .output import answer, refuse, show_rows, show_summary
from .work import Request, chunk_count, draw, judged, show_progress, summary, verified

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..model.timeline import Timeline


def plan(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    demand: DemandOption = None,
    planner: PlannerOption = "auto",
    chunks: ChunksOption = 1,
    root: RootOption = 0,
    option: OptionsOption = None,
    seed: SeedOption = 0,
    effort: EffortOption = "normal",
    time_limit: LimitOption = None,
    tuning: Annotated[
        str | None, typer.Option("--tuning", help="A table of `stretto tune` that says which planner and chunks.")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Verify the plan.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a plan, verify it, simulate it, and print a summary."""
    from ..formats import check_writable
    from ..formats.native import write_plan

    if output is not None:
        check_writable(output)
    request = Request(collective, topology, size, shard, chunks, root, demand)
    if tuning is not None:
        from .tuning import planned_by_table

        planner, chunks = planned_by_table(tuning, topology, collective, request.header()["size_bytes"])
        request = Request(collective, topology, size, shard, chunks, root, demand)
    made = request.plan(planner, seed, effort, time_limit, option)
    verdict = verified(made) if check else None
    if verdict is not None and not verdict.ok:
        refuse(made, verdict, as_json)
    timeline, limits = judged(made)
    if output is not None:
        write_plan(made, output)
    data = summary(timeline, limits, verdict) | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_summary(data))


def compare(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    demand: DemandOption = None,
    planner: PlannerOption = "auto",
    chunks: Annotated[str, typer.Option("--chunks", help="Chunks a piece, or several by comma.")] = "1",
    root: RootOption = 0,
    option: OptionsOption = None,
    seed: SeedOption = 0,
    effort: EffortOption = "normal",
    time_limit: LimitOption = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Write a page here, or a picture if it ends in .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare planners over sizes (both by comma) against the lower bound."""
    if demand is None and (size is None) == (shard is None):
        raise InputError("give either --size or --shard", "size")
    counts = [chunk_count(text) for text in chunks.split(",")]
    cells = [
        (text, count, name)
        for text in (size or shard or "").split(",")
        for count in counts
        for name in planner.split(",")
    ]
    if output is not None:
        from ..formats import check_writable

        check_writable(output)
    rows: list[dict[str, Any]] = []
    pages: list[tuple[Timeline, tuple[Bound, ...]]] = []
    for i, (text, count, name) in enumerate(cells):
        show_progress(i, len(cells), f"{name}, {text}")
        request = Request(collective, topology, text if size else None, text if shard else None, count, root, demand)
        try:
            made = request.plan(name, seed, effort, time_limit, option)
            verdict = verified(made)
            if not verdict.ok:
                raise StrettoError(f"the plan does not verify: {verdict.finding.message if verdict.finding else ''}")
            timeline, limits = judged(made)
        except InputError:
            raise
        except StrettoError as error:
            rows.append(request.header() | {"planner": name, "failed": str(error)})
            continue
        rows.append(summary(timeline, limits, verdict))
        pages.append((timeline, limits))
    show_progress(len(cells), len(cells), "done")
    if output is not None and pages:
        draw(output, pages)
    if not pages:
        raise StrettoError(f"no planner could: {rows[0]['failed']}")
    data = {"rows": rows} | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_rows(rows, output))

"""Arguments and options that several commands take, and how a shell completes them."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_topology(incomplete: str) -> list[tuple[str, str]]:
    from ..topologies import catalogue

    return [(f.example, f.summary) for f in catalogue() if f.example.startswith(incomplete.partition(":")[0])]


def complete_planner(incomplete: str) -> list[tuple[str, str]]:
    from ..planners import registered

    return [(e.name, e.summary) for e in registered().values() if e.name.startswith(incomplete)]


def complete_collective(incomplete: str) -> list[str]:
    from ..model.kinds import KINDS

    return [kind for kind in (*KINDS, "alltoallv") if kind.startswith(incomplete)]


def complete_effort(incomplete: str) -> list[str]:
    from ..schedule.effort import EFFORTS

    return [level for level in EFFORTS if level.startswith(incomplete)]


def complete_format(incomplete: str) -> list[str]:
    from ..formats import exporters

    return [name for name in exporters() if name.startswith(incomplete)]


def complete_source(incomplete: str) -> list[str]:
    from ..formats import importers

    return [name for name in importers() if name.startswith(incomplete)]


CollectiveArgument = Annotated[
    str,
    typer.Argument(
        help="The collective, or several separated by commas: allgather, reducescatter, allreduce, alltoall, "
        "broadcast, reduce, scatter, gather, alltoallv.",
        autocompletion=complete_collective,
    ),
]
TopologyOption = Annotated[
    str,
    typer.Option(
        "-t",
        "--topology",
        help="A spec such as ndv2:4 (`stretto topologies` lists them), or the path of a file.",
        autocompletion=complete_topology,
    ),
]
PlannerOption = Annotated[
    str,
    typer.Option(
        "-p",
        "--planner",
        help="A planner, and refiners of its plan: PLANNER[+REFINER...]; `stretto planners` lists them. "
        "FILE.py:NAME names one in a file of your own.",
        autocompletion=complete_planner,
    ),
]
SizeOption = Annotated[str | None, typer.Option("--size", help="Size of the full buffer, as nccl-tests count it.")]
ShardOption = Annotated[str | None, typer.Option("--shard", help="Size of one rank's share of the buffer.")]
DemandOption = Annotated[
    str | None,
    typer.Option(
        "--demand",
        help="Instead of a size, for alltoallv: a CSV file of the bytes from each rank (row) to each rank (column).",
    ),
]
ChunksOption = Annotated[int, typer.Option("--chunks", help="Number of chunks into which each piece is cut.", min=1)]
RootOption = Annotated[
    int, typer.Option("--root", help="Rank from which rooted collectives start, or at which they end.")
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the planner or a refiner, name=value. May be given several times."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed for planners that draw random numbers.", min=0)]
EffortOption = Annotated[
    str | None,
    typer.Option(
        "--effort",
        help="How much to try, in counted work: quick (about 0.2 s of CPU), normal (about 1 s) or thorough (no limit). "
        "The same effort gives the same plan on every machine. Default: normal for auto, thorough for others.",
        autocompletion=complete_effort,
    ),
]
LimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="A safety net: seconds after which the best plan so far is taken. The plan then says `stopped`: "
        "another run may give another plan.",
        min=0.0,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
FileArgument = Annotated[str, typer.Argument(help="A plan file.")]

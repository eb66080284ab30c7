"""Arguments and options that several commands take, and how a shell completes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from typer import Argument, Option


def complete_topology(incomplete: str) -> list[tuple[str, str]]:
    from ..topologies import catalogue

    return [(f.example, f.summary) for f in catalogue() if f.example.startswith(incomplete.partition(":")[0])]


def complete_planner(incomplete: str) -> list[tuple[str, str]]:
    from ..planners import registered

    return [(e.name, e.summary) for e in registered().values() if e.name.startswith(incomplete)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def complete_collective(incomplete: str) -> list[str]:
    from ..model.kinds import KINDS

    return _beginning((*KINDS, "alltoallv"), incomplete)


def complete_effort(incomplete: str) -> list[str]:
    from ..schedule.effort import EFFORTS

    return _beginning(EFFORTS, incomplete)


def complete_format(incomplete: str) -> list[str]:
    from ..formats import exporters

    return _beginning((*exporters(), "nccl"), incomplete)


def complete_target(incomplete: str) -> list[str]:
    from ..model.targets import TARGETS

    return _beginning(TARGETS, incomplete)


def complete_source(incomplete: str) -> list[str]:
    from ..formats import importers

    return _beginning(importers(), incomplete)


def complete_library(incomplete: str) -> list[str]:
    from ..order.answer import ALIASES
    from ..order.libraries import LIBRARIES

    return _beginning((*LIBRARIES, *ALIASES), incomplete)


def complete_order_format(incomplete: str) -> list[str]:
    from ..order.files import FILES

    return _beginning(FILES, incomplete)


Collective = Annotated[
    str,
    Argument(
        help="The collective, or several separated by commas: allgather, reducescatter, allreduce, alltoall, "
        "broadcast, reduce, scatter, gather, alltoallv. Each may have a size and a start of its own: "
        "allreduce:500MB,allgather:100MB@2s.",
        autocompletion=complete_collective,
    ),
]
CollectiveOrJobs = Annotated[str | None, *Collective.__metadata__]
Jobs = Annotated[
    str | None,
    Option(
        help="Instead of the collective and its size: a JSON file, a list of jobs such as "
        '{"collective": "allreduce", "size": "500MB", "ranks": [0, 1, 2], "start": "2s", "weight": 2}. '
        "Or the jobs themselves: allreduce:500MB,allgather:100MB@2s."
    ),
]
File = Annotated[str, Argument(help="A plan file.")]
FileOrNone = Annotated[str | None, Argument(help="A plan file, or a table of `tune`.")]
Topology = Annotated[
    str,
    Option(
        "-t",
        "--topology",
        help="A spec such as ndv2:4 (`stretto topologies` lists them), or the path of a file: CSV, lstopo, NCCL, SLURM "
        "and others (`stretto topologies files`). ?message=TIME is what a message costs besides its bytes; without it "
        "1 us to 50 us is assumed.",
        autocompletion=complete_topology,
    ),
]
TopologyOrDefault = Annotated[str | None, *Topology.__metadata__]
Planner = Annotated[
    str,
    Option(
        "-p",
        "--planner",
        help="A planner, and refiners of its plan: PLANNER[+REFINER...]; `stretto planners` lists them. "
        "FILE.py:NAME names one in a file of your own.",
        autocompletion=complete_planner,
    ),
]
Planners = Annotated[
    str,
    Option(
        "-p",
        "--planner",
        help="Planners to compare, separated by commas, each with refiners of its plan: PLANNER[+REFINER...]; "
        "`stretto planners` lists them. FILE.py:NAME names one in a file of your own.",
        autocompletion=complete_planner,
    ),
]
Size = Annotated[str | None, Option(help="Size of the full buffer, as nccl-tests count it.")]
Shard = Annotated[str | None, Option(help="Size of one rank's share of the buffer.")]
Sizes = Annotated[
    str | None, Option("--size", help="Size of the full buffer, as nccl-tests count it; several separated by commas.")
]
Shards = Annotated[
    str | None, Option("--shard", help="Size of one rank's share of the buffer; several separated by commas.")
]
Demand = Annotated[
    str | None,
    Option(
        help="Instead of a size, for alltoallv: a CSV file of the bytes from each rank (row) to each rank (column)."
    ),
]
Chunks = Annotated[int, Option(help="Number of chunks into which each piece is cut.", min=1)]
Root = Annotated[int, Option(help="Rank from which rooted collectives start, or at which they end.")]
Options = Annotated[
    list[str] | None, Option(help="An option of the planner or a refiner, name=value. May be given several times.")
]
For = Annotated[
    str | None,
    Option(
        "--for",
        help="What shall run the plan: msccl, mscclpp, torch, nccl-p2p or chakra. The plan is then one that it can run "
        "or that can be exported for it; `stretto planners --targets` says what each asks.",
        autocompletion=complete_target,
    ),
]
Seed = Annotated[int, Option(help="Seed for planners that draw random numbers.", min=0)]
Effort = Annotated[
    str | None,
    Option(
        help="How much to try, in counted work: quick (about 0.2 s of CPU), normal (about 1 s), thorough (no limit) or "
        "a number, such as 15 (about 15 s); "
        "up to four times that for several collectives. "
        "The same effort gives the same plan on every machine. Default: normal for auto, thorough for others.",
        autocompletion=complete_effort,
    ),
]
TimeLimit = Annotated[
    float | None,
    Option(
        help="A safety net: seconds after which the best plan so far is taken. The plan then says `stopped`: "
        "another run may give another plan.",
        min=0.0,
    ),
]
Timeout = Annotated[float, Option(help="Seconds without news after which a process counts as failed.", min=0.1)]
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout, and nothing else there.")]

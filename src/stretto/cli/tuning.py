"""``stretto tune``, and the plans of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from ..model.errors import InputError, nearest
from . import arguments
from .output import answer
from .progress import doing, show_progress
from .tables import print_below, print_line, print_table
from .work import chunk_count

if TYPE_CHECKING:
    from ..choose.tuning import Tuning
    from ..formats import Exporter


def tune(
    collectives: Annotated[
        str,
        Argument(help="The collective, or several separated by commas.", autocompletion=arguments.complete_collective),
    ],
    topology: arguments.Topology,
    sizes: Annotated[
        str,
        Option(
            "--size", "--sizes", help="Sizes of the full buffer at which planners are compared, separated by commas."
        ),
    ] = "4KB,64KB,1MB,16MB,256MB",
    planners: Annotated[
        str | None,
        Option(
            "-p",
            "--planner",
            "--planners",
            help="Planners to compare, separated by commas. Default: those registered for it.",
        ),
    ] = None,
    chunks: Annotated[str, Option(help="Numbers of chunks into which each piece is cut, separated by commas.")] = "1,4",
    root: arguments.Root = 0,
    seed: arguments.Seed = 0,
    ranks_only: Annotated[
        bool,
        Option("--ranks-only", help="Allow only plans that need no node beside the ranks, as PyTorch's backend does."),
    ] = False,
    target: arguments.For = None,
    output: Annotated[str | None, Option("-o", "--output", help="Write the table to this file, as JSON.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Find the best planner for each range of sizes: a table for PyTorch's backend, `plan --tuning` and `export`."""
    import json

    from ..choose import tuning
    from ..formats import atomic_file, check_writable
    from ..model.kinds import KINDS
    from ..model.units import parse_size

    if output is not None:
        check_writable(output, ("json",))
    kinds = collectives.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"there is no collective {kind!r}; {nearest(kind, (*KINDS,))}", "COLLECTIVES")
    table = tuning.tune(
        topology, kinds, [parse_size(text, "--size") for text in sizes.split(",")],
        planners=planners.split(",") if planners else None, chunks=[chunk_count(text) for text in chunks.split(",")],
        root=root, seed=seed, ranks_only=ranks_only, target=target, progress=show_progress,
    )  # fmt: skip
    data = tuning.to_json(table)
    if output is not None:
        with atomic_file(output) as file:
            file.write(json.dumps(data, indent=1) + "\n")
        data["file"] = output
    answer(as_json, data, lambda: _show(table, output))


def _show(table: Tuning, output: str | None) -> None:
    from ..model.units import format_size, format_time

    rows = []
    for r in table.ranges:
        upto = "no limit" if r.to_bytes is None else format_size(r.to_bytes)
        points = ", ".join(f"{format_size(size)}: {format_time(seconds)}" for size, seconds in r.measured)
        rows.append((r.collective, format_size(r.from_bytes), upto, r.planner, str(r.chunks), points))
    header = ("collective", "from", "to", "planner", "chunks", "measured")
    goal = "" if table.target is None else f" for {table.target}"
    print_table(f"the best planners on {table.spec}{goal}", header, rows, ("measured",))
    if output:
        print_below(f"wrote {output}")


def export_table(file: str, format: Exporter, folder: str, as_json: bool) -> None:
    """Write the programs of a table into a folder, and ``index.json``, which gives the sizes of each file.

    Exits with 1 if a program does not keep what the table says.
    """
    from ..choose.exports import write_table
    from ..choose.programs import BrokenPromise
    from ..choose.tuning import read_tuning
    from ..topologies import assume_messages, load_topology

    doing(f"reading {file}")
    table = read_tuning(file)
    net = assume_messages(load_topology(table.spec))
    table.check(net, file)
    data: dict[str, Any] = {"folder": folder, "format": format.name}
    try:
        files = write_table(table, net, format, folder, show_progress)
    except BrokenPromise as broken:
        said = str(broken)
        hint = "" if table.target else f"; `stretto tune --for {format.name}` makes a table of what it takes"
        answer(as_json, data | {"files": [], "failed": said}, lambda: print_line(f"nothing written: {said}{hint}"))
        raise Exit(1) from None
    answer(as_json, data | {"files": files}, lambda: _show_exported(files, folder))


def _show_exported(files: list[dict[str, Any]], folder: str) -> None:
    from ..model.units import format_size, format_time

    rows = []
    for f in (f for f in files if f["file"] is not None):
        upto = "no limit" if f["to_bytes"] is None else format_size(f["to_bytes"])
        ends = f.get("ends", ())
        times = [
            f"{format_size(e['size_bytes'])}: {format_time(e['program_s'])} ({format_time(e['table_s'])})" for e in ends
        ]
        rows.append((f["file"], format_size(f["from_bytes"]), upto, f["planner"], ", ".join(times)))
    print_table("", ("file", "from", "to", "planner", "takes (the table says)"), rows)
    for f in (f for f in files if f["file"] is None):
        upto = "on" if f["to_bytes"] is None else f"to {format_size(f['to_bytes'])}"
        sizes = f"{f['collective']} from {format_size(f['from_bytes'])} {upto}, {f['planner']}"
        print_below(f"not written: {sizes}: {f['failed']}")
    for note in dict.fromkeys(note for f in files for note in f.get("notes", ())):
        print_below(f"note: {note}")
    print_below(f"wrote index.json into {folder}")


def choice_of_table(file: str, topology: str, kind: str, size_bytes: int) -> tuple[str, int, str | None]:
    """The planner and the number of chunks that a table names for a request, and the target that it is for."""
    from ..choose.tuning import read_tuning
    from ..topologies import load_topology

    table = read_tuning(file)
    table.check(load_topology(topology), file)
    choice = table.find(kind, size_bytes)
    if choice is None:
        tuned = ", ".join(dict.fromkeys(r.collective for r in table.ranges))
        raise InputError(f"has no range for {kind!r}; it was made for {tuned}", file)
    return choice.planner, choice.chunks, table.target

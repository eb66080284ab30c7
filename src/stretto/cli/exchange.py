"""``stretto report``, ``export`` and ``import``: write plans as pages and files, read those of other tools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from ..model.errors import Fault, InputError
from . import arguments
from .output import answer, show_summary
from .progress import doing, show_progress
from .tables import print_below, print_line
from .work import accept, chosen_ranks, find_format, read_verified, refuse

if TYPE_CHECKING:
    from ..formats import Exporter
    from ..model.timeline import Timeline


def report(
    files: Annotated[list[str], Argument(help="Plan files.")],
    output: Annotated[
        str, Option("-o", "--output", help="Write the page to this file, or a picture if it ends in .svg.")
    ],
    as_json: arguments.Json = False,
) -> None:
    """Draw plans on one HTML page that works offline, or as one picture (.svg)."""
    from ..face import draw
    from ..formats import PAGE, check_writable

    check_writable(output, PAGE)
    plans = []
    for i, file in enumerate(files):
        show_progress(i, len(files), file)
        plans.append(read_verified(file, as_json))
    doing(f"drawing {output}")
    draw(output, plans)
    answer(as_json, {"file": output, "plans": len(files)}, lambda: print_line(f"wrote {output}"))


def export(
    output: Annotated[
        str, Option("-o", "--output", help="The file to write; for a table of `tune` and for nccl, the folder.")
    ],
    to: Annotated[
        str | None,
        Option(
            help="Format: parquet, json, csv, trace (Perfetto, Chrome), msccl, mscclpp, mscclpp-dsl, chakra, "
            "cross-connects, cross-connects-csv, sonic-patches or nccl. Default: as the file's name ends, "
            "in .parquet, .json, .csv, .xml (msccl) or .py (mscclpp-dsl).",
            autocompletion=arguments.complete_format,
        ),
    ] = None,
    file: arguments.FileOrNone = None,
    topology: arguments.TopologyOrDefault = None,
    gpu: Annotated[
        str | None, Option(help="For nccl: the GPUs, v100, a100, h100 or b200. Default: as the topology's name says.")
    ] = None,
    ranks: Annotated[
        str | None,
        Option(help="Write what some ranks send and receive, such as 0-7,12; for chakra, csv and trace."),
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Write a plan in another format, programs of a table of `tune`, or files for NCCL on a topology."""
    from ..choose.tuning import is_tuning
    from ..formats import check_ending, exporters
    from ..formats.blocks import nodes_of_ranks
    from ..simulate import simulate as run
    from .packing import NCCL, export_pack
    from .tuning import export_table

    if to == NCCL:
        if ranks is not None:
            raise InputError("the files for NCCL hold all ranks", "--ranks")
        export_pack(file, topology, gpu, output, as_json)
        return
    format = find_format(exporters(), to, "--to", others=(NCCL,)) if to is not None else _named_by_ending(output)
    for flag, value in (("--topology", topology), ("--gpu", gpu)):
        if value is not None:
            raise InputError(f"{format.name} is written of a plan; a topology and its GPUs are for --to {NCCL}", flag)
    if file is None:
        raise InputError("name the plan or table that is written")
    if ranks is not None and not (format.by_rank and not is_tuning(file)):
        formats = ", ".join(e.name for e in dict.fromkeys(exporters().values()) if e.by_rank)
        raise InputError(f"a file of {format.name} holds all ranks; some are written of a plan as {formats}", "--ranks")
    if is_tuning(file):
        export_table(file, format, output, as_json)
        return
    check_ending(output, (format.ending, *(("et",) if format.ending == "chakra" else ())))
    plan = read_verified(file, as_json)
    chosen = {} if ranks is None else {"ranks": chosen_ranks(ranks, len(nodes_of_ranks(plan)))}
    doing("simulating")
    timeline = run(plan)
    doing(f"writing {output}")
    data: dict[str, Any] = {"file": output, "format": format.name, "notes": []} | chosen
    said = _times(timeline, format, data, as_json)
    data["notes"] += format.write(timeline, output, **chosen) or ()
    lines = [f"wrote {output}", *said, *(f"note: {note}" for note in data["notes"])]
    answer(as_json, data, lambda: print_line("\n".join(lines)))


def _named_by_ending(path: str) -> Exporter:
    """The first format whose files have the ending of a path."""
    from ..formats import exporters, likely_ending

    name, dot_ending = os.path.splitext(path)
    ending = dot_ending[1:].lower()
    for format in exporters().values():
        if format.ending == ending:
            return format
    if meant := likely_ending(ending, [f.ending for f in exporters().values()]):
        raise InputError(f"there is no ending {dot_ending!r}; did you mean {name}.{meant}?", "-o")
    names = ", ".join((*exporters(), "nccl"))
    raise InputError(f"the name {path!r} does not say which format; there are {names}", "--to")


def _times(timeline: Timeline, format: Exporter, data: dict[str, Any], as_json: bool) -> list[str]:
    """Say how long the program takes as its runtime runs it, where that is known; exits with 1 if it is not correct."""
    from ..choose.programs import BrokenPromise, program_s
    from ..choose.spans import TOLERANCE
    from ..model.units import format_time

    try:
        takes_s = program_s(timeline, format)
    except BrokenPromise as broken:
        said = str(broken)
        answer(as_json, data | {"file": None, "failed": said}, lambda: print_line(f"nothing written: {said}"))
        raise Exit(1) from None
    if takes_s is None:
        return []
    data |= {"program_s": takes_s, "completion_s": timeline.completion_s}
    times = f"{format_time(takes_s)} as {format.name} runs it, {format_time(timeline.completion_s)} as planned"
    if abs(takes_s / timeline.completion_s - 1.0) > TOLERANCE:
        more = "longer" if takes_s > timeline.completion_s else "shorter"
        data["notes"].append(
            f"the program takes {100 * abs(takes_s / timeline.completion_s - 1.0):.0f} % {more} than the plan"
        )
    return [times]


def import_(
    file: Annotated[str, Argument(help="A schedule file of another tool.")],
    source: Annotated[
        str,
        Option(
            "--from",
            help="Format: msccl, mscclpp, teccl, teccl-queued, nccl-graph, nccl-graph-trees or chakra.",
            autocompletion=arguments.complete_source,
        ),
    ],
    topology: arguments.TopologyOrDefault = None,
    output: Annotated[str | None, Option("-o", "--output", help="Write the plan to this file.")] = None,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    collective: Annotated[
        str | None, Option(help="What the rings or trees of nccl-graph do: allreduce (the default), allgather, ...")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Read a schedule of another tool as a plan, verify it, and say how long it takes: exit code 1 if it is wrong."""
    from .. import face
    from ..formats import PLAN, Size, check_writable, importers
    from ..model.units import parse_size

    if output is not None:
        check_writable(output, PLAN)
    format = find_format(importers(), source, "--from")
    if (size is None) == (shard is None) and not (size is None and format.sized):
        raise InputError("give either --size or --shard: the file does not say")
    given = [parse_size(text, name) if text is not None else None for text, name in ((size, "size"), (shard, "shard"))]
    if collective is not None and not format.collectives:
        raise InputError(f"a file of {format.name} says itself what it does", "--collective")
    if topology is None and format.topology is None:
        raise InputError("give the topology that the schedule is for", "-t")
    try:
        doing(f"reading {file}")
        net = face.request_topology(topology or (format.topology(file) if format.topology else ""))
        kind = (collective or format.collectives[0],) if format.collectives else ()
        plan = face.of_model(format.read(file, net, Size(*given), *kind))
    except Fault as fault:
        refuse(as_json, fault)
    accept(plan, as_json)
    if output is not None:
        plan.save(output)
    notes = plan.meta.get("notes", [])
    data = plan.summary() | {"file": output, "format": source, "notes": notes}

    def show() -> None:
        show_summary(data)
        for note in notes:
            print_below(f"note: {note}")

    answer(as_json, data, show)

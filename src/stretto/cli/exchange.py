"""``stretto report``, ``export`` and ``import``: write plans as pages and files, read those of other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from ..model.errors import InputError
from .arguments import (
    FileArgument,
    JsonOption,
    ShardOption,
    SizeOption,
    TopologyOption,
    complete_format,
    complete_source,
)
from .output import answer, print_line, show_summary
from .work import accept, judge, read_foreign, read_verified, show_progress


def report(
    files: Annotated[list[str], typer.Argument(help="Plan files.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Write the page to this file, or a picture if it ends in .svg.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Draw plans on one HTML page that works offline, or as one picture (.svg)."""
    from ..face import draw

    plans = []
    for i, file in enumerate(files):
        show_progress(i, len(files), file)
        plans.append(read_verified(file, as_json))
    draw(output, plans)
    show_progress(len(files), len(files), "done")
    answer(as_json, {"file": output, "plans": len(files)}, lambda: print_line(f"wrote {output}"))


def export(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", help="Name of the format.", autocompletion=complete_format)],
    output: Annotated[
        str, typer.Option("-o", "--output", help="The file to write; for a table of `tune`, the folder.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Write a plan in another format, or all plans of a table of ``tune`` into a folder."""
    from ..choose.tuning import is_tuning
    from ..formats import exporters
    from ..simulate import simulate as run
    from .tuning import export_table, show_exported

    formats = exporters()
    if to not in formats:
        raise InputError(f"there is no format {to!r}; there are {', '.join(formats)}", "--to")
    if is_tuning(file):
        exported = export_table(file, formats[to], output)
        answer(as_json, exported, lambda: show_exported(exported))
        return
    notes = list(formats[to].write(run(read_verified(file, as_json)), output) or ())
    data = {"file": output, "format": formats[to].name, "notes": notes}
    answer(as_json, data, lambda: print_line("\n".join([f"wrote {output}", *(f"note: {note}" for note in notes)])))


def import_(
    file: Annotated[str, typer.Argument(help="A schedule file of another tool.")],
    source: Annotated[str, typer.Option("--from", help="Name of the format.", autocompletion=complete_source)],
    topology: TopologyOption,
    output: Annotated[str, typer.Option("-o", "--output", help="Write the plan to this file.")],
    size: SizeOption = None,
    shard: ShardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a schedule of another tool as a plan, verify it, and say how long it takes."""
    from ..report.facts import plan_facts

    plan = read_foreign(file, source, topology, size, shard)
    accept(plan, as_json)
    plan.save(output)
    data = plan_facts(*judge(plan), True) | {"file": output, "format": source}
    answer(as_json, data, lambda: show_summary(data))

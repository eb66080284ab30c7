"""``stretto report``, ``export`` and ``import``: plans out as pages and files, and in from other tools."""

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
    output: Annotated[str, typer.Option("-o", "--output", help="The page to write, or a picture if it ends in .svg.")],
    as_json: JsonOption = False,
) -> None:
    """Draw plans on one page that needs no network, or as one picture (.svg)."""
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
    to: Annotated[str, typer.Option("--to", help="The format.", autocompletion=complete_format)],
    output: Annotated[str, typer.Option("-o", "--output", help="The file to write; for a table, the folder.")],
    as_json: JsonOption = False,
) -> None:
    """Write a plan in another format, or all plans of a table of ``tune`` into a folder."""
    from ..choose.tuning import is_tuning
    from ..formats import exporters
    from ..simulate import simulate as run
    from .tuning import export_table, show_exported

    known = exporters()
    if to not in known:
        raise InputError(f"there is no format {to!r}; there are {', '.join(known)}", "--to")
    if is_tuning(file):
        made = export_table(file, known[to], output)
        answer(as_json, made, lambda: show_exported(made))
        return
    notes = list(known[to].write(run(read_verified(file, as_json)), output) or ())
    data = {"file": output, "format": known[to].name, "notes": notes}
    answer(as_json, data, lambda: print_line("\n".join([f"wrote {output}", *(f"note: {note}" for note in notes)])))


def import_(
    file: Annotated[str, typer.Argument(help="A schedule of another tool.")],
    source: Annotated[str, typer.Option("--from", help="The format.", autocompletion=complete_source)],
    topology: TopologyOption,
    output: Annotated[str, typer.Option("-o", "--output", help="Write the plan here.")],
    size: SizeOption = None,
    shard: ShardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a schedule of another tool as a plan, verify it and say how long it takes."""
    from ..report.facts import plan_facts

    plan = read_foreign(file, source, topology, size, shard)
    accept(plan, as_json)
    plan.save(output)
    data = plan_facts(*judge(plan), True) | {"file": output, "format": source}
    answer(as_json, data, lambda: show_summary(data))

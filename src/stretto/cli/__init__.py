"""The command line. It knows everything and is known by nothing.

What costs time to import is imported where it is used, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, StrettoError
from .output import (
    answer,
    print_line,
    print_table,
    refuse,
    show_bounds,
    show_rows,
    show_summary,
    show_times,
    show_topology,
)
from .work import (
    Request,
    chunk_count,
    describe,
    judged,
    read_verified,
    show_progress,
    summary,
    times,
    verified,
    write_topology,
)

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..timeline import Timeline

app = typer.Typer(
    name="stretto",
    help="Plan, verify, bound and simulate collectives over networks that are not uniform.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# --- what is completed by tab -------------------------------------------------------------------


def _complete_topology(incomplete: str) -> list[tuple[str, str]]:
    from ..topologies import catalogue

    return [(f.example, f.summary) for f in catalogue() if f.example.startswith(incomplete.partition(":")[0])]


def _complete_planner(incomplete: str) -> list[tuple[str, str]]:
    from ..planners import registered

    return [(e.name, e.summary) for e in registered().values() if e.name.startswith(incomplete)]


def _complete_collective(incomplete: str) -> list[str]:
    from ..collective import ALLTOALLV, KINDS

    return [kind for kind in (*KINDS, ALLTOALLV) if kind.startswith(incomplete)]


def _complete_format(incomplete: str) -> list[str]:
    from ..formats import exporters

    return [name for name in exporters() if name.startswith(incomplete)]


def _complete_source(incomplete: str) -> list[str]:
    from ..formats import importers

    return [name for name in importers() if name.startswith(incomplete)]


CollectiveArgument = Annotated[
    str, typer.Argument(help="What must happen, or several by comma.", autocompletion=_complete_collective)
]
TopologyOption = Annotated[
    str, typer.Option("-t", "--topology", help="A spec such as ndv2:4, or a file.", autocompletion=_complete_topology)
]
PlannerOption = Annotated[
    str,
    typer.Option(
        "-p",
        "--planner",
        help="A planner, and refiners of its plan: PLANNER[+REFINER...]",
        autocompletion=_complete_planner,
    ),
]
SizeOption = Annotated[str | None, typer.Option("--size", help="The full buffer, as nccl-tests count it.")]
ShardOption = Annotated[str | None, typer.Option("--shard", help="One rank's share of the buffer.")]
DemandOption = Annotated[
    str | None,
    typer.Option("--demand", help="A CSV file, a row a sender and a column a receiver, of an alltoallv; no size then."),
]
ChunksOption = Annotated[int, typer.Option("--chunks", help="Into how many chunks each piece is cut.", min=1)]
RootOption = Annotated[int, typer.Option("--root", help="The rank that rooted collectives start from or end at.")]
OptionsOption = Annotated[list[str] | None, typer.Option("--option", help="An option of a planner, name=value.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Equal seeds, equal plans.")]
LimitOption = Annotated[float | None, typer.Option("--time-limit", help="Seconds that planning may take.", min=0.0)]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else there.")]
FileArgument = Annotated[str, typer.Argument(help="A plan file.")]


# --- commands -----------------------------------------------------------------------------------


@app.command()
def topologies(
    topology: Annotated[
        str | None, typer.Argument(help="Describe this one.", autocompletion=_complete_topology)
    ] = None,
    plot: Annotated[str | None, typer.Option("--plot", help="Draw it to this SVG file.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Write it as json, graphml or astra-sim, with -o.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="The file that --to writes.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the built-in topologies, describe one, or write one in another format."""
    from ..topologies import catalogue, load_topology

    if topology == "zoo":
        from ..topologies.zoo import networks

        names = networks()
        answer(as_json, {"zoo": names}, lambda: print_line(", ".join(f"zoo:{name}" for name in names)))
        return
    if topology is None:
        rows: list[dict[str, Any]] = [
            {
                "spec": f.pattern,
                "summary": f.summary,
                "example": f.example,
                "options": [{"name": s.name, "default": s.default, "help": s.help} for s in f.settings],
            }
            for f in catalogue()
        ]
        answer(
            as_json,
            {"topologies": rows},
            lambda: print_table(
                "", ("spec", "what", "options"),
                [(r["spec"], r["summary"], ", ".join(o["name"] for o in r["options"])) for r in rows],
            ),
        )  # fmt: skip
        return
    net = load_topology(topology)
    if plot is not None:
        from ..report.drawing import write_svg

        write_svg(net, plot)
    data = describe(net) | write_topology(net, to, output)
    answer(as_json, data | ({"plot": plot} if plot else {}), lambda: show_topology(data, plot))


@app.command()
def planners(as_json: JsonOption = False) -> None:
    """List the planners and refiners."""
    from ..planners import registered

    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "kind": "refiner" if e.refines else "planner",
            "summary": e.summary,
            "collectives": list(e.collectives),
            "topologies": e.topologies,
            "paper": e.paper,
            "exact": e.exact,
            "options": [
                {"name": o.name, "default": o.default, "help": o.help, "choices": list(o.choices)} for o in e.options
            ],
        }
        for e in registered().values()
    ]

    def show() -> None:
        for r in rows:
            how = "exact" if r["exact"] else "heuristic"
            print_table(f"{r['name']}, a {how} {r['kind']}: {r['summary']}", ("", ""), [
                ("collectives", ", ".join(r["collectives"])), ("topologies", r["topologies"]), ("paper", r["paper"]),
                *[(f"--option {o['name']}={o['default']}",
                   o["help"] + (f" ({', '.join(map(str, o['choices']))})" if o["choices"] else ""))
                  for o in r["options"]],
            ])  # fmt: skip

    answer(as_json, {"planners": rows}, show)


@app.command()
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
    time_limit: LimitOption = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Verify the plan.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a plan, verify it, simulate it, and print a summary."""
    from ..formats.native import write_plan

    request = Request(collective, topology, size, shard, chunks, root, demand)
    made = request.plan(planner, seed, time_limit, option)
    verdict = verified(made) if check else None
    if verdict is not None and not verdict.ok:
        refuse(made, verdict, as_json)
    timeline, limits = judged(made)
    if output is not None:
        write_plan(made, output)
    data = summary(timeline, limits, verdict) | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_summary(data))


@app.command()
def replan(
    file: FileArgument,
    telemetry: Annotated[str, typer.Option("--telemetry", help="A JSON file: measured links, what is down, when.")],
    at: Annotated[str | None, typer.Option("--at", help="When, in the plan's time; instead of the file's.")] = None,
    planner: Annotated[
        str | None,
        typer.Option("-p", "--planner", help="Who plans; as before by default.", autocompletion=_complete_planner),
    ] = None,
    option: OptionsOption = None,
    seed: SeedOption = 0,
    time_limit: LimitOption = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write the new plan here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan again what is left of a plan, on the network as it is now."""
    from ..formats.native import write_plan
    from .replanning import answer_of, plan_again, show_answer

    old = read_verified(file, as_json)
    done = plan_again(old, telemetry, at, planner, option, seed, time_limit)
    data: dict[str, Any] = {}
    if done.plan is not None:
        verdict = verified(done.plan)
        if not verdict.ok:
            refuse(done.plan, verdict, as_json)
        timeline, limits = judged(done.plan)
        data = summary(timeline, limits, verdict)
        if output is not None:
            write_plan(done.plan, output)
            data["file"] = output
    data |= answer_of(old, done)
    answer(as_json, data, lambda: show_answer(data))
    if data["lost_count"]:
        raise typer.Exit(1)


@app.command()
def verify(file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a plan file: exit code 0 if it is correct, 1 if not."""
    from ..formats.native import read_plan

    subject = read_plan(file)
    started = time.process_time()
    verdict = verified(subject)
    if not verdict.ok:
        refuse(subject, verdict, as_json)
    data = {
        "verified": True,
        "file": file,
        "transfers": subject.transfer_count,
        "verify_cpu_s": time.process_time() - started,
        "digest": subject.digest(),
    }
    answer(as_json, data, lambda: print_line(f"{file}: correct ({subject.transfer_count} transfers)"))


@app.command()
def simulate(
    file: FileArgument,
    barriers: Annotated[
        bool, typer.Option("--barriers/--no-barriers", help="Whether steps wait for each other, if the plan says so.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Say how long a plan takes, and which links are busiest."""
    from ..units import format_size

    timeline, limits = judged(read_verified(file, as_json), barriers)
    net = timeline.plan.topology
    order = sorted(range(net.link_count), key=lambda i: -timeline.link_use[i])
    links = [
        {
            "link": i,
            "src": net.names[net.src[i]],
            "dst": net.names[net.dst[i]],
            "bytes": int(timeline.link_bytes[i]),
            "use": float(timeline.link_use[i]),
        }
        for i in order
        if timeline.link_bytes[i]
    ]
    data = times(timeline, limits) | {"links": links}

    def show() -> None:
        show_times(data)
        rows = [(f"{r['src']}→{r['dst']}", format_size(r["bytes"]), f"{100 * r['use']:.1f} %") for r in links[:10]]
        print_table("busiest links", ("link", "carried", "use"), rows)

    answer(as_json, data, show)


@app.command()
def run(
    file: FileArgument,
    paced: Annotated[
        float | None,
        typer.Option("--paced", help="Keep the plan's starts and rates; so many seconds for one of its.", min=0.0),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a process may be silent.", min=0.1)] = 60.0,
    seed: Annotated[int, typer.Option("--seed", help="Of the bytes.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a plan: a process a node, real bytes over TCP on this machine, the result checked byte for byte."""
    from .running import check, run_answer, show_run

    subject = read_verified(file, as_json)
    data = run_answer(subject, file, seed, paced, timeout)
    answer(as_json, data, lambda: show_run(data))
    check(data)


@app.command()
def emulate(
    file: Annotated[str | None, typer.Argument(help="A plan file.")] = None,
    scale: Annotated[
        float | None,
        typer.Option("--scale", help="Divide bandwidths by this; fit for this machine by default.", min=1e-6),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a process may be silent.", min=0.1)] = 60.0,
    clean: Annotated[bool, typer.Option("--clean", help="Only remove what killed emulations left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a plan on its own network, built of network namespaces with shaped links (needs root)."""
    from .running import check, clean_answer, emulate_answer, show_run

    if clean:
        removed = clean_answer()
        answer(as_json, {"removed": removed}, lambda: print_line(f"removed {len(removed)} namespaces"))
        return
    if file is None:
        raise InputError("give a plan file, or --clean", "FILE")
    data = emulate_answer(read_verified(file, as_json), file, scale, timeout)
    answer(as_json, data, lambda: show_run(data))
    check(data)


@app.command()
def show(
    file: FileArgument,
    transfers: Annotated[int, typer.Option("--transfers", help="How many to list.", min=0)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a plan file."""
    from ..formats.native import read_plan
    from ..units import format_size, format_time

    timeline, limits = judged(read_plan(file))
    subject = timeline.plan
    names = subject.topology.names
    rows: list[dict[str, Any]] = [
        {
            "transfer": k,
            "chunk": int(subject.chunk[k]),
            "op": ("copy", "reduce")[subject.op[k]],
            "src": names[subject.src[k]],
            "dst": [names[v] for v in subject.dst[k]],
            "route": [subject.topology.link_name(i) for i in subject.route[k]],
            "size_bytes": int(subject.size_bytes[k]),
            "depends": subject.depends[k].tolist(),
            "start_s": float(timeline.start_s[k]),
            "finish_s": float(timeline.finish_s[k]),
        }
        for k in range(min(transfers, subject.transfer_count))
    ]
    data = summary(timeline, limits, None) | {"file": file, "meta": subject.meta, "transfer_rows": rows}

    def print_it() -> None:
        show_summary(data)
        print_table(f"first {len(rows)} of {subject.transfer_count} transfers",
               ("", "chunk", "from", "to", "size", "after", "start", "finish"),
               [(str(r["transfer"]), str(r["chunk"]), r["src"], ", ".join(r["dst"]), format_size(r["size_bytes"]),
                 " ".join(map(str, r["depends"])), format_time(r["start_s"]), format_time(r["finish_s"]))
                for r in rows])  # fmt: skip

    answer(as_json, data, print_it)


@app.command()
def bound(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    demand: DemandOption = None,
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Bound only plans with so many indivisible chunks a piece.", min=1)
    ] = None,
    root: RootOption = 0,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw the network to this SVG file, the best bound's links in red.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what no plan can beat, and why, and which link to widen."""
    from ..bounds import bounds
    from .bounding import certificates

    request = Request(collective, topology, size, shard, chunks or 1, root, demand)
    found = bounds(request.topology, request.workload, whole_chunks=bool(chunks))
    names = request.topology.names
    rows: list[dict[str, Any]] = [
        {
            "bound_s": b.seconds,
            "kind": b.kind,
            "witness": b.witness,
            "nodes": [names[v] for v in b.nodes],
            "links": [request.topology.link_name(i) for i in b.links],
        }
        for b in found
    ]
    total = sum(c.size_bytes for c in request.workload.collectives)
    data = request.header() | {
        "bound_s": found[0].seconds,
        "algorithm_bandwidth_bound": total / found[0].seconds if found[0].seconds else None,
        "bounds": rows,
        "certificates": [certificates(request.topology, c) for c in request.workload.collectives],
    }
    if plot is not None:
        from ..report.drawing import write_svg

        write_svg(request.topology, plot, emphasised=found[0].links)
        data["plot"] = plot
    answer(as_json, data, lambda: show_bounds(data))


@app.command()
def compare(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    demand: DemandOption = None,
    planner: PlannerOption = "mtegcca",
    chunks: Annotated[str, typer.Option("--chunks", help="Chunks a piece, or several by comma.")] = "1",
    root: RootOption = 0,
    option: OptionsOption = None,
    seed: SeedOption = 0,
    time_limit: LimitOption = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Write a page here.")] = None,
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
    rows: list[dict[str, Any]] = []
    pages: list[tuple[Timeline, tuple[Bound, ...]]] = []
    for i, (text, count, name) in enumerate(cells):
        show_progress(i, len(cells), f"{name}, {text}")
        request = Request(collective, topology, text if size else None, text if shard else None, count, root, demand)
        try:
            made = request.plan(name, seed, time_limit, option)
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
        from ..report import write_page

        write_page(output, [p[0] for p in pages], [p[1] for p in pages])
    if not pages:
        raise StrettoError(f"no planner could: {rows[0]['failed']}")
    data = {"rows": rows} | ({"file": output} if output else {})
    answer(as_json, data, lambda: show_rows(rows, output))


MOST_ROWS = 200
"""A study of more cells prints one row a scheme; the page has the rest."""


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="mtegcca, scale-ccl, swot or wan")],
    full: Annotated[bool, typer.Option("--full", help="Every cell, hours of solving included.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="The folder for results and page.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a paper's evaluation again: tables, JSON and a page of figures."""
    from ..studies import find_study, run_study, write_study
    from ..studies.page import COLUMNS, SUMMARY, summary_rows, table_rows

    chosen = find_study(name)
    result = run_study(chosen, full=full, seed=seed, progress=show_progress)
    files = write_study(result, chosen, output or f"study-{name}")

    def print_it() -> None:
        if len(result["rows"]) <= MOST_ROWS:
            print_table(chosen.title, COLUMNS, table_rows(result["rows"]))
        print_table(chosen.title, SUMMARY, summary_rows(result["rows"]))
        for table in result["tables"]:
            print_table(table["title"], table["columns"], table["rows"])
        if result["skipped"]:
            reasons = sorted({s["why"] for s in result["skipped"]})
            print_line(f"{len(result['skipped'])} cells skipped ({'; '.join(reasons)}); --full runs them")
        for t in result["trends"]:
            order = " > ".join(t["slowest_first"])
            print_line(f"figure {t['figure']}, published order {order}: at {t['held']} of {t['points']} points")
        print_line(f"written: {', '.join(files)}")

    answer(as_json, result | {"files": files}, print_it)


@app.command()
def report(
    files: Annotated[list[str], typer.Argument(help="Plan files.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The page to write.")],
    as_json: JsonOption = False,
) -> None:
    """Draw plans on one page that needs no network."""
    from ..report import write_page

    drawn = []
    for i, file in enumerate(files):
        show_progress(i, len(files), file)
        drawn.append(judged(read_verified(file, as_json)))
    write_page(output, [t for t, _ in drawn], [limits for _, limits in drawn])
    show_progress(len(files), len(files), "done")
    answer(as_json, {"file": output, "plans": len(files)}, lambda: print_line(f"wrote {output}"))


@app.command()
def export(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", help="The format.", autocompletion=_complete_format)],
    output: Annotated[str, typer.Option("-o", "--output", help="The file to write.")],
    as_json: JsonOption = False,
) -> None:
    """Write a plan in another format."""
    from ..formats import exporters
    from ..simulate import simulate as run

    known = exporters()
    if to not in known:
        raise InputError(f"there is no format {to!r}; there are {', '.join(known)}", "--to")
    notes = list(known[to].write(run(read_verified(file, as_json)), output) or ())
    data = {"file": output, "format": known[to].name, "notes": notes}
    answer(as_json, data, lambda: print_line("\n".join([f"wrote {output}", *(f"note: {note}" for note in notes)])))


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A schedule of another tool.")],
    source: Annotated[str, typer.Option("--from", help="The format.", autocompletion=_complete_source)],
    topology: TopologyOption,
    output: Annotated[str, typer.Option("-o", "--output", help="Write the plan here.")],
    size: SizeOption = None,
    shard: ShardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a schedule of another tool as a plan, verify it and say how long it takes."""
    from ..formats.native import write_plan
    from .work import read_foreign

    made = read_foreign(file, source, topology, size, shard)
    verdict = verified(made)
    if not verdict.ok:
        refuse(made, verdict, as_json)
    write_plan(made, output)
    data = summary(*judged(made), verdict) | {"file": output, "format": source}
    answer(as_json, data, lambda: show_summary(data))


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except StrettoError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        sys.stderr.write("error: this needs more memory than there is; ask for less\n")
        sys.exit(2)


def main() -> None:
    """The ``stretto`` command."""
    with _errors_in_one_line():
        app()


if __name__ == "__main__":
    main()

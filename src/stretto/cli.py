"""The command line. It knows everything and is known by nothing.

What costs time to import is imported where it is used, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .errors import InputError, StrettoError

if TYPE_CHECKING:
    from .bounds import Bound
    from .plan import Plan
    from .timeline import Timeline
    from .topology import Topology
    from .verify import Verdict

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
    from .topologies import catalogue

    return [(f.example, f.summary) for f in catalogue() if f.example.startswith(incomplete.partition(":")[0])]


def _complete_planner(incomplete: str) -> list[tuple[str, str]]:
    from .planners import registered

    return [(e.name, e.summary) for e in registered().values() if e.name.startswith(incomplete)]


def _complete_collective(incomplete: str) -> list[str]:
    from .collective import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _complete_format(incomplete: str) -> list[str]:
    from .formats import exporters

    return [name for name in exporters() if name.startswith(incomplete)]


CollectiveArgument = Annotated[
    str, typer.Argument(help="What must happen, or several by comma.", autocompletion=_complete_collective)
]
TopologyOption = Annotated[
    str, typer.Option("-t", "--topology", help="A spec such as ndv2:4, or a file.", autocompletion=_complete_topology)
]
PlannerOption = Annotated[
    str, typer.Option("-p", "--planner", help="PLANNER[+REFINER...]", autocompletion=_complete_planner)
]
SizeOption = Annotated[str | None, typer.Option("--size", help="The full buffer, as nccl-tests count it.")]
ShardOption = Annotated[str | None, typer.Option("--shard", help="One rank's share of the buffer.")]
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
    as_json: JsonOption = False,
) -> None:
    """List the built-in topologies, or describe one."""
    from .topologies import catalogue, load_topology

    if topology == "zoo":
        from .topologies.zoo import networks

        names = networks()
        _answer(as_json, {"zoo": names}, lambda: _print(", ".join(f"zoo:{name}" for name in names)))
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
        _answer(
            as_json,
            {"topologies": rows},
            lambda: _table(
                "", ("spec", "what", "options"),
                [(r["spec"], r["summary"], ", ".join(o["name"] for o in r["options"])) for r in rows],
            ),
        )  # fmt: skip
        return
    net = load_topology(topology)
    if plot is not None:
        from .report.drawing import write_svg

        write_svg(net, plot)
    data = _describe(net)
    _answer(as_json, data | ({"plot": plot} if plot else {}), lambda: _show_topology(data, plot))


@app.command()
def planners(as_json: JsonOption = False) -> None:
    """List the planners and refiners."""
    from .planners import registered

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
            _table(f"{r['name']}, a {how} {r['kind']}: {r['summary']}", ("", ""), [
                ("collectives", ", ".join(r["collectives"])), ("topologies", r["topologies"]), ("paper", r["paper"]),
                *[(f"--option {o['name']}={o['default']}",
                   o["help"] + (f" ({', '.join(map(str, o['choices']))})" if o["choices"] else ""))
                  for o in r["options"]],
            ])  # fmt: skip

    _answer(as_json, {"planners": rows}, show)


@app.command()
def plan(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    planner: PlannerOption = "mtegcca",
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
    from .formats.native import write_plan

    request = _Request(collective, topology, size, shard, chunks, root)
    made = request.plan(planner, seed, time_limit, option)
    verdict = _verified(made) if check else None
    if verdict is not None and not verdict.ok:
        _not_verified(made, verdict, as_json)
    timeline, limits = _judged(made)
    if output is not None:
        write_plan(made, output)
    data = _summary(timeline, limits, verdict) | ({"file": output} if output else {})
    _answer(as_json, data, lambda: _show_summary(data))


@app.command()
def verify(file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a plan file: exit code 0 if it is correct, 1 if not."""
    from .formats.native import read_plan

    subject = read_plan(file)
    started = time.process_time()
    verdict = _verified(subject)
    if not verdict.ok:
        _not_verified(subject, verdict, as_json)
    data = {
        "verified": True,
        "file": file,
        "transfers": subject.transfer_count,
        "verify_cpu_s": time.process_time() - started,
        "digest": subject.digest(),
    }
    _answer(as_json, data, lambda: _print(f"{file}: correct ({subject.transfer_count} transfers)"))


@app.command()
def simulate(file: FileArgument, as_json: JsonOption = False) -> None:
    """Say how long a plan takes, and which links are busiest."""
    from .formats.native import read_plan

    timeline, limits = _judged(read_plan(file))
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
    data = _times(timeline, limits) | {"links": links}

    def show() -> None:
        _show_times(data)
        rows = [(f"{r['src']}→{r['dst']}", _size(r["bytes"]), f"{100 * r['use']:.1f} %") for r in links[:10]]
        _table("busiest links", ("link", "carried", "use"), rows)

    _answer(as_json, data, show)


@app.command()
def show(
    file: FileArgument,
    transfers: Annotated[int, typer.Option("--transfers", help="How many to list.", min=0)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a plan file."""
    from .formats.native import read_plan
    from .units import format_time

    timeline, limits = _judged(read_plan(file))
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
    data = _summary(timeline, limits, None) | {"file": file, "meta": subject.meta, "transfer_rows": rows}

    def print_it() -> None:
        _show_summary(data)
        _table(f"first {len(rows)} of {subject.transfer_count} transfers",
               ("", "chunk", "from", "to", "size", "after", "start", "finish"),
               [(str(r["transfer"]), str(r["chunk"]), r["src"], ", ".join(r["dst"]), _size(r["size_bytes"]),
                 " ".join(map(str, r["depends"])), format_time(r["start_s"]), format_time(r["finish_s"]))
                for r in rows])  # fmt: skip

    _answer(as_json, data, print_it)


@app.command()
def bound(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Bound only plans with so many indivisible chunks a piece.", min=1)
    ] = None,
    root: RootOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Say what no plan can beat, and why."""
    from .bounds import bounds

    request = _Request(collective, topology, size, shard, chunks or 1, root)
    smallest = float(request.workload.chunk_bytes.min()) if chunks else None
    found = bounds(request.topology, request.workload, smallest)
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
    }
    from .units import format_time

    _answer(
        as_json,
        data,
        lambda: _table("lower bounds, the best first", ("bound", "kind", "because of"),
                       [(format_time(r["bound_s"]), r["kind"], r["witness"]) for r in rows]),
    )  # fmt: skip


@app.command()
def compare(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
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
    if (size is None) == (shard is None):
        raise InputError("give either --size or --shard", "size")
    counts = [_count(text) for text in chunks.split(",")]
    cells = [
        (text, count, name)
        for text in (size or shard or "").split(",")
        for count in counts
        for name in planner.split(",")
    ]
    rows: list[dict[str, Any]] = []
    pages: list[tuple[Timeline, tuple[Bound, ...]]] = []
    for i, (text, count, name) in enumerate(cells):
        _progress(i, len(cells), f"{name}, {text}")
        request = _Request(collective, topology, text if size else None, text if shard else None, count, root)
        try:
            made = request.plan(name, seed, time_limit, option)
            verdict = _verified(made)
            if not verdict.ok:
                raise StrettoError(f"the plan does not verify: {verdict.finding.message if verdict.finding else ''}")
            timeline, limits = _judged(made)
        except InputError:
            raise
        except StrettoError as error:
            rows.append(request.header() | {"planner": name, "failed": str(error)})
            continue
        rows.append(_summary(timeline, limits, verdict))
        pages.append((timeline, limits))
    _progress(len(cells), len(cells), "done")
    if output is not None and pages:
        from .report import write_page

        write_page(output, [p[0] for p in pages], [p[1] for p in pages])
    if not pages:
        raise StrettoError(f"no planner could: {rows[0]['failed']}")
    data = {"rows": rows} | ({"file": output} if output else {})
    _answer(as_json, data, lambda: _show_rows(rows, output))


@app.command()
def report(
    files: Annotated[list[str], typer.Argument(help="Plan files.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The page to write.")],
    as_json: JsonOption = False,
) -> None:
    """Draw plans on one page that needs no network."""
    from .formats.native import read_plan
    from .report import write_page

    judged = []
    for i, file in enumerate(files):
        _progress(i, len(files), file)
        judged.append(_judged(read_plan(file)))
    write_page(output, [t for t, _ in judged], [limits for _, limits in judged])
    _progress(len(files), len(files), "done")
    _answer(as_json, {"file": output, "plans": len(files)}, lambda: _print(f"wrote {output}"))


@app.command()
def export(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", help="The format.", autocompletion=_complete_format)],
    output: Annotated[str, typer.Option("-o", "--output", help="The file to write.")],
    as_json: JsonOption = False,
) -> None:
    """Write a plan in another format."""
    from .formats import exporters
    from .formats.native import read_plan
    from .simulate import simulate as run

    known = exporters()
    if to not in known:
        raise InputError(f"there is no format {to!r}; there are {', '.join(known)}", "--to")
    known[to].write(run(read_plan(file)), output)
    _answer(as_json, {"file": output, "format": known[to].name}, lambda: _print(f"wrote {output}"))


# --- work that commands share -------------------------------------------------------------------


class _Request:
    """A topology and a workload, as the command line asks for them."""

    def __init__(
        self, collectives: str, topology: str, size: str | None, shard: str | None, chunks: int, root: int
    ) -> None:
        from .collective import Workload, make_collective
        from .topologies import load_topology
        from .units import parse_size

        if (size is None) == (shard is None):
            raise InputError("give either --size or --shard", "size")
        self.topology: Topology = load_topology(topology)
        self.workload = Workload(
            tuple(
                make_collective(
                    kind,
                    self.topology,
                    parse_size(size, "--size") if size is not None else None,
                    shard_bytes=parse_size(shard, "--shard") if shard is not None else None,
                    root=root,
                    chunks=chunks,
                )
                for kind in collectives.split(",")
            )
        )

    def header(self) -> dict[str, Any]:
        return _header(self.topology, self.workload)

    def plan(self, planner: str, seed: int, time_limit_s: float | None, options: Sequence[str] | None) -> Plan:
        from .planners import run_planner

        given = {}
        for text in options or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise InputError(f"{text!r} must be name=value", "--option")
            given[name] = value
        return run_planner(
            planner,
            self.topology,
            self.workload,
            seed=seed,
            time_limit_s=time_limit_s,
            progress=_progress,
            options=given,
        )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of chunks", "--chunks")
    return int(text)


def _verified(subject: Plan) -> Verdict:
    from .verify import verify as check

    return check(subject)


def _judged(subject: Plan) -> tuple[Timeline, tuple[Bound, ...]]:
    from .bounds import bounds
    from .simulate import simulate as run

    return run(subject), bounds(subject.topology, subject.workload)


def _header(net: Topology, workload: Any) -> dict[str, Any]:
    collectives = workload.collectives
    first = collectives[0]
    return {
        "topology": net.name,
        "collective": ",".join(c.kind for c in collectives),
        "ranks": len(first.ranks),
        "size_bytes": first.size_bytes,
        "shard_bytes": first.shard_bytes,
        "chunks": int(first.chunk_count // len(first.piece_bytes)),
    }


def _times(timeline: Timeline, limits: tuple[Bound, ...]) -> dict[str, Any]:
    best = limits[0].seconds
    workload = timeline.plan.workload
    completion = timeline.completion_s
    total = sum(c.size_bytes for c in workload.collectives)
    data: dict[str, Any] = {
        "completion_s": completion,
        "bound_s": best,
        "bound_kind": limits[0].kind,
        "bound_witness": limits[0].witness,
        "completion_over_bound": completion / best if best else None,
        "algorithm_bandwidth": total / completion if completion else None,
    }
    if len(workload.collectives) > 1:
        data["mean_completion_s"] = timeline.mean_completion_s
        data["completions_s"] = timeline.completions_s.tolist()
    return data


def _summary(timeline: Timeline, limits: tuple[Bound, ...], verdict: Verdict | None) -> dict[str, Any]:
    subject = timeline.plan
    meta = subject.meta
    return (
        {"planner": meta.get("planner", "unknown")}
        | _header(subject.topology, subject.workload)
        | {"transfers": subject.transfer_count}
        | _times(timeline, limits)
        | {
            "planning_s": meta.get("planning_s"),
            "planning_cpu_s": meta.get("planning_cpu_s"),
            "verified": verdict.ok if verdict is not None else None,
            "digest": subject.digest(),
        }
    )


def _describe(net: Topology) -> dict[str, Any]:
    from collections import Counter

    from .topology import KINDS

    links = Counter(zip(net.bandwidth.tolist(), net.latency_s.tolist(), strict=True))
    return {
        "topology": net.name,
        "nodes": {KINDS[k]: int((net.kind == k).sum()) for k in range(3) if (net.kind == k).any()},
        "links": net.link_count,
        "link_kinds": [
            {"bandwidth": w, "latency_s": t, "links": count} for (w, t), count in sorted(links.items(), reverse=True)
        ],
        "sites": sorted({s for s in net.sites if s}),
        "planes": len(net.planes),
        "notes": list(net.notes),
    }


# --- output -------------------------------------------------------------------------------------


def _answer(as_json: bool, data: dict[str, Any], show: Callable[[], None]) -> None:
    if as_json:
        import json

        sys.stdout.write(json.dumps(data) + "\n")
    else:
        show()


def _not_verified(subject: Plan, verdict: Verdict, as_json: bool) -> NoReturn:
    from dataclasses import asdict

    assert verdict.finding is not None
    data = {"verified": False, "finding": asdict(verdict.finding), "transfers": subject.transfer_count}
    _answer(as_json, data, lambda: _print(f"not correct [{verdict.finding.code}]: {verdict.finding.message}"))  # type: ignore[union-attr]
    raise typer.Exit(1)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _size(size_bytes: float) -> str:
    from .units import format_size

    return format_size(size_bytes)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", show_header=any(header)
    )
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def _show_topology(data: dict[str, Any], plot: str | None) -> None:
    from .units import format_bandwidth, format_time

    rows = [("nodes", ", ".join(f"{n} {kind}s" for kind, n in data["nodes"].items()))]
    rows.append(("links", f"{data['links']}, directed"))
    for kind in data["link_kinds"][:12]:
        rows.append(
            (f"  {kind['links']} of", f"{format_bandwidth(kind['bandwidth'])}, {format_time(kind['latency_s'])}")
        )
    if len(data["link_kinds"]) > 12:
        rows.append(("", f"and {len(data['link_kinds']) - 12} more kinds"))
    if data["sites"]:
        rows.append(("sites", ", ".join(data["sites"])))
    rows += [("note", note) for note in data["notes"]]
    if plot:
        rows.append(("drawn to", plot))
    _table(data["topology"], ("", ""), rows)


def _show_times(data: dict[str, Any]) -> None:
    _table("", ("", ""), _time_rows(data))


def _time_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    from .units import format_bandwidth, format_time

    rows = [("completion", format_time(data["completion_s"]))]
    if "mean_completion_s" in data:
        rows.append(("mean completion", format_time(data["mean_completion_s"])))
    rows.append(("lower bound", f"{format_time(data['bound_s'])} ({data['bound_kind']}: {data['bound_witness']})"))
    if data["completion_over_bound"] is not None:
        rows.append(("completion / bound", f"{data['completion_over_bound']:.3f}"))
    if data["algorithm_bandwidth"] is not None:
        rows.append(("algorithm bandwidth", format_bandwidth(data["algorithm_bandwidth"])))
    return rows


def _show_summary(data: dict[str, Any]) -> None:
    from .units import format_time

    chunks = data["chunks"]
    rows = [
        ("size", f"{_size(data['size_bytes'])} ({_size(data['shard_bytes'])} a rank)"),
        ("transfers", f"{data['transfers']}, {chunks} chunk{'s' if chunks > 1 else ''} a piece"),
        *_time_rows(data),
    ]
    if data["planning_s"] is not None:
        rows.append(("planning", f"{format_time(data['planning_s'])} ({format_time(data['planning_cpu_s'])} of CPU)"))
    if data["verified"] is not None:
        rows.append(("verified", "yes"))
    if data.get("file"):
        rows.append(("file", data["file"]))
    _table(f"{data['planner']}: {data['collective']} among {data['ranks']} ranks of {data['topology']}", ("", ""), rows)


def _show_rows(rows: list[dict[str, Any]], output: str | None) -> None:
    from .units import format_bandwidth, format_time

    table = []
    for r in rows:
        start = (r["planner"], _size(r["size_bytes"]), str(r["chunks"]))
        if "failed" in r:
            table.append((*start, r["failed"], "", "", "", ""))
        else:
            table.append((*start, format_time(r["completion_s"]), format_time(r["bound_s"]),
                          f"{r['completion_over_bound']:.3f}", format_bandwidth(r["algorithm_bandwidth"]),
                          format_time(r["planning_s"])))  # fmt: skip
    first = rows[0]
    header = ("planner", "size", "chunks", "completion", "bound", "ratio", "algorithm bandwidth", "planning")
    _table(f"{first['collective']} among {first['ranks']} ranks of {first['topology']}", header, table)
    if output:
        _print(f"wrote {output}")


_STARTED = time.monotonic()


def _progress(done: int, total: int, what: str) -> None:
    """One line on stderr, for people who wait more than a second."""
    if not sys.stderr.isatty() or time.monotonic() - _STARTED < 1.0:
        return
    sys.stderr.write("\r\033[K" + (f"{what} ({done}/{total})" if done < total else ""))
    sys.stderr.flush()


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

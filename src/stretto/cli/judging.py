"""``stretto verify``, ``simulate`` and ``show``: questions to a plan file."""

from __future__ import annotations

import time
from typing import Annotated, Any

from typer import Option

from . import arguments
from .output import answer, show_summary, time_rows
from .progress import doing
from .tables import print_line, print_table
from .work import accept, judge, judge_changed, read_verified


def verify(file: arguments.File, as_json: arguments.Json = False) -> None:
    """Check a plan file: exit code 0 if it is correct, 1 if not."""
    from ..face import load

    subject = load(file)
    started = time.process_time()
    accept(subject, as_json)
    data = {
        "verified": True,
        "file": file,
        "transfers": subject.transfer_count,
        "verify_cpu_s": time.process_time() - started,
        "digest": subject.digest(),
    }
    words = f"{subject.transfer_count} transfer{'' if subject.transfer_count == 1 else 's'}"
    answer(as_json, data, lambda: print_line(f"{file}: correct ({words})"))


def simulate(
    file: arguments.File,
    barriers: Annotated[
        bool, Option("--barriers/--no-barriers", help="Whether steps wait for each other, where the plan says so.")
    ] = True,
    changes: Annotated[
        str | None,
        Option(
            help="A file that says how bandwidths change: JSON with 'changes' as in a topology file, or CSV "
            "with a first line such as at_s,src,dst,bandwidth_GBps. Default: as the plan's topology says."
        ),
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Say how long a plan takes, and which links are busiest."""
    from ..model.units import format_size
    from ..report.facts import time_facts

    subject = read_verified(file, as_json)
    timeline, limits = judge(subject, barriers) if changes is None else judge_changed(subject, changes, barriers)
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
    data = time_facts(timeline, limits) | {"links": links}

    def show() -> None:
        print_table("", ("", ""), time_rows(data))
        rows = [(f"{r['src']}→{r['dst']}", format_size(r["bytes"]), f"{100 * r['use']:.1f} %") for r in links[:10]]
        if rows:
            print_table("busiest links", ("link", "carried", "use"), rows)

    answer(as_json, data, show)


def show(
    file: arguments.File,
    transfers: Annotated[int, Option(help="Number of transfers to list.", min=0)] = 10,
    as_json: arguments.Json = False,
) -> None:
    """Show the contents of a plan file."""
    from ..face import load
    from ..model.units import format_size, format_time
    from ..report.facts import listed, plan_facts

    doing(f"reading {file}")
    timeline, limits = judge(load(file))
    subject = timeline.plan
    names = subject.topology.names
    numbers, chunk, shown = listed(timeline)
    part = shown.plan
    rows: list[dict[str, Any]] = [
        {
            "transfer": int(numbers[k]),
            "chunk": int(chunk[k]),
            "op": ("copy", "reduce")[part.op[k]],
            "src": names[part.src[k]],
            "sources": [names[v] for v in part.sources[k]],
            "dst": [names[v] for v in part.dst[k]],
            "route": [part.topology.link_name(i) for i in part.route[k]],
            "size_bytes": int(part.size_bytes[k]),
            "depends": numbers[part.depends[k]].tolist(),
            "start_s": float(shown.start_s[k]),
            "finish_s": float(shown.finish_s[k]),
        }
        | ({} if part.message is None else {"message": int(part.message[k])})
        for k in range(min(transfers, part.transfer_count))
    ]
    data = plan_facts(timeline, limits, None) | {"file": file, "meta": subject.meta, "transfer_rows": rows}

    def print_it() -> None:
        show_summary(data)
        each = f", each of which has {data['symmetry']['elements']} images" if "symmetry" in data else ""
        message = () if part.message is None else ("message",)
        print_table(f"first {len(rows)} of {part.transfer_count} transfers{each}",
               ("transfer", *message, "chunk", "from", "to", "size", "after", "start", "finish"),
               [(str(r["transfer"]), *(str(r[m]) for m in message), str(r["chunk"]), ", ".join(r["sources"]),
                 ", ".join(r["dst"]), format_size(r["size_bytes"]),
                 " ".join(map(str, r["depends"])), format_time(r["start_s"]), format_time(r["finish_s"]))
                for r in rows], ("after", "chunk", "start"))  # fmt: skip

    answer(as_json, data, print_it)

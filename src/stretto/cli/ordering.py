"""``stretto order``: which machine should get which number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..model.errors import InputError
from . import arguments
from .output import answer, message_rows
from .progress import doing, show_progress
from .tables import print_line, print_table
from .work import find_format

if TYPE_CHECKING:
    from ..face import Order

ENDINGS = {"json": ("json",), "kubernetes": ("yaml", "yml")}
"""The endings of files that orders are written to, by format; lists of hosts have any."""


def order(
    *,
    topology: arguments.Topology,
    library: Annotated[
        str,
        Option(
            help="Who carries the collectives out: nccl, gloo, mpi and others (an unknown name lists them all); "
            "torchrun is NCCL with machines sorted by name.",
            autocompletion=arguments.complete_library,
        ),
    ],
    collective: Annotated[
        str | None,
        Option(
            help="What all ranks do, or groups that do not say theirs: allreduce, allgather, alltoall, ...; pipeline "
            "sends to the next rank and back.",
            autocompletion=arguments.complete_collective,
        ),
    ] = None,
    size: arguments.Size = None,
    groups: Annotated[
        str | None,
        Option(
            help="Parallel groups, those of adjacent ranks first, with the bytes of a step: "
            "tp=8:allreduce:40GB,pp=4:pipeline:2GB,dp=16:allreduce:10GB; or a JSON file with lists of ranks.",
        ),
    ] = None,
    present: Annotated[
        str | None,
        Option(
            "--order",
            help="The present order, to compare with: names of machines separated by commas, a file with a name a "
            "line, 'topology' or 'sorted'. Default: the topology's own order; sorted for torchrun.",
        ),
    ] = None,
    machines: Annotated[
        str, Option(help="What a machine is: site (accelerators of one site) or gpu (each accelerator).")
    ] = "site",
    gpus: Annotated[bool, Option(help="Whether GPUs inside machines may be reordered, too.")] = True,
    root: arguments.Root = 0,
    effort: Annotated[
        str,
        Option(
            help="How much to try, in counted work: quick, normal or thorough.",
            autocompletion=arguments.complete_effort,
        ),
    ] = "normal",
    output: Annotated[str | None, Option("-o", "--output", help="Write the order to this file.")] = None,
    to: Annotated[
        str | None,
        Option(
            help="Format of the file: openmpi-hostfile, openmpi-rankfile, mpich-hostfile, slurm, torchrun, kubernetes "
            "or json. Default: what --json prints.",
            autocompletion=arguments.complete_order_format,
        ),
    ] = None,
    plot: Annotated[str | None, Option(help="Draw the network to this SVG file, with the links in use in red.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Find the order of machines with which NCCL, gloo or MPI end a step soonest, and prove how good it is."""
    from .. import face
    from ..formats import check_writable
    from ..report.facts import message_facts

    began, cpu = time.monotonic(), time.process_time()
    if to is not None and output is None:
        raise InputError("give a file with -o", "--to")
    if output is not None:
        from ..order.files import FILES

        find_format(FILES, to or "json", "--to")
        check_writable(output, ENDINGS.get(to or "json", ()))
    if plot is not None:
        check_writable(plot, ("svg",))
    net = face.request_topology(topology)
    doing(f"searching the order of machines of {topology}")
    found = face.order(
        net, library, collective, size, groups=groups, root=root, given=_present(present), machines=machines, gpus=gpus,
        effort=effort, progress=show_progress,
    )  # fmt: skip
    data: dict[str, Any] = found.to_json() | message_facts(net)
    data |= {"planning_s": time.monotonic() - began, "planning_cpu_s": time.process_time() - cpu}
    if output is not None:
        found.write(output, to)
        data["file"] = output
    if plot is not None:
        found.draw(plot)
        data["plot"] = plot
    answer(as_json, data, lambda: _show(found, data))


def _present(text: str | None) -> str | list[str] | None:
    """The present order: names, or the lines of a file."""
    import os

    if text is not None and os.path.isdir(text):
        raise InputError("is a folder, not a file", text)
    if text is None or not os.path.isfile(text):
        return text
    try:
        with open(text, encoding="utf-8") as file:
            lines = [line.split()[0] for line in file if line.split() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", text) from None
    return lines


def _show(found: Order, data: dict[str, Any]) -> None:
    from ..model.units import format_size, format_time

    proven = "no order ends sooner" if data["proven"] else f"no order ends before {format_time(data['bound_s'])}"
    rows = []
    for g in data["groups"]:
        each = f"{g['collective']} of {format_size(g['size_bytes'])} by {g['algorithm']}"
        many = f"{g['groups']} groups, " if g["groups"] > 1 else ""
        rows.append(
            (g["name"], f"{many}{each}: {format_time(g['before_s'])} before, {format_time(g['after_s'])} after")
        )
    rows += [
        ("before", format_time(data["before_s"])),
        ("after", f"{format_time(data['after_s'])} ({data['speedup']:.2f} times as fast)"),
        ("bound", proven),
        *message_rows(data),
    ]
    if data["gpu_order"] != sorted(data["gpu_order"]):
        rows.append(("GPUs in a machine", f"in the order {' '.join(map(str, data['gpu_order']))}"))
    rows.append(("planning", f"{format_time(data['planning_s'])} ({format_time(data['planning_cpu_s'])} of CPU)"))
    rows += [(word, data[key]) for word, key in (("file", "file"), ("drawn to", "plot")) if key in data]
    print_table(f"order of {data['machines']} machines of {data['topology']} for {data['library']}", ("", ""), rows)
    for number, name in enumerate(data["order"]):
        print_line(f"{number}\t{name}")

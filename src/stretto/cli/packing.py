"""``stretto export --to nccl``: files that a library reads for a cluster, in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.errors import InputError
from ..model.units import format_time
from .output import answer
from .tables import print_below, print_table
from .work import read_verified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.topology import Topology

NCCL = "nccl"
"""The name of the format."""


def export_pack(file: str | None, spec: str | None, gpu: str | None, output: str, as_json: bool) -> None:
    """Write the NCCL pack of a topology, or of the network of a plan or table."""
    from ..nccl.pack import make_pack, write_pack

    topology, ranks, notes = _network(file, spec, as_json)
    pack = make_pack(topology, gpu, ranks, ordered=True)
    write_pack(pack, output)
    data = pack.summary(output)
    data["notes"] = [*notes, *data["notes"]]
    answer(as_json, data, lambda: _show(data))


def _network(file: str | None, spec: str | None, as_json: bool) -> tuple[Topology, Sequence[int] | None, list[str]]:
    """The topology, the job's nodes if not all are in it, and notes."""
    from ..choose.tuning import is_tuning, read_tuning
    from ..topologies import load_topology

    if file is not None and spec is not None:
        raise InputError(f"is given beside {file}, whose network is meant; give one of the two", "--topology")
    if file is None and spec is None:
        raise InputError("give a topology (-t TOPOLOGY), or a plan or table whose network is meant")
    if spec is not None:
        return load_topology(spec), None, []
    assert file is not None
    note = "taken from it: the network alone; NCCL runs rings and trees of its own, and no plan"
    if is_tuning(file):
        table = read_tuning(file)
        topology = load_topology(table.spec)
        table.check(topology, file)
        return topology, None, [note]
    plan = read_verified(file, as_json)
    ranks = sorted({int(v) for c in plan.workload.collectives for v in c.ranks})
    return plan.topology, ranks, [note]


def _show(data: dict[str, Any]) -> None:
    rows = [
        (name, str(g["channels"]), f"{g['speed_intra_GBps']:.4g}", f"{g['speed_inter_GBps']:.4g}")
        for name, g in data["graphs"].items()
    ]
    print_table(
        f"NCCL on {data['topology']}: {data['servers']} x {data['gpus']} {data['gpu'].upper()}",
        ("graph", "channels", "GB/s inside", "GB/s between"),
        rows,
    )
    if data["ordering"] is not None:
        before_s, after_s = data["ordering"]["before_s"], data["ordering"]["after_s"]
        print_below(
            f"AllReduce of 256 MB: {format_time(before_s)}; with servers in the pack's order {format_time(after_s)}"
        )
    for name, value in data["settings"].items():
        print_below(f"setting: {name}={value}")
    changed = len({c["collective"] for c in data["changes"]})
    print_below(
        f"NCCL's own choice changes for {changed} of 5 collectives, see README.md"
        if changed
        else "NCCL's own choice of algorithm and protocol is the same at every size"
    )
    for note in data["notes"]:
        print_below(f"note: {note}")
    print_below(f"wrote {len(data['files'])} files into {data['folder']}")

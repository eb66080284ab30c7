"""``stretto bound``: lower bounds, certificates that are checked again, and the link to widen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import CollectiveArgument, DemandOption, JsonOption, RootOption, ShardOption, SizeOption, TopologyOption
from .output import answer, show_bounds
from .work import Request

if TYPE_CHECKING:
    from ..model.collective import Collective
    from ..model.topology import Topology


def certificates(net: Topology, collective: Collective, bound_s: float) -> dict[str, Any]:
    """Exact bounds of one collective by bandwidth alone, bounds by prices, and the link whose widening helps most."""
    import numpy as np

    from ..bounds import (
        best_lengths,
        best_parts,
        best_upgrade,
        bottleneck,
        check_covers,
        check_cut,
        check_lengths,
        check_parts,
        covers_bound,
        tree_rates,
    )

    data: dict[str, Any] = {"collective": collective.kind}
    if net.planes:
        return data
    cut = bottleneck(net, collective)
    if cut is not None:
        inside = {v for v in range(net.node_count) if cut.inside[v]}
        data["bottleneck"] = {
            "seconds": float(cut.seconds),
            "seconds_exact": str(cut.seconds),
            "bytes": cut.load_bytes,
            "width": float(cut.width),
            "inside": [net.names[v] for v in sorted(inside)],
            "checked": check_cut(net, collective, inside) == cut.seconds,
        }
    lengths = best_lengths(net, collective)
    if lengths is not None:
        data["flow"] = {
            "seconds": float(lengths.seconds),
            "seconds_exact": str(lengths.seconds),
            "lengths": {net.link_name(i): int(x) for i, x in enumerate(lengths.length) if x},
            "checked": check_lengths(net, collective, lengths.length.tolist()) == lengths.seconds,
        }
    parts = best_parts(net, collective)
    if parts is not None:
        sets = [set(np.flatnonzero(row).tolist()) for row in parts.inside]
        data["parts"] = {
            "seconds": float(parts.seconds),
            "seconds_exact": str(parts.seconds),
            "bytes": parts.load_bytes,
            "width": float(parts.width),
            "inside": [[net.names[v] for v in sorted(nodes)] for nodes in sets],
            "checked": check_parts(net, collective, sets) == parts.seconds,
        }
    if collective.traits.reduces_to_all:
        rates = tree_rates(net, collective.ranks)
        data["trees"] = {"seconds": collective.size_bytes / rates.rate, "rate": rates.rate}
    covers = covers_bound(net, collective, bound_s)
    if covers is not None:
        again = check_covers(net, collective, (set(covers.first), set(covers.last)), *covers.certificate)
        data["crossings"] = {
            "seconds": covers.seconds,
            "first": [net.names[v] for v in covers.first],
            "last": [net.names[v] for v in covers.last],
            "checked": abs(again - covers.seconds) <= 1e-9 * covers.seconds,
        }
    upgrade = best_upgrade(net, collective)
    if upgrade is not None:
        data["upgrade"] = {"link": net.link_name(upgrade.link), "gain": upgrade.gain, "seconds": float(upgrade.after_s)}
    return data


def bound(
    collective: CollectiveArgument,
    topology: TopologyOption,
    size: SizeOption = None,
    shard: ShardOption = None,
    demand: DemandOption = None,
    chunks: Annotated[
        int | None,
        typer.Option(
            "--chunks", help="Bound plans that cut each piece into this many chunks, and no chunk further.", min=1
        ),
    ] = None,
    root: RootOption = 0,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Draw the network to this SVG file, with the links of the best bound in red."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which time no plan can beat, why, and which link to widen."""
    from ..bounds import bounds

    request = Request.read(collective, topology, size, shard, demand, chunks or 1, root)
    limits = bounds(request.topology, request.workload, whole_chunks=bool(chunks))
    names = request.topology.names
    rows: list[dict[str, Any]] = [
        {
            "bound_s": b.seconds,
            "kind": b.kind,
            "witness": b.witness,
            "nodes": [names[v] for v in b.nodes],
            "links": [request.topology.link_name(i) for i in b.links],
        }
        for b in limits
    ]
    total = sum(c.size_bytes for c in request.workload.collectives)
    data = request.facts() | {
        "bound_s": limits[0].seconds,
        "algorithm_bandwidth_bound": total / limits[0].seconds if limits[0].seconds else None,
        "bounds": rows,
        "certificates": [certificates(request.topology, c, limits[0].seconds) for c in request.workload.collectives],
    }
    if plot is not None:
        from ..report.drawing import write_svg

        write_svg(request.topology, plot, emphasised=limits[0].links)
        data["plot"] = plot
    answer(as_json, data, lambda: show_bounds(data))

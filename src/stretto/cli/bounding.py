"""``stretto bound``: lower bounds, certificates that are checked again, and the link to widen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..model.progress import silent
from . import arguments
from .output import answer, show_bounds
from .progress import doing, show_progress
from .work import read_request

MOST_TREE_STEPS = 4e6
"""Steps (about microseconds of CPU) within which the rate of trees is said."""

MOST_CHECK_STEPS = 1_000_000
"""Ranks times links up to which the lengths of a flow are checked again, which takes some seconds then."""

if TYPE_CHECKING:
    from fractions import Fraction

    from ..model.arrays import Bool
    from ..model.collective import Collective, Workload
    from ..model.topology import Topology


def certificates(net: Topology, collective: Collective, bound_s: float, alone: bool) -> dict[str, Any]:
    """Exact bounds of one collective by bandwidth alone, bounds by prices, and the link whose widening helps most.

    Args:
        alone: whether there is no other collective: then it is said which certificate is searched.
    """
    import numpy as np

    from .. import bounds

    def names(inside: Bool) -> list[str]:
        return [net.names[v] for v in np.flatnonzero(inside)]

    def exact(seconds: Fraction, again: Fraction | None, **facts: Any) -> dict[str, Any]:
        checked = None if again is None else again == seconds
        return {"seconds": float(seconds), "seconds_exact": str(seconds)} | facts | {"checked": checked}

    search = doing if alone else lambda what: None
    data: dict[str, Any] = {"collective": collective.kind}
    net = net.at_best
    if net.planes or len(collective.ranks) > bounds.MOST_SEARCHED:
        return data
    sums, net = bool(net.reduces.any()), net.relaying
    search("searching the narrowest cut")
    cut = bounds.bottleneck(net, collective)
    if cut is not None:
        again = bounds.check_cut(net, collective, set(np.flatnonzero(cut.inside).tolist()))
        sizes = {"bytes": cut.load_bytes, "width": float(cut.width)}
        data["bottleneck"] = exact(cut.seconds, again, **sizes, inside=names(cut.inside))
    search("searching the paths that fill most links")
    prices = bounds.best_lengths(net, collective)
    if prices is not None:
        lengths = {net.link_name(i): int(x) for i, x in enumerate(prices.length) if x}
        few = len(collective.ranks) * net.link_count <= MOST_CHECK_STEPS
        same = bounds.check_lengths(net, collective, prices.length.tolist()) if few else None
        data["flow"] = exact(prices.seconds, same, lengths=lengths)
    search("searching the parts that exchange most")
    found = [(parts, way) for way in bounds.both_ways(net) if (parts := bounds.best_parts(way, collective)) is not None]
    if found:
        parts, way = max(found, key=lambda each: each[0].seconds)
        again = bounds.check_parts(way, collective, [set(np.flatnonzero(row).tolist()) for row in parts.inside])
        sizes = {"bytes": parts.load_bytes, "width": float(parts.width), "sent": way is not net}
        data["parts"] = exact(parts.seconds, again, **sizes, inside=[names(row) for row in parts.inside])
    search("packing trees")
    summed = collective.traits.reduces_to_all and not sums
    rates = bounds.tree_rates_within(MOST_TREE_STEPS, net, collective.ranks) if summed else None
    if rates is not None:
        data["trees"] = {"seconds": collective.size_bytes / rates.rate, "rate": rates.rate}
    search("searching prices of crossings")
    covers = bounds.covers_bound(net, collective, bound_s)
    if covers is not None:
        ends = (set(covers.first), set(covers.last))
        again_s = bounds.check_covers(net, collective, ends, *covers.certificate)
        data["crossings"] = {
            "seconds": covers.seconds,
            "first": [net.names[v] for v in covers.first],
            "last": [net.names[v] for v in covers.last],
            "checked": abs(again_s - covers.seconds) <= 1e-9 * covers.seconds,
        }
    search("searching the link to widen")
    upgrade = bounds.best_upgrade(net, collective, show_progress if alone else silent)
    if upgrade is not None:
        data["upgrade"] = {"link": net.link_name(upgrade.link), "gain": upgrade.gain, "seconds": float(upgrade.after_s)}
    return data


def _certificates(net: Topology, workload: Workload, bound_s: float) -> list[dict[str, Any]]:
    """The certificates of each collective; of several each is a part of the work."""
    found = []
    for number, collective in enumerate(workload.collectives):
        if len(workload.collectives) > 1:
            show_progress(number, len(workload.collectives), f"searching certificates of the {collective.kind}")
        found.append(certificates(net, collective, bound_s, len(workload.collectives) == 1))
    return found


def bound(
    *,
    collective: arguments.CollectiveOrJobs = None,
    topology: arguments.Topology,
    jobs: arguments.Jobs = None,
    size: arguments.Size = None,
    shard: arguments.Shard = None,
    demand: arguments.Demand = None,
    chunks: Annotated[
        int | None, Option(help="Bound plans that cut each piece into this many chunks, and no chunk further.", min=1)
    ] = None,
    root: arguments.Root = 0,
    plot: Annotated[
        str | None, Option(help="Draw the network to this SVG file, with the links of the best bound in red.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Say which time no plan can beat, why, and which link to widen."""
    from ..bounds import bounds, mean_bound
    from ..report.facts import request_facts, turning

    net, workload = read_request(collective, topology, size, shard, demand, jobs, chunks=chunks or 1, root=root)
    doing("computing lower bounds")
    limits = bounds(net, workload, whole_chunks=bool(chunks))
    best_s, total = limits[0].seconds, sum(c.size_bytes for c in workload.collectives)
    data = request_facts(net, workload) | {
        "bound_s": best_s,
        "bound_counts_turns": not turning(net),
        "algorithm_bandwidth_bound": total / best_s if best_s else None,
        "bounds": [
            {
                "bound_s": b.seconds,
                "kind": b.kind,
                "witness": b.witness,
                "nodes": [net.names[v] for v in b.nodes],
                "links": [net.link_name(i) for i in b.links],
            }
            for b in limits
        ],
        "certificates": _certificates(net, workload, best_s),
    }
    if len(workload.collectives) > 1:
        doing("computing bounds of the mean completion")
        mean = mean_bound(net, workload)
        data |= {"mean_bound_s": mean.seconds, "mean_bound_witness": mean.witness}
    if plot is not None:
        from ..report.drawing import write_svg

        write_svg(net, plot, emphasised=limits[0].links)
        data["plot"] = plot
    answer(as_json, data, lambda: show_bounds(data))

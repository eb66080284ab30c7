"""The data that the page draws, computed from a timeline.

Small columns are base64 of little-endian arrays; the hops of transfers are compressed, see :mod:`.hops`. Of each link
the data also says how busy the link was in each of :data:`BINS` slices of time: the network is coloured by these, and
the timeline of plans with more hops than a page holds.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Float64, Int64
from ..model.messages import chunk_by_chunk, message_count
from ..model.symmetric import SymmetricTimeline
from ..model.timeline import Timeline
from ..model.topology import KINDS
from .by_orbits import first_links, is_large, note, of_orbits, other_links
from .critical import critical_path, hop_times
from .drawing import page_land, page_scene
from .facts import message_facts, message_text, turning
from .hops import hop_data
from .layout import positions
from .planes import chain_over_planes, planes_data, uses_planes

if TYPE_CHECKING:
    from ..bounds import Bound

BINS = 240
"""Slices of time in which the use of a link is shown."""
MOST_LINKS = 6_000
"""Links up to which the page has all of them; of more, the busiest."""
POINTS = 400
"""Points of the curve of delivered bytes."""


def page_data(timeline: Timeline, bounds: Sequence[Bound]) -> dict[str, Any]:
    """Everything that the page shows of one plan, as JSON."""
    plan, net = timeline.plan, timeline.plan.topology
    best = bounds[0]
    drawn, shown, copies, images, notes = timeline, _shown_links(timeline), None, 1, list(net.notes)
    alike: dict[str, Any] | None = None
    if isinstance(timeline, SymmetricTimeline) and is_large(timeline):
        drawn, shown = of_orbits(timeline), first_links(timeline)
        symmetry = timeline.plan.symmetry
        copies, images, notes = symmetry.copies, symmetry.size, [note(timeline), *notes]
        alike = _alike(timeline)
    at = positions(net)
    first = plan.workload.collectives[0]
    return {
        "planner": plan.meta.get("planner", "unknown"),
        "topology": net.name,
        "collective": ", ".join(c.kind for c in plan.workload.collectives),
        "ranks": len(np.unique(np.concatenate([c.ranks for c in plan.workload.collectives]))),
        "size": sum(c.size_bytes for c in plan.workload.collectives),
        "chunks": first.chunk_count // first.piece_count,
        "transfers": plan.transfer_count,
        "messages": message_count(plan),
        "message": message_text(message_facts(net)),
        "completion": timeline.completion_s,
        "bound": best.seconds,
        "turnsCounted": not turning(net),
        **_mean(timeline),
        "bounds": [{"seconds": b.seconds, "kind": b.kind, "witness": b.witness} for b in bounds],
        "witness": {
            "nodes": list(best.nodes),
            "links": [int(np.searchsorted(shown, i)) for i in best.links if i in set(shown.tolist())],
        },
        "planning": plan.meta.get("planning_s"),
        "geographic": net.geographic,
        "cost": timeline.cost_usd if net.usd_per_byte.any() else None,
        "land": page_land(net),
        "scene": page_scene(net),
        "notes": notes,
        "names": list(net.names),
        "kinds": [KINDS[k] for k in net.kind],
        "sums": net.reduces.tolist() if net.reduces.any() else [],
        "sites": list(net.sites),
        "x": _pack(at[:, 0], np.float32),
        "y": _pack(at[:, 1], np.float32),
        "links": {
            "all": net.link_count,
            "src": _pack(net.src[shown], np.int32),
            "dst": _pack(net.dst[shown], np.int32),
            "bandwidth": _pack(net.bandwidth[shown], np.float64),
            "latency": _pack(net.latency_s[shown], np.float64),
            "message": _pack(net.message_s[shown], np.float64),
            "bytes": _pack(timeline.link_bytes[shown], np.float64),
            "use": _pack(timeline.link_use[shown], np.float32),
            "bins": _pack(np.round(255 * use_by_bin(drawn, shown, BINS, copies)), np.uint8),
        },
        "alike": alike,
        "changes": _changes(timeline, shown),
        "binCount": BINS,
        "delivered": _delivered(drawn, images),
        "path": chain_over_planes(timeline) if uses_planes(plan) else critical_path(drawn),
        **planes_data(timeline),
        "hops": hop_data(chunk_by_chunk(drawn), shown),
    }


def _alike(timeline: SymmetricTimeline) -> dict[str, Any]:
    """The links that rows of orbits stand for: their ends and the row; none where there are too many to draw."""
    net, (links, rows) = timeline.plan.topology, other_links(timeline)
    drawn = slice(None) if len(links) <= MOST_LINKS else slice(0)
    ends = {"src": _pack(net.src[links][drawn], np.int32), "dst": _pack(net.dst[links][drawn], np.int32)}
    return ends | {"row": _pack(rows[drawn], np.int32)}


def _mean(timeline: Timeline) -> dict[str, Any]:
    """The mean completion of several collectives, and its bound."""
    from ..bounds import mean_bound

    plan = timeline.plan
    if len(plan.workload.collectives) < 2:
        return {}
    bound = mean_bound(plan.topology, plan.workload)
    return {"mean": timeline.mean_completion_s, "meanBound": bound.seconds, "meanWitness": bound.witness}


def _pack(values: NDArray[Any], kind: type) -> str:
    little = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def _shown_links(timeline: Timeline) -> Int64:
    """The links that the page shows: all of them, or the busiest."""
    count = timeline.plan.topology.link_count
    if count <= MOST_LINKS:
        return np.arange(count)
    return np.sort(np.argsort(-timeline.link_use, kind="stable")[:MOST_LINKS])


def use_by_bin(timeline: Timeline, shown: Int64, bins: int, copies: Int64 | None = None) -> Float64:
    """float64[links, bins]: the share of each link's bandwidth that was used in each slice of time.

    The bytes of a hop up to time t are a ramp. The bytes in a slice are the difference of the sums of all ramps at its
    two edges.

    Args:
        copies: int64[links], how many images of each hop a link carries at the same time; by default one.
    """
    plan, link = timeline.plan, timeline.plan.route.values
    begin, end = hop_times(timeline)
    edges = np.linspace(0, timeline.completion_s or 1.0, bins + 1)
    width = edges[1]
    rate = plan.size_bytes[plan.route.owners] / np.maximum(end - begin, 1e-300) / plan.topology.bandwidth[link]
    rate = rate if copies is None else rate * copies[link]
    carried = np.zeros((plan.topology.link_count, bins + 2))
    for sign, moment in ((1.0, begin), (-1.0, end)):
        # a ramp that starts within bin b adds its rest there and a full width from b + 1 on
        b = np.clip((moment / width).astype(np.int64), 0, bins)
        rest = np.clip(edges[np.minimum(b + 1, bins)] - moment, 0, width) * (b < bins)
        np.add.at(carried, (link, b), sign * rate * rest)
        np.add.at(carried, (link, b + 1), sign * rate * (width - rest))
    share: Float64 = np.cumsum(carried, axis=1)[:, :bins] / width
    net = plan.topology
    if net.changes:
        # of what each link can carry in a slice, in parts of what it could at first
        could = np.diff([net.changes.carried_bytes(net.bandwidth, edge) for edge in edges.tolist()], axis=0).T
        could /= net.bandwidth[:, None] * width
        share = np.divide(share, could, out=np.zeros_like(share), where=could > 0)
    return np.clip(share, 0, 1)[shown]


def _changes(timeline: Timeline, shown: Int64) -> dict[str, Any] | None:
    """The steps of the links that are shown, None if there are none."""
    changes = timeline.plan.topology.changes.of_links(shown)
    if not changes:
        return None
    columns = {"link": _pack(changes.link, np.int32), "at": _pack(changes.at_s, np.float64)}
    return columns | {"bandwidth": _pack(changes.bandwidth, np.float64)}


def _delivered(timeline: Timeline, images: int) -> dict[str, Any]:
    """What :func:`delivered` says, for the page.

    Args:
        images: how many transfers each of the plan stands for.
    """
    moments, amounts, total = delivered(timeline)
    return {"total": images * total, "t": _pack(moments, np.float64), "bytes": _pack(images * amounts, np.float64)}


def delivered(timeline: Timeline) -> tuple[Float64, Float64, float]:
    """Bytes that ranks wanted and had received, at a few hundred moments.

    Returns:
        The moments, seconds; the bytes received by each; all bytes that ranks want.
    """
    plan, work = timeline.plan, timeline.plan.workload
    nodes = plan.topology.node_count
    holders, wanted = work.chunk_holders, work.chunk_wanted
    keys = wanted.owners * nodes + wanted.values
    if not work.chunk_reduces.any():
        keys = keys[~np.isin(keys, holders.owners * nodes + holders.values)]
    total = float(work.chunk_bytes[keys // nodes].sum())
    owners = plan.dst.owners
    arrived = plan.chunk[owners].astype(np.int64) * nodes + plan.dst.values
    # a sum is complete with its last part, a copy with its first arrival
    order = np.argsort(timeline.arrival_s, kind="stable")
    _, first = np.unique(arrived[order], return_index=True)
    _, last = np.unique(arrived[order][::-1], return_index=True)
    sums = work.chunk_reduces[np.unique(arrived) // nodes]
    final = order[np.where(sums, len(order) - 1 - last, first)]
    final = final[np.isin(arrived[final], keys)]
    final = final[np.argsort(timeline.arrival_s[final], kind="stable")]
    moments = timeline.arrival_s[final]
    amounts = np.cumsum(plan.size_bytes[owners[final]])
    keep = np.unique(np.linspace(0, max(len(final) - 1, 0), POINTS).astype(int))[: len(final)]
    return moments[keep], amounts[keep].astype(np.float64), total

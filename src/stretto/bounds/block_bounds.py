"""The bounds of a collective among many ranks, of which many look alike, from blocks of their group (:mod:`.blocks`).

One bound of each kind, as :func:`stretto.bounds.bounds` gives them, in time near linear in links: what is computed for
each rank in a search is computed for one rank of each orbit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ..model.arrays import Bool, Float64
from ..model.collective import Collective, Promised, Workload
from ..model.symmetry import Symmetry
from ..model.topology import Topology
from .block_parts import Partition, partitions
from .block_reach import BlockReach, longest_way
from .block_windows import PartWindows, links_of_parts
from .blocks import Block, Blocks, bytes_into, from_node, load_into, rank_symmetry, spread
from .cuts import as_bound
from .exact import cuts_among_alike
from .growth import GRAIN, MOST_STEPS, GrowthModel, growth_words
from .latency import delayed_between_stores, path, weights
from .messages import LEAST_SHARE, cost_at_ends
from .model import Bound
from .reach import least
from .storing import LEAST_SHARE as LEAST_PAIR_SHARE
from .storing import ends_of, storing_words, ways

MOST_SEARCHED = 512
"""Ranks up to which cuts, partitions and lengths are searched for. A search may find better ones where latency counts,
and takes half a second of CPU among 512 ranks."""


def bounds_by_blocks(topology: Topology, workload: Workload) -> list[Bound] | None:
    """Bounds of a workload among many ranks of which many look alike; None for other workloads, which need a search."""
    if topology.planes or topology.changes:
        return None
    if not all(len(c.ranks) > MOST_SEARCHED and is_even(c) for c in workload.collectives):
        return None
    found: list[Bound] = []
    for c in workload.collectives:
        symmetry = rank_symmetry(topology, c)
        if symmetry is None:
            return None
        found += block_bounds(topology, c, symmetry)
    return found


def is_even(c: Collective) -> bool:
    """Whether its kind and size say what its pieces are, however these are cut into chunks."""
    if not c.traits.general or isinstance(c, Promised) or not c.traits.whole:
        return isinstance(c, Promised) and c.traits.general
    pieces, holders, wanted = c.traits.promise(len(c.ranks), c.size_bytes, c.root)
    pairs = zip((c.piece_bytes, *c.holders, *c.wanted), (pieces, *holders, *wanted), strict=True)
    return all(np.array_equal(np.asarray(told), np.asarray(promised)) for told, promised in pairs)


def block_bounds(topology: Topology, c: Collective, symmetry: Symmetry) -> list[Bound]:
    """The bounds of a collective whose pieces its kind and size say.

    Args:
        symmetry: see :func:`.blocks.rank_symmetry`.
    """
    light = delayed_between_stores(topology).relaying
    blocks = blocks_of(topology, c, symmetry)
    found = [_latency_path(blocks, topology.delayed, c), *_at_size(light, c, symmetry)]
    more = heavier(topology, c)
    if more is not None:
        net, larger = more
        for bound in _at_size(net.relaying, larger, symmetry):
            found.append(replace(bound, witness=f"{bound.witness}, with messages counted as bytes"))
    known_s = max((bound.seconds for bound in found if bound is not None), default=c.start_s) - c.start_s
    found += [_storing(blocks, c, known_s), _growth(blocks, c, known_s)]
    return [bound for bound in found if bound is not None]


def blocks_of(topology: Topology, c: Collective, symmetry: Symmetry) -> Blocks:
    """The blocks of a collective's ranks."""
    ranks = np.zeros(topology.node_count, dtype=np.bool_)
    ranks[c.ranks] = True
    return Blocks(replace(symmetry, topology=topology), ranks, int(c.ranks[max(c.root, 0)]))


def _at_size(topology: Topology, c: Collective, symmetry: Symmetry) -> list[Bound]:
    """Cuts, parts and flows, where messages cost nothing."""
    blocks = blocks_of(topology, c, symmetry)
    found = [*_cuts(blocks, c), *_turned_cuts(blocks, c)]
    if c.traits.reduces_to_all:
        found += [_parts(partition, c) for partition in partitions(blocks)]
    if c.traits.pieces == "pair":
        found += [_flow(blocks, c, length) for length in (None, topology.bandwidth)]
    return found


def heavier(topology: Topology, c: Collective) -> tuple[Topology, Collective] | None:
    """The network and the collective of :func:`.messages.without_messages`, without listing pieces; None as there."""
    counted = topology.message_bytes
    count = 1 if c.traits.whole else len(c.ranks)
    if counted.max(initial=0.0) < LEAST_SHARE * c.size_bytes / count:
        return None
    least, pieces = int(counted.min()), len(c.ranks) ** 2 if c.traits.pieces == "pair" else count
    if least < pieces and counted.max() == counted.min():
        return None
    largest = c.size_bytes * (pieces // count)
    slower = topology.bandwidth * (largest + least) / (largest + counted)
    net = replace(topology, bandwidth=slower, message_s=np.zeros(topology.link_count))
    return net, _as(c, c.kind, c.size_bytes + least // pieces * count)


def _as(c: Collective, kind: str, size_bytes: int) -> Collective:
    return Promised(kind, c.ranks, size_bytes, c.root, c.start_s, c.weight, 1)


def _sets(blocks: Blocks, c: Collective) -> Iterator[Block]:
    """Sets whose cuts are tried: blocks and complements of them; where there is a root, with it and without."""
    for own in blocks.sets():
        other = blocks.toggled(own) if c.traits.rooted else None
        for ranks in (own, blocks.ranks & ~own) if other is None else (own, other):
            yield blocks.block(ranks)
            if other is not None:
                yield blocks.block(blocks.ranks & ~ranks)
    for inside in _bottlenecks(blocks, c):
        yield Block(inside, inside & blocks.ranks)


def _bottlenecks(blocks: Blocks, c: Collective) -> Iterator[Bool]:
    """The cuts with the largest ratios of bytes to width, as :mod:`.exact` finds them, where no rank is special."""
    t, kind = blocks.topology, c.traits
    if kind.rooted or kind.reduces_to_all:
        return
    weight, alike = blocks.ranks.astype(np.int64), blocks.symmetry.node_orbits.astype(np.int64)
    asked = [(blocks.leads, kind.reduces)]
    if kind.pieces == "pair":
        asked = [(blocks.leads[k : k + 1], backward) for k in range(len(blocks.leads)) for backward in (False, True)]
    for sinks, backward in asked:
        yield from [*cuts_among_alike(t, weight, sinks, backward, len(asked), alike)][-1:]


def _cuts(blocks: Blocks, c: Collective) -> list[Bound]:
    """The best cut of each kind: around one rank, around all but one, and others."""
    t, reach = blocks.topology, BlockReach(blocks, c)
    sets: list[tuple[float, float, float, int, Block]] = []
    for number, block in enumerate(_sets(blocks, c)):
        width = float(t.bandwidth[~block.inside[t.src] & block.inside[t.dst]].sum())
        load = bytes_into(c, block)
        if load and width:
            sets.append((load / width, load, width, number, block))
    best: dict[int, tuple[float, Block, float, float]] = {}
    slack_s = 2 * longest_way(blocks) + c.start_s
    for simple, load, width, _, block in sorted(sets, key=lambda one: (-one[0], one[3])):
        count = int(block.ranks.sum())
        kind = 1 if count == 1 else -1 if count == len(c.ranks) - 1 else 0
        # times of arrival and the way inside add at most two longest ways to what bandwidth alone says
        if kind in best and simple + slack_s < best[kind][0]:
            continue
        entering = load_into(t, c, block)
        seconds = max(entering.seconds(width) if entering else 0.0, reach.seconds(block) if reach.serves else 0.0)
        if kind not in best or seconds > best[kind][0]:
            best[kind] = seconds, block, load, width
    return [as_bound(t, block.inside, seconds, load, width) for seconds, block, load, width in best.values()]


def _turned_cuts(blocks: Blocks, c: Collective) -> Iterator[Bound]:
    """Sums that one rank wants each, backward in time on the reversed network, as in :mod:`.cuts`."""
    mirror = c.traits.mirror
    if not c.reduces or c.traits.reduces_to_all or mirror is None:
        return
    t = blocks.topology
    back = replace(t, src=t.dst, dst=t.src)
    turned = Blocks(replace(blocks.symmetry, topology=back), blocks.ranks, blocks.centre)
    for bound in _cuts(turned, _as(c, mirror, c.size_bytes)):
        inside = np.ones(t.node_count, dtype=np.bool_)
        inside[list(bound.nodes)] = False
        load = bytes_into(c, Block(inside, blocks.ranks & inside))
        width = float(t.bandwidth[~inside[t.src] & inside[t.dst]].sum())
        yield as_bound(t, inside, bound.seconds, load, width)


def _parts(partition: Partition, c: Collective) -> Bound:
    """The parts of an AllReduce, where each link into one counts in its window alone."""
    windows, t = PartWindows(partition), partition.blocks.topology
    entries = [(part.times, *windows.waits(number)) for number, part in enumerate(partition.parts)]
    waits = np.concatenate([waits for _, _, waits in entries])
    width = np.concatenate([times * t.bandwidth[links] for times, links, _ in entries])
    count = partition.count
    seconds = c.start_s + least(waits, width, 2.0 * (count - 1) * c.size_bytes)
    each = "ranks" if count == len(c.ranks) else "parts"
    words = f"each byte must be received at least {2 * (count - 1)} times until all {count} {each} have its sum"
    return Bound(seconds, "parts", words, tuple(range(t.node_count)), tuple(links_of_parts(partition).tolist()))


def _latency_path(blocks: Blocks, topology: Topology, c: Collective) -> Bound | None:
    """The longest way from a rank to another, from a rank of each orbit; or from the root, or to it."""
    backward = c.traits.wanted == "root"
    starts = blocks.leads[:1] if c.traits.rooted else blocks.leads
    far = np.stack([from_node(topology, int(v), topology.latency_s, backward) for v in starts])
    row, at = np.unravel_index(int(far[:, c.ranks].argmax()), (len(starts), len(c.ranks)))
    lead, other = int(starts[row]), int(c.ranks[at])
    if not np.isfinite(far[row, other]):
        return None
    ends = (other, lead) if backward else (lead, other)
    from_start = from_node(topology, ends[0], topology.latency_s) if backward else far[row]
    nodes, links = path(topology, ends, from_start, 0.0)
    words = "→".join(topology.names[v] for v in nodes)
    return Bound(c.start_s + float(far[row, other]), "latency path", f"the way {words}", nodes, links)


def _flow(blocks: Blocks, c: Collective, bandwidth: Float64 | None) -> Bound:
    """The flow bound of data that is not copied, as in :mod:`.lengths`.

    Args:
        bandwidth: if given, a link is as long as a byte takes on it, else of length 1.
    """
    t = blocks.topology
    length = np.ones(t.link_count) if bandwidth is None else bandwidth.max() / bandwidth
    means = np.array([from_node(t, int(v), length)[c.ranks].mean() for v in blocks.leads])
    mean = float(means @ blocks.orbit_sizes) / len(c.ranks)
    needed = mean * float(len(c.ranks)) ** 2 * (c.size_bytes // len(c.ranks))
    words = f"a byte takes {mean:.3g} hops on average, over all {t.link_count} links"
    if bandwidth is not None:
        words = f"on average a byte takes {mean:.3g} times as long on its way as on the fastest link"
    every = tuple(range(t.node_count)), tuple(range(t.link_count))
    return Bound(c.start_s + needed / float((length * t.bandwidth).sum()), "flow", words, *every)


def _growth(blocks: Blocks, c: Collective, known_s: float) -> Bound | None:
    """See :mod:`.growth`: what look alike can have equally many contributions.

    Args:
        known_s: seconds after the start, another bound; where this one cannot be better it is not computed.
    """
    t, ranks = blocks.topology, blocks.ranks
    if c.traits.held == "root" or t.reduces.any() or not cost_at_ends(t):
        return None
    others = np.unique(blocks.symmetry.node_orbits[t.adds & ~ranks])
    adding = np.sort(np.concatenate((blocks.leads, others)))
    links = np.flatnonzero(np.isin(t.dst, adding))
    if not len(links):
        return None
    way_s = np.empty(len(links))
    for node in adding.tolist():
        beside = np.where(t.adds, 0.0, np.inf)
        beside[node] = np.inf
        own = t.dst[links] == node
        way_s[own] = spread(t, beside, t.latency_s)[t.src[links[own]]] + t.latency_s[links[own]]
    step_s = float((way_s + t.message_s[links]).min()) / GRAIN
    if not known_s < step_s * MOST_STEPS < np.inf:
        return None
    model = GrowthModel.of(t, links, adding, way_s[None], step_s)
    wanting = np.searchsorted(adding, blocks.leads[:1] if c.traits.wanted == "root" else blocks.leads)
    grown = model.grow(ranks[adding].astype(np.float64), wanting, len(c.ranks))
    seconds = c.start_s + step_s * int((grown[:, wanting] < len(c.ranks)).sum(axis=0).max())
    return Bound(
        seconds, "messages", growth_words(step_s, len(c.ranks)), tuple(c.ranks.tolist()), tuple(links.tolist())
    )


def _stored_from(node: int, topology: Topology, size_bytes: float) -> Float64:
    """float64[nodes], seconds in which a message is stored at each node on its way from one."""
    return from_node(topology, node, weights(topology, size_bytes))


def _storing(blocks: Blocks, c: Collective, known_s: float) -> Bound | None:
    """See :mod:`.storing`: a pair of ranks that looks like any pair begins at a lead.

    Args:
        known_s: seconds after the start, another bound; where this one can hardly be better it is not computed.
    """
    t = blocks.topology
    size = c.size_bytes // (1 if c.traits.whole else len(c.ranks))
    out, into = (np.bincount(ends, t.bandwidth, t.node_count) for ends in (t.src, t.dst))
    narrowest = min(float(width[blocks.leads].min()) for width in (out, into))
    if not cost_at_ends(t) or not narrowest or size / narrowest < LEAST_PAIR_SHARE * known_s:
        return None
    first, last = ends_of(t)
    found: list[tuple[float, int, int, float]] = []
    # what all contribute to the root comes from a rank of any orbit, and goes to one of the root's orbit
    receives = blocks.lead_of == 0 if c.traits.wanted == "root" else blocks.ranks
    for lead in (blocks.leads[:1] if c.traits.held == "root" else blocks.leads).tolist():
        way_s, stored = ways(t, partial(_stored_from, lead), lead)
        others = np.flatnonzero(receives & (np.arange(t.node_count) != lead))
        leaving_s, count = first.passed_s(lead, float(size), stored[others])
        entering_s, _ = last.passed_s(others, float(size), stored[others])
        seconds = way_s[others] + leaving_s + entering_s
        if len(others):
            k = int(seconds.argmax())
            found.append((float(seconds[k]), lead, int(others[k]), float(count[k])))
    if not found:
        return None
    best_s, start, end, messages = max(found)
    words = storing_words(t, float(size), (start, end), messages)
    return Bound(c.start_s + best_s, "storing", words, (start, end), ())

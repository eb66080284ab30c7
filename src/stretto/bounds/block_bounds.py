"""The bounds of a collective among many ranks that all look alike, from blocks of their group (:mod:`.blocks`).

One bound of each kind, as :func:`stretto.bounds.bounds` gives them, in time near linear in links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..model.arrays import Float64
from ..model.collective import Collective, Promised, Workload
from ..model.symmetry import Symmetry
from ..model.topology import Topology
from .block_windows import block_waits
from .blocks import Block, Blocks, from_node, load_into, rank_symmetry, spread
from .cuts import as_bound
from .growth import GRAIN, MOST_STEPS, GrowthModel, growth_words
from .latency import delayed_between_stores, path, weights
from .messages import LEAST_SHARE, fewest_bytes
from .model import Bound
from .reach import least
from .storing import LEAST_SHARE as LEAST_PAIR_SHARE
from .storing import storing_words, ways

MOST_SEARCHED = 512
"""Ranks up to which cuts, partitions and lengths are searched for. A search may find better ones where latency counts,
and takes half a second of CPU among 512 ranks."""


def bounds_by_blocks(topology: Topology, workload: Workload) -> list[Bound] | None:
    """Bounds of a workload among many ranks that look alike; None for other workloads, which need a search."""
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
        symmetry: a group that maps each rank to every other one.
    """
    light = delayed_between_stores(topology).relaying
    found = [_latency_path(topology.delayed, c), *_at_size(light, c, symmetry)]
    more = heavier(topology, c)
    if more is not None:
        net, larger = more
        for bound in _at_size(net.relaying, larger, symmetry):
            found.append(replace(bound, witness=f"{bound.witness}, with what messages count as"))
    known_s = max((bound.seconds for bound in found if bound is not None), default=c.start_s) - c.start_s
    found += [_storing(topology, c, known_s), _growth(topology, c, known_s)]
    return [bound for bound in found if bound is not None]


def _at_size(topology: Topology, c: Collective, symmetry: Symmetry) -> list[Bound]:
    """Cuts, parts and flows, where messages cost nothing."""
    ranks = np.zeros(topology.node_count, dtype=np.bool_)
    ranks[c.ranks] = True
    blocks = Blocks(replace(symmetry, topology=topology), ranks, _centre(c))
    found = [*_cuts(blocks, c), *_turned_cuts(blocks, c)]
    if c.traits.reduces_to_all and np.array_equal(ranks, topology.adds):
        found += [_parts(blocks, block, c) for block in blocks.whole()]
    if c.traits.pieces == "pair":
        found += [_flow(topology, c, length) for length in (None, topology.bandwidth)]
    return [bound for bound in found if bound is not None]


def _centre(c: Collective) -> int:
    """The root, or any rank."""
    return int(c.ranks[max(c.root, 0)])


def heavier(topology: Topology, c: Collective) -> tuple[Topology, Collective] | None:
    """The network and the collective of :func:`.messages.without_messages`, without listing pieces; None as there."""
    counted = fewest_bytes(topology)
    count = 1 if c.traits.whole else len(c.ranks)
    if counted.max(initial=0.0) < LEAST_SHARE * c.size_bytes / count:
        return None
    more, largest = int(counted.min()), -(-c.size_bytes // count)
    slower = topology.bandwidth * (largest + more) / (largest + counted)
    net = replace(topology, bandwidth=slower, message_s=np.zeros(topology.link_count))
    return net, _as(c, c.kind, c.size_bytes + more * count)


def _as(c: Collective, kind: str, size_bytes: int) -> Collective:
    return Promised(kind, c.ranks, size_bytes, c.root, c.start_s, c.weight, 1)


def _sets(blocks: Blocks, c: Collective) -> Iterator[Block]:
    """Sets whose cuts are tried: blocks, halves, their complements; for a rooted kind also images without the root."""
    for block in (*blocks.whole(), *blocks.halves()):
        yield block
        yield blocks.complement(block)
        if c.traits.rooted:
            other = blocks.elsewhere(block)
            yield other
            yield blocks.complement(other)


def _cuts(blocks: Blocks, c: Collective) -> list[Bound]:
    """The best cut of each kind: around one rank, around all but one, and others."""
    best: dict[int, tuple[float, Block, float, float]] = {}
    t = blocks.topology
    for block in _sets(blocks, c):
        width = float(t.bandwidth[~block.inside[t.src] & block.inside[t.dst]].sum())
        load = load_into(t, c, block)
        count = int(block.ranks.sum())
        kind = 1 if count == 1 else -1 if count == len(c.ranks) - 1 else 0
        if load is not None and width:
            seconds = load.seconds(width)
            if kind not in best or seconds > best[kind][0]:
                best[kind] = seconds, block, load.total_bytes, width
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
        load = load_into(t, c, Block((), inside, blocks.ranks & inside))
        width = float(t.bandwidth[~inside[t.src] & inside[t.dst]].sum())
        yield as_bound(t, inside, bound.seconds, load.total_bytes if load else 0.0, width)


def _parts(blocks: Blocks, block: Block, c: Collective) -> Bound:
    """The images of a block as parts of an AllReduce."""
    links, waits = block_waits(blocks, block)
    count = len(c.ranks) // int(block.ranks.sum())
    load = 2.0 * (count - 1) * c.size_bytes / count  # into each part, on the mean
    seconds = c.start_s + least(waits, blocks.topology.bandwidth[links], load)
    each = "ranks" if count == len(c.ranks) else "parts"
    words = f"each byte must be received at least {2 * (count - 1)} times until all {count} {each} have its sum"
    t = blocks.topology
    images = np.unique(blocks.symmetry.link_orbits[links])
    entered = np.flatnonzero(np.isin(blocks.symmetry.link_orbits, images))
    return Bound(seconds, "parts", words, tuple(range(t.node_count)), tuple(entered.tolist()))


def _latency_path(topology: Topology, c: Collective) -> Bound | None:
    """The longest way from a rank to another: all ranks look alike, so it begins or ends at any of them."""
    centre, backward = _centre(c), c.traits.wanted == "root"
    far = from_node(topology, centre, topology.latency_s, backward)
    other = int(c.ranks[far[c.ranks].argmax()])
    if not np.isfinite(far[other]):
        return None
    ends = (other, centre) if backward else (centre, other)
    from_start = from_node(topology, ends[0], topology.latency_s) if backward else far
    nodes, links = path(topology, ends, from_start, 0.0)
    words = "→".join(topology.names[v] for v in nodes)
    return Bound(c.start_s + float(far[other]), "latency path", f"the way {words}", nodes, links)


def _flow(topology: Topology, c: Collective, bandwidth: Float64 | None) -> Bound:
    """The flow bound of data that is not copied, as in :mod:`.lengths`.

    Args:
        bandwidth: if given, a link is as long as a byte takes on it, else of length 1.
    """
    length = np.ones(topology.link_count) if bandwidth is None else bandwidth.max() / bandwidth
    mean = float(from_node(topology, _centre(c), length)[c.ranks].mean())
    needed = mean * float(len(c.ranks)) ** 2 * (c.size_bytes // len(c.ranks))
    words = f"a byte takes {mean:.3g} hops on average, over all {topology.link_count} links"
    if bandwidth is not None:
        words = f"on average a byte takes {mean:.3g} times as long on its way as on the fastest link"
    every = tuple(range(topology.node_count)), tuple(range(topology.link_count))
    return Bound(c.start_s + needed / float((length * topology.bandwidth).sum()), "flow", words, *every)


def _growth(topology: Topology, c: Collective, known_s: float) -> Bound | None:
    """See :mod:`.growth`: where all ranks look alike, so do the contributions that each can have.

    Args:
        known_s: seconds after the start, another bound; where this one cannot be better it is not computed.
    """
    t, centre = topology, _centre(c)
    if not c.reduces or t.reduces.any() or not t.message_s.all() or (t.adds.sum() != len(c.ranks)):
        return None
    links = np.flatnonzero(t.dst == centre)
    if not len(links):
        return None
    beside = np.where(t.adds, 0.0, np.inf)
    beside[centre] = np.inf
    way_s = (spread(t, beside, t.latency_s)[t.src[links]] + t.latency_s[links])[None]
    step_s = float((way_s[0] + t.message_s[links]).min()) / GRAIN
    if not known_s < step_s * MOST_STEPS < np.inf:
        return None
    model = GrowthModel.of(t, links, np.array([centre]), way_s, step_s)
    grown = model.grow(np.ones(1), np.zeros(1, dtype=np.int64), len(c.ranks))
    seconds = c.start_s + step_s * int((grown[:, 0] < len(c.ranks)).sum())
    return Bound(
        seconds, "messages", growth_words(step_s, len(c.ranks)), tuple(c.ranks.tolist()), tuple(links.tolist())
    )


def _storing(topology: Topology, c: Collective, known_s: float) -> Bound | None:
    """See :mod:`.storing`: a pair of ranks that looks like any pair begins at the centre.

    Args:
        known_s: seconds after the start, another bound; where this one can hardly be better it is not computed.
    """
    t, centre = topology, _centre(c)
    message_bytes = float(fewest_bytes(t).min(initial=np.inf))
    size = c.size_bytes // (1 if c.traits.whole else len(c.ranks))
    out, into = (float(t.bandwidth[ends == centre].sum()) for ends in (t.src, t.dst))
    if not 0 < message_bytes < np.inf or not min(out, into) or size / min(out, into) < LEAST_PAIR_SHARE * known_s:
        return None
    way_s, way_s_per_byte = ways(t, lambda net, size: from_node(net, centre, weights(net, size)), centre)
    others = c.ranks[c.ranks != centre]
    mean_s_per_byte = (1 / out + 1 / into) / 2
    chunks = np.maximum(np.sqrt(way_s_per_byte[others] * size / (message_bytes * mean_s_per_byte)), 1.0)
    seconds = way_s[others] + (size + chunks * message_bytes) * mean_s_per_byte + way_s_per_byte[others] * size / chunks
    k = int(seconds.argmax())
    ends = centre, int(others[k])
    words = storing_words(t, float(size), ends, float(chunks[k]))
    return Bound(c.start_s + float(seconds[k]), "storing", words, ends, ())

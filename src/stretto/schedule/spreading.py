"""AllGather, ReduceScatter and AllReduce along one dimension of a product of graphs (:mod:`.products`) after the other.

Along a dimension a block goes from neighbour to neighbour, all that goes the same way in one message. The first
dimension carries the fewest bytes, the last one the most, and each is idle while others are at work. So blocks are cut
into parts, which go along the dimensions in other orders at the same time: on a torus one begins with each dimension.

In an AllReduce parts are scattered and gathered so, sums being copies with time reversed. Two neighbours then send each
other a message to scatter and later one to gather. If they exchange whole sums, one message each is enough. So nodes
may do that along the last dimensions, where each two on a line are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations, zip_longest
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.kinds import BY_NAME, Kind
from ..model.plan import COPY, REDUCE
from .algorithms import Step
from .gossip import Line, candidate
from .job_loads import Candidate
from .products import Product

PARTS = (1, 2, 3, 4, 6, 8)
"""Parts of a block that may go along the dimensions in other orders."""

MOST_PERMUTED = 3
"""Dimensions up to which all their orders are tried; of more only those that begin with each."""


class InTurn(NamedTuple):
    """A way to go along one dimension after the other.

    Attributes:
        orders: of the dimensions.
        share: int64[orders], how many parts go in each.
        split: from this place on in its order, whole sums are exchanged.
        least_s: how long the busiest link of some dimension is busy, seconds, if links of a dimension are alike.
    """

    orders: list[tuple[int, ...]]
    share: Int64
    split: int
    least_s: float


def ways_in_turn(product: Product, kind: str, lines: Sequence[Line], block_bytes: float) -> Iterator[InTurn]:
    """The best shares of orders for each number of parts, and of dimensions along which whole sums are exchanged.

    Args:
        lines: what a message takes along each dimension.
        block_bytes: of a block: of an AllReduce the data divided by the ranks.
    """
    traits, size_bytes = BY_NAME[kind], block_bytes * product.node.size
    slowest = sorted(range(len(lines)), key=lambda axis: -lines[axis].s_per_byte)
    # first those that begin with each dimension: all of them at the same time never use one twice
    orders = [(*slowest[first:], *slowest[:first]) for first in range(len(lines))]
    if len(lines) <= MOST_PERMUTED:
        orders += [order for order in permutations(slowest) if order not in orders]
    for exchanged in range(len(lines) + 1) if traits.reduces_to_all else (0,):
        split, passes = len(lines) - exchanged, 2 if traits.reduces_to_all else 1
        alike: dict[int, list[tuple[int, ...]]] = {}  # by the blocks into which they cut the data
        for order in orders:
            if all((product.far[axis] <= 1).all() for axis in order[split:]):
                alike.setdefault(_blocks(product, order[:split]), []).append(order)
        for able in alike.values():
            busy_s = np.array([_busy_s(product, order, split, passes, lines, size_bytes) for order in able])
            before = set[bytes]()
            for parts in PARTS:
                every = combinations_with_replacement(range(len(able)), parts)
                shares = np.array([np.bincount(each, minlength=len(able)) for each in every])
                dimension_s, order_s = _taken_s(shares, busy_s)
                best = int(np.maximum(dimension_s, order_s).argmin())
                share = shares[best] // np.gcd.reduce(shares[best])
                if share.tobytes() not in before:
                    before.add(share.tobytes())
                    yield InTurn(able, share, split, float(dimension_s[best]))


def spread_in_turn(
    product: Product, kind: str, lines: Sequence[Line], block_bytes: float, most: float
) -> Iterator[Candidate]:
    """The algorithms of :func:`ways_in_turn`.

    Args:
        most: blocks that may be sent in all, over all steps.
    """
    traits = BY_NAME[kind]
    pieces = product.node.size if traits.reduces_to_all else 1
    for way in ways_in_turn(product, kind, lines, block_bytes):
        used = way.share > 0
        orders = [order for order, is_used in zip(way.orders, used.tolist(), strict=True) if is_used]
        found, share = [_through(product, order, way.split, traits) for order in orders], way.share[used]
        blocks = _blocks(product, orders[0][: way.split]) if traits.reduces_to_all else 1
        sent = sum(n * len(step.block) for n, steps in zip(share.tolist(), found, strict=True) for step in steps)
        if sent <= most and blocks * share.sum() <= block_bytes * pieces:
            summary, exchanged = "from neighbour to neighbour, one dimension after the other", len(lines) - way.split
            if len(orders) > 1:
                summary += f", in {len(orders)} orders at the same time"
            if exchanged:
                summary += f", whole sums along the last {exchanged if exchanged > 1 else ''}".rstrip()
            yield candidate(kind, _in_parts(found, share), blocks * int(share.sum()), summary)


def _blocks(product: Product, chain: tuple[int, ...]) -> int:
    """Into how many blocks the data of an AllReduce is cut that is scattered along some dimensions."""
    return int(np.prod([product.shape[axis] for axis in chain], dtype=np.int64))


def _taken_s(shares: Int64, busy_s: Float64) -> tuple[Float64, Float64]:
    """float64[choices], how long the busiest dimension is busy if parts go in these shares of the orders, seconds; and
    how long the slowest part takes if it goes along one dimension after the other, in one slice.

    Args:
        shares: int64[choices, orders].
        busy_s: float64[orders, 2, dimensions], see :func:`_busy_s`.
    """
    used, part = shares > 0, shares / shares.sum(axis=1, keepdims=True)
    dimension_s = used @ busy_s[:, 0] + part @ busy_s[:, 1]
    order_s = used * busy_s[:, 0].sum(axis=1) + part * busy_s[:, 1].sum(axis=1)
    return dimension_s.max(axis=1), order_s.max(axis=1)


def _busy_s(
    product: Product, order: tuple[int, ...], split: int, passes: int, lines: Sequence[Line], size_bytes: float
) -> Float64:
    """float64[2, dimensions], how long messages and bytes keep the link of each dimension busy that carries most,
    seconds, if all goes in one order.

    Args:
        passes: 2 if blocks are scattered and gathered.
    """
    busy_s, block_bytes = np.zeros((2, len(lines))), size_bytes / _blocks(product, order[:split])
    part_bytes = block_bytes
    for axis in order[:split]:
        messages, blocks = _most_carried(product, axis, passes)
        busy_s[:, axis] = messages * lines[axis].message_s, blocks * part_bytes * lines[axis].s_per_byte
        part_bytes *= product.shape[axis]
    for axis in order[split:]:
        busy_s[:, axis] = lines[axis].message_s, block_bytes * lines[axis].s_per_byte
    return busy_s


def _most_carried(product: Product, axis: int, passes: int) -> tuple[int, int]:
    """Messages and blocks of the link along a dimension that carries most blocks, if those of all places reach all.

    Args:
        passes: 2 if they are scattered before; then what comes over a link went back over the opposite one.
    """
    count, far = product.shape[axis], product.far[axis]
    origin, goal = np.divmod(np.arange(count * count), count)
    apart = origin != goal
    origin, goal = origin[apart], goal[apart]
    link = product.following[axis][0][goal, origin] * count + goal
    blocks = np.bincount(link, minlength=count * count)
    steps = np.unique(link * (1 + int(far.max())) + far[origin, goal]) // (1 + int(far.max()))
    messages = np.bincount(steps, minlength=count * count)
    if passes == 2:
        back = np.arange(count * count).reshape(count, count).T.ravel()
        blocks, messages = blocks + blocks[back], messages + messages[back]
    most = int(blocks.argmax())
    return int(messages[most]), int(blocks[most])


def _in_parts(ways: Sequence[Sequence[Step]], share: Int64) -> list[Step]:
    """The steps of all parts of blocks: parts in the same order go together, and other orders at the same time."""
    together, parts, first = [], int(share.sum()), 0
    for steps, count in zip(ways, share.tolist(), strict=True):
        part = first + np.arange(count)[:, None]
        first += count
        if count:
            together.append(
                [
                    Step((s.block * parts + part).ravel(), np.tile(s.src, count), np.tile(s.dst, count), s.op)
                    for s in steps
                ]
            )
    return [step for steps in zip_longest(*together) for step in steps if step is not None]


def _through(product: Product, chain: tuple[int, ...], split: int, traits: Kind) -> list[Step]:
    """The steps along one dimension after the other; from place ``split`` on nodes exchange whole sums."""
    gather = _gathered(product, chain[:split])
    scatter = [Step(s.block, s.dst, s.src, REDUCE) for s in reversed(gather)] if traits.reduces else []
    swaps = [_swapped(product, axis, chain[:split]) for axis in chain[split:]]
    return [*scatter, *swaps, *(gather if traits.reduces_to_all or not traits.reduces else [])]


def _gathered(product: Product, chain: tuple[int, ...]) -> list[Step]:
    """The steps in which blocks reach all nodes along some dimensions, one after the other, from the nodes with each
    coordinates in these."""
    nodes = product.node.size
    origin, goal = np.divmod(np.arange(nodes**2), nodes)
    beside = [axis for axis in range(len(product.shape)) if axis not in chain]
    place = product.place
    alike = (place[beside][:, origin] == place[beside][:, goal]).all(axis=0) & (origin != goal)
    origin, goal = origin[alike], goal[alike]
    start, before, number, count = place[:, origin], place[:, goal].copy(), np.zeros(len(goal), dtype=np.int64), 0
    end = place[:, goal]
    for axis in chain:
        apart = np.flatnonzero(start[axis] != end[axis])
        before[:, apart] = end[:, apart]
        before[axis, apart] = product.following[axis][0][end[axis, apart], start[axis, apart]]
        number[apart] = count + product.far[axis][end[axis, apart], start[axis, apart]]
        count += int(product.far[axis].max())
    src = product.node[tuple(before)]
    block = _block(product, chain, origin) if beside else origin
    rows = [np.flatnonzero(number == k) for k in range(1, count + 1)]
    return [Step(block[row], src[row], goal[row], COPY) for row in rows if len(row)]


def _block(product: Product, chain: tuple[int, ...], node: Int64) -> Int64:
    """The number of the block that nodes have in the middle: of their coordinates in the dimensions of a chain."""
    block = np.zeros(len(node), dtype=np.int64)
    for axis in sorted(chain):
        block = block * product.shape[axis] + product.place[axis, node]
    return block


def _swapped(product: Product, axis: int, chain: tuple[int, ...]) -> Step:
    """The step in which each node sends its block to all others on its line."""
    node, count = np.arange(product.node.size), product.shape[axis]
    src = np.repeat(node, count - 1)
    place = product.place[:, src].copy()
    place[axis] = (place[axis] + np.tile(np.arange(1, count), len(node))) % count
    return Step(_block(product, chain, src), src, product.node[tuple(place)], REDUCE)

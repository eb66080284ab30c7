"""AllReduce where switches sum: each server's switch sums what its ranks have, the switches above sum what these sums
are, and copies come back the same way (NVLink SHARP and InfiniBand SHARP; docs/understand/physics.md).

A *block* is coordinates whose ranks all come together in a tree of switches that sum and replicate. Blocks are as few
as may be: places in a server and servers on a rail are two, all ranks of a fat tree are one. Ranks of the outermost
block send their sums to its switch and get the whole sum, in one transfer; in the other blocks one transfer sums, and
one copies. So few messages are sent, however many ranks there are. How many owners and parts there are is estimated,
and the best are scheduled.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import log2, prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.collective import Workload
from ...model.symmetric import SymmetricPlan, make_symmetric_plan
from ...model.symmetry import Symmetry
from ...schedule.best import PER_HALF
from ...schedule.dispatch import starts_by_chain
from ...schedule.moments import ends
from .chains import Digits
from .few_owners import cut_evenly
from .subgroups import Orders, divisors, owners, subgroup
from .switch_blocks import Block, Tree, find_blocks
from .times import Times

MOST_PARTS = 64
"""Parts into which the data of each owner is cut, at most."""

MOST_TRIED = 8
"""Numbers of owners and parts whose transfers are scheduled, at most."""

MOST_HOPS = 1_400_000.0
"""Links of the representatives' transfers, at most, if the data is cut into several parts."""


class Rows(NamedTuple):
    """Transfers of one part.

    Attributes:
        near: int64[transfers], the element that maps a tree to that of each.
        tree: int64[transfers], which tree, see :func:`_trees`.
        like: int64[transfers], a transfer that is scheduled in the place of each. Where the outermost block meets, all
            that differ in its coordinates alone are alike.
    """

    near: Int64
    tree: Int64
    depends: Ragged
    like: Int64


class Setting(NamedTuple):
    """What all numbers of owners and parts have in common.

    Attributes:
        outermost: the coordinates of the outermost block.
        inner: those of the others.
        tops: for each top switch its trees.
        hops: links of the transfers of a part.
    """

    symmetry: Symmetry
    digits: Digits
    outermost: Digits
    inner: Digits
    rows: Rows
    tops: list[list[Tree]]
    hops: float


class InSwitches(NamedTuple):
    """A number of owners and parts, with the times of the transfers that are scheduled, part by part.

    Attributes:
        orders: of the subgroup whose elements own chunks.
    """

    setting: Setting
    orders: Orders
    parts: int
    times: Times

    @property
    def preference_s(self) -> float:
        """Its completion with the surcharge for messages, see :func:`~stretto.schedule.best.preference_s`."""
        messages = self.parts * len(self.setting.rows.near) * prod(self.orders)
        return float(self.times.completion_s * PER_HALF ** log2(messages))

    @property
    def first_owners(self) -> Int64:
        """int64[parts], the element that owns the representative of each part."""
        symmetry = self.setting.symmetry
        shift = np.zeros((self.parts, len(self.orders)), dtype=np.int64)
        for digit in self.setting.inner:
            rest = int(symmetry.orders[digit]) // self.orders[digit]
            shift[:, digit] = np.arange(self.parts) * rest // self.parts
        return symmetry.element(shift)


def in_switches(symmetry: Symmetry, at: Int32, digits: Digits, size_bytes: int) -> InSwitches | None:
    """The best schedule of those tried; None where switches do not bring all ranks together.

    Args:
        at, digits: see :class:`.case.Case`.
    """
    found = find_blocks(symmetry, at, digits)
    if found is None:
        return None
    blocks = [block for _, block in found]
    rows, tops = _rows(symmetry, blocks), _trees(blocks)
    hops = float(sum(len(tops[0][k].links) * n for k, n in enumerate(np.bincount(rows.tree).tolist())))
    inner = tuple(digit for some, _ in found[1:] for digit in some)
    setting = Setting(symmetry, digits, found[0][0], inner, rows, tops, hops)
    choices = sorted(_choices(setting, size_bytes))[:MOST_TRIED]
    return min((_scheduled(setting, size_bytes, *each[1:]) for each in choices), key=lambda each: each.preference_s)


# --- transfers --------------------------------------------------------------------------------------------------------


def _trees(blocks: list[Block]) -> list[list[Tree]]:
    """Of each top switch: the trees for sums and copies of each block, and if the outermost can meet, for that."""
    tops = max(len(block.sums) for block in blocks)
    return [
        [trees[top % len(trees)] for block in blocks for trees in (block.sums, block.copies)]
        + [trees[top % len(trees)] for trees in (blocks[0].meetings,) if trees]
        for top in range(tops)
    ]


def _rows(symmetry: Symmetry, blocks: list[Block]) -> Rows:
    """One part's transfers."""
    holders = [np.zeros(1, dtype=np.int64)]
    for block in blocks:
        holders.append(symmetry.product(holders[-1][:, None], block.elements).ravel())
    near, tree, lengths, waits, count = [], [], [], [], 0

    def add(of: Int64, number: int, waiting: Int64) -> Int64:
        """Transfers of one tree, which wait for int64[transfers, any] others."""
        nonlocal count
        near.append(of)
        tree.append(np.full(len(of), number))
        lengths.append(np.full(len(of), waiting.shape[1]))
        waits.append(waiting.ravel())
        count += len(of)
        return np.arange(count - len(of), count)

    meets = bool(blocks[0].meetings)
    arrived = np.zeros((len(holders[-1]), 0), dtype=np.int64)  # what has brought sums to each holder
    for k in range(len(blocks) - 1, -1 + meets, -1):
        each = arrived.reshape(len(holders[k]), len(blocks[k].elements), -1)
        summed = add(holders[k], 2 * k, each[:, 1:].reshape(len(holders[k]), -1))
        arrived = np.column_stack([summed, each[:, 0]])
    last = 2 * len(blocks) if meets else 1
    brought = np.repeat(add(holders[0], last, arrived.reshape(1, -1)), len(blocks[0].elements))
    for k in range(1, len(blocks)):
        copied = add(holders[k], 2 * k + 1, brought[:, None])
        each = np.repeat(copied[:, None], len(blocks[k].elements), axis=1)
        each[:, 0] = brought
        brought = each.ravel()
    depends = Ragged.from_lengths(np.concatenate(lengths), np.concatenate(waits))
    like = np.arange(count)
    if meets:
        first = np.cumsum([0, *map(len, near)])
        for begin, end in pairwise(first.tolist()):
            like[begin:end] = begin + np.arange(end - begin) % max(1, (end - begin) // len(blocks[0].elements))
    return Rows(np.concatenate(near), np.concatenate(tree), depends, like)


# --- owners and parts -------------------------------------------------------------------------------------------------


def _choices(setting: Setting, size_bytes: int) -> list[tuple[float, Orders, int]]:
    """An estimate in seconds, the orders of a subgroup, and a number of parts, of all that may be chosen.

    Only coordinates of inner blocks have owners: more in the outermost block would only make more messages.
    """
    symmetry, digits, rows, trees = setting.symmetry, setting.digits, setting.rows, setting.tops[0]
    t, whole = symmetry.topology, symmetry.orders.tolist()
    options = [
        divisors(order) if digit in setting.inner else [1] if digit in digits else [order]
        for digit, order in enumerate(whole)
    ]
    used, number = np.unique(rows.tree, return_counts=True)
    links = [trees[k].links for k in used]
    way_s = sum(trees[k].lag_s for k in used)
    sizes = np.bincount(symmetry.link_orbits, minlength=t.link_count)
    out = []
    for orders in product(*options):
        group = subgroup(symmetry, orders)
        for parts in (1 << k for k in range(MOST_PARTS.bit_length())):
            each = owners(orders, digits) * parts
            if size_bytes < each or (parts > 1 and parts * setting.hops > MOST_HOPS):
                break
            message_s = -(-size_bytes // each) / t.bandwidth + t.message_s
            alone_s = sum(float(np.bincount(group.link_orbits[e], (group.copies * message_s)[e]).max()) for e in links)
            load_s = np.zeros(t.link_count)
            for one, times in zip(links, number.tolist(), strict=True):
                np.add.at(load_s, symmetry.link_orbits[one], times * group.size * message_s[one])
            busiest_s = float((load_s[sizes > 0] / sizes[sizes > 0]).max())
            count = float(parts * len(rows.near))
            seconds = way_s + alone_s + (parts - 1) * busiest_s
            turn = seconds * PER_HALF ** (log2(count * group.size) + log2(count))
            out.append((float(turn), orders, parts))
    return out


def _scheduled(setting: Setting, size_bytes: int, orders: Orders, parts: int) -> InSwitches:
    """The times of all parts, of one of all transfers that are alike."""
    symmetry, rows = setting.symmetry, setting.rows
    t, group = symmetry.topology, subgroup(symmetry, orders)
    wide = [int(symmetry.orders[k]) if k in setting.outermost else order for k, order in enumerate(orders)]
    kept = np.unique(rows.like)
    orbits = subgroup(symmetry, tuple(wide) if len(kept) < len(rows.like) else orders).link_orbits
    found = InSwitches(setting, orders, parts, Times(np.zeros(0), np.zeros(0), 0.0))
    waits = rows.depends.take(kept)
    pairs = np.unique(waits.owners * len(rows.like) + rows.like[waits.values])
    one = Ragged.grouped(pairs // len(rows.like), np.searchsorted(kept, pairs % len(rows.like)), len(kept))
    depends = Ragged.concatenate([one.with_values(one.values + k * len(kept)) for k in range(parts)])
    part = np.repeat(np.arange(parts), len(kept))
    tree, entries, links = _passed(found, kept)
    trees = [each for of_top in setting.tops for each in of_top]
    delay_s = np.concatenate([each.delay_s for each in trees])
    size = -(-size_bytes // (owners(orders, setting.digits) * parts))
    busy_s = group.copies[links] * (size / t.bandwidth[links] + t.message_s[links])
    moment = np.unique(delay_s, return_inverse=True)[1].reshape(-1)[entries.values]
    base = int(moment.max()) + 1
    # images of a transfer that use a link at the same time are one use of it; links that are alike are as busy
    _, place, which = np.unique(
        (entries.owners * t.link_count + group.link_orbits[links]) * base + moment, return_index=True,
        return_inverse=True,
    )  # fmt: skip
    use_s = np.bincount(which.reshape(-1), busy_s)
    _, first, again = np.unique(
        (entries.owners[place] * t.link_count + orbits[links[place]]) * base + moment[place], return_index=True,
        return_inverse=True,
    )  # fmt: skip
    most_s = np.zeros(len(first))
    np.maximum.at(most_s, again.reshape(-1), use_s)
    place = place[first]
    route = Ragged.grouped(entries.owners[place], np.unique(orbits[links[place]], return_inverse=True)[1].reshape(-1))
    lag_s = np.array([each.lag_s for each in trees])[tree]
    start, seconds = starts_by_chain(
        route, most_s, lag_s, delay_s[entries.values[place]], depends, part, backward=False
    )
    return found._replace(times=Times(start, ends(start, seconds), float((start + seconds + lag_s).max())))


def _passed(found: InSwitches, of: Int64) -> tuple[Int64, Ragged, Int64]:
    """What some transfers of a part, int64[any], pass in all parts.

    Returns:
        int64[transfers], the tree of each, among those of all top switches; ragged, the places of its links among those
        of all trees; int64[links], the links.
    """
    setting, parts = found.setting, found.parts
    per_top = len(setting.tops[0])
    trees = [each for of_top in setting.tops for each in of_top]
    tree = (np.arange(parts)[:, None] % len(setting.tops) * per_top + setting.rows.tree[of]).ravel()
    near = _near(found, of)
    lengths = np.array([len(each.links) for each in trees])
    entries = Ragged.from_lengths(lengths, np.arange(lengths.sum())).take(tree)
    links = np.concatenate([each.links for each in trees])[entries.values]
    return tree, entries, setting.symmetry.image_of_links(near[entries.owners], links).astype(np.int64)


def _near(found: InSwitches, of: Int64) -> Int64:
    """int64[transfers], the element that maps the trees of some transfers of a part, in all parts."""
    near = np.tile(found.setting.rows.near[of], found.parts)
    return found.setting.symmetry.product(near, np.repeat(found.first_owners, len(of)))


def plan_in_switches(
    found: InSwitches, symmetry: Symmetry, at: Int32, digits: Digits, workload: Workload
) -> SymmetricPlan:
    """The plan of a schedule.

    Args:
        at, digits: see :class:`.case.Case`.
    """
    setting, rows, parts = found.setting, found.setting.rows, found.parts
    each, count = owners(found.orders, digits), len(rows.near)
    every = np.arange(count)
    tree, entries, links = _passed(found, every)
    near = _near(found, every)
    trees = [one for of_top in setting.tops for one in of_top]
    kept = np.unique(rows.like)
    timed = (np.arange(parts)[:, None] * len(kept) + np.searchsorted(kept, rows.like)).ravel()

    def nodes(lists: list[Int64]) -> Ragged:
        listed = Ragged.from_lengths(np.array([len(one) for one in lists]), np.concatenate(lists)).take(tree)
        return listed.with_values(at[symmetry.product(near[listed.owners], listed.values)])

    sources = nodes([one.sources for one in trees])
    rest = np.ones(len(sources.values), dtype=np.bool_)
    rest[sources.offsets[:-1]] = False
    depends = [rows.depends.with_values(rows.depends.values + k * count) for k in range(parts)]
    cut = Workload(tuple(cut_evenly(c, each, parts) for c in workload.collectives))
    group = subgroup(symmetry, found.orders)
    return make_symmetric_plan(
        group, cut, owner=at[found.first_owners], position=each * np.arange(parts),
        meta={"parts": parts, "group": group.orders.tolist(), "sums": "in switches"},
        chunk=np.repeat(np.arange(parts), count), src=sources.values[sources.offsets[:-1]],
        other_src=Ragged.from_lengths(sources.lengths - 1, sources.values[rest]),
        op=np.array([one.op for one in trees], dtype=np.int8)[tree],
        dst=nodes([one.receivers for one in trees]), route=entries.with_values(links),
        depends=Ragged.concatenate(depends), start_s=found.times.start_s[timed],
        finish_s=found.times.finish_s[timed],
    )  # fmt: skip

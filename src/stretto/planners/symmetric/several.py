"""Plans for networks that are almost symmetric: several orbits of ranks, and ranks that no element moves.

1. Which trees (:mod:`.packing`): each orbit of ranks has trees over all ranks, as a linear program over orbits of links
   mixes them.
2. When (:mod:`.lanes`): the data of each tree is cut into parts, and the transfers of all representatives are scheduled
   together. More parts are tried until they end later.

A rank that no element moves, such as the one whose NIC is slow, owns a piece of AllGather and ReduceScatter; it is
dealt out to the elements, so that each part of it goes its own way. It owns nothing of AllReduce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.collective import Collective, Promised, Workload
from ...model.errors import Unsupported
from ...model.plan import COPY, REDUCE
from ...model.symmetric import SymmetricPlan, dealt
from ...model.symmetry import Symmetry
from .cuts import Cut, Hops, best_cut, joined, plan_of
from .exchanges import Exchange, exchange_cuts
from .packing import FEWER, Column, Packing, Tree

MOST_CHUNKS = 12
"""Chunks into which a piece is cut for the sake of shares, at most."""

MOST_WORK = 1e6
"""Loads of links that are looked at while chunks are moved between trees, at most, for each number of chunks."""

FAR = 500.0
"""An exponent from which a load counts as far too large: its exponential is still a number."""

LEAST_RANKS = 4
"""Ranks for each orbit of ranks, at least: the work grows with ranks times orbits."""


class Share(NamedTuple):
    """A column, how much of its owners' data goes by it, and in how many chunks of a representative at least."""

    column: Column
    share: float
    chunks: int


class Several(NamedTuple):
    """A collective whose ranks are in several orbits of a group."""

    symmetry: Symmetry
    collective: Collective


def several(symmetry: Symmetry, workload: Workload) -> Several | str:
    """The request, or why it is not served."""
    first = workload.collectives[0]
    if len(workload.collectives) > 1:
        return f"its symmetry maps a rank to {symmetry.size} of {len(first.ranks)} ranks only"
    orbits, sizes = np.unique(symmetry.node_orbits[first.ranks], return_counts=True)
    partly = first.traits.whole and first.traits.rooted
    if not (partly or np.isin(sizes, (1, symmetry.size)).all()) or not (sizes == symmetry.size).any():
        return "its symmetry leaves orbits of ranks that are too small"
    trees = 1 if first.traits.rooted else len(orbits)
    if trees * LEAST_RANKS > len(first.ranks):
        return f"its symmetry leaves {len(orbits)} orbits of {len(first.ranks)} ranks"
    return Several(symmetry, first)


def plan_several(case: Several, brief: bool) -> SymmetricPlan:
    """A plan for a collective whose ranks are in orbits of one rank for each element, or of one rank.

    Args:
        brief: whether little is to be tried.
    Raises:
        Unsupported: see :func:`plan_below`.
    """
    plan = plan_below(case, np.inf, brief)
    assert plan is not None, "any plan ends in time"
    return plan


def plan_below(case: Several, below_s: float, brief: bool) -> SymmetricPlan | None:
    """The same if it ends in less than ``below_s``, else None.

    Raises:
        Unsupported: ranks do not reach each other, or there is less than a byte for each rank.
    """
    symmetry, collective = case
    exchanged = collective.traits.pieces == "pair"
    packing = Exchange(symmetry, collective) if exchanged else Packing(symmetry, collective)
    mix = packing.solve(brief)
    if mix[1] >= below_s:
        return None
    rows, cut_into, trees = exchange_cuts(packing, mix) if isinstance(packing, Exchange) else _tree_cuts(packing, mix)
    best = best_cut(symmetry, cut_into, rows, mix[1], brief)
    if best is None:
        raise Unsupported(f"symmetric does not serve {collective.title}: there is less than a byte for each rank")
    if best[1].completion_s >= below_s:
        return None
    return plan_of(symmetry, *best, {"orbits": len(packing.owners), "trees": trees})


def _tree_cuts(packing: Packing, mix: tuple[Float64, float]) -> tuple[int, Callable[[int], Cut | None], int]:
    """The transfers of one part, the cut into a given number of parts, and the number of trees."""
    ways = shares_of(packing, mix)
    one = [_transfers(way.column, packing.traits.reduces) for way in ways]
    rows = sum(t.total * way.chunks for t, way in zip(one, ways, strict=True) if not packing.fixed[way.column.owner])
    return rows, lambda times: _cut(packing, packing.collective, ways, one, times), len(ways)


def shares_of(packing: Packing, mix: tuple[Float64, float]) -> list[Share]:
    """Few trees that together keep no link much longer than the best mix does, as :meth:`Packing.solve` returns it."""
    shares, _ = packing.few(*mix)
    mean = 1.0 / (len(packing.owners) if packing.traits.whole else 1)
    if not packing.traits.whole:
        return _in_equal_chunks(packing, (shares, mix[0]))
    used = np.flatnonzero(shares > 1e-3 * mean)
    rest = shares[used] / shares[used].sum()
    counts = np.maximum(1, np.rint(rest / mean)).astype(int)
    return [Share(packing.columns[k], s, n) for k, s, n in zip(used, rest.tolist(), counts.tolist(), strict=True)]


class _Choice(NamedTuple):
    """The columns among which the data of an owner is divided.

    Attributes:
        columns: int64[columns].
        links: int64[links], the orbits of links that any of them passes.
        whole_s, message_s: float64[columns, links], for how long the bytes of a whole piece and a message keep them.
        fixed: whether the piece is in one chunk for each element as it is: that of a rank that no element moves.
    """

    columns: Int64
    links: Int64
    whole_s: Float64
    message_s: Float64
    fixed: bool


def _in_equal_chunks(packing: Packing, mixes: tuple[Float64, ...]) -> list[Share]:
    """One of these mixes as whole numbers of equal chunks of each piece: the fewest chunks with which the busiest link
    works hardly longer than with any other number."""
    load_s, message_s = packing.load_s, packing.of_messages_s
    columns = Ragged.grouped(np.array([c.owner for c in packing.columns]), np.arange(len(load_s)), len(packing.owners))
    choices = []
    for owner in range(columns.rows):
        own = columns[owner].astype(np.int64)
        links = np.flatnonzero(load_s[own].any(axis=0))
        message = message_s[np.ix_(own, links)]
        choices.append(_Choice(own, links, load_s[np.ix_(own, links)] - message, message, packing.fixed[owner]))
    found = [_in_chunks(choices, packing.orbits, shares, n) for n in range(1, MOST_CHUNKS + 1) for shares in mixes]
    least_s = min(busy_s for _, _, busy_s in found)
    counts, cut, _ = next(each for each in found if each[2] <= FEWER * least_s)
    return [Share(packing.columns[k], float(counts[k] / cut[k]), int(counts[k])) for k in np.flatnonzero(counts)]


def _in_chunks(choices: list[_Choice], orbits: int, shares: Float64, most: int) -> tuple[Int64, Int64, float]:
    """Pieces in at most ``most`` equal chunks, moved between trees while that relieves busy links.

    Returns:
        int64[columns], the chunks that go by each column; int64[columns], into how many the pieces of its owners are
        cut; and for how long the busiest link works.
    """
    counts, cut = np.zeros(len(shares), dtype=np.int64), np.ones(len(shares), dtype=np.int64)
    for own in choices:
        cut[own.columns] = parts = 1 if own.fixed else most
        counts[own.columns] = _apportioned(shares[own.columns], parts)

    def each_s(own: _Choice) -> Float64:
        seconds: Float64 = own.whole_s / cut[own.columns[0]] + own.message_s
        return seconds

    def total_s(each: list[Float64]) -> Float64:
        total = np.zeros(orbits)
        for own, seconds in zip(choices, each, strict=True):
            total[own.links] += counts[own.columns] @ seconds
        return total

    each = [each_s(own) for own in choices]
    work = sum(seconds.size * np.count_nonzero(counts[own.columns]) for own, seconds in zip(choices, each, strict=True))
    for _ in range(min(4 * len(choices), 1 + int(MOST_WORK / work))):
        total = total_s(each)
        sharp = 64.0 / total.max()
        busy = np.exp(sharp * (total - total.max()))
        best, move = busy.sum() * (1 - 1e-6), None
        for own, seconds in zip(choices, each, strict=True):
            others = busy.sum() - busy[own.links].sum()
            for a in np.flatnonzero(counts[own.columns]):
                over = sharp * (total[own.links] - seconds[a] + seconds - total.max())
                value = others + np.exp(np.minimum(over, FAR)).sum(axis=1)
                if value.min() < best:
                    best, move = value.min(), own.columns[[a, value.argmin()]]
        if move is None:
            break
        counts[move] += (-1, 1)
    for own in choices:
        common = np.gcd.reduce(counts[own.columns])
        counts[own.columns] //= common
        cut[own.columns] //= common
    return counts, cut, float(total_s([each_s(own) for own in choices]).max())


def _apportioned(shares: Float64, parts: int) -> Int64:
    """How many of ``parts`` equal parts each gets."""
    exact = shares / shares.sum() * parts
    counts: Int64 = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: parts - counts.sum()]] += 1
    return counts


def _transfers(column: Column, reduces: bool) -> Hops:
    """What happens to one chunk of a column.

    Args:
        reduces: whether what goes towards the root of a tree is summed.
    """
    halves = []
    if column.inward is not None:
        halves.append(_gathered(column.inward, REDUCE if reduces else COPY))
    if column.outward is not None:
        halves.append(_copies(column.outward))
    if len(halves) == 1:
        return halves[0]
    first, then = halves
    arriving = np.flatnonzero(first.dst == then.src[0])
    starting = then.depends.lengths == 0
    lengths = np.where(starting, len(arriving), 1)
    values = np.empty(int(lengths.sum()), dtype=np.int64)
    of_root = np.repeat(starting, lengths)
    values[of_root] = np.tile(arriving, int(starting.sum()))
    values[~of_root] = first.total + then.depends.values
    depends = Ragged.concatenate([first.depends, Ragged.from_lengths(lengths, values)])
    chunk, src, dst, op = (np.concatenate([getattr(half, name) for half in halves]) for name in Hops._fields[:4])
    return Hops(chunk, src, dst, op, Ragged.concatenate([first.route, then.route]), depends)


def _copies(tree: Tree) -> Hops:
    n = len(tree.node)
    brought = np.full(int(max(tree.node.max(initial=0), tree.before.max(initial=0))) + 1, -1, dtype=np.int64)
    brought[tree.node] = np.arange(n)
    after = brought[tree.before]
    depends = Ragged.from_lengths(after >= 0, after[after >= 0])
    zeros = np.zeros(n, dtype=np.int64)
    return Hops(zeros, tree.before, tree.node, zeros.astype(np.int8) + COPY, tree.routes, depends)


def _gathered(tree: Tree, op: int) -> Hops:
    """Copies with time reversed, as sums or as copies of what one rank holds."""
    forth = _copies(tree)
    last = forth.total - 1
    waits = Ragged.grouped(last - forth.depends.values, last - forth.depends.owners, forth.total)
    ops = np.full(forth.total, op, dtype=np.int8)
    routes = tree.routes.take(np.arange(last, -1, -1))
    return Hops(forth.chunk, forth.dst[::-1], forth.src[::-1], ops, routes, waits)


def _cut(packing: Packing, c: Collective, ways: list[Share], one: list[Hops], times: int) -> Cut | None:
    """Every tree's chunks cut ``times`` more; None if a chunk would have less than a byte."""
    size = packing.symmetry.size
    # the piece of a rank that no element moves has a chunk for each element already
    few = -(-2 * times // size)
    counts = np.array([few if packing.fixed[way.column.owner] else way.chunks * times for way in ways])
    of = np.repeat(np.arange(len(ways)), counts)  # the tree of each representative
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    owner = np.array([way.column.owner for way in ways])[of]
    if c.traits.whole:
        share = np.array([way.share for way in ways])[of] / counts[of]
        # chunks of a range are alike, but for the last range: a byte more counts where there are thousands of elements
        edges = np.rint(np.append(0.0, np.cumsum(share / share.sum())) * (c.size_bytes // size)).astype(np.int64) * size
        edges[-1] = c.size_bytes
        ranges = np.diff(edges)
        if ranges.min() < size:
            return None
        workload = Workload((dealt(c, ranges, np.full(len(of), size)),))
        position, chunk_bytes = size * np.arange(len(of)), -(-ranges // size)
    else:
        place = np.zeros(len(of), dtype=np.int64)
        order = np.argsort(owner, kind="stable")
        own = np.bincount(owner, minlength=len(packing.owners))
        place[order] = np.arange(len(of)) - np.repeat(np.cumsum(own) - own, own)
        images = np.where(packing.fixed, size, 1)
        cuts = own * images
        at = np.searchsorted(packing.owners, packing.symmetry.node_orbits[c.ranks])
        if (c.size_bytes < len(c.ranks) * cuts).any():
            return None
        workload = Workload((Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, cuts[at]),))
        position = place * images[owner]
        chunk_bytes = -(-c.size_bytes // (len(c.ranks) * cuts[owner]))
    rows = np.array([t.total for t in one])[of]
    transfers = joined(one, of, rows)
    turn = (number + 0.5) / counts[of]
    return Cut(
        workload, packing.owners[owner], position, transfers, np.repeat(chunk_bytes, rows), np.repeat(turn, rows)
    )

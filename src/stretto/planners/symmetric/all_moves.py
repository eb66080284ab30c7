"""A program of moves (:mod:`.moves`) as the plan of all ranks: the images of what it does to one owner's data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64, Ragged, distinct
from ...model.chunks import cut
from ...model.collective import Collective, Promised, Workload
from ...model.messages import numbered
from ...model.plan import COPY, REDUCE, Plan, make_plan
from .case import Case
from .moves import Found, part_bytes
from .times import Table


def plan_of_moves(found: Found, case: Case, table: Table) -> Plan:
    """The plan, with a message for each move of each rank. Each rank owns a chunk, or one for each other rank."""
    (c,) = case.workload.collectives
    symmetry, hops, n = case.symmetry, found.hops, case.symmetry.size
    steps, count, moves = found.step, len(hops.move), len(found.step)
    # what happens to the data of element 0: sums from the last hop to the first, then copies
    phases = found.sums + found.copies
    at, step, goal, part = (np.tile(each, phases) for each in (hops.at, steps[hops.move], hops.goal, hops.part))
    summed = np.repeat([True] * found.sums + [False] * found.copies, count)
    move = np.where(summed, moves - 1 - np.tile(hops.move, phases), moves * found.sums + np.tile(hops.move, phases))
    waits = _waits(found)
    # the same of all elements
    element, rows = np.arange(n), len(move)
    near = symmetry.product(at[:, None], element)
    far = symmetry.product(near, step[:, None])
    start_s, finish_s = found.times.start_s, found.times.finish_s
    turn = np.empty(len(start_s), dtype=np.int64)
    turn[np.argsort(start_s, kind="stable")] = np.arange(len(start_s))
    order = np.argsort((turn[move][:, None] * n + near).ravel(), kind="stable")
    row, own = np.divmod(order, n)
    place = np.empty(rows * n, dtype=np.int64)
    place[order] = np.arange(rows * n)
    depends = waits.take(row)
    before = place[depends.values.astype(np.int64) * n + own[depends.owners]]
    near, far = near.ravel()[order], far.ravel()[order]
    sums, move = summed[row], move[row]
    chunk = _chunks(case, c, own, symmetry.product(goal[row], own)) * len(found.shares) + part[row]
    return make_plan(
        symmetry.topology, _owned(c, n, found.shares), "timed", chunk=chunk, src=case.at[np.where(sums, far, near)],
        op=np.where(sums, REDUCE, COPY), dst=Ragged.single(case.at[np.where(sums, near, far)]),
        route=_routes(found, case, table).take(move * n + near), depends=depends.with_values(before),
        start_s=start_s[move], finish_s=finish_s[move], message=numbered(turn[move], near),
        meta={"moves": found.summary, "group": symmetry.orders.tolist()},
    )  # fmt: skip


def _waits(found: Found) -> Ragged:
    """For each hop of the data of element 0, of sums and copies, those that it waits for."""
    waits, hops, count = found.hops.waits, found.hops, len(found.hops.move)
    then, before = waits.owners, waits.values.astype(np.int64)
    if not found.sums:
        return waits
    if not found.copies:
        return Ragged.grouped(before, then, count)
    # what an owner copies waits for all of that part that is summed there
    own = np.flatnonzero(hops.at == 0)
    copied, summed = np.nonzero(hops.part[own][:, None] == hops.part[own])
    owners = np.concatenate((before, count + then, count + own[copied]))
    return Ragged.grouped(owners, np.concatenate((then, count + before, own[summed])), 2 * count)


def _routes(found: Found, case: Case, table: Table) -> Ragged:
    """For each move and each element the route of its message: to or from that element."""
    n, steps = case.symmetry.size, found.step
    both = [table.inward.links.take(steps[::-1])] * found.sums + [table.outward.links.take(steps)] * found.copies
    routes = Ragged.concatenate(both)
    each = routes.take(np.repeat(np.arange(routes.rows), n))
    return each.with_values(case.symmetry.image_of_links(each.owners % n, each.values))


def _owned(c: Collective, ranks: int, shares: Float64) -> Workload:
    """The collective with these parts for each rank, or for each pair of ranks."""
    each, parts = ranks if c.traits.whole else 1, len(shares)
    even = Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, each * parts)
    if len(distinct(shares)) == 1:
        return Workload((even,))
    whole = cut(c, each)
    size = part_bytes(whole.chunk_bytes, shares)
    offset = whole.chunk_offset[:, None] + np.cumsum(size, axis=1) - size
    piece = np.repeat(whole.chunk_piece, parts)
    return Workload((replace(whole, chunk_piece=piece, chunk_offset=offset.ravel(), chunk_bytes=size.ravel()),))


def _chunks(case: Case, c: Collective, owner: Int64, goal: Int64) -> Int64:
    """int64[transfers], the chunk of each owner, or of each owner for the goal, both as elements."""
    rank = np.full(case.symmetry.topology.node_count, -1, dtype=np.int64)
    rank[c.ranks] = np.arange(len(c.ranks))
    own: Int64 = rank[case.at[owner]]
    return own * len(c.ranks) + rank[case.at[goal]] if c.traits.pieces == "pair" else own

"""AllReduce where messages cost: chunks are few and large, and only the elements of a subgroup own one.

All designs (:mod:`.designs`) are estimated; the transfers of the best ones are scheduled.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.plan import REDUCE
from ...model.symmetric import SymmetricPlan, dealt, make_symmetric_plan
from ...model.symmetry import Symmetry
from .chains import Chain, Digits, Phase, direct_phase, tree_phase
from .designs import ROUND, Design, designs
from .postal import meeting, tree
from .subgroups import Links, owners, subgroup
from .times import Table, Times, schedule
from .transfers import Circle, Transfers, in_parts, sums_then_copies

MOST_TRIED = 16
"""Designs whose transfers are scheduled, at most."""

TRIED_HOPS = 600_000.0
"""Links of the transfers that are scheduled in all, after the first design: about 1.5 s of CPU."""


class Schedule(NamedTuple):
    """The transfers of a design.

    Attributes:
        symmetry: the subgroup.
        route: the links of each transfer.
        part: int64[transfers], the part of each.
        size_bytes: int64[transfers].
    """

    design: Design
    symmetry: Symmetry
    transfers: Transfers
    route: Ragged
    part: Int64
    size_bytes: Int64
    times: Times

    @property
    def preference_s(self) -> float:
        """Its completion with the surcharge for messages, see :func:`~stretto.schedule.best.preference_s`."""
        return self.times.completion_s * self.design.surcharge

    def refined(self) -> Schedule:
        """The same with better times, where there are."""
        times = schedule(
            self.symmetry, self.route, self.transfers.op, self.transfers.depends, self.part, self.size_bytes
        )
        return self._replace(times=times) if times.completion_s < self.times.completion_s else self


def few_owners(
    symmetry: Symmetry, digits: Digits, size_bytes: int, table: Table, most_children: int
) -> Schedule | None:
    """The best of the designs that are scheduled; None if ranks are not joined, or there is no such design.

    Args:
        digits: see :class:`.case.Case`.
        most_children: see :func:`.chains.chains_of`.
    """
    links = Links(symmetry, digits, table.outward, most_children)
    if not links.serves or not table.inward.reached[table.outward.reached].all():
        return None
    best: Schedule | None = None
    hops, route = 0.0, len(table.outward.links.values) / int(table.outward.reached.sum())
    found = sorted(designs(links, digits, size_bytes), key=lambda design: (design.turn, design.rows))
    for design in found[:MOST_TRIED]:
        if best is not None and hops + design.rows * route > TRIED_HOPS:
            continue
        hops += design.rows * route
        tried = _scheduled(symmetry, digits, size_bytes, table, design, most_children)
        if best is None or tried.preference_s < best.preference_s:
            best = tried
    return None if best is None else best.refined()


def _scheduled(
    symmetry: Symmetry, digits: Digits, size_bytes: int, table: Table, design: Design, most_children: int
) -> Schedule:
    """A design with its transfers and their times, roughly."""
    chunk_bytes = -(-size_bytes // (owners(design.orders, digits) * design.parts))
    group = subgroup(symmetry, design.orders)
    one = _one_part(symmetry, group, table, design, chunk_bytes, most_children)
    transfers, part = in_parts([(one[number % len(one)], 1, 1) for number in range(design.parts)])
    owner = _first_owners(symmetry, design)
    transfers = transfers._replace(near=symmetry.product(transfers.near, owner[part]))
    route = table.routes(transfers)
    route = route.with_values(symmetry.image_of_links(transfers.near[route.owners], route.values))
    sizes = np.full(transfers.total, chunk_bytes)
    times = schedule(group, route, transfers.op, transfers.depends, part, sizes, roughly=True)
    return Schedule(design, group, transfers, route, part, sizes, times)


def _first_owners(symmetry: Symmetry, design: Design) -> Int64:
    """int64[parts], the element that owns the representative of each part: the trees of each part begin elsewhere."""
    shift = np.zeros((design.parts, len(symmetry.orders)), dtype=np.int64)
    for stage in design.ways[0]:
        digit = stage.coordinate.digit
        rest = stage.coordinate.order // design.orders[digit]
        shift[:, digit] = np.arange(design.parts) * rest // design.parts
    return symmetry.element(shift)


def _one_part(
    symmetry: Symmetry, group: Symmetry, table: Table, design: Design, chunk_bytes: int, most_children: int
) -> list[Transfers]:
    """The transfers of one part, of each way; where trees over neighbours have mirrored ones, of a part by each."""
    t, links = symmetry.topology, np.unique(table.outward.links.values)
    busy_s = np.zeros(t.link_count)
    busy_s[links] = group.copies[links] * (chunk_bytes / t.bandwidth[links] + t.message_s[links])
    roots = np.zeros(1, dtype=np.int64)
    circles: list[Circle] = []
    phases: dict[tuple[int, bool], list[Phase]] = {}
    for number, stage in enumerate(design.ways[0]):
        c = stage.coordinate
        elements = np.arange(stage.ranks) * (stage.step * int(symmetry.strides[c.digit]))
        if not c.joined:
            phases[c.digit, stage.rest] = c.trees
            continue
        steps = table.outward.links.take(elements[1:])
        lag = round(c.latency_s / float(busy_s[steps.values].max()), ROUND)
        if number < design.met:
            roots = symmetry.product(roots[:, None], elements).ravel()
            circles.append(Circle(c.digit, stage.ranks, meeting(stage.ranks, lag)))
        elif stage.rest:
            phases[c.digit, stage.rest] = [tree_phase(symmetry, elements, tree(stage.ranks, lag, design.width).parent)]
        else:
            phases[c.digit, stage.rest] = [direct_phase(symmetry, elements, most_children)]
    out = []
    for number, way in product(range(max(map(len, phases.values()), default=1)), design.ways):
        trees = [phases[stage.coordinate.digit, stage.rest] for stage in way[design.met :]]
        chain: Chain = tuple(each[min(number, len(each) - 1)] for each in trees)
        out.append(sums_then_copies(symmetry, chain, chain, roots, tuple(circles)))
    return out


def plan_of(found: Schedule, symmetry: Symmetry, at: Int32, digits: Digits, workload: Workload) -> SymmetricPlan:
    """The plan of a design.

    Args:
        at, digits: see :class:`.case.Case`.
    """
    design, transfers = found.design, found.transfers
    near, far = (at[e] for e in (transfers.near, symmetry.product(transfers.near, transfers.step)))
    summed = transfers.op == REDUCE
    each, group = owners(design.orders, digits), found.symmetry
    cut = Workload(tuple(cut_evenly(c, each, design.parts) for c in workload.collectives))
    meta = {"parts": design.parts, "group": group.orders.tolist(), "meetings": design.met}
    return make_symmetric_plan(
        group, cut, owner=at[_first_owners(symmetry, design)], position=each * np.arange(design.parts), meta=meta,
        chunk=transfers.chunk, src=np.where(summed, far, near), op=transfers.op,
        dst=Ragged.single(np.where(summed, near, far)), route=found.route, depends=transfers.depends,
        start_s=found.times.start_s, finish_s=found.times.finish_s,
    )  # fmt: skip


def cut_evenly(c: Collective, each: int, parts: int) -> Collective:
    """A collective cut evenly into parts, and each part into a chunk for each owner."""
    edges = np.arange(parts + 1) * c.size_bytes // parts
    return dealt(c, np.diff(edges), np.full(parts, each))

"""Some transfers of a plan, in columns, by their numbers; of a plan by symmetry without the other transfers.

A process needs the transfers that its node sends and receives, and a file is written transfer by transfer. A plan by
symmetry among 16,384 ranks has a billion of them, so nobody should have to expand it for some: an image of a transfer
is computed from the representative's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Float64, Int8, Int32, Int64, Ragged, distinct
from .errors import InputError
from .memory import too_much
from .messages import messages_of
from .plan import Plan
from .symmetric import SymmetricPlan
from .timeline import Timeline

UInt64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some transfers of a plan. Columns are made when they are asked for. Get them by :func:`rows_of`.

    Attributes:
        plan: the plan.
        number: int64[rows], the number of each transfer in the plan.
    """

    plan: Plan
    number: Int64

    @property
    def base(self) -> Plan:
        """The plan whose columns say what these transfers are; of a plan by symmetry its representatives."""
        return self.plan

    @property
    def row(self) -> Int64:
        """int64[rows], the transfer of ``base``."""
        return self.number

    @cached_property
    def chunk(self) -> Int64:
        """int64[rows]"""
        return self.plan.chunk[self.number].astype(np.int64)

    @cached_property
    def size_bytes(self) -> Int64:
        """int64[rows], the size of the chunk."""
        return self.plan.size_bytes[self.number]

    @property
    def forwards(self) -> NDArray[np.bool_]:
        """bool[rows], whether each carries what others brought, apart from what else its source has."""
        if self.base.forwards is None:
            return np.zeros(len(self.number), dtype=np.bool_)
        which: NDArray[np.bool_] = self.base.forwards[self.row] == 1
        return which

    @cached_property
    def op(self) -> Int8:
        """int8[rows]"""
        return self.base.op[self.row]

    @cached_property
    def src(self) -> Int32:
        """int32[rows]"""
        return self.nodes(self.base.src[self.row])

    @cached_property
    def dst(self) -> Ragged:
        """For each transfer the nodes that receive it."""
        lists = self.base.dst.take(self.row)
        return lists.with_values(self.nodes(lists.values, lists))

    @cached_property
    def sources(self) -> Ragged:
        """For each transfer all nodes that send it, ``src`` first."""
        lists = self.base.sources.take(self.row)
        return lists.with_values(self.nodes(lists.values, lists))

    @cached_property
    def route(self) -> Ragged:
        """For each transfer its links."""
        return self.base.route.take(self.row)

    @cached_property
    def first_link(self) -> Int64:
        """int64[rows], a number that tells apart the links by which transfers leave their source."""
        return self.base.route.values[self.base.route.offsets[self.row]].astype(np.int64)

    @cached_property
    def depends(self) -> Ragged:
        """For each transfer the numbers of those that must have happened before."""
        return self.others(self.base.depends)

    @cached_property
    def way(self) -> UInt64:
        """uint64[rows], a hash that tells routes apart."""
        return _hash_of_lists(self.route)

    @cached_property
    def first_receiver(self) -> Int64:
        """int64[rows], the number of each transfer's first receiver among those of all transfers of the plan."""
        return self.plan.dst.offsets[self.number]

    def nodes(self, values: Int32, lists: Ragged | None = None) -> Int32:
        """What nodes of ``base`` are here: one for each transfer, or for each value of lists of the transfers."""
        return values

    def others(self, lists: Ragged) -> Ragged:
        """For each transfer the numbers of some others; ``lists`` has them for each transfer of ``base``."""
        return lists.take(self.row)

    def narrowest(self) -> Float64:
        """float64[rows], the bandwidth of the narrowest link of each route, or of the plane."""
        lists = self.base.route.take(self.row)
        bandwidth = np.full(lists.rows, np.inf)
        routed = np.flatnonzero(lists.lengths)
        widths = self.plan.topology.bandwidth[lists.values]
        bandwidth[routed] = np.minimum.reduceat(widths, lists.offsets[routed]) if len(routed) else 0.0
        if self.base.plane is not None and self.plan.topology.planes:
            plane = self.base.plane[self.row]
            widths = np.array([p.bandwidth for p in self.plan.topology.planes])
            bandwidth[plane >= 0] = widths[plane[plane >= 0]]
        return bandwidth


@dataclass(frozen=True, eq=False)
class Images(Rows):
    """Some transfers of a plan by symmetry: transfer ``row * size + element`` is an image of a representative's."""

    plan: SymmetricPlan

    @property
    def base(self) -> Plan:
        return self.plan.part

    @cached_property
    def row(self) -> Int64:
        return self.number // self.plan.symmetry.size

    @cached_property
    def element(self) -> Int64:
        """int64[rows], the element whose image each is."""
        return self.number - self.row * self.plan.symmetry.size

    @cached_property
    def chunk(self) -> Int64:
        return self.plan.orbits.chunks(self.base.chunk[self.row], self.element)

    @cached_property
    def size_bytes(self) -> Int64:
        return self.plan.orbits.sizes(self.base.chunk[self.row], self.element, self.chunk)

    @cached_property
    def route(self) -> Ragged:
        lists = self.base.route.take(self.row)
        return lists.with_values(self.plan.symmetry.image_of_links(self.element[lists.owners], lists.values))

    @cached_property
    def first_link(self) -> Int64:
        # one link joins two nodes
        first = self.base.route.values[self.base.route.offsets[self.row]]
        return self.nodes(self.plan.topology.dst[first]).astype(np.int64)

    @cached_property
    def way(self) -> UInt64:
        # one link joins two nodes: the nodes at the ends of its links say which way it is
        lists = self.base.route.take(self.row)
        ends = self.plan.topology.dst[lists.values]
        return _hash_of_lists(lists.with_values(self.nodes(ends, lists)))

    @cached_property
    def first_receiver(self) -> Int64:
        dst, size = self.base.dst, self.plan.symmetry.size
        return dst.offsets[self.row] * size + self.element * dst.lengths[self.row]

    def nodes(self, values: Int32, lists: Ragged | None = None) -> Int32:
        return self.plan.symmetry.image(self.element if lists is None else self.element[lists.owners], values)

    def others(self, lists: Ragged) -> Ragged:
        taken = lists.take(self.row)
        number = taken.values.astype(np.int64) * self.plan.symmetry.size + self.element[taken.owners]
        return Ragged.wide(taken.offsets, number)


def rows_of(plan: Plan, number: Int64) -> Rows:
    """The transfers of a plan with these numbers."""
    return Images(plan, number) if isinstance(plan, SymmetricPlan) else Rows(plan, number)


def all_rows(plan: Plan) -> Rows:
    """All transfers of a plan; InputError if they do not fit into memory."""
    if (reason := too_much(plan.transfer_count, "transfers")) is not None:
        raise InputError(reason, "plan")
    return rows_of(plan, np.arange(plan.transfer_count))


def sent_by(plan: Plan, node: int) -> Rows:
    """The transfers that a node sends, as their one or first source, in their order."""
    if not isinstance(plan, SymmetricPlan):
        return Rows(plan, np.flatnonzero(plan.src == node))
    row, element = plan.symmetry.elements_to(plan.part.src, node)
    return Images(plan, row * plan.symmetry.size + element)


def received_by(plan: Plan, node: int) -> Rows:
    """The transfers that a node receives, in their order."""
    return rows_of(plan, _with(plan, (plan.part if isinstance(plan, SymmetricPlan) else plan).dst, node))


def touched_by(plan: Plan, nodes: Iterable[int]) -> Rows:
    """The transfers that some nodes send or receive, in their order."""
    base = plan.part if isinstance(plan, SymmetricPlan) else plan
    numbers = [_with(plan, ends, node) for node in nodes for ends in (base.sources, base.dst)]
    return rows_of(plan, distinct(np.concatenate(numbers)))


def messages_at_nodes(plan: Plan) -> Int64:
    """int64[nodes], how many messages each node sends or receives: one for each receiver of a message."""
    messages = messages_of(plan)
    return ends_at_nodes(plan if messages is None else messages.merged)


def ends_at_nodes(plan: Plan, forks: bool = False) -> Int64:
    """int64[nodes], how many chunks each node sends or receives: one for each receiver of a transfer.

    Args:
        forks: whether what forks on its way counts once for its source.
    """
    base, count = plan.part if isinstance(plan, SymmetricPlan) else plan, plan.topology.node_count
    ends = np.concatenate((base.src if forks else base.src[base.dst.owners], base.dst.values))
    if not isinstance(plan, SymmetricPlan):
        return np.bincount(ends, minlength=count)
    orbits = plan.symmetry.node_orbits
    images = np.bincount(orbits[ends], minlength=count)[orbits] * plan.symmetry.size
    at_node: Int64 = images // np.bincount(orbits)[orbits]
    return at_node


def _with(plan: Plan, lists: Ragged, node: int) -> Int64:
    """int64[rows], ascending, the transfers with a node in their list; of a plan by symmetry there is a list for each
    transfer of the representatives, and the node may be in the image of the list."""
    if not isinstance(plan, SymmetricPlan):
        at_node: Int64 = lists.owners[lists.values == node]
        return at_node
    at, element = plan.symmetry.elements_to(lists.values, node)
    number: Int64 = lists.owners[at] * plan.symmetry.size + element
    # of a list with several nodes of an orbit each may be mapped to the node
    return number if len(lists.values) == lists.rows else np.sort(number)


def chunks_at(plan: Plan, node: int) -> tuple[tuple[Int64, Int64], tuple[Int64, Int64]]:
    """The chunks that a node holds at first, and those that it must end with: int64[chunks] each, the numbers of the
    chunks, ascending, and their bytes."""
    work = plan.part.workload if isinstance(plan, SymmetricPlan) else plan.workload

    def of(lists: Ragged) -> tuple[Int64, Int64]:
        if not isinstance(plan, SymmetricPlan):
            chunks = lists.owners[lists.values == node]
            return chunks, plan.workload.chunk_bytes[chunks]
        at, element = plan.symmetry.elements_to(lists.values, node)
        orbit = lists.owners[at]
        chunks = plan.orbits.chunks(orbit, element)
        order = np.argsort(chunks)
        return chunks[order], plan.orbits.sizes(orbit, element, chunks)[order]

    return of(work.chunk_holders), of(work.chunk_wanted)


def nodes_in(plan: Plan) -> Int64:
    """int64[nodes], ascending: all nodes that send, receive, hold or want something."""
    base = plan.part if isinstance(plan, SymmetricPlan) else plan
    work, is_in = base.workload, np.zeros(plan.topology.node_count, dtype=np.bool_)
    for ends in (base.src, base.dst.values, work.chunk_wanted.values, work.chunk_holders.values):
        is_in[ends] = True
    if isinstance(plan, SymmetricPlan):
        orbits = plan.symmetry.node_orbits
        is_in = np.isin(orbits, orbits[is_in])
    return np.flatnonzero(is_in)


def _hash_of_lists(lists: Ragged) -> UInt64:
    """uint64[lists], a hash of the values of each list and of their places in it."""
    place = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    x = (place.astype(np.uint64) << np.uint64(32)) + lists.values.astype(np.uint64) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    hashes = np.zeros(lists.rows, dtype=np.uint64)
    filled = np.flatnonzero(lists.lengths)
    hashes[filled] = np.add.reduceat(x, lists.offsets[filled]) if len(filled) else 0
    return hashes


@dataclass(frozen=True, eq=False)
class Moments:
    """When some transfers happen, by the simulator.

    Attributes:
        start_s, finish_s: float64[rows], when the transmission begins and ends at its source.
        arrival_s: float64[values], for each receiver, in the order of ``rows.dst``.
        hop_offset_s: float64[values], for each link of the routes, how much later than its source it carries the bytes.
    """

    start_s: Float64
    finish_s: Float64
    arrival_s: Float64
    hop_offset_s: Float64


def moments_of(timeline: Timeline, rows: Rows) -> Moments:
    """When these transfers of the timeline's plan happen."""
    course: Any = getattr(timeline, "part", timeline)

    def of_lists(column: Ragged, values: Float64) -> Float64:
        places = Ragged.wide(column.offsets, np.arange(len(column.values)))
        return values[places.take(rows.row).values]

    return Moments(
        course.start_s[rows.row],
        course.finish_s[rows.row],
        of_lists(rows.base.dst, course.arrival_s),
        of_lists(rows.base.route, course.hop_offset_s),
    )

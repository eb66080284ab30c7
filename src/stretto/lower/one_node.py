"""The program of one node, of a plan by symmetry without the programs of others.

A transfer of a representative has an image that starts at the node for each element that maps its source there, and one
that ends there for each element that maps a receiver there: one element, as a rule, since only the identity maps an
accelerator of the group to itself. What an image waits for, and what waits for it, are images under its own element.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Int32, Int64, Ragged
from ..model.plan import COPY, Plan
from ..model.symmetric import SymmetricPlan
from ..model.symmetry import Symmetry
from .programs import MOST_SUBFLOWS, Program, Receive, Send, add_versions, lasting_writes, lower


def lower_for(plan: Plan, node: int) -> Program:
    """The program of one node, as :func:`~stretto.lower.lower` gives it.

    Raises:
        KeyError: the node takes no part in the plan.
        InputError: switches sum in a plan by symmetry, so that it must be expanded, and it does not fit into memory.
    """
    if not isinstance(plan, SymmetricPlan) or plan.part.other_src is not None:
        return lower(plan.expand() if isinstance(plan, SymmetricPlan) else plan)[node]
    part, symmetry = plan.part, plan.symmetry
    work = part.workload
    ends = np.concatenate((part.src, part.dst.values, work.chunk_wanted.values, work.chunk_holders.values))
    nodes = np.flatnonzero(np.isin(symmetry.node_orbits, symmetry.node_orbits[ends]))
    if node not in nodes:
        raise KeyError(node)
    program = Program(plan, node, tuple(nodes[nodes != node].tolist()))
    program.held = set(_chunks_at(plan, work.chunk_holders, node).tolist())
    sent = Images.of(plan, Ragged.single(part.src), node)
    received = Images.of(plan, part.dst, node)
    version_of = _versions(program, sent, received, _chunks_at(plan, work.chunk_wanted, node))
    _send(program, sent, version_of)
    _receive(program, received)
    _wait(program, sent)
    _signal(program, received)
    return program


def elements_to(symmetry: Symmetry, nodes: Int32, node: int) -> tuple[Int64, Int64]:
    """For every element that maps one of ``nodes`` to ``node`` the index of that one, and the element; int64 both."""
    at = np.flatnonzero(symmetry.node_orbits[nodes] == symmetry.node_orbits[node])
    if symmetry.place[node] >= 0:
        return at, symmetry.product(symmetry.place[node], symmetry.inverse(symmetry.place[nodes[at]]))
    which, element = np.nonzero(symmetry.image(np.arange(symmetry.size), nodes[at, None]) == node)
    return at[which], element


def _chunks_at(plan: SymmetricPlan, nodes: Ragged, node: int) -> Int64:
    """The chunks of which a node is among ``nodes``, given for each representative."""
    at, element = elements_to(plan.symmetry, nodes.values, node)
    return plan.orbits.chunks(nodes.owners[at], element)


@dataclass(frozen=True)
class Images:
    """Some images of transfers of a plan by symmetry, by their number in the expanded plan.

    Attributes:
        row, element: int64[images], the transfer of a representative and the element.
    """

    plan: SymmetricPlan
    row: Int64
    element: Int64

    @classmethod
    def of(cls, plan: SymmetricPlan, nodes: Ragged, node: int) -> Images:
        """The images that have ``node`` among the nodes given for each transfer."""
        at, element = elements_to(plan.symmetry, nodes.values, node)
        row = nodes.owners[at]
        order = np.lexsort((element, row))
        return cls(plan, row[order], element[order])

    @cached_property
    def number(self) -> Int64:
        return self.row * self.plan.symmetry.size + self.element

    @cached_property
    def chunk(self) -> list[int]:
        chunks: list[int] = self.plan.orbits.chunks(self.plan.part.chunk[self.row], self.element).tolist()
        return chunks

    def others(self, rows: Ragged) -> tuple[Ragged, Int64]:
        """A list of rows for each image, which stand for their images under its element: the lists, and the elements,
        int64[values].

        Args:
            rows: for each transfer of a representative some others.
        """
        lists = rows.take(self.row)
        return lists, self.element[lists.owners]

    @cached_property
    def dst(self) -> list[list[int]]:
        """The receivers of each."""
        lists, element = self.others(self.plan.part.dst)
        return _lists(lists.with_values(self.plan.symmetry.image(element, lists.values)))

    def subflows(self, peer: list[int]) -> list[int]:
        """For each image with one receiver the number of its route among those to or from the same peer; 0 for others.

        Args:
            peer: of each image, the other end.
        """
        lists, element = self.others(self.plan.part.route)
        links = self.plan.symmetry.image_of_links(element, lists.values)
        # a hash of 64 bits tells routes apart
        place = np.arange(len(links)) - np.repeat(lists.offsets[:-1], lists.lengths)
        x = (place.astype(np.uint64) << np.uint64(32)) + links.astype(np.uint64) + np.uint64(1)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        key = lists.reduced(np.add, x ^ (x >> np.uint64(31)))
        single = (self.plan.part.dst.lengths[self.row] == 1).tolist()
        routes: dict[int, dict[int, int]] = defaultdict(dict)
        numbers = []
        for other, route, alone in zip(peer, key.tolist(), single, strict=True):
            known = routes[other] if alone else {}
            numbers.append(known.setdefault(route, len(known)) % MOST_SUBFLOWS)
        return numbers


def _lists(r: Ragged) -> list[list[int]]:
    offsets, values = r.offsets.tolist(), r.values.tolist()
    return [values[a:b] for a, b in pairwise(offsets)]


def _versions(program: Program, sent: Images, received: Images, wanted: Int64) -> dict[int, int]:
    """Give the program the versions of its chunks; returns for each transfer that it sends the version."""
    plan = sent.plan
    op = dict(zip(received.number.tolist(), plan.part.op[received.row].tolist(), strict=True))
    writes: dict[int, list[int]] = defaultdict(list)
    for k, chunk in zip(op, received.chunk, strict=True):
        writes[chunk].append(k)
    reads: dict[int, dict[frozenset[int], list[int]]] = defaultdict(lambda: defaultdict(list))
    lists, element = sent.others(plan.part.depends)
    causes = _lists(Ragged(lists.offsets, _numbers(plan, lists.values, element)))
    for k, chunk, waits in zip(sent.number.tolist(), sent.chunk, causes, strict=True):
        reads[chunk][lasting_writes(op, set(writes.get(chunk, ())).intersection(waits))].append(k)
    wants = set(wanted.tolist())
    version_of: dict[int, int] = {}
    for chunk in {*reads, *wants}:
        version_of |= add_versions(program, chunk, op, reads[chunk], writes.get(chunk, ()), chunk in wants)
    return version_of


def _numbers(plan: SymmetricPlan, rows: NDArray[Any], element: Int64) -> Any:
    return rows.astype(np.int64) * plan.symmetry.size + element


def _send(program: Program, sent: Images, version_of: dict[int, int]) -> None:
    plan, part = sent.plan, sent.plan.part
    assert part.start_s is not None and part.finish_s is not None, "timed"
    start_s = np.maximum(part.workload.chunk_start_s[part.chunk], part.start_s)[sent.row]
    seconds = (part.finish_s - part.start_s)[sent.row]
    rate = plan.orbits.sizes(part.chunk[sent.row], sent.element) / seconds
    subflow = sent.subflows([to[0] for to in sent.dst])
    rows = zip(sent.number.tolist(), sent.chunk, sent.dst, start_s.tolist(), rate.tolist(), subflow, strict=True)
    for k, chunk, to, at_s, bps, flow in rows:
        program.sends[k] = Send(k, chunk, version_of[k], tuple(to), at_s, bps, 0.0, flow)


def _receive(program: Program, received: Images) -> None:
    part, symmetry = received.plan.part, received.plan.symmetry
    source = symmetry.image(received.element, part.src[received.row]).tolist()
    copies = (part.op[received.row] == COPY).tolist()
    rows = zip(received.number.tolist(), received.chunk, source, copies, received.subflows(source), strict=True)
    for k, *facts in rows:
        program.receives[k] = Receive(k, *facts)


def _wait(program: Program, sent: Images) -> None:
    """Fill in what transfers from here wait for, see :func:`.programs._wait`."""
    lists, element = sent.others(sent.plan.part.depends)
    causes = Images(sent.plan, lists.values.astype(np.int64), element)
    numbers, places = causes.number.tolist(), causes.dst
    here = program.node
    for i, k in enumerate(sent.number.tolist()):
        waits = 0
        first, end = int(lists.offsets[i]), int(lists.offsets[i + 1])
        for cause, at in dict(zip(numbers[first:end], places[first:end], strict=True)).items():
            for place in [here] if here in at else at:
                program.wakes.setdefault((cause, place), []).append(k)
                waits += 1
        program.waits[k] = waits


def _signal(program: Program, received: Images) -> None:
    """Fill in which nodes to signal what has happened here."""
    part, symmetry = received.plan.part, received.plan.symmetry
    lists, element = received.others(part.dependents)
    senders = _lists(lists.with_values(symmetry.image(element, part.src[lists.values])))
    for k, at, others in zip(received.number.tolist(), received.dst, senders, strict=True):
        nodes = [v for v in dict.fromkeys(others) if v not in at]
        if nodes:
            program.signals[k] = nodes

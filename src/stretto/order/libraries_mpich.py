"""What MPICH sends, by the algorithms that it takes by itself.

Facts from pmodels/mpich at 6a79bf65: which algorithm, maint/tuning/coll/mpir/generic.json, and for machines with
several ranks maint/tuning/coll/ch4/generic.json; what each sends, src/mpi/coll. Where machines have several ranks,
AllReduce, Reduce, and Broadcasts that are short or of few ranks go by the first rank of each machine.

As in Open MPI, Rabenseifner's algorithm begins with the nearest numbers: half of the buffer goes to rank ^ 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..model.arrays import Int64
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import Step
from . import mpi_algorithms as mpi
from .exchanges import every_block, power_below
from .mpi_algorithms import Row, Tables
from .patterns import Part, Pattern, backwards, inside_machines, renumbered
from .traffic import Layout, Traffic

ALWAYS = math.inf
SHORT = 12_288
"""Bytes up to which a Broadcast is short."""
FEW = 8
"""Ranks below which a Broadcast is by a binomial tree, however long it is."""


def mpich(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """What MPICH sends for a buffer of ``size_bytes``."""
    short = layout.ranks < FEW or size_bytes < SHORT
    by_first = {each: make for each, make in BY_FIRST.items() if short or each not in ONLY_IF_SHORT}
    return mpi.traffic("MPICH", tables(layout.ranks), by_first, layout, kind, size_bytes, root)


def tables(ranks: int) -> Tables:
    """What decides for a number of ranks: bytes of the buffer, or of a rank's piece where the kind has pieces."""
    power = power_below(ranks)
    halved = 4 * power  # bytes below which there are fewer elements, of 4 bytes, than blocks to cut
    longer = ((524_288 + 1, mpi.SCATTERED),) if power == ranks else ()
    spread = (
        ((ALWAYS, mpi.BINOMIAL),) if ranks < FEW else ((SHORT + 1, mpi.BINOMIAL), *longer, (ALWAYS, mpi.SCATTERED_RING))
    )
    gather = ((524_288 / ranks, mpi.DOUBLE) if power == ranks else (81_920 / ranks, mpi.BRUCK), (ALWAYS, mpi.RING))
    exchange = ((32_769, mpi.AT_ONCE), (ALWAYS, mpi.PAIRS))
    return {
        "allreduce": (
            _any((max(9, halved), mpi.RD), (ALWAYS, mpi.RAB)),
            {mpi.RD: mpi.recursive_doubling, mpi.RAB: mpi.rabenseifner},
        ),
        "allgather": (
            _any(*gather),
            {mpi.DOUBLE: mpi.allgather_doubling, mpi.BRUCK: mpi.allgather_bruck, mpi.RING: mpi.allgather_ring},
        ),
        "broadcast": (
            _any(*spread),
            {
                mpi.BINOMIAL: mpi.binomial_broadcast,
                mpi.SCATTERED: mpi.scattered_broadcast,
                mpi.SCATTERED_RING: mpi.scattered_ring_broadcast,
            },
        ),
        "reduce": (
            _any((max(2049, halved), mpi.BINOMIAL), (ALWAYS, mpi.RAB)),
            {mpi.BINOMIAL: mpi.binomial_reduce, mpi.RAB: mpi.reduce_by_halves},
        ),
        "reducescatter": (
            _any((524_288 / ranks, mpi.HALVES), (ALWAYS, mpi.PAIRS)),
            {mpi.HALVES: mpi.reduce_scatter_halves, mpi.PAIRS: mpi.reduce_scatter_pairs},
        ),
        "alltoall": (
            _any(*exchange) if ranks < FEW else _any((257, mpi.BRUCK), *exchange),
            {mpi.BRUCK: mpi.alltoall_bruck, mpi.AT_ONCE: mpi.alltoall_at_once, mpi.PAIRS: mpi.alltoall_exchange},
        ),
        "gather": (_any((ALWAYS, mpi.BINOMIAL)), {mpi.BINOMIAL: mpi.gather_binomial}),
        "scatter": (_any((ALWAYS, mpi.BINOMIAL)), {mpi.BINOMIAL: mpi.scatter_binomial}),
    }


def _any(*row: tuple[float, str]) -> tuple[Row, ...]:
    """A table with one row."""
    return ((ALWAYS, row),)


# --- several ranks on a machine -------------------------------------------------------------------


def _allreduce_by_first(layout: Layout, size_bytes: int, root: int) -> Pattern:
    pattern, parts = _among_first(layout, "allreduce", size_bytes, 0)
    return replace(
        pattern, parts=(_sums_inside(layout, pattern.blocks), *parts, _copies_inside(layout, pattern.blocks))
    )


def _reduce_by_first(layout: Layout, size_bytes: int, root: int) -> Pattern:
    """The first rank of the root's machine hands the sum to the root, if that is another rank."""
    here = int(layout.machine[root])
    pattern, parts = _among_first(layout, "reduce", size_bytes, here)
    last = _between(layout.members[here][0], root, pattern.blocks)
    return replace(pattern, parts=(_sums_inside(layout, pattern.blocks), *parts, *last))


def _broadcast_by_first(layout: Layout, size_bytes: int, root: int) -> Pattern:
    here = int(layout.machine[root])
    pattern, parts = _among_first(layout, "broadcast", size_bytes, here)
    first = _between(root, layout.members[here][0], pattern.blocks)
    return replace(pattern, parts=(*first, *parts, _copies_inside(layout, pattern.blocks)))


def _among_first(layout: Layout, kind: str, size_bytes: int, root: int) -> tuple[Pattern, list[Part]]:
    """The algorithm for a rank on each machine, and its parts among the first ranks of the machines."""
    machines = len(layout.members)
    pattern = mpi.chosen("MPICH", tables(machines), kind, machines, size_bytes, root)
    firsts: Int64 = np.array([ranks[0] for ranks in layout.members])
    return pattern, [replace(part, steps=renumbered(part.steps, firsts)) for part in pattern.parts]


def _sums_inside(layout: Layout, blocks: int) -> Part:
    return Part([every_block(step, blocks) for step in backwards(inside_machines(layout.members), REDUCE)], tree=True)


def _copies_inside(layout: Layout, blocks: int) -> Part:
    return Part([every_block(step, blocks) for step in inside_machines(layout.members)], tree=True)


def _between(src: int, dst: int, blocks: int) -> list[Part]:
    """The whole buffer from one rank to another, if that is another."""
    if src == dst:
        return []
    return [Part([Step(np.arange(blocks), np.full(blocks, src), np.full(blocks, dst), COPY)])]


BY_FIRST = {"allreduce": _allreduce_by_first, "reduce": _reduce_by_first, "broadcast": _broadcast_by_first}
"""By kind of collective how it goes by the first ranks of the machines."""
ONLY_IF_SHORT = ("broadcast",)
"""Kinds that go by the first ranks only if they are short or have few ranks."""

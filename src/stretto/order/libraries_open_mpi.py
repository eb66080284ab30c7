"""What Open MPI 5.0 sends, by the algorithms that it takes by itself.

Facts from open-mpi/ompi at v5.0.10: which algorithm, see :mod:`.open_mpi_choice`; what each sends, ompi/mca/coll/base
(coll_base_allreduce.c, coll_base_allgather.c, coll_base_bcast.c, coll_base_reduce.c, coll_base_reduce_scatter_block.c,
coll_base_alltoall.c, coll_base_gather.c, coll_base_scatter.c, coll_base_topo.c). By default no message is cut into
segments. With one rank on each machine coll/han steps aside (coll_han_subcomms.c); with more see :mod:`.open_mpi_han`.
Gathers and Scatters are described as those of one rank on each machine. ``tests/test_order_mpi.py`` compares this with
the bytes that the Open MPI of the package index puts on each cable of an emulated network.

An AllReduce by Rabenseifner's algorithm begins with the nearest numbers: half of the buffer goes to rank ^ 1, a quarter
to rank ^ 2, and so on.
"""

from __future__ import annotations

from dataclasses import replace

from . import mpi_algorithms as mpi
from . import open_mpi_choice as by
from . import open_mpi_han
from .exchanges import (
    binary,
    chain,
    every_block,
    highest_bit,
    knomial,
    lowest_bit,
)
from .mpi_algorithms import Make, Row
from .patterns import Pattern
from .traffic import Layout, Traffic

RADIX = 4
"""Of the k-nomial tree (coll_tuned_bcast_knomial_radix)."""


def open_mpi(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """What Open MPI sends for a buffer of ``size_bytes``."""
    even = len({len(ranks) for ranks in layout.members}) == 1
    inside_first = {each: make for each, make in INSIDE_FIRST.items() if even or each not in ONLY_IF_EVEN}
    return mpi.traffic("Open MPI", TABLES, inside_first, layout, kind, size_bytes, root)


def _chosen(kind: str, ranks: int, piece_bytes: float, root: int = 0) -> Pattern:
    return mpi.chosen("Open MPI", TABLES, kind, ranks, piece_bytes, root)


def _twice(ranks: int, root: int, piece_bytes: float) -> Pattern:
    parts = _chosen("reduce", ranks, piece_bytes).parts + _chosen("broadcast", ranks, piece_bytes).parts
    return Pattern(mpi.TWICE, parts)


def _sum_all(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """Rank 0 gets all sums, and hands out the pieces."""
    sums = _chosen("reduce", ranks, piece_bytes * ranks).parts
    parts = (replace(part, steps=[every_block(step, ranks) for step in part.steps]) for part in sums)
    return Pattern(mpi.SUM_ALL, (*parts, *_chosen("scatter", ranks, piece_bytes).parts))


TABLES: dict[str, tuple[tuple[Row, ...], dict[str, Make]]] = {
    "allreduce": (
        by.ALLREDUCE,
        {
            mpi.RD: mpi.recursive_doubling,
            mpi.RING: mpi.allreduce_ring,
            mpi.SEG: mpi.allreduce_ring,
            mpi.RAB: mpi.rabenseifner_by_halves,
            mpi.TWICE: _twice,
        },
    ),
    "allgather": (
        by.ALLGATHER,
        {
            mpi.DOUBLE: mpi.allgather_doubling,
            mpi.BRUCK: mpi.allgather_bruck,
            mpi.RING: mpi.allgather_ring,
            mpi.NEAR: mpi.allgather_neighbors,
        },
    ),
    "broadcast": (
        by.BROADCAST,
        {
            mpi.LINEAR: mpi.broadcast_linear,
            mpi.CHAIN: mpi.spread_along(chain, mpi.CHAIN),
            mpi.BINARY: mpi.spread_along(binary, mpi.BINARY),
            mpi.BINOMIAL: mpi.spread_along(highest_bit, mpi.BINOMIAL),
            mpi.KNOMIAL: mpi.spread_along(knomial(RADIX), mpi.KNOMIAL),
            mpi.SCATTERED: mpi.scattered_broadcast,
        },
    ),
    "reduce": (
        by.REDUCE,
        {
            mpi.LINEAR: mpi.reduce_linear,
            mpi.CHAIN: mpi.sum_along(chain, mpi.CHAIN),
            mpi.BINARY: mpi.sum_along(binary, mpi.BINARY),
            mpi.BINOMIAL: mpi.sum_along(lowest_bit, mpi.BINOMIAL),
        },
    ),
    "reducescatter": (
        by.REDUCE_SCATTER_BLOCK,
        {mpi.SUM_ALL: _sum_all, mpi.HALVES: mpi.reduce_scatter_halves, mpi.BUTTERFLY: mpi.reduce_scatter_butterfly},
    ),
    "alltoall": (
        by.ALLTOALL,
        {mpi.AT_ONCE: mpi.alltoall_at_once, mpi.PAIRS: mpi.alltoall_pairs, mpi.BRUCK: mpi.alltoall_bruck},
    ),
    "gather": (by.GATHER, {mpi.LINEAR: mpi.gather_linear, mpi.BINOMIAL: mpi.gather_binomial}),
    "scatter": (by.SCATTER, {mpi.LINEAR: mpi.scatter_linear, mpi.BINOMIAL: mpi.scatter_binomial}),
}
"""By kind of collective what decides, and the algorithms by name."""


def _among_machines(machines: int, size_bytes: float) -> Pattern:
    return _chosen("allgather", machines, size_bytes)


INSIDE_FIRST = {**open_mpi_han.INSIDE_FIRST, "allgather": open_mpi_han.allgather(_among_machines)}
"""Kinds that are carried out inside each machine first, where machines have several ranks."""
ONLY_IF_EVEN = ("allgather",)
"""Kinds that are so only if all machines have equally many ranks."""

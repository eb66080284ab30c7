"""Which algorithm Open MPI 5.0 takes by itself, by the number of ranks and bytes: data.

From coll/tuned of open-mpi/ompi at v5.0.10 (ompi/mca/coll/tuned/coll_tuned_decision_fixed.c), for sums that commute.
A row of a table is for fewer ranks than its first number; it lists pairs (fewer bytes than, algorithm). Bytes are those
of the buffer of AllReduce, Broadcast and Reduce, else those of one rank's piece.
"""

from __future__ import annotations

import math

from .mpi_algorithms import (
    AT_ONCE,
    BINARY,
    BINOMIAL,
    BRUCK,
    BUTTERFLY,
    CHAIN,
    DOUBLE,
    HALVES,
    IN_ORDER,
    KNOMIAL,
    LINEAR,
    NEAR,
    PAIRS,
    RAB,
    RD,
    RING,
    SCATTERED,
    SEG,
    SPLIT,
    SUM_ALL,
    TWICE,
    Row,
)

ALWAYS = math.inf
K, M = 1024, 1 << 20

ALLREDUCE: tuple[Row, ...] = (
    (4, ((8, RING), (4 * K, RD), (8 * K, RING), (16 * K, RD), (64 * K, RING), (256 * K, SEG), (ALWAYS, RAB))),
    (8, ((16, RING), (8 * K, RD), (ALWAYS, RAB))),
    (16, ((8 * K, RD), (ALWAYS, RAB))),
    (32, ((64, SEG), (4 * K, RD), (ALWAYS, RAB))),
    (64, ((128, SEG), (ALWAYS, RAB))),
    (128, ((256 * K, RD), (ALWAYS, RAB))),
    (256, ((128 * K, TWICE), (256 * K, RD), (ALWAYS, RAB))),
    (512, ((4 * K, TWICE), (ALWAYS, RAB))),
    (2048, ((2 * K, TWICE), (16 * K, RD), (ALWAYS, RAB))),
    (4096, ((2 * K, TWICE), (4 * K, SEG), (16 * K, RD), (ALWAYS, RAB))),
    (ALWAYS, ((2 * K, TWICE), (16 * K, SEG), (32 * K, RD), (ALWAYS, RAB))),
)

ALLGATHER: tuple[Row, ...] = (
    (32, ((ALWAYS, DOUBLE),)),
    (64, ((1 * K, DOUBLE), (64 * K, NEAR), (ALWAYS, RING))),
    (128, ((512, DOUBLE), (64 * K, NEAR), (ALWAYS, RING))),
    (256, ((512, DOUBLE), (128 * K, NEAR), (512 * K, RING), (1 * M, NEAR), (ALWAYS, RING))),
    (512, ((32, DOUBLE), (128, BRUCK), (1 * K, DOUBLE), (128 * K, NEAR), (512 * K, RING), (1 * M, NEAR),
           (ALWAYS, RING))),
    (1024, ((64, DOUBLE), (256, BRUCK), (2 * K, DOUBLE), (ALWAYS, NEAR))),
    (2048, ((4, DOUBLE), (8, BRUCK), (16, DOUBLE), (32, BRUCK), (256, DOUBLE), (512, BRUCK), (4 * K, DOUBLE),
            (ALWAYS, NEAR))),
    (4096, ((32, BRUCK), (128, DOUBLE), (512, BRUCK), (4 * K, DOUBLE), (ALWAYS, NEAR))),
    (ALWAYS, ((2, DOUBLE), (8, BRUCK), (16, DOUBLE), (512, BRUCK), (4 * K, DOUBLE), (ALWAYS, NEAR))),
)  # fmt: skip

BROADCAST: tuple[Row, ...] = (
    (4, ((32, CHAIN), (256, BINARY), (512, CHAIN), (1 * K, KNOMIAL), (32 * K, LINEAR), (128 * K, BINARY),
         (256 * K, CHAIN), (512 * K, LINEAR), (1 * M, BINOMIAL), (ALWAYS, BINARY))),
    (8, ((64, BINARY), (128, BINOMIAL), (2 * K, BINARY), (8 * K, BINOMIAL), (1 * M, LINEAR), (ALWAYS, CHAIN))),
    (16, ((8, KNOMIAL), (64, BINARY), (4 * K, KNOMIAL), (16 * K, BINARY), (32 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (32, ((4 * K, KNOMIAL), (1 * M, BINOMIAL), (ALWAYS, SCATTERED))),
    (64, ((2 * K, BINOMIAL), (ALWAYS, KNOMIAL))),
    (128, ((ALWAYS, KNOMIAL),)),
    (256, ((2, BINOMIAL), (16 * K, BINARY), (32 * K, LINEAR), (64 * K, BINARY), (ALWAYS, KNOMIAL))),
    (1024, ((16 * K, KNOMIAL), (32 * K, SPLIT), (ALWAYS, KNOMIAL))),
    (2048, ((512 * K, KNOMIAL), (ALWAYS, SCATTERED))),
    (4096, ((256 * K, KNOMIAL), (ALWAYS, SCATTERED))),
    (ALWAYS, ((8 * K, KNOMIAL), (16 * K, BINARY), (256 * K, KNOMIAL), (ALWAYS, SCATTERED))),
)  # fmt: skip

REDUCE: tuple[Row, ...] = (
    (4, ((8, LINEAR), (16, BINARY), (32, CHAIN), (256 * K, LINEAR), (ALWAYS, CHAIN))),
    (8, ((4 * K, BINARY), (64 * K, CHAIN), (256 * K, BINOMIAL), (512 * K, LINEAR), (1 * M, BINOMIAL),
         (ALWAYS, LINEAR))),
    (16, ((8 * K, BINARY), (ALWAYS, BINOMIAL))),
    (32, ((4 * K, BINARY), (ALWAYS, BINOMIAL))),
    (256, ((ALWAYS, BINOMIAL),)),
    (512, ((8 * K, BINOMIAL), (16 * K, IN_ORDER), (ALWAYS, BINOMIAL))),
    (2048, ((ALWAYS, BINOMIAL),)),
    (4096, ((512, BINOMIAL), (1 * K, IN_ORDER), (8 * K, BINOMIAL), (16 * K, IN_ORDER), (ALWAYS, BINOMIAL))),
    (ALWAYS, ((16, BINOMIAL), (32, IN_ORDER), (1 * K, BINOMIAL), (2 * K, IN_ORDER), (8 * K, BINOMIAL),
              (16 * K, IN_ORDER), (ALWAYS, BINOMIAL))),
)  # fmt: skip

REDUCE_SCATTER_BLOCK: tuple[Row, ...] = (
    (4, ((4, RD), (8, BUTTERFLY), (16, HALVES), (128, BUTTERFLY), (256, HALVES), (4 * K, BUTTERFLY), (8 * K, HALVES),
         (128 * K, BUTTERFLY), (ALWAYS, SUM_ALL))),
    (8, ((8, HALVES), (32, RD), (256, BUTTERFLY), (8 * K, HALVES), (16 * K, BUTTERFLY), (1 * M, HALVES),
         (ALWAYS, SUM_ALL))),
    (16, ((4, SUM_ALL), (32, HALVES), (128, BUTTERFLY), (512 * K, HALVES), (4 * M, SUM_ALL), (ALWAYS, BUTTERFLY))),
    (32, ((32, SUM_ALL), (512 * K, HALVES), (2 * M, SUM_ALL), (4 * M, HALVES), (ALWAYS, BUTTERFLY))),
    (ALWAYS, ((4, HALVES), (16, SUM_ALL), (64 * K, BUTTERFLY), (256 * K, SUM_ALL), (ALWAYS, BUTTERFLY))),
)  # fmt: skip

ALLTOALL: tuple[Row, ...] = (
    (3, ((ALWAYS, PAIRS),)),
    (8, ((512 * K, AT_ONCE), (1 * M, PAIRS), (ALWAYS, AT_ONCE))),
    (16, ((ALWAYS, AT_ONCE),)),
    (32, ((4, AT_ONCE), (512, BRUCK), (ALWAYS, AT_ONCE))),
    (64, ((512, BRUCK), (ALWAYS, AT_ONCE))),
    (128, ((1 * K, BRUCK), (256 * K, AT_ONCE), (ALWAYS, PAIRS))),
    (256, ((1 * K, BRUCK), (256 * K, AT_ONCE), (ALWAYS, PAIRS))),
    (512, ((1 * K, BRUCK), (32 * K, AT_ONCE), (ALWAYS, PAIRS))),
    (1024, ((512, BRUCK), (256 * K, AT_ONCE), (ALWAYS, PAIRS))),
    (2048, ((512, BRUCK), (ALWAYS, AT_ONCE))),
    (4096, ((1 * K, BRUCK), (ALWAYS, AT_ONCE))),
    (ALWAYS, ((2 * K, BRUCK), (ALWAYS, AT_ONCE))),
)

GATHER: tuple[Row, ...] = (
    (4, ((2, LINEAR), (4, LINEAR), (32 * K, BINOMIAL), (64 * K, LINEAR), (128 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (8, ((1 * K, BINOMIAL), (8 * K, LINEAR), (32 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (256, ((ALWAYS, BINOMIAL),)),
    (512, ((2 * K, BINOMIAL), (8 * K, LINEAR), (ALWAYS, BINOMIAL))),
    (ALWAYS, ((ALWAYS, BINOMIAL),)),
)

SCATTER: tuple[Row, ...] = (
    (4, ((ALWAYS, LINEAR),)),
    (8, ((2 * K, BINOMIAL), (4 * K, LINEAR), (8 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (32, ((16 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (64, ((512, BINOMIAL), (8 * K, LINEAR), (16 * K, BINOMIAL), (ALWAYS, LINEAR))),
    (ALWAYS, ((512, BINOMIAL), (ALWAYS, LINEAR))),
)

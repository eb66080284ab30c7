"""The algorithms of MPI libraries, each for a number of ranks: what is sent, in which order, and who waits for what.

Facts from open-mpi/ompi at v5.0.10 (ompi/mca/coll/base) and pmodels/mpich at 6a79bf65 (src/mpi/coll); what one library
alone has says so. Long messages are sent by a rendezvous, so a rank goes on only when what it sends has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..model.errors import Unsupported
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import ALGORITHMS, Step
from .exchanges import (
    bruck_pieces,
    doubled_pieces,
    down,
    exchanged_sums,
    folded,
    folded_by_halves,
    folded_pieces,
    halved,
    halves_down,
    halving_and_doubling,
    members,
    nearest_last_halving,
    neighbor_exchange,
    one_by_one,
    power_below,
    reversed_bits,
    sums_at,
)
from .patterns import (
    Part,
    Pattern,
    backwards,
    from_root,
    renumbered,
    ring_copies,
    ring_sums_and_copies,
    to_root,
    together,
)
from .traffic import Layout, Traffic

RD = "recursive doubling"
RING = "ring"
SEG = "segmented ring"
RAB = "rabenseifner"
TWICE = "reduce, then broadcast"
DOUBLE, BRUCK, NEAR = "recursive doubling", "bruck", "neighbor exchange"
LINEAR, CHAIN, BINARY, BINOMIAL, KNOMIAL = "linear", "chain", "binary tree", "binomial tree", "knomial tree"
SPLIT, SCATTERED, SCATTERED_RING = "split binary tree", "scatter, then allgather", "scatter, then ring"
IN_ORDER = "in-order binary tree"
SUM_ALL, HALVES, BUTTERFLY = "reduce, then scatter", "recursive halving", "butterfly"
AT_ONCE, PAIRS = "linear", "pairwise"

Row = tuple[float, tuple[tuple[float, str], ...]]
"""For fewer ranks than its number: pairs (fewer bytes than, algorithm)."""
Make = Callable[[int, int, float], Pattern]
"""An algorithm for a number of ranks, the root, and the bytes of the buffer or of a rank's piece."""


def choice(table: tuple[Row, ...], ranks: int, size_bytes: float) -> str:
    """The algorithm of the first row for as many ranks, and in it for as many bytes."""
    row = next(row for below, row in table if ranks < below)
    return next(name for below, name in row if size_bytes < below)


Tables = Mapping[str, tuple[tuple[Row, ...], Mapping[str, Make]]]
"""By kind of collective: what decides, and the algorithms by name."""


def chosen(library: str, tables: Tables, kind: str, ranks: int, piece_bytes: float, root: int = 0) -> Pattern:
    """The algorithm that a library takes for one rank on each machine.

    Args:
        piece_bytes: of the buffer, or of a rank's piece.
    Raises:
        Unsupported: the library has no such collective, or an algorithm that is not described here.
    """
    if kind not in tables:
        raise Unsupported(f"{library} has no {kind} here; it has {', '.join(sorted(tables))}")
    table, algorithms = tables[kind]
    name = choice(table, ranks, piece_bytes)
    if name not in algorithms:
        raise Unsupported(f"what {library} sends for {kind} of {ranks} ranks by its {name} is not known here")
    return algorithms[name](ranks, root, piece_bytes)


def traffic(
    library: str, tables: Tables, inside_first: Mapping[str, Callable[[Layout, int, int], Pattern]], layout: Layout,
    kind: str, size_bytes: int, root: int,
) -> Traffic:  # fmt: skip
    """What a library sends; ``inside_first`` are its algorithms for machines with several ranks."""
    whole = kind in BY_NAME and BY_NAME[kind].whole
    piece_bytes = size_bytes if whole else size_bytes / layout.ranks
    if kind in inside_first and 1 < len(layout.members) < layout.ranks:
        return inside_first[kind](layout, size_bytes, root).traffic(piece_bytes)
    return chosen(library, tables, kind, layout.ranks, piece_bytes, root).traffic(piece_bytes)


def spread_along(parent: Callable[[int], int], name: str) -> Make:
    return lambda ranks, root, piece_bytes: Pattern(
        name, (Part(from_root(down(ranks, parent), root, ranks), tree=True),)
    )


def sum_along(parent: Callable[[int], int], name: str) -> Make:
    def make(ranks: int, root: int, piece_bytes: float) -> Pattern:
        return Pattern(name, (Part(backwards(from_root(down(ranks, parent), root, ranks), REDUCE), tree=True),))

    return make


def binomial_broadcast(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """MPICH's: to one rank after the other, the largest subtree first."""
    return Pattern(BINOMIAL, (Part(from_root(halves_down(ranks), root, ranks)),))


def binomial_reduce(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """MPICH's: from one rank after the other, the smallest subtree first."""
    return Pattern(BINOMIAL, (Part(backwards(from_root(halves_down(ranks), root, ranks), REDUCE)),))


def recursive_doubling(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(RD, (Part(folded(ranks, exchanged_sums, 1)),))


def _doubled_ranges(ranks: int) -> list[Step]:
    """AllGather of pieces by distances 1, 2, 4 for any number of ranks: who has no partner gets what its half lacks."""
    if power_below(ranks) == ranks:
        return doubled_pieces(ranks)
    has = [{v} for v in range(ranks)]
    steps = []
    for distance in (1 << s for s in range((ranks - 1).bit_length())):
        now = [(b, v, v ^ distance) for v in range(ranks) if v ^ distance < ranks for b in sorted(has[v])]
        steps.append(now)
        _receive(has, now)
        below = distance >> 1
        while below:  # ranks without a partner are served by those of their half that had one, nearest halves last
            pairs = [(v, v ^ below) for v in range(ranks) if v < v ^ below < ranks]
            late = [(b, v, w) for v, w in pairs for b in sorted(has[v] - has[w])]
            steps.append(late)
            _receive(has, late)
            below >>= 1
    columns = (np.array(rows, dtype=np.int64).T for rows in steps if rows)
    return [Step(block, src, dst, COPY) for block, src, dst in columns]


def _receive(has: list[set[int]], rows: list[tuple[int, int, int]]) -> None:
    for block, _, to in rows:
        has[to].add(block)


def scattered_broadcast(ranks: int, root: int, piece_bytes: float) -> Pattern:
    scatter = from_root(halves_down(ranks, whole=False), root, ranks, blocks=1)
    gather = from_root(_doubled_ranges(ranks), root, ranks, blocks=1)
    return Pattern(SCATTERED, (Part(scatter), Part(gather)), ranks)


def allgather_doubling(ranks: int, root: int, piece_bytes: float) -> Pattern:
    if power_below(ranks) != ranks:
        return allgather_bruck(ranks, root, piece_bytes)
    return Pattern(DOUBLE, (Part(doubled_pieces(ranks)),))


def allgather_bruck(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(BRUCK, (Part(bruck_pieces(ranks)),))


def allgather_ring(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(RING, (Part(ring_copies(ranks, begins=0, by=1)),))


def reduce_scatter_halves(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(HALVES, (Part(folded_pieces(ranks, nearest_last_halving, lambda block, power: block)),))


def alltoall_at_once(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(AT_ONCE, (Part([together(ALGORITHMS["pairwise"].steps("alltoall", ranks))]),))


def alltoall_pairs(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(PAIRS, (Part(ALGORITHMS["pairwise"].steps("alltoall", ranks)),))


def alltoall_bruck(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(BRUCK, (Part(ALGORITHMS["bruck"].steps("alltoall", ranks)),))


def gather_binomial(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(BINOMIAL, (Part(backwards(_scatter_tree(ranks, root), COPY)),))


def scatter_binomial(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(BINOMIAL, (Part(_scatter_tree(ranks, root)),))


def _scatter_tree(ranks: int, root: int) -> list[Step]:
    return from_root(halves_down(ranks, whole=False), root, ranks, blocks=1)


def rabenseifner_by_halves(ranks: int, root: int, piece_bytes: float) -> Pattern:
    blocks = power_below(ranks)
    return Pattern(RAB, (Part(folded_by_halves(ranks, halving_and_doubling, blocks)),), blocks)


def allreduce_ring(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(RING, (Part(ring_sums_and_copies(ranks, place=1, by=1)),), ranks)


def broadcast_linear(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(LINEAR, (Part(backwards([to_root(ranks, root, np.zeros(ranks, dtype=np.int64), COPY)], COPY)),))


def scattered_ring_broadcast(ranks: int, root: int, piece_bytes: float) -> Pattern:
    scatter = from_root(halves_down(ranks, whole=False), root, ranks, blocks=1)
    gather = from_root(ring_copies(ranks, begins=0, by=1), root, ranks, blocks=1)
    return Pattern(SCATTERED_RING, (Part(scatter), Part(gather)), ranks)


def rabenseifner(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """MPICH's: of the first pairs the even rank hands in all that it has."""
    blocks = power_below(ranks)
    return Pattern(RAB, (Part(folded(ranks, halving_and_doubling, blocks)),), blocks)


def reduce_by_halves(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """MPICH's: of the first pairs the odd rank hands in all that it has, and if it is the root takes rank 0's place."""
    blocks = power_below(ranks)
    over, inner = ranks - blocks, members(ranks, odd=False)
    place = np.flatnonzero(inner == root)
    halving, gather = sums_at(blocks, int(place[0]) if len(place) else 0)
    block, odd = (a.ravel() for a in np.meshgrid(np.arange(blocks), 2 * np.arange(over) + 1))
    steps = [Step(block, odd, odd - 1, REDUCE)] if over else []
    steps += renumbered(halving, inner)
    if not len(place):
        steps.append(Step(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.full(1, root), COPY))
        inner = np.concatenate(([root], inner[1:]))
    steps += renumbered(gather, inner)
    return Pattern(RAB, (Part(steps),), blocks)


def reduce_scatter_pairs(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(PAIRS, (Part(ALGORITHMS["all-pairs"].steps("reducescatter", ranks)),))


def alltoall_exchange(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """MPICH's: with a power of two of ranks, step s is an exchange with rank ^ s."""
    if power_below(ranks) != ranks:
        return alltoall_pairs(ranks, root, piece_bytes)
    v = np.arange(ranks)
    steps = [Step(v * ranks + (v ^ s), v, v ^ s, COPY) for s in range(1, ranks)]
    return Pattern(PAIRS, (Part(steps),))


def reduce_linear(ranks: int, root: int, piece_bytes: float) -> Pattern:
    """The root receives from the highest rank first, one after the other."""
    return Pattern(LINEAR, (Part(one_by_one(ranks, root, False, REDUCE, last_first=True), in_order=True),))


def allgather_neighbors(ranks: int, root: int, piece_bytes: float) -> Pattern:
    if ranks % 2:
        return allgather_ring(ranks, root, piece_bytes)
    return Pattern(NEAR, (Part(neighbor_exchange(ranks)),))


def reduce_scatter_butterfly(ranks: int, root: int, piece_bytes: float) -> Pattern:
    def steps(power: int) -> list[Step]:
        return [halved(0, power, s, power) for s in range(power.bit_length() - 1)]

    return Pattern(BUTTERFLY, (Part(folded_pieces(ranks, steps, reversed_bits)),))


def gather_linear(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(LINEAR, (Part(one_by_one(ranks, root, True, COPY), in_order=True),))


def scatter_linear(ranks: int, root: int, piece_bytes: float) -> Pattern:
    return Pattern(LINEAR, (Part(backwards([to_root(ranks, root, np.arange(ranks), COPY)], COPY)),))

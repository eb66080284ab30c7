"""AllToAll of uneven parts: a matrix says how many bytes each rank has for each.

Mixtures of experts need it, since their router decides which tokens go to which expert. The collective has a piece for
each pair of ranks of which the first has bytes for the second. Its size is the most bytes that a rank starts with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Int64, Ragged
from .chunks import cut
from .collective import Collective, make_collective
from .errors import InputError
from .topology import Topology


def alltoallv(
    topology: Topology,
    demand: ArrayLike,
    *,
    ranks: Sequence[int] | None = None,
    chunks: int = 1,
    start_s: float = 0.0,
    where: str = "demand",
) -> Collective:
    """The AllToAll in which rank i has ``demand[i, j]`` bytes for rank j.

    Args:
        ranks: as for :func:`~stretto.model.collective.make_collective`.
        chunks: likewise.
        start_s: likewise.
        where: the argument that errors name.
    Raises:
        InputError: the matrix has not a row and a column for each rank, asks for nothing, or for negative bytes.
    """
    n = len(topology.accelerators if ranks is None else ranks)
    matrix = np.asarray(demand)
    if matrix.shape != (n, n):
        raise InputError(f"the matrix is {'x'.join(map(str, matrix.shape))}, and there are {n} ranks", where)
    if matrix.dtype.kind not in "iu" or (matrix < 0).any():
        raise InputError("bytes must be whole and not negative", where)
    if not matrix[~np.eye(n, dtype=np.bool_)].any():
        raise InputError("no rank has bytes for another", where)
    matrix = matrix.astype(np.int64)
    sender, receiver = np.nonzero(matrix)
    most = int(matrix.sum(axis=1).max())
    nodes = make_collective("alltoall", topology, n, ranks=ranks).ranks
    ends = Ragged.single(sender), Ragged.single(receiver)
    uncut = Collective.uncut("alltoallv", nodes, most, matrix[sender, receiver], *ends, start_s=float(start_s))
    return cut(uncut, chunks)


def demand_of(collective: Collective) -> Int64:
    """int64[ranks, ranks], the bytes that each rank has for each, of an AllToAll of either kind."""
    n = len(collective.ranks)
    matrix = np.zeros((n, n), dtype=np.int64)
    np.add.at(matrix, (collective.holders.values, collective.wanted.values), collective.piece_bytes)
    return matrix

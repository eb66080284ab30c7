"""What the verifier asks of collectives: do their pieces say what their kind means?"""

from __future__ import annotations

import numpy as np

from ..model.collective import ALLTOALLV, PROMISES, REMAINDER, Collective


def broken_promise(c: Collective) -> str | None:
    """What is wrong with the pieces of a collective, None where they are what its kind promises."""
    ranks = len(c.ranks)
    if len(np.unique(c.ranks)) != ranks:
        return "a node has two ranks"
    if c.kind == "multicast":
        if len(c.piece_bytes) != 1 or c.piece_bytes[0] != c.size_bytes or list(c.holders[0]) != [c.root]:
            return "its one piece must be the root's whole buffer"
        return None
    if c.kind == REMAINDER:
        return None if c.piece_bytes.sum() == c.size_bytes and not c.reduces else "its pieces must add up to its size"
    if c.kind == ALLTOALLV:
        return _broken_matrix(c)
    if c.kind not in PROMISES:
        return "no such kind"
    pieces = PROMISES[c.kind](ranks, c.size_bytes, c.root)
    same = np.array_equal(pieces.piece_bytes, c.piece_bytes) and c.reduces == (
        c.kind in ("allreduce", "reducescatter", "reduce")
    )
    for ours, theirs in ((pieces.holders, c.holders), (pieces.wanted, c.wanted)):
        same = same and np.array_equal(ours.offsets, theirs.offsets) and np.array_equal(ours.values, theirs.values)
    return None if same else f"its pieces are not those of {c.kind} among {ranks} ranks"


def _broken_matrix(c: Collective) -> str | None:
    if c.reduces or (c.holders.lengths != 1).any() or (c.wanted.lengths != 1).any():
        return "each of its pieces must go from one rank to one"
    pair = c.holders.values.astype(np.int64) * len(c.ranks) + c.wanted.values
    if len(np.unique(pair)) != len(pair) or (c.piece_bytes < 1).any():
        return "two ranks have one piece of at least one byte between them, or none"
    most = np.bincount(c.holders.values, weights=c.piece_bytes).max()
    return None if most == c.size_bytes else "its size must be what the rank that has most starts with"

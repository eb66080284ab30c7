"""Collectives promise what their kind means, and chunks cover their pieces."""

from __future__ import annotations

import numpy as np

from ..model.collective import Collective, Workload
from ..model.kinds import BY_NAME
from ..model.plan import Plan
from .findings import Finding


def broken_promise(plan: Plan) -> Finding | None:
    """The first collective whose pieces are not those of its kind, or whose chunks do not cover them exactly."""
    return wrong_collectives(plan.workload)


def wrong_collectives(workload: Workload) -> Finding | None:
    """:func:`broken_promise` of a workload."""
    base = 0
    for number, c in enumerate(workload.collectives):
        wrong = _wrong_pieces(c)
        if wrong is not None:
            return Finding("promise", f"collective {number} ({c.kind}): {wrong}")
        if (c.chunk_piece < 0).any() or (c.chunk_piece >= len(c.piece_bytes)).any() or (c.chunk_bytes < 1).any():
            return Finding("cover", f"collective {number} ({c.kind}): a chunk of no piece or of no bytes")
        order = np.lexsort((c.chunk_offset, c.chunk_piece))
        piece, offset = c.chunk_piece[order], c.chunk_offset[order]
        end = offset + c.chunk_bytes[order]
        first = np.concatenate(([True], piece[1:] != piece[:-1]))
        last = np.concatenate((first[1:], [True]))
        expected = np.where(first, 0, np.concatenate(([0], end[:-1])))
        bad = np.flatnonzero((offset != expected) | (last & (end != c.piece_bytes[piece])))
        if len(bad) or first.sum() != len(c.piece_bytes):
            chunk = base + int(order[bad[0]]) if len(bad) else None
            what = f"chunk {chunk} leaves a gap or overlaps" if len(bad) else "a piece has no chunk"
            return Finding("cover", f"collective {number} ({c.kind}): {what}", chunk=chunk)
        base += c.chunk_count
    return None


def _wrong_pieces(c: Collective) -> str | None:
    """What is wrong with the pieces of a collective, None if they are what its kind promises."""
    ranks = len(c.ranks)
    if len(np.unique(c.ranks)) != ranks:
        return "a node has two ranks"
    kind = BY_NAME.get(c.kind)
    if kind is None:
        return "no such kind"
    if c.reduces != kind.reduces:
        return "its pieces are sums" if c.reduces else "its pieces are no sums"
    if not kind.general:
        return {
            "multicast": _broken_multicast, "remainder": _broken_remainder, "partial-sums": _broken_remainder,
            "alltoallv": _broken_matrix,
        }[c.kind](c)  # fmt: skip
    piece_bytes, holders, wanted = kind.promise(ranks, c.size_bytes, c.root)
    same = np.array_equal(piece_bytes, c.piece_bytes)
    for ours, theirs in ((holders, c.holders), (wanted, c.wanted)):
        same = same and np.array_equal(ours.offsets, theirs.offsets) and np.array_equal(ours.values, theirs.values)
    return None if same else f"its pieces are not those of {c.kind} among {ranks} ranks"


def _broken_multicast(c: Collective) -> str | None:
    if len(c.piece_bytes) != 1 or c.piece_bytes[0] != c.size_bytes or list(c.holders[0]) != [c.root]:
        return "its one piece must be the root's whole buffer"
    return None


def _broken_remainder(c: Collective) -> str | None:
    return None if c.piece_bytes.sum() == c.size_bytes else "its pieces must add up to its size"


def _broken_matrix(c: Collective) -> str | None:
    if (c.holders.lengths != 1).any() or (c.wanted.lengths != 1).any():
        return "each of its pieces must go from one rank to one"
    pair = c.holders.values.astype(np.int64) * len(c.ranks) + c.wanted.values
    if len(np.unique(pair)) != len(pair) or (c.piece_bytes < 1).any():
        return "two ranks have one piece of at least one byte between them, or none"
    most = np.bincount(c.holders.values, weights=c.piece_bytes).max()
    return None if most == c.size_bytes else "its size must be what the rank that has most starts with"

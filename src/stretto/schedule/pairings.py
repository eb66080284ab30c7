"""Pairings: what the steps of a fixed algorithm ask of optical circuits.

The pairing of a step says who sends to whom (:mod:`.algorithms`).
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64, Int32, Int64
from ..model.kinds import BY_NAME
from .algorithms import Algorithm


def demands(algorithm: Algorithm, kind: str, ranks: int, size_bytes: int) -> tuple[Float64, Int64]:
    """What the steps of an algorithm ask of optical circuits, found without making transfers.

    Returns:
        float64[steps], the largest part of the full buffer that any rank sends in the step; and int64[steps], the
        number of its pairing, the same for steps that one matching can serve.
    """
    pieces = 1 if BY_NAME[kind].whole else ranks
    steps = algorithm.steps(kind, ranks, size_bytes // pieces)
    blocks = pieces * algorithm.blocks(kind, ranks, size_bytes // pieces)
    partners = np.full((len(steps), ranks), -1, dtype=np.int32)
    for row, step in zip(partners, steps, strict=True):
        row[step.src] = step.dst
    known: dict[bytes, int] = {}
    return (
        np.array([np.bincount(s.src).max() / blocks for s in steps]),
        np.array([known.setdefault(row.tobytes(), len(known)) for row in completed(partners)], dtype=np.int64),
    )


def completed(partners: Int32) -> Int32:
    """The pairing of each step, where pairings that one plane can hold at the same time become one.

    A pairing may so get circuits that its step does not use. They do no harm: all that was possible still is, and
    planes need to turn less often.

    Args:
        partners: int32[steps, nodes], whom each node sends to, -1 for none.
    """
    kinds, which = np.unique(partners, axis=0, return_inverse=True)
    joint: list[Int32] = []
    place = np.zeros(len(kinds), dtype=np.int64)
    for kind in np.argsort(-(kinds >= 0).sum(axis=1), kind="stable").tolist():
        own = kinds[kind]
        fitting = (i for i, other in enumerate(joint) if _together(own, other)) if (own < 0).any() else iter(())
        place[kind] = next(fitting, len(joint))
        if place[kind] == len(joint):
            joint.append(own.copy())
        else:
            joint[place[kind]] = np.maximum(joint[place[kind]], own)
    return np.array(joint, dtype=np.int32).reshape(-1, partners.shape[1])[place[which.ravel()]]


def _together(one: Int32, other: Int32) -> bool:
    """Whether a plane can hold both pairings: no node would send to two others, or receive from two."""
    sends = one >= 0
    fresh = one[sends & (other < 0)]
    return bool(((other[sends] < 0) | (other[sends] == one[sends])).all() and not np.isin(fresh, other).any())

"""Chunks that are to be delivered, and how pipes choose among them, as kernels take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Chunks(NamedTuple):
    """What is to be delivered.

    Attributes:
        size_bytes, start_s: float64[chunks]; no chunk is sent before its start.
        hold_offsets, hold_nodes: CSR, the nodes that hold each chunk at first.
    """

    size_bytes: Float64
    start_s: Float64
    hold_offsets: Int64
    hold_nodes: Int64


class Keys(NamedTuple):
    """A solution of a matching: what its pipes prefer (:func:`.matching.match`)."""

    salt: Int64  # int64[chunks], what the preferences of each chunk are drawn from
    turn: Float64  # float64[pipes], which of pipes that would arrive together goes first, the lowest; no two are equal
    hold_s: Float64  # float64[pipes], seconds before which each is not used
    spread: float  # how many copies more a preferred chunk may have
    scarcity: float  # for how many copies a pipe counts that could bring a chunk to the same node
    # whether of pipes that would arrive together the one with the rarest chunk goes first; for pipes that share links
    rarest_first: bool
    patient: bool  # whether a pipe waits rather than bring what the cluster at its end has

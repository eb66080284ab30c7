"""Test data for running a plan, and what every rank must end with by the plain definition of its collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ..model.plan import Plan
from ..model.progress import Progress, silent

Bytes = NDArray[np.uint8]


def initial_bytes(plan: Plan, chunk: int, node: int, seed: int = 0) -> Bytes:
    """The bytes of a chunk at a node at first: random, and different at every node where they will be summed."""
    holder = node + 1 if plan.workload.chunk_reduces[chunk] else 0
    rng = np.random.default_rng((seed, chunk, holder))
    return rng.integers(0, 256, int(plan.workload.chunk_bytes[chunk]), dtype=np.uint8)


def final_bytes(plan: Plan, chunk: int, seed: int = 0) -> Bytes:
    """The bytes that a rank must end with: the copy, or the sum modulo 256 over all holders."""
    holders = plan.workload.chunk_holders[chunk].tolist()
    if not plan.workload.chunk_reduces[chunk]:
        return initial_bytes(plan, chunk, holders[0], seed)
    total = np.zeros(int(plan.workload.chunk_bytes[chunk]), dtype=np.uint8)
    for node in holders:
        total += initial_bytes(plan, chunk, node, seed)
    return total


def inputs(plan: Plan, chunks: Iterable[int], node: int, seed: int = 0) -> dict[int, Bytes]:
    """The bytes of each chunk that a node holds at first."""
    return {chunk: initial_bytes(plan, chunk, node, seed) for chunk in chunks}


def outputs(plan: Plan, chunks: Iterable[int]) -> dict[int, Bytes]:
    """Memory for the chunks that a node wants, filled with bytes that are unlikely to be right."""
    return {chunk: np.full(int(plan.workload.chunk_bytes[chunk]), 0xA5, dtype=np.uint8) for chunk in chunks}


def wrong_chunks(plan: Plan, results: dict[int, Bytes], seed: int = 0) -> list[int]:
    """The chunks whose bytes are wrong."""
    return [chunk for chunk, result in results.items() if not np.array_equal(result, final_bytes(plan, chunk, seed))]


def digest(content: Bytes) -> bytes:
    """A digest of a chunk's bytes, to compare them without sending them."""
    return blake2b(content.data, digest_size=16).digest()


def wrong_by_digest(
    plan: Plan, digests: Mapping[int, Mapping[int, bytes]], seed: int = 0, progress: Progress = silent
) -> list[tuple[int, int]]:
    """The (node, chunk) pairs whose bytes are wrong; the right bytes of a chunk are computed once for all nodes."""
    chunks = sorted({chunk for of_node in digests.values() for chunk in of_node})
    right = {}
    for number, chunk in enumerate(chunks):
        progress(number, len(chunks), "checking chunks")
        right[chunk] = digest(final_bytes(plan, chunk, seed))
    return [(node, chunk) for node, row in digests.items() for chunk, value in row.items() if value != right[chunk]]

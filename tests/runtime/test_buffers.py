"""Sums are added up in their fixed order, whatever comes first."""

from __future__ import annotations

import socket
from itertools import permutations

import numpy as np
import pytest

from stretto.lower import ChunkSteps, Steps, Version
from stretto.runtime.buffers import Buffers
from stretto.runtime.incoming import PIECE_BYTES, Landing
from stretto.runtime.mesh import Connection

COUNT = PIECE_BYTES // 4 + 10


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_arrivals_are_added_in_order_in_place_and_only_the_early_one_is_kept(order):
    parts = {row: np.random.default_rng(row).random(COUNT, dtype=np.float32) for row in (7, 8)}
    own = np.full(COUNT, 1e4, dtype=np.float32)
    wanted = (own + parts[7]) + parts[8]
    chunk = ChunkSteps((Version(-1, ()), Version(0, (7, 8))), final=1, held=True, size_bytes=own.nbytes)
    slot = Buffers(Steps({0: chunk}), {0: own}, {0: own}, None, np.float32, np.add).slots[0]
    slot.begin()
    for row in order:
        assert slot.comes_early(row) == (order[0] == 8 and row == 8)
        landing = Landing(slot, row, copies=False)
        assert (landing.version is None) == slot.comes_early(row)
        data = memoryview(parts[row]).cast("B")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            c = Connection(ours, 1)
            half = len(data) // 8 * 4
            for c.place, c.due in ((half, len(data) - half), (0, half)):  # the second part comes first
                while c.due:
                    target = landing.target(c)
                    target[:] = data[c.place : c.place + len(target)]
                    landing.fill(c)
        assert landing.received == len(data)
        landing.finish()
    slot.finish()
    assert np.array_equal(own, wanted)


@pytest.mark.parametrize("order", list(permutations((7, 8, 9))))
@pytest.mark.parametrize("in_place", [False, True])
def test_the_own_contribution_is_added_in_the_middle(order, in_place):
    parts = {row: np.random.default_rng(row).random(9, dtype=np.float32) * np.float32(10**row) for row in (7, 8, 9)}
    own = np.full(9, 1e8, dtype=np.float32) / 3
    given = own.copy()
    wanted = ((parts[7] + parts[8]) + own) + parts[9]
    versions = (Version(-1, ()), Version(-1, (7, 8)), Version(1, (~0, 9)))
    out = given if in_place else np.zeros(9, dtype=np.float32)
    chunk = ChunkSteps(versions, final=2, held=True, size_bytes=own.nbytes)
    slot = Buffers(Steps({0: chunk}), {0: given}, {0: out}, None, np.float32, np.add).slots[0]
    slot.begin()
    for row in order:
        memory = slot.memory(row, copies=False)
        memory[:] = parts[row]
        slot.arrive(row, memory)
    slot.finish()
    assert np.array_equal(out, wanted)
    assert in_place or np.array_equal(given, own)


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_whole_arrivals_are_taken_in_any_order(order):
    parts = {row: np.random.default_rng(row).random(9, dtype=np.float32) for row in (7, 8)}
    out = np.zeros(9, dtype=np.float32)
    chunk = ChunkSteps((Version(-1, (7,)), Version(0, (8,))), final=1, held=False, size_bytes=out.nbytes)
    slot = Buffers(Steps({0: chunk}), {}, {0: out}, None, np.float32, np.add).slots[0]
    slot.begin()
    for row in order:
        slot.take(row, row == 7, memoryview(bytearray(b"." + parts[row].tobytes()))[1:])  # at any address
    slot.finish()
    assert np.array_equal(out, parts[7] + parts[8])


def test_a_whole_arrival_that_two_versions_need_is_taken_for_both():
    part, own, out = (np.full(9, x, dtype=np.float32) for x in (2, 3, 0))
    chunk = ChunkSteps(
        (Version(-1, ()), Version(0, (7,)), Version(-1, (7,))), final=1, held=True, size_bytes=own.nbytes
    )
    slot = Buffers(Steps({0: chunk}), {0: own}, {0: out}, None, np.float32, np.add).slots[0]
    slot.begin()
    slot.take(7, False, memoryview(part.tobytes()))
    assert np.array_equal(slot.arrays[2], part)
    slot.finish()
    assert np.array_equal(out, part + own)

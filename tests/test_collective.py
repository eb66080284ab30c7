"""Collectives: the promise of each kind, its sizes as nccl-tests count them, and its chunks."""

from __future__ import annotations

import numpy as np
import pytest

from networks import ring
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.kinds import KINDS
from stretto.model.reach import find_unreachable
from stretto.model.topology import make_topology


def pieces(kind: str, size: int = 12) -> list[tuple[int, list[int], list[int]]]:
    c = make_collective(kind, ring(3), size, root=1)
    return [(int(b), c.holders[p].tolist(), c.wanted[p].tolist()) for p, b in enumerate(c.piece_bytes)]


def test_allgather_gives_every_shard_to_everyone():
    assert pieces("allgather") == [(4, [r], [0, 1, 2]) for r in range(3)]


def test_reducescatter_gives_each_rank_its_shard_of_the_sum():
    assert pieces("reducescatter") == [(4, [0, 1, 2], [r]) for r in range(3)]


def test_allreduce_gives_everyone_the_sum():
    assert pieces("allreduce") == [(12, [0, 1, 2], [0, 1, 2])]


def test_alltoall_sends_a_block_from_each_rank_to_each():
    assert pieces("alltoall") == [(4, [a], [b]) for a in range(3) for b in range(3)]


def test_broadcast_starts_and_reduce_ends_at_the_root():
    assert pieces("broadcast") == [(12, [1], [0, 1, 2])]
    assert pieces("reduce") == [(12, [0, 1, 2], [1])]


def test_scatter_starts_and_gather_ends_at_the_root():
    assert pieces("scatter") == [(4, [1], [r]) for r in range(3)]
    assert pieces("gather") == [(4, [r], [1]) for r in range(3)]


def test_multicast_goes_to_its_receivers():
    c = make_collective("multicast", ring(4), 10, root=1, receivers=[3, 0])
    assert (c.holders[0].tolist(), c.wanted[0].tolist()) == ([1], [0, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_is_the_size_over_the_ranks(kind):
    c = make_collective(kind, ring(5), shard_bytes=7)
    assert (c.size_bytes, c.shard_bytes) == (35, 7)


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
def test_chunks_cover_their_pieces_and_differ_by_a_byte_at_most(chunks):
    c = make_collective("allgather", ring(3), 100, chunks=chunks)
    for p, size in enumerate(c.piece_bytes):
        mine = c.chunk_piece == p
        assert c.chunk_bytes[mine].sum() == size
        assert np.ptp(c.chunk_bytes[mine]) <= 1
        assert (c.chunk_offset[mine] == np.concatenate(([0], np.cumsum(c.chunk_bytes[mine])[:-1]))).all()


def test_a_workload_numbers_the_chunks_of_its_collectives_through():
    net = ring(4)
    work = Workload((make_collective("allgather", net, 40, chunks=2), make_collective("broadcast", net, 9, root=2)))
    assert work.chunk_base.tolist() == [0, 8, 9]
    assert work.chunk_holders[8].tolist() == [2]
    assert work.chunk_collective.tolist() == [0] * 8 + [1]


def test_ranks_may_be_some_of_the_accelerators():
    c = make_collective("allgather", ring(6), 4, ranks=[4, 1])
    assert [c.chunk_holders[i].tolist() for i in range(2)] == [[4], [1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "allgatter"}, "no collective"),
        ({"size_bytes": 2}, "raise the size"),
        ({"chunks": 0}, "at least one"),
        ({"root": 3, "kind": "broadcast"}, "root 3"),
        ({"ranks": [0]}, "at least 2 ranks"),
        ({"ranks": [0, 0]}, "only once"),
        ({"ranks": [0, 9]}, "accelerator"),
        ({"shard_bytes": 4}, "either"),
        ({"kind": "multicast"}, "receivers"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        make_collective(**{"kind": "allgather", "topology": ring(3), "size_bytes": 12, **arguments})


def test_a_pair_that_is_not_joined_is_found():
    net = make_topology("one-way", [0, 0, 0], [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0), (1, 0, 1.0, 0.0)])
    assert find_unreachable(net, make_collective("allgather", net, 3)) == (2, 0)
    assert find_unreachable(net, make_collective("broadcast", net, 3, root=0)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_is_what_is_listed(kind):
    c = make_collective(kind, ring(5), 1000, chunks=2)
    assert (c.piece_count, c.chunk_count) == (len(c.piece_bytes), len(c.chunk_piece))
    assert c.pairs == len(c.holders.values) + len(c.wanted.values)

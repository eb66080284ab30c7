"""What libraries send: the steps of each algorithm, run on numbers, leave at every rank what the collective promises."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.errors import Unsupported
from stretto.model.kinds import BY_NAME
from stretto.model.plan import REDUCE
from stretto.order import libraries_gloo, libraries_mpich, libraries_nccl, libraries_open_mpi
from stretto.order.libraries import LIBRARIES
from stretto.order.patterns import Pattern, ring_copies, ring_sums, ring_sums_and_copies
from stretto.order.traffic import Layout, Traffic

MB = 10**6


def run_on_numbers(pattern: Pattern, kind: str, ranks: int, root: int) -> None:
    """Every holder begins with a number of its own for each block; at last a rank has each sum, or each copy, once."""
    traits = BY_NAME[kind]
    blocks = traits.pieces_among(ranks) * pattern.blocks
    _, holders, wanted = traits.promise(ranks, blocks, root)
    has = np.zeros((ranks, blocks, ranks), dtype=np.int64)  # how often the number of each rank is in each sum
    promised = np.zeros((blocks, ranks), dtype=np.int64)
    for block in range(blocks):
        own = holders[block // pattern.blocks]
        has[own, block, own] = promised[block, own] = 1
    for step in pattern.steps:
        sent = has[step.src, step.block]
        assert sent.any(axis=1).all(), "a rank sends what it does not have"
        if step.op == REDUCE:
            np.add.at(has, (step.dst, step.block), sent)
        else:
            has[step.dst, step.block] = sent
    for block in range(blocks):
        for rank in wanted[block // pattern.blocks]:
            assert has[rank, block].tolist() == promised[block].tolist(), f"block {block} at rank {rank}"


def sent_bytes(traffic: Traffic, ranks: int) -> np.ndarray:
    """Bytes from each rank to each."""
    sent = np.zeros((ranks, ranks))
    for phase in traffic.phases:
        np.add.at(sent, (phase.src, phase.dst), phase.size_bytes * phase.times)
    return sent


@pytest.mark.parametrize("kind", libraries_gloo.ALGORITHMS)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_gloo_leaves_what_the_collective_promises(kind, ranks):
    for root in {0, ranks - 1} if BY_NAME[kind].rooted else {0}:
        run_on_numbers(libraries_gloo.ALGORITHMS[kind](ranks, 4 * MB, root), kind, ranks, root)


@pytest.mark.parametrize("ranks", range(2, 18))
@pytest.mark.parametrize("algorithm", [libraries_gloo.binary_blocks, libraries_gloo.hypercube])
def test_gloos_other_allreduces_sum_at_every_rank(algorithm, ranks):
    run_on_numbers(algorithm(ranks), "allreduce", ranks, 0)


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_a_ring_sends_down_the_numbers_in_segments_of_a_megabyte_at_most(ranks):
    traffic = LIBRARIES["gloo"].traffic(Layout.even(ranks), "allreduce", 40 * MB, 0)
    (ring,) = traffic.phases
    assert ((ring.src - ring.dst) % ranks == 1).all()
    assert ring.size_bytes.max() <= 2**20
    assert ring.size_bytes[0] * ring.times == pytest.approx(2 * (ranks - 1) / ranks * 40 * MB, rel=1e-3)
    assert set(ring.lag.tolist()) == {2}


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("library", ["gloo", "gloo-halving-doubling", "gloo-bcube"])
def test_an_allreduce_of_a_power_of_two_of_ranks_sends_no_byte_twice(library, ranks):
    traffic = LIBRARIES[library].traffic(Layout.even(ranks), "allreduce", 16 * MB, 0)
    each = sent_bytes(traffic, ranks).sum(axis=1)
    assert each == pytest.approx(np.full(ranks, 2 * (ranks - 1) / ranks * 16 * MB), rel=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 8, 13])
@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_every_algorithm_of_mpi_leaves_what_the_collective_promises(library, ranks):
    tables = libraries_open_mpi.TABLES if library == "openmpi" else libraries_mpich.tables(ranks)
    for kind, (_, algorithms) in tables.items():
        for make in algorithms.values():
            for root in {0, 1, ranks - 1} if BY_NAME[kind].rooted else {0}:
                run_on_numbers(make(ranks, root, MB), kind, ranks, root)


@pytest.mark.parametrize("counts", [[2, 2], [3, 3, 3, 3, 3], [1, 4, 2, 1, 3, 2]])
def test_machines_with_several_ranks_sum_inside_first(counts):
    layout = Layout(np.repeat(np.arange(len(counts)), counts))
    ends = {0, 1, layout.ranks - 1}
    even = len(set(counts)) == 1
    for kind, make in (*libraries_open_mpi.INSIDE_FIRST.items(), *libraries_mpich.BY_FIRST.items()):
        for root in ends if BY_NAME[kind].rooted else {0}:
            if even or kind not in libraries_open_mpi.ONLY_IF_EVEN:
                run_on_numbers(make(layout, MB, root), kind, layout.ranks, root)


@pytest.mark.parametrize(
    ("library", "ranks", "size_bytes", "algorithm"),
    [
        ("openmpi", 6, 4_000, "recursive doubling"),
        ("openmpi", 6, 4 * MB, "rabenseifner"),
        ("openmpi", 200, 100_000, "reduce, then broadcast"),
        ("mpich", 6, 8, "recursive doubling"),
        ("mpich", 6, 4 * MB, "rabenseifner"),
    ],
)
def test_mpi_chooses_by_ranks_and_bytes(library, ranks, size_bytes, algorithm):
    assert LIBRARIES[library].traffic(Layout.even(ranks), "allreduce", size_bytes, 0).algorithm == algorithm


def test_half_of_an_mpi_allreduce_goes_to_the_nearest_number():
    sent = sent_bytes(LIBRARIES["openmpi"].traffic(Layout.even(8), "allreduce", 8 * MB, 0), 8)
    expected = {1: 8 * MB, 2: 4 * MB, 4: 2 * MB}  # both ways through the tree
    assert all(sent[v, v ^ far] == size for v in range(8) for far, size in expected.items())
    assert sent.sum() == 8 * sum(expected.values())


def test_a_rank_of_mpi_ends_each_step_before_it_begins_the_next():
    phases = LIBRARIES["mpich"].traffic(Layout.even(8), "allreduce", 4 * MB, 0).phases
    # halves to the nearest, quarters, and eighths there and back, which are one phase; then quarters and halves again
    assert [(phase.times, int(phase.size_bytes[0])) for phase in phases] == [
        (1, 2 * MB), (1, MB), (2, MB // 2), (1, MB), (1, 2 * MB),
    ]  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce"])
def test_every_rank_gets_and_gives_at_least_what_it_must(library, kind):
    """Of sums that all or none hold, and of pieces, so many bytes must enter and leave each rank."""
    ranks, size = 12, 12 * MB
    sent = sent_bytes(LIBRARIES[library].traffic(Layout.even(ranks), kind, size, 0), ranks)
    piece = size / ranks
    least_in = {"allreduce": piece, "broadcast": size, "reduce": 0, "reducescatter": piece}.get(kind, size - piece)
    enters = sent.sum(axis=0)[1:] if BY_NAME[kind].rooted else sent.sum(axis=0)
    assert enters.min() >= least_in * (1 - 1e-6)
    assert sent.trace() == 0


@pytest.mark.parametrize("counts", [[1] * 5, [2, 2], [4, 4, 4], [2, 3, 4], [3]])
@pytest.mark.parametrize("algorithms", [libraries_nccl.RINGS, libraries_nccl.TREES], ids=["rings", "trees"])
def test_nccl_leaves_what_the_collective_promises(algorithms, counts):
    layout = Layout(np.repeat(np.arange(len(counts)), counts))
    for kind, make in algorithms.items():
        for root in {0, layout.ranks - 1} if BY_NAME[kind].rooted else {0}:
            run_on_numbers(make(layout, 10 * MB, root), kind, layout.ranks, root)


def test_rings_of_nccl_go_from_each_machine_to_the_next_number_on_every_channel():
    layout = Layout.even(5, 4)
    sent = sent_bytes(LIBRARIES["nccl-ring"].traffic(layout, "allreduce", 80 * MB, 0), layout.ranks)
    between = np.array([[sent[np.ix_(a, b)] for b in layout.members] for a in layout.members])
    for a in range(5):
        for b in range(5):
            channels = np.count_nonzero(between[a, b])
            assert channels == (4 if b in (a, (a + 1) % 5) else 0)


def test_trees_of_nccl_join_the_machines_as_ncclgetdtree_does():
    # the figure in src/graph/trees.cc: for an even number of machines the second tree is the mirror of the first
    layout = Layout.even(8)
    sent = sent_bytes(LIBRARIES["nccl-tree"].traffic(layout, "allreduce", 8 * MB, 0), 8)
    first = {(0, 4), (4, 2), (4, 6), (2, 1), (2, 3), (6, 5), (6, 7)}
    second = {(7 - a, 7 - b) for a, b in first}
    assert {(a, b) for a, b in np.argwhere(sent).tolist()} == {
        pair for a, b in first | second for pair in ((a, b), (b, a))
    }


def test_nccl_takes_trees_for_short_and_rings_for_long_allreduces():
    names = [LIBRARIES["nccl"].traffic(Layout.even(8, 8), "allreduce", size, 0).algorithm for size in (MB, 1000 * MB)]
    assert names == ["tree", "ring"]


@pytest.mark.parametrize("steps", [ring_sums(5, 2, -1), ring_copies(5, 0, 1), ring_sums_and_copies(5, 1, 1)])
def test_steps_of_a_ring_differ_in_their_blocks_alone(steps):
    first = steps[0]
    assert all(s.src.tolist() == first.src.tolist() and s.dst.tolist() == first.dst.tolist() for s in steps)
    assert all(len(set(s.block.tolist())) == 5 for s in steps)


def test_what_a_library_does_not_have_is_refused_by_name():
    with pytest.raises(Unsupported, match="gloo has no multicast"):
        LIBRARIES["gloo"].traffic(Layout.even(4), "multicast", MB, 0)

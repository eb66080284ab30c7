"""Plans by symmetry: they are the plans that their images make, for the verifier and the simulator too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.collective import Promised, Workload, make_collective
from stretto.model.plan import COPY, REDUCE
from stretto.model.symmetric import SymmetricPlan, dealt, make_symmetric_plan
from stretto.model.symmetry import Symmetry
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

N = 6


@pytest.fixture(scope="module")
def ring() -> Symmetry:
    """A ring of accelerators, turned by one."""
    topology = load_topology(f"ring:{N}?bandwidth=1GB/s&latency=1us")
    return Symmetry(topology, np.roll(np.arange(N, dtype=np.int32), -1)[None], np.array([N]))


def steps_around(symmetry: Symmetry, first: int, hops: int, size_bytes: int, begin_s: float):
    """The transfers of one chunk over ``hops`` links to the right, one after another: src, dst, route, start, finish."""
    t = symmetry.topology
    src = (first + np.arange(hops)) % N
    dst = (src + 1) % N
    route = symmetry.links_between(src, dst)
    seconds = size_bytes / t.bandwidth[route]
    finish = begin_s + np.cumsum(seconds + t.latency_s[route]) - t.latency_s[route]
    return src, dst, route, finish - seconds, finish


def allgather(symmetry: Symmetry, size: int) -> SymmetricPlan:
    """Each rank's piece goes once around."""
    work = Workload((make_collective("allgather", symmetry.topology, size),))
    src, dst, route, start, finish = steps_around(symmetry, 0, N - 1, -(-size // N), 0.0)
    return make_symmetric_plan(
        symmetry, work, owner=[0], position=[0], meta={"planner": "test"},
        chunk=np.zeros(N - 1), src=src, dst=Ragged.single(dst), route=Ragged.single(route),
        depends=Ragged.of([[], *([k] for k in range(N - 2))]), start_s=start, finish_s=finish,
    )  # fmt: skip


def allreduce(symmetry: Symmetry, size: int) -> SymmetricPlan:
    """Each chunk is summed around the ring up to its owner, and copied around from there."""
    whole = make_collective("allreduce", symmetry.topology, size)
    work = Workload((dealt(whole, np.array([size]), np.array([N])),))
    chunk_bytes = -(-size // N)
    sums = steps_around(symmetry, 1, N - 1, chunk_bytes, 0.0)
    copies = steps_around(symmetry, 0, N - 1, chunk_bytes, float(sums[4][-1]) + 1e-6)
    src, dst, route, start, finish = (np.concatenate(both) for both in zip(sums, copies, strict=True))
    return make_symmetric_plan(
        symmetry, work, owner=[0], position=[0],
        chunk=np.zeros(2 * (N - 1)), src=src, op=[REDUCE] * (N - 1) + [COPY] * (N - 1), dst=Ragged.single(dst),
        route=Ragged.single(route), depends=Ragged.of([[], *([k] for k in range(2 * N - 3))]), start_s=start,
        finish_s=finish,
    )  # fmt: skip


def alltoall(symmetry: Symmetry, size: int) -> SymmetricPlan:
    """Each pair's piece goes to the right until it is there, the farthest first."""
    work = Workload((make_collective("alltoall", symmetry.topology, size),))
    each, begin, parts, chunk = -(-size // N), 0.0, [], []
    for k in range(N - 1, -1, -1):
        if k:
            parts.append(steps_around(symmetry, 0, k, each, begin))
            begin += k * (each / 1e9 + 1e-6)
        chunk += [N - 1 - k] * k
    src, dst, route, start, finish = (np.concatenate(column) for column in zip(*parts, strict=True))
    waits = [[k - 1] if k and chunk[k] == chunk[k - 1] else [] for k in range(len(chunk))]
    return make_symmetric_plan(
        symmetry, work, owner=[(0, k) for k in range(N - 1, -1, -1)], position=np.zeros(N),
        chunk=chunk, src=src, dst=Ragged.single(dst), route=Ragged.single(route), depends=Ragged.of(waits),
        start_s=start, finish_s=finish,
    )  # fmt: skip


PLANS = [allgather, allreduce, alltoall]


@pytest.mark.parametrize("make", PLANS)
@pytest.mark.parametrize("size", [3600, 3601, 3650])
def test_the_images_are_the_plan(ring, make, size):
    plan = make(ring, size)
    plain = plan.expand()
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert plain.transfer_count == plan.transfer_count == plan.part.transfer_count * N
    ours, theirs = simulate(plan), simulate(plain)
    assert ours.completion_s == pytest.approx(theirs.completion_s, rel=1e-12)
    for column in ("start_s", "finish_s", "arrival_s", "hop_offset_s"):
        assert np.allclose(getattr(ours, column), getattr(theirs, column), rtol=1e-12, atol=0), column
    assert np.array_equal(ours.link_bytes, theirs.link_bytes) or size % N


@pytest.mark.parametrize("make", PLANS)
def test_columns_are_those_of_the_expanded_plan(ring, make):
    plan = make(ring, 3600)
    plain = plan.expand()
    for column in ("chunk", "src", "op", "start_s", "finish_s"):
        assert np.array_equal(getattr(plan, column), getattr(plain, column)), column
    for column in ("dst", "route", "depends"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(plan, column), getattr(plain, column), strict=True))
    assert not isinstance(replace(plan, meta={}), SymmetricPlan)
    assert plan.digest() == plan.noted({"planner": "another"}).digest() != plain.digest()


def test_two_groups_of_ranks_do_the_same(ring):
    """Ranks 0, 2, 4 and ranks 1, 3, 5 gather, each among themselves, over each other's accelerators."""
    each = [make_collective("allgather", ring.topology, 3000, ranks=ranks) for ranks in ((0, 2, 4), (1, 3, 5))]
    src, dst, route, start, finish = steps_around(ring, 0, N - 2, 1000, 0.0)
    plan = make_symmetric_plan(
        ring, Workload(tuple(each)), owner=[0], position=[0], chunk=np.zeros(N - 2), src=src, dst=Ragged.single(dst),
        route=Ragged.single(route), depends=Ragged.of([[], *([k] for k in range(N - 3))]), start_s=start,
        finish_s=finish,
    )  # fmt: skip
    assert verify(plan).ok, verify(plan)
    assert verify(plan.expand()).ok
    assert simulate(plan).completions_s == pytest.approx(simulate(plan.expand()).completions_s)


def across(trunk_bps: float) -> SymmetricPlan:
    """AllToAll among two leaves of two accelerators: what crosses the trunk crosses it with its image from the leaf."""
    leaf, spine = (4, 5), 6
    up = [(k, leaf[k // 2], 1e9, 1e-6) for k in range(4)] + [(leaf[k], spine, trunk_bps, 1e-6) for k in range(2)]
    links = [*up, *((b, a, w, t) for a, b, w, t in up)]
    topology = make_topology("leaves", [ACCELERATOR] * 4 + [SWITCH] * 3, links)
    inner, outer = [1, 0, 3, 2, 4, 5, 6], [2, 3, 0, 1, 5, 4, 6]
    symmetry = Symmetry(topology, np.array([outer, inner], dtype=np.int32), np.array([2, 2]))
    work = Workload((make_collective("alltoall", topology, 4000),))
    nodes = [[0, 4, 6, 5, 2], [0, 4, 6, 5, 3], [0, 4, 1]]
    route = [symmetry.links_between(path[:-1], path[1:]) for path in nodes]
    start = np.array([0.0, 1e-6, 6e-6])
    return make_symmetric_plan(
        symmetry, work, owner=[(0, 0), (0, 2), (0, 3), (0, 1)], position=np.zeros(4), chunk=[1, 2, 3], src=[0, 0, 0],
        dst=Ragged.single([2, 3, 1]), route=Ragged.of(route), depends=Ragged.empty(3), start_s=start,
        finish_s=start + 1e-6,
    )  # fmt: skip


def test_a_link_that_an_element_keeps_carries_several_images():
    assert across(2e9).symmetry.copies.tolist() == [1, 1, 1, 1, 2, 2] * 2
    for plan in (across(2e9), across(2e9).expand()):
        assert verify(plan).ok, verify(plan)
        assert simulate(plan).completion_s == pytest.approx(9e-6)
    narrow = across(1.5e9)
    assert verify(narrow).finding.code == verify(narrow.expand()).finding.code == "capacity"
    assert simulate(narrow).completion_s == pytest.approx(simulate(narrow.expand()).completion_s)


def around_a_hub(cut: int) -> tuple[Symmetry, Workload]:
    """Four accelerators that are all joined to each other and to a fifth one, which no element moves; AllGather, where
    the piece of the fifth is cut into ``cut`` chunks."""
    links = [(a, b, 1e9, 1e-6) for a in range(5) for b in range(5) if a != b]
    symmetry = Symmetry(
        make_topology("hub", [ACCELERATOR] * 5, links), np.array([[1, 2, 3, 0, 4]], np.int32), np.array([4])
    )
    whole = make_collective("allgather", symmetry.topology, 4002)
    return symmetry, Workload((Promised("allgather", whole.ranks, 4002, -1, 0.0, 1.0, np.array([1, 1, 1, 1, cut])),))


def hub(cut: int = 4, position: int = 0) -> SymmetricPlan:
    """Each of the four sends its piece to all; the fifth sends each of them a quarter, which it sends to the others."""
    symmetry, work = around_a_hub(cut)
    src, dst = [0, 0, 0, 0, 4, 0, 0, 0], [1, 2, 3, 4, 0, 1, 2, 3]
    start = np.array([0.0] * 5 + [2e-6] * 3)
    return make_symmetric_plan(
        symmetry, work, owner=[0, 4], position=[0, position], chunk=[0] * 4 + [1] * 4, src=src, dst=Ragged.single(dst),
        route=Ragged.single(symmetry.links_between(np.array(src), np.array(dst))),
        depends=Ragged.of([[], [], [], [], [], [4], [4], [4]]), start_s=start,
        finish_s=start + np.repeat([801e-9, 201e-9], 4),
    )  # fmt: skip


def test_the_piece_of_a_rank_that_no_element_moves_is_dealt_out_to_elements():
    plan = hub()
    plain = plan.expand()
    assert plan.orbits.fixed.tolist() == [False, True]
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert sorted(plain.chunk[plain.src == 4].tolist()) == [4, 5, 6, 7]
    assert simulate(plan).completion_s == simulate(plain).completion_s


def test_chunks_of_a_rank_that_no_element_moves_are_counted():
    assert verify(hub(cut=8)).finding.code == verify(hub(cut=5)).finding.code == "cover"
    assert verify(hub(cut=8, position=2)).finding.code == "cover"
    assert verify(hub(cut=8, position=6)).finding.code == "cover"


def from_the_hub(kind: str, root: int = 4) -> SymmetricPlan:
    """The fifth accelerator sends each of the others a part of the buffer, which they send to each other."""
    symmetry, _ = around_a_hub(4)
    whole = make_collective(kind, symmetry.topology, 4002, root=root)
    if kind == "broadcast":
        whole = dealt(whole, np.array([4002]), np.array([4]))
    copies, owner, position = (4, [0], [0]) if kind == "broadcast" else (1, [0, 4], [0, 0])
    if kind == "scatter":
        whole = Promised(kind, whole.ranks, 4002, root, 0.0, 1.0, np.array([1, 1, 1, 1, 4]))
    src, dst, start = np.array([4, 0, 0, 0]), np.array([0, 1, 2, 3]), np.array([0.0, 3e-6, 3e-6, 3e-6])
    return make_symmetric_plan(
        symmetry, Workload((whole,)), owner=owner, position=position, chunk=[0] * copies, src=src[:copies],
        dst=Ragged.single(dst[:copies]), route=Ragged.single(symmetry.links_between(src, dst)[:copies]),
        depends=Ragged.of([[], [0], [0], [0]][:copies]), start_s=start[:copies], finish_s=start[:copies] + 1.001e-6,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["broadcast", "scatter"])
def test_a_root_stays_where_it_is(kind):
    plan = from_the_hub(kind)
    assert verify(plan).ok, verify(plan)
    assert verify(plan.expand()).ok, verify(plan.expand())
    assert simulate(plan).completion_s == simulate(plan.expand()).completion_s
    assert "maps a root to a rank that is none" in verify(from_the_hub(kind, root=2)).finding.message


def wrong(plan: SymmetricPlan, **changes: object) -> str:
    """What the verifier finds where the symmetry of a plan is another."""
    symmetry = replace(plan.symmetry, **changes)
    return verify(SymmetricPlan(plan.part, replace(plan.orbits, symmetry=symmetry), {})).finding.message


def test_generators_are_checked(ring):
    plan, turn = allgather(ring, 3600), ring.generators
    assert "not the identity after 3 times" in wrong(plan, orders=np.array([3]))
    assert "no permutation" in wrong(plan, generators=np.zeros_like(turn))
    assert "to none" in wrong(plan, generators=np.roll(np.arange(N, dtype=np.int32), -1)[[1, 0, 2, 3, 4, 5]][None])
    mirror = np.arange(N, dtype=np.int32)[::-1]
    assert "does not commute" in wrong(plan, generators=np.stack((turn[0], mirror)), orders=np.array([N, 2]))
    twice = np.stack((turn[0], turn[0][turn[0]]))
    assert "some elements map a rank to itself" in wrong(plan, generators=twice, orders=np.array([N, N // 2]))
    slower = ring.topology.bandwidth.copy()
    slower[3] *= 0.99
    assert "another bandwidth" in wrong(plan, topology=replace(ring.topology, bandwidth=slower))


def test_the_orbits_must_hold_every_chunk_once(ring):
    plan = allgather(ring, 3600)
    two = make_collective("allgather", ring.topology, 3600, chunks=2)
    for orbits in (
        replace(plan.orbits, workload=Workload((two,))),
        replace(plan.orbits, position=np.array([1])),
        replace(plan.orbits, owner=np.array([[0], [1]], dtype=np.int32), position=np.array([0, 0])),
    ):
        assert verify(SymmetricPlan(plan.part, orbits, {})).finding.code in ("cover", "promise")

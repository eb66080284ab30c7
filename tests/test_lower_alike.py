"""Whether ranks add up in one order: by expressions, and by the bits that programs leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from meshes import meshes
from stretto.choose.holdings import held_after
from stretto.formats.native import read_plan, write_plan
from stretto.lower import lower, lowering
from stretto.lower.alike import sums_alike
from stretto.lower.orders import _tree, sum_trees
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.targets import find_target
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.planners.greedy.exchange.arcs import choose_arcs
from stretto.runtime.execute import execute
from stretto.schedule.effort import Budget
from stretto.schedule.fitting import fitting
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

TORCH = find_target("torch")


def plan_of(planner: str, ranks: int, kind: str = "allreduce", **more):
    net = load_topology(f"fullmesh:{ranks}")
    return run_planner(planner, net, Workload((make_collective(kind, net, 1 << 12),)), **more)


def exchange_on(spec: str, size: int = 4000, target=TORCH):
    """Greedy's AllReduce where messages cost what they cost processes; its sums are the same at all ranks for TORCH."""
    net = costing(assume_messages(load_topology(spec)), TORCH.message_s)
    return run_planner("greedy", net, Workload((make_collective("allreduce", net, size),)), target=target)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_fixed_algorithms_and_direct_exchanges_add_up_in_one_order(ranks):
    for planner in ("ring", "recursive-doubling", "rabenseifner", "greedy"):
        assert sums_alike(plan_of(planner, ranks)), planner
    assert sums_alike(plan_of("greedy", ranks, "reducescatter"))


def test_sums_that_overlap_have_no_order():
    # on a ring of 8 contributions walk: half of the ranks add up ranks 0 to 3 and 4 to 7, the others 6 to 1 and 2 to 5
    unlike = exchange_on("ring:8", target=None)
    assert not sums_alike(unlike)
    trees = sum_trees(unlike)
    assert trees is not None and not trees.of
    with pytest.raises(Unsupported, match="all must end with the same bits"):
        fitting(lambda net: unlike, unlike.topology, unlike.workload, TORCH, Budget())


def test_a_set_is_the_sum_of_the_largest_sets_in_it_in_the_order_of_ranks():
    assert _tree({0b1, 0b1010, 0b101011, 0b100000}) == {0b1010: (0b10, 0b1000), 0b101011: (0b1, 0b1010, 0b100000)}
    assert _tree({0b110, 0b011}) is None


@pytest.mark.parametrize("spec", ["dgx1", "dgx2:2", "sites:3,4", "ring:8", "ring:6"])
def test_exchanges_in_one_order_end_as_soon_as_exchanges_in_any_order(spec):
    plan = exchange_on(spec, 1_000)
    assert sums_alike(plan) and verify(plan).finding is None
    in_any_order = exchange_on(spec, 1_000, target=None)
    assert simulate(plan).completion_s <= simulate(in_any_order).completion_s * (1 + 1e-9)


@pytest.mark.parametrize(("gap_s", "takes_s"), [(0.0, 1.0), (1.0, 1.0), (1.0, 3.0)])
def test_aligned_arcs_do_not_overlap_and_make_the_whole_circle(gap_s, takes_s):
    for count in range(2, 25):
        lengths, stretch = [1], 1
        for k in choose_arcs(count, gap_s, takes_s, aligned=True):
            stretch = stretch if lengths[k] == stretch else lengths[-1]
            assert lengths[k] == stretch and count % stretch == 0
            lengths.append(lengths[-1] + lengths[k])
        assert lengths[-1] == count


def test_expressions_differ_where_one_rank_adds_in_another_order(monkeypatch):
    plan = plan_of("greedy", 4)
    assert sums_alike(plan)
    programs = lower(plan)
    chunks = programs[3].chunks  # (its own + what came first) + ...
    swapped = replace(programs[3], chunks=replace(chunks, adds=Ragged(chunks.adds.offsets, chunks.adds.values[::-1])))
    monkeypatch.setattr("stretto.lower.alike.lower", lambda plan: programs | {3: swapped})
    assert not sums_alike(plan)


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_plan_file_keeps_which_transfers_forward(ending, tmp_path):
    plan, path = exchange_on("ring:6"), str(tmp_path / f"plan.{ending}")
    assert plan.forwards is not None and plan.forwards.sum() == 12  # one hop of six both ways, in two exchanges
    write_plan(plan, path)
    again = read_plan(path)
    assert np.array_equal(again.forwards, plan.forwards) and again.digest() == plan.digest()
    assert replace(plan, forwards=None).digest() != plan.digest()


def test_a_rank_of_a_sum_that_broke_off_holds_what_came_and_what_was_forwarded():
    plan = exchange_on("ring:6")
    everyone = np.ones(6, dtype=np.bool_)
    arrived = np.arange(plan.transfer_count) < plan.transfer_count - 1
    held = held_after(plan, arrived, everyone)
    assert held.whole.sum() == 2 * 6 - 1  # but for the last arrival, which one rank lacks in one part


def wild_floats(count: int, seed) -> np.ndarray:
    """float32 whose sum depends on its order."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count)).astype(np.float32)


def ends(plan, connected) -> list[bytes]:
    """The bytes that each rank ends with, held to the exact sums."""
    programs, work = lower(plan), plan.workload
    counts = (work.chunk_bytes // 4).tolist()
    own = {v: {c: wild_floats(n, (v, c)) for c, n in enumerate(counts)} for v in programs}
    out = {v: {c: np.empty(n, dtype=np.float32) for c, n in enumerate(counts)} for v in programs}

    def run(v: int) -> None:
        execute(connected[v], programs[v], own[v], out[v], dtype=np.float32, timeout_s=20)

    with ThreadPoolExecutor(len(programs)) as threads:
        list(threads.map(run, programs))
    for c in range(len(counts)):
        all_own = np.stack([own[v][c] for v in own]).astype(np.float64)
        assert np.allclose(out[0][c], all_own.sum(axis=0), rtol=0, atol=1e-6 * np.abs(all_own).sum(axis=0))
    return [b"".join(out[v][c].tobytes() for c in range(len(counts))) for v in out]


@pytest.mark.parametrize("loop", ["python", "compiled"])
@pytest.mark.parametrize("spec", ["fullmesh:3", "fullmesh:5", "dgx1", "star:6", "ring:8"])
def test_all_ranks_end_with_the_same_bits(spec, loop, monkeypatch):
    plan = exchange_on(spec)
    monkeypatch.setenv("STRETTO_KERNELS", loop)
    connected = meshes(plan.workload.collectives[0].ranks.tolist(), timeout_s=20)
    assert len({*ends(plan, connected)}) == 1
    # and these numbers tell: as they come, they end with unlike bits
    monkeypatch.setattr(lowering, "sum_trees", lambda plan: None)
    assert len({*ends(plan, connected)}) > 1
    for mesh in connected.values():
        mesh.close()


def test_greedy_compares_only_what_ends_with_the_same_bits_where_the_target_asks_for_that():
    # exchanges in which sums overlap and in which they do not take as long; forest and scale-ccl 355 and 406 us
    net = costing(assume_messages(load_topology("ring:8")), find_target("torch").message_s)
    work = Workload((make_collective("allreduce", net, 1_000),))
    plan = run_planner("greedy", net, work, effort="normal", target=find_target("torch"))
    assert sums_alike(plan)
    assert simulate(plan).completion_s == pytest.approx(202.88e-6)

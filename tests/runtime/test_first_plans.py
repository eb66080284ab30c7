"""The first plan of a shape is made by one rank of a machine, and runs at all; a rank that is kept waiting makes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.choose.library import Library
from stretto.choose.requests import Shape
from stretto.model.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

RANKS = 3
SHAPE = Shape("allreduce", 1 << 12, 0)


@pytest.fixture
def groups(monkeypatch):
    """Groups of ranks that are threads of this process, and the ranks that have made plans."""
    from stretto.torch.group import StrettoGroup

    monkeypatch.setenv("STRETTO_EFFORT", "none")
    monkeypatch.setenv("STRETTO_TOPOLOGY", "ring:3?bandwidth=100MB/s")
    monkeypatch.setattr("stretto.torch.first_plans.WAIT_S", 60.0)
    made: list[int] = []
    first_plan = Library.first_plan

    def noted(library, shape, direct=False):
        made.append(library.rank)
        return first_plan(library, shape, direct)

    monkeypatch.setattr(Library, "first_plan", noted)
    store = torch.distributed.HashStore()
    all_ranks = list(range(RANKS))
    own = [StrettoGroup(store, r, RANKS, all_ranks, timedelta(seconds=60)) for r in all_ranks]
    yield own, made
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda group: group.shutdown(), own))


def first_plans(group):
    return group._collectives.plans._first_plans


def meet(own) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda group: group.meet(), own))


def test_one_rank_of_a_machine_makes_the_first_plans(groups):
    own, made = groups
    n = RANKS
    for size in (10, 5_000):
        tensors = [torch.full((size,), float(r)) for r in range(n)]
        for work in [group.allreduce([t]) for group, t in zip(own, tensors)]:
            work.wait()
        assert all(t.unique().tolist() == [n * (n - 1) / 2] for t in tensors)
    outputs = [torch.zeros(n) for _ in range(n)]
    for work in [g.alltoall_base(o, torch.full((n,), float(r)), [], []) for r, (g, o) in enumerate(zip(own, outputs))]:
        work.wait()
    assert all(o.tolist() == [0.0, 1.0, 2.0] for o in outputs)
    assert made == [0, 0, 0]


def test_a_rank_whose_maker_has_not_begun_plans_by_itself(groups, monkeypatch):
    own, made = groups
    meet(own)
    monkeypatch.setattr("stretto.torch.first_plans.WAIT_S", 0.01)
    late = first_plans(own[1]).recipe(SHAPE.kind, SHAPE.size_bytes, 0)
    assert made == [1]
    assert first_plans(own[0]).recipe(SHAPE.kind, SHAPE.size_bytes, 0).digest == late.digest
    monkeypatch.setattr("stretto.torch.first_plans.WAIT_S", 60.0)
    # what the maker has sent in vain stands before the next plan, and does no harm
    with ThreadPoolExecutor(2) as pool:
        of_ranks = pool.map(lambda r: first_plans(own[r]).recipe("broadcast", 1 << 20, 2).digest, (1, 0))
        assert len({*of_ranks}) == 1
    assert made == [1, 0, 0]
    assert not first_plans(own[1])._given, "a plan is kept that was given up"


def test_ranks_plan_by_themselves_where_the_maker_fails(groups, monkeypatch):
    own, made = groups
    meet(own)
    noted = Library.first_plan

    def failing(library, shape, direct=False):
        if library.rank == 0:
            raise InputError("for the test", "the maker")
        return noted(library, shape, direct)

    monkeypatch.setattr(Library, "first_plan", failing)
    with ThreadPoolExecutor(RANKS) as pool:
        jobs = [pool.submit(first_plans(group).recipe, SHAPE.kind, SHAPE.size_bytes, 0) for group in own]
        with pytest.raises(InputError, match="for the test"):
            jobs[0].result()
        assert jobs[1].result().digest == jobs[2].result().digest
    assert sorted(made) == [1, 2]

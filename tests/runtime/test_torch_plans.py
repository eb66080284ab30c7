"""Every call of a group runs by one plan at all ranks, whatever better plans arrive while calls are under way."""

from __future__ import annotations

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from stretto.choose import planning
from stretto.choose.kept import Kept, packed
from stretto.choose.quick import direct_plan
from stretto.choose.requests import Shape
from waiting import until

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed

RANKS = 4
SUBGROUPS = ((0, 1, 2, 3), (0, 1, 2, 3), (2, 3), (3, 0, 1))
SIZES = (100, 5_000, 40_000)


@pytest.fixture
def planner(tmp_path, monkeypatch):
    """A planner's process of the test, whose folder is empty; and groups that use it."""
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path / "plans"))
    monkeypatch.setenv("STRETTO_EFFORT", "quick")
    monkeypatch.setenv("STRETTO_TOPOLOGY", "ring:4?bandwidth=100MB/s")
    made = planning.Planner()
    monkeypatch.setattr("stretto.torch.plans.planner", lambda: made)
    yield made
    made.close()


def make(rank: int, ranks, store):
    from stretto.torch.group import StrettoGroup

    return StrettoGroup(store, ranks.index(rank), len(ranks), list(ranks), timedelta(seconds=60))


@pytest.fixture
def everyone(monkeypatch):
    """The groups of each rank, as threads of one process; what their calls ran by: (shape, call) -> digest."""
    from stretto.torch.plans import Plans

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: RANKS)
    stores = [dist.HashStore() for _ in SUBGROUPS]
    groups = [
        [make(rank, s, store) if rank in s else None for s, store in zip(SUBGROUPS, stores)] for rank in range(RANKS)
    ]
    ran: dict[Plans, list] = {}
    recipe = Plans.recipe

    def noted(self, kind, size_bytes, root, direct, timeout_s):
        got = recipe(self, kind, size_bytes, root, direct, timeout_s)
        ran.setdefault(self, []).append((Shape.of(kind, size_bytes, root), got.digest))
        return got

    goes_on = Plans.goes_on

    def noted_again(self, use, recipe):  # a call that repeats another one asks for no recipe
        if again := goes_on(self, use, recipe):
            ran.setdefault(self, []).append((use.shape, recipe.digest))
        return again

    monkeypatch.setattr(Plans, "recipe", noted)
    monkeypatch.setattr(Plans, "goes_on", noted_again)
    yield groups, ran
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda g: g.shutdown(), [g for own in groups for g in own if g is not None]))


def calls(group, rank: int, members, seed: int, count: int) -> None:
    """Random calls in the order that the seed gives; this rank is late at random."""
    order, own, n = random.Random(seed), random.Random(rank), len(members)
    me = members.index(rank)
    for _ in range(count):
        size, kind, root = (
            order.choice(SIZES),
            order.choice(("allreduce", "broadcast", "allgather")),
            order.randrange(n),
        )
        if own.random() < 0.2:
            threading.Event().wait(own.random() / 200)
        tensor = torch.full((size,), float(me + 1))
        if kind == "allreduce":
            group.allreduce([tensor]).wait()
            assert tensor[0] == tensor[-1] == n * (n + 1) / 2
        elif kind == "broadcast":
            opts = dist.BroadcastOptions()
            opts.rootRank = root
            group.broadcast([tensor], opts).wait()
            assert tensor[0] == tensor[-1] == root + 1
        else:
            out = torch.zeros(n * size)
            group._allgather_base(out, tensor).wait()
            assert out.view(n, size)[:, -1].tolist() == [r + 1.0 for r in range(n)]


def all_calls(groups, seed: int, count: int) -> None:
    """All ranks call in all of their groups at once."""
    with ThreadPoolExecutor(16) as pool:
        jobs = [
            pool.submit(calls, groups[rank][k], rank, members, seed + k, count)
            for rank in range(RANKS)
            for k, members in enumerate(SUBGROUPS)
            if rank in members
        ]
        for job in jobs:
            job.result()


def shapes_of(groups) -> set:
    return {(k, shape) for k, s in enumerate(SUBGROUPS) for shape in groups[s[0]][k]._collectives.plans._uses}


def keep_other_plans(groups, anew: bool = False) -> None:
    """Put a plan that is not the first one on disk for every shape: the planner's process finds it there.

    Args:
        anew: whether in place of a plan that is kept, too.
    """
    for k, shape in shapes_of(groups):
        library = groups[SUBGROUPS[k][0]][k]._collectives.plans._library
        asked = library.request(shape)
        kept = Kept.from_environment()
        if anew or kept.find(asked.name) is None:
            kept.keep(asked.name, packed(asked.name, direct_plan(asked)))


def changes(ran) -> int:
    """How many shapes have changed to another plan at some rank."""
    return sum(len({*own}) - len({shape for shape, _ in own}) for own in ran.values())


def test_all_ranks_change_to_a_better_plan_at_the_same_call(planner, everyone):
    groups, ran = everyone
    all_calls(groups, seed=0, count=6)  # some shapes have been called once, some more
    for seed in range(1, 40):
        keep_other_plans(groups)
        all_calls(groups, seed=seed, count=8)
        if changes(ran) >= 15:
            break
    assert changes(ran) >= 15
    for k, members in enumerate(SUBGROUPS):
        of_ranks = [ran[groups[rank][k]._collectives.plans] for rank in members]
        assert all(each == of_ranks[0] for each in of_ranks)
        for shape in {shape for shape, _ in of_ranks[0]}:
            digests = [digest for each, digest in of_ranks[0] if each == shape]
            assert sum(a != b for a, b in pairwise(digests)) <= 1, "a plan is changed once"


def test_the_next_groups_begin_with_the_plans_that_were_kept(planner, everyone):
    groups, ran = everyone
    all_calls(groups, seed=0, count=4)
    planner.close()  # it may have kept plans of its own, and be at others
    keep_other_plans(groups, anew=True)
    again = [make(rank, SUBGROUPS[0], store) for store in [dist.HashStore()] for rank in range(RANKS)]
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda rank: calls(again[rank], rank, SUBGROUPS[0], 0, 4), range(RANKS)))
        of_ranks = [ran[g._collectives.plans] for g in again]
        assert all(each == of_ranks[0] for each in of_ranks)
        library = again[0]._collectives.plans._library
        for shape, digest in of_ranks[0]:
            assert digest == library.recipe_of(direct_plan(library.request(shape))).digest
        list(pool.map(lambda g: g.shutdown(), again))


def test_calls_go_on_when_the_planners_process_is_killed(planner, everyone):
    groups, ran = everyone
    all_calls(groups, seed=0, count=6)
    asked = groups[0][0]._collectives.plans._library.request(Shape("allreduce", 1 << 24, 0))
    planner.ask(replace(asked, planner="scale-ccl", effort="thorough"), lambda content, reason: None)
    os.kill(planner._process.pid, signal.SIGKILL)
    all_calls(groups, seed=1, count=6)
    until(lambda: planner._deaths)
    for k, members in enumerate(SUBGROUPS):
        of_ranks = [ran[groups[rank][k]._collectives.plans] for rank in members]
        assert all(each == of_ranks[0] for each in of_ranks)


def test_ranks_that_are_far_apart_change_at_the_same_call():
    # nothing but the plans is asked for here, so no rank waits for another one: each goes on as fast as it can
    store = dist.HashStore()
    groups = [make(rank, (0, 1, 2), store) for rank in range(3)]
    plans = [g._collectives.plans for g in groups]
    for own in groups:
        own._links.everyone()
    library = plans[0]._library

    def go_on(rank: int, shape: Shape) -> list[int]:
        pauses, asked, digests = random.Random(rank), library.request(shape), []
        for call in range(40):
            digests.append(plans[rank].recipe(shape.kind, shape.size_bytes, 0, False, 30.0).digest)
            if rank == 0 and call == 10:
                plans[0]._propose(shape, packed(asked.name, direct_plan(asked)), asked.name)
            threading.Event().wait(pauses.random() * (0.002, 0.001, 0.0001)[rank])
        return digests

    for size in (4_096 << k for k in range(12)):
        with ThreadPoolExecutor(3) as pool:
            first, *others = pool.map(go_on, range(3), [Shape("allreduce", size, 0)] * 3)
        assert others == [first, first]
    for own in groups:
        own.abort()


def use_of(group, shape):
    return group._collectives.plans._uses[shape]


def test_a_plan_that_a_rank_cannot_use_leaves_nothing_behind(monkeypatch):
    groups = [make(rank, (0, 1, 2), store) for store in [dist.HashStore()] for rank in range(3)]
    for work in [g.allreduce([torch.ones(5)]) for g in groups]:
        work.wait()
    shape = Shape.of("allreduce", 20, 0)
    plans = [g._collectives.plans for g in groups]
    asked, recipe_of = plans[0]._library.request(shape), plans[1]._library.recipe_of
    refused = threading.Event()

    def refuse(plan):
        refused.set()
        raise RuntimeError("for the test")

    monkeypatch.setattr(plans[1]._library, "recipe_of", refuse)
    plans[0]._propose(shape, packed(asked.name, direct_plan(asked)), asked.name)
    until(lambda: refused.is_set() and shape not in plans[0]._rounds)
    store = groups[0]._links._store
    until(lambda: not store.check([f"stretto/better/{shape.name}"]))
    until(lambda: all(use_of(g, shape).next is None for g in groups))
    monkeypatch.setattr(plans[1]._library, "recipe_of", recipe_of)
    plans[0]._propose(shape, packed(asked.name, direct_plan(asked)), asked.name)
    until(lambda: all(use_of(g, shape).change_at is not None for g in groups))
    for group in groups:
        group.abort()


def test_a_rank_that_leaves_before_it_has_counted_stops_nobody():
    # all are ready to change, and rank 2 has counted and may begin no more calls, when rank 1 leaves without counting
    from stretto.torch.plans import NEVER, SLACK, TAG, Round, Word

    store = dist.HashStore()
    groups = [make(rank, (0, 1, 2), store) for rank in range(3)]
    for work in [g.allreduce([torch.ones(5)]) for g in groups]:
        work.wait()
    shape = Shape.of("allreduce", 20, 0)
    plans = [g._collectives.plans for g in groups]
    library = plans[0]._library
    said = []
    hear = plans[2]._hear
    groups[2]._links.inbox.listeners[TAG] = lambda note: (said.append(note), hear(note))
    groups[1]._links.inbox.listeners[TAG] = lambda note: None
    plans[0]._rounds[shape] = Round(ready={0, 1})
    use_of(groups[2], shape).next = plans[2]._library.recipe_of(direct_plan(library.request(shape)))
    plans[2]._answer(Word.READY, shape)
    until(lambda: use_of(groups[2], shape).limit is not None)
    assert use_of(groups[2], shape).limit == 1 + SLACK
    use_of(groups[2], shape).begun = use_of(groups[2], shape).limit
    waiting = threading.Thread(target=lambda: plans[2].recipe("allreduce", 20, 0, False, 30.0))
    waiting.start()
    groups[1].shutdown()
    waiting.join(30)
    assert not waiting.is_alive() and use_of(groups[2], shape).change_at is None
    assert any(NEVER.to_bytes(8) in note for note in said)
    for group in (groups[0], groups[2]):
        group.abort()

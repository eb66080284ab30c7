"""A link that stays slower than planned leads to a new plan at all ranks; noise does not."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from stretto import emulator
from stretto.choose.expected import LEAST_BYTES, ends_sooner, planned_rates
from stretto.choose.library import Library, Recipe
from stretto.choose.quick import quick_plan
from stretto.choose.requests import Shape
from stretto.model.plan import Plan
from stretto.runtime.recorded import Trace
from stretto.topologies import load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto.torch.adapting import TRY_AFTER, Adapted  # noqa: E402
from stretto.torch.slowness import FAST, IN_A_ROW, SLOW, SUSPECTED, Slowness, Suspects, slow_sources  # noqa: E402

ELEMENTS = 200_000


def library(rank: int) -> Library:
    # links so narrow that they, and not the load of the machine, decide how long bytes take
    return Library(load_topology("fullmesh:3?bandwidth=5MB/s&latency=0s&message=50us"), range(3), rank, effort=None)


def trace_of(recipe, shares: dict[int, float]) -> Trace:
    """All transfers one after another, from each node at a share of the planned rate."""
    trace, now, planned = Trace(), 0.0, planned_rates(recipe)
    chunk_bytes = recipe.program.plan.workload.collectives[0].chunk_bytes
    for row, receive in recipe.program.steps.receives.items():
        trace.coming_s[row], trace.dry[row] = now, (now, 0)
        now += chunk_bytes[receive.chunk] / (planned[receive.source] * shares.get(receive.source, 1.0))
        trace.arrived_s[row] = now
    return trace


def seen(calls: list[dict[int, float]]) -> list[tuple[int, int, float, int]]:
    """The reports of rank 0, where each call has what each source gave: (call, source, ratio, calls)."""
    recipe = library(0).recipe("alltoall", 4 * LEAST_BYTES)
    sizes = recipe.program.plan.workload.collectives[0].chunk_bytes
    slowness, found = Slowness(), []
    for i, shares in enumerate(calls):
        found += [(i, *slow) for slow in slowness.look(recipe, sizes, trace_of(recipe, shares))]
    return found


def test_ten_slow_collectives_in_a_row_are_told_once_and_nine_are_not():
    slow, fine = {1: 0.3}, {}
    told = seen([slow] * (IN_A_ROW - 1) + [fine] + [slow] * (IN_A_ROW - 1))
    assert [calls for *_, calls in told] == [SUSPECTED] * 2
    told = seen([fine] * 3 + [slow] * (IN_A_ROW + SUSPECTED - 1))
    assert [(call, source, calls) for call, source, _, calls in told] == [
        (3 + calls - 1, 1, calls) for calls in (SUSPECTED, IN_A_ROW)
    ]
    assert told[-1][2] == pytest.approx(0.3)


def test_ten_fast_collectives_in_a_row_are_told_and_a_link_that_wavers_is_not():
    fast, wavers = {1: 2.0}, {1: FAST - 0.1}
    told = seen([fast] * (IN_A_ROW - 1) + [wavers] + [fast] * IN_A_ROW)
    assert [(call, source, calls) for call, source, _, calls in told] == [(2 * IN_A_ROW - 1, 1, IN_A_ROW)]
    assert told[0][2] == pytest.approx(2.0)


def narrowed(ratio: float) -> tuple[Adapted, Plan]:
    """Rank 0's knowledge once the link from rank 1 to rank 0 has given this share of what it should."""
    known = library(0)
    plan = known.recipe("alltoall", 4 * LEAST_BYTES).program.plan
    adapted = Adapted(known)
    assert adapted.slow("alltoall", plan, 1, 0, ratio, 10) is not None
    return adapted, replace(plan, topology=adapted.network)


def test_a_slow_link_that_gives_much_more_than_is_planned_for_has_recovered():
    adapted, plan = narrowed(0.25)
    assert adapted.fast(plan, 2, 0, 2.0) is None and adapted.network is not None  # another link
    assert "50 %" in (adapted.fast(plan, 1, 0, 2.0) or "")
    assert adapted.network.bandwidth.min() == pytest.approx(2.5e6)
    plan = replace(plan, topology=adapted.network)
    assert adapted.fast(plan, 1, 0, 2.1) is not None and adapted.network is None
    assert adapted.fast(plan, 1, 0, 2.1) is None


def test_a_slow_link_is_tried_again_and_if_it_is_still_slow_half_as_often():
    adapted, plan = narrowed(0.25)
    for wait in (TRY_AFTER, 2 * TRY_AFTER):
        assert [adapted.tick() for _ in range(wait)] == [False] * (wait - 1) + [True]
        assert adapted.forgive() is not None and adapted.network is None
        assert not any(adapted.tick() for _ in range(IN_A_ROW))
        assert adapted.slow("alltoall", replace(plan, topology=library(0).topology), 1, 0, 0.25, 10) is not None
    assert adapted.network is not None


def test_a_link_stands_out_while_most_are_as_planned():
    suspects, shape = Suspects(), "allreduce"
    for source in range(1, 5):
        suspects.note(shape, source, 0, 5)
        assert suspects.stand_out(shape, 6, 10) == (source <= 3)
    assert suspects.stand_out("another", 6, 10) and suspects.stand_out(shape, 6, 5 + 2 * IN_A_ROW)


def test_a_rank_to_which_all_comes_slowly_blames_no_link():
    assert seen([{1: 0.3, 2: 0.32}] * 30) == []
    assert slow_sources({1: SLOW + 0.01, 2: 1.0}) == set() and slow_sources({1: 0.2}) == {1}


def test_a_plan_is_worth_a_change_only_where_it_ends_sooner_on_the_network_as_it_is():
    known = library(0)
    old = known.recipe("allgather", 1 << 20).program.plan
    bandwidth = known.topology.bandwidth.copy()
    bandwidth[0] /= 4

    def planned(bandwidth):
        asked = known.request(Shape.of("allgather", 1 << 20, 0))
        return quick_plan(replace(asked, topology=replace(known.topology, bandwidth=bandwidth)))

    assert ends_sooner(planned(bandwidth), old)
    assert not ends_sooner(planned(known.topology.bandwidth / 4), old)


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_all_ranks_change_to_a_plan_that_spares_a_halved_link_and_back_when_it_has_recovered(capfd, monkeypatch):
    from stretto.torch.collectives import Collectives
    from stretto.torch.links import Links

    monkeypatch.setattr("stretto.torch.adapting.TRY_AFTER", 2 * IN_A_ROW)
    ranks, mbit, slow_from, after_change, most_calls = 4, 20, 2, 4, 150
    net = load_topology(f"fullmesh:{ranks}?bandwidth={mbit / 8}MB/s&latency=0s&message=50us")
    store, barrier = torch.distributed.HashStore(), threading.Barrier(ranks)
    used: list[list[Recipe]] = [[] for _ in range(ranks)]

    def changes() -> list[int]:
        return [i for i in range(1, len(used[0])) if used[0][i].digest != used[0][i - 1].digest]

    def rank(r: int) -> None:
        place = places[int(net.accelerators[r])]
        emulator.enter(place.argument)  # a namespace is a thread's own
        links = Links(store, Library(net, range(ranks), r, effort=None), place.host, measures=False, timeout_s=60)
        collectives = Collectives(links._library, links)
        look = collectives.plans.look

        def noted(kind, size, root, recipe, sizes, trace):
            used[r].append(recipe)
            look(kind, size, root, recipe, sizes, trace)

        def link_gets(mbit: int) -> None:
            change = f"tc -n {place.argument} qdisc change dev to1 root tbf rate {mbit}mbit burst 20kb latency 50ms"
            subprocess.run(change.split(), check=True)

        collectives.plans.look = noted
        for call in range(most_calls):
            barrier.wait(60)
            if len(changes()) == 2 and call > changes()[1] + after_change:
                break
            if r == 0 and call in (slow_from, *(at + 1 for at in changes()[:1])):
                link_gets(mbit // 2 if call == slow_from else mbit)
            barrier.wait(60)
            piece = torch.full((1 << 18,), float(call) if r == 0 else 0.0)
            collectives.run("broadcast", {0: piece} if r == 0 else {}, {0: piece}, [1 << 18], 60.0, root=0)
            assert bool((piece == call).all())
        collectives.close()
        links.close()

    with emulator.built(net) as places, ThreadPoolExecutor(ranks) as pool:
        list(pool.map(rank, range(ranks)))
    assert [[recipe.digest for recipe in row] for row in used] == [[recipe.digest for recipe in used[0]]] * ranks
    slow, fast = changes()
    assert slow >= slow_from + IN_A_ROW
    first, spares, last = (used[0][i] for i in (0, slow, fast))
    assert ends_sooner(spares.program.plan, first.program.plan) and last.digest == first.digest
    said = capfd.readouterr().err
    assert said.count("making new plans") + said.count("as they were before") == 2


def test_a_link_that_stays_slow_is_planned_for_once(monkeypatch, capfd):
    from datetime import timedelta

    from stretto.torch import plans as module
    from stretto.torch.group import StrettoGroup

    monkeypatch.setenv("STRETTO_TOPOLOGY", "fullmesh:2?bandwidth=20MB/s")
    monkeypatch.setenv("STRETTO_EFFORT", "none")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    store = torch.distributed.HashStore()
    groups = [StrettoGroup(store, r, 2, [0, 1], timedelta(seconds=60)) for r in range(2)]
    for work in [g.allreduce([torch.ones(ELEMENTS)]) for g in groups]:
        work.wait()
    planned = []
    noted = lambda asked: planned.append(asked.shape) or quick_plan(asked)  # noqa: E731
    monkeypatch.setattr("stretto.choose.quick.quick_plan", noted)
    monkeypatch.setattr(module, "ends_sooner", lambda new, old: False)  # no way around the link
    plans, shape = groups[0]._collectives.plans, Shape.of("allreduce", 4 * ELEMENTS, 0)
    for ratio in (0.5, 0.49, 0.51, 0.2):
        plans._adapt(module.Word.SLOW, shape, 1, plans._library.nodes[0] << 32 | round(ratio * module.RATIO_UNIT))
    assert planned == [shape, shape]  # at 0.5, and when it became much slower
    assert capfd.readouterr().err.count("making new plans") == 2
    for group in groups:
        group.abort()

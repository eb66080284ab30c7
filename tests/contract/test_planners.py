"""What every planner must keep, on every collective and kind of topology that it claims.

A new planner is tested here without a line being added: the registry says what there is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples, one_in
from networks import chassis, partial_sums, random_network, ring, star, unlike_pieces
from stretto.bounds import bounds
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import Unsupported
from stretto.model.plan import Plan
from stretto.model.topology import Topology, make_topology
from stretto.planners import find, registered
from stretto.planners import run_planner as run_any_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

PLANNERS = [e for e in registered().values() if not e.refines]
CASES = [pytest.param(e.name, kind, id=f"{e.name}-{kind}") for e in PLANNERS for kind in e.collectives]
NETWORKS = [
    "dgx1",
    "dgx2:2",
    "ndv2:2",
    "chassis",  # as amd:2, with a quarter of its dies
    "torus:3x3",
    "zoo:Napnet",
    "fattree:2",
    "sites:2,3",
    "cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope",
    "star:4",
    "star:4?switches=store",
    "star:4?sharp=true",
    "optical:8,2",
    "optical:6,3?dims=2x3",
]

REFUSED = {("ring", "zoo:Napnet"): "no ring joins the ranks"}
"""What a planner cannot serve, and how it says so: leaves have no way back but through accelerators."""


SOLVED_ON = {"dgx1", "torus:3x3", "zoo:Napnet", "star:4"}
"""Where planners that solve programs are tried; the others take minutes."""

SEARCHING = {e.name for e in PLANNERS if e.cuts}
"""Planners that cut chunks as they need: most of them search, and what rounding decides changes their plans a little."""

FEW_EXAMPLES, MANY_EXAMPLES = examples(3), examples(10)
"""Drawn examples for planners that search or solve programs, and for the others."""

SEARCH_EFFORT = "0.05"
"""Effort of planners that cut chunks as they need, about seconds of CPU: enough for each stage of a search on most
networks here, so that a longer search calls the same functions, only more often."""

SOLVED_S = 2.0
"""Wall-clock seconds for planners that prove an optimum. What stops them early is no worse than MTEGCCA's plan, and
the tests ask for no more."""


def run_planner(
    name: str, net: Topology, workload: Workload, options: dict[str, int] | None = None, effort: str = "thorough"
) -> Plan:
    """A plan, by quick options where the planner solves programs; what proves an optimum stops after a while."""
    entry = find(name)
    limit = SOLVED_S if entry.exact and entry.quick is not None else None
    effort = SEARCH_EFFORT if entry.cuts else effort
    return run_any_planner(name, net, workload, effort=effort, options=options or entry.quick, time_limit_s=limit)


def uneven(ranks: int, size: int) -> np.ndarray:
    """A matrix with large, small and no entries, some of them on the diagonal."""
    row, column = np.indices((ranks, ranks))
    part = (5 * row + 3 * column) % 4
    return np.where((row - column) % ranks == 1, size, part * (size // (3 * ranks)))


def work(
    kind: str, net: Topology, size: int = 5040, chunks: int = 1, root: int = 0, nodes: list[int] | None = None
) -> Workload:
    """A workload; ``nodes`` says where each rank of an uneven one is, if not in order."""
    if kind == "alltoallv":
        return Workload((alltoallv(net, uneven(len(net.accelerators), size), ranks=nodes, chunks=chunks),))
    if kind == "partial-sums":
        return Workload((partial_sums(net, size, chunks, nodes),))
    if kind == "remainder":
        return Workload((unlike_pieces(net, size, chunks, nodes),))
    receivers = range(1, len(net.accelerators), 2) if kind == "multicast" else None
    return Workload((make_collective(kind, net, size, chunks=chunks, root=root, receivers=receivers),))


class Case(NamedTuple):
    """A request of a planner by values, so that what is planned for it is remembered.

    Attributes:
        net: the spec of a network, "chassis", or the seed of a random one.
    """

    kind: str
    net: str | int
    size: int = 5040
    chunks: int = 1
    root: int = 0


@cache
def network(net: str | int) -> Topology:
    if isinstance(net, int):
        return random_network(net)
    return chassis() if net == "chassis" else load_topology(net)


@cache
def workload_of(case: Case) -> Workload:
    return work(case.kind, network(case.net), case.size, case.chunks, case.root)


@cache
def bound_s(case: Case, chunk_bytes: float | None = None) -> float:
    """The lower bound of a case; with ``chunk_bytes``, of plans whose smallest chunk has so many."""
    return bounds(network(case.net), workload_of(case), chunk_bytes)[0].seconds


def bound_of_s(plan: Plan, case: Case) -> float:
    """The lower bound of plans that cut chunks as fine as this one; a planner may cut finer than it is asked to."""
    return bound_s(case, float(plan.workload.chunk_bytes.min()))


@cache
def answer(name: str, case: Case) -> Plan | Unsupported:
    """The plan, or the refusal."""
    try:
        return run_planner(name, network(case.net), workload_of(case))
    except Unsupported as refusal:
        return refusal


def case_on(spec: str, name: str, kind: str) -> Case:
    """What a planner is asked for on a named network; of two chunks, the programs of exact planners take long to build."""
    return Case(kind, spec, 64_000, chunks=1 if find(name).exact else 2)


def plan_for(name: str, case: Case) -> Plan:
    """The plan; a test of a planner that refuses the network by name is skipped."""
    plan = answer(name, case)
    if isinstance(plan, Unsupported):
        assert name in str(plan)
        pytest.skip(str(plan))
    return plan


def planned(name: str, net: Topology, workload: Workload, *how: Any) -> Plan:
    """A plan that is made anew, as by :func:`run_planner`; a test of a planner that refuses the network by name is
    skipped."""
    try:
        return run_planner(name, net, workload, *how)
    except Unsupported as refusal:
        assert name in str(refusal)
        pytest.skip(str(refusal))


def for_drawn(few=FEW_EXAMPLES, many=MANY_EXAMPLES, **drawn):
    """Try a property of a planner's plans on drawn examples, on fewer where the planner solves programs or searches.

    It holds trivially where there is no plan: an example that is refused passes.
    """

    def decorate(test):
        def tried(name, kind):
            takes_long = find(name).quick is not None or name in SEARCHING

            @settings(max_examples=few if takes_long else many)
            @given(**drawn)
            def held(**example):
                with suppress(pytest.skip.Exception):
                    test(name, kind, **example)

            held()

        tried.__name__, tried.__doc__ = test.__name__, test.__doc__
        return tried

    return decorate


def claimed(plan: Plan) -> float:
    """The completion that a timed plan promises: its last arrival."""
    assert plan.finish_s is not None
    latency = np.array(
        [plan.topology.latency_s[r].sum() for r in map(plan.route.__getitem__, range(plan.transfer_count))]
    )
    assert (plan.dst.lengths == 1).all()
    return float((plan.finish_s + latency).max())


DRAWN = {
    "seed": st.integers(0, 10_000),
    "chunks": st.integers(1, 3),
    "size": st.integers(500, 10**6),
    "root": st.integers(0, 2),
}
"""Two tests draw the same requests from this, so that each request is planned once."""


def drawn_case(name: str, kind: str, seed: int, chunks: int, size: int, root: int) -> Case:
    """The request; of several chunks, programs take minutes to solve."""
    return Case(kind, seed, size, chunks if find(name).quick is None else 1, root)


@pytest.mark.parametrize(("name", "kind"), CASES)
@for_drawn(**DRAWN)
def test_every_plan_verifies_and_never_beats_the_bound(name, kind, seed, chunks, size, root):
    case = drawn_case(name, kind, seed, chunks, size, root)
    plan = plan_for(name, case)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    assert simulate(plan).completion_s >= bound_of_s(plan, case) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "kind", "spec"),
    [
        pytest.param(e.name, kind, spec, id=f"{spec}-{e.name}-{kind}")
        for e in PLANNERS  # of several kinds each network has half, of one kind all
        for kind, spec in one_in(min(2, len(e.collectives)), e.collectives, NETWORKS)
    ],
)
def test_every_plan_verifies_on_named_networks(name, kind, spec):
    if find(name).quick is not None and spec not in SOLVED_ON:
        pytest.skip("takes minutes to solve")
    case = case_on(spec, name, kind)
    if (name, spec) in REFUSED:
        with pytest.raises(Unsupported, match=REFUSED[name, spec]):
            run_planner(name, network(spec), workload_of(case))
        return
    plan = plan_for(name, case)
    assert verify(plan).ok
    assert simulate(plan).completion_s >= bound_s(case) * (1 - 1e-12)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_planner_serves_some_named_network_for_each_collective_that_it_claims(name, kind):
    # without this one that refuses everything would pass all that is asked of plans
    reasons = []
    for spec in NETWORKS if find(name).quick is None else sorted(SOLVED_ON):
        plan = answer(name, case_on(spec, name, kind))
        if not isinstance(plan, Unsupported):
            assert verify(plan).ok
            return
        reasons.append(str(plan))
    pytest.fail("; ".join(reasons))


@pytest.mark.parametrize("refiner", [e for e in registered().values() if e.refines], ids=lambda e: e.name)
def test_a_refiner_serves_some_network_for_each_collective_that_it_claims(refiner):
    starts = sorted((e.name for e in PLANNERS if e.quick is None), key=lambda name: name in SEARCHING)
    quickest_first = sorted([*NETWORKS, "optical:4,4"], key=lambda spec: network(spec).node_count)
    for kind in refiner.collectives:
        for spec, start in product(quickest_first, starts):
            if kind in find(start).collectives and _refined(start, refiner.name, network(spec), kind):
                break
        else:
            pytest.fail(f"{refiner.name} refines no plan for {kind}")


def _refined(start: str, refiner: str, net: Topology, kind: str) -> bool:
    try:
        spec = f"{start}+{refiner}"
        return verify(run_any_planner(spec, net, work(kind, net, 64_000), effort=SEARCH_EFFORT, time_limit_s=0.5)).ok
    except Unsupported:
        return False


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_simulator_reproduces_the_claimed_completion(name, kind):
    net = random_network(7, switches=False, routers=False)
    plan = planned(name, net, work(kind, net, chunks=2))
    if plan.finish_s is None:
        return  # in ready-order nothing is claimed
    assert simulate(plan).completion_s == pytest.approx(claimed(plan), rel=1e-9)


@pytest.mark.parametrize(("name", "kind"), CASES)
@for_drawn(**DRAWN)
def test_the_simulator_reproduces_every_start_and_the_plan_is_right_in_ready_order_too(
    name, kind, seed, chunks, size, root
):
    case = drawn_case(name, kind, seed, chunks, size, root)
    plan = plan_for(name, case)
    if plan.start_s is not None:
        np.testing.assert_allclose(simulate(plan).start_s, plan.start_s, rtol=1e-9, atol=1e-18)
    untimed = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
    assert verify(untimed).ok
    assert simulate(untimed).completion_s >= bound_of_s(plan, case) * (1 - 1e-12)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_equal_requests_give_equal_plans(name, kind):
    case = Case(kind, 11)
    again = planned(name, random_network(11), work(kind, random_network(11)))
    assert plan_for(name, case).digest() == again.digest()


FEW_TRIES = {"greedy": {"tries": 20}}
"""Options by which a search is short where it is interpreted: later tries call the kernels that the first ones do."""

FEW_ROUNDS = (10, 10)
"""Rounds of the search for paths, at least and at most; later ones call the kernels that the first ones do, too."""


# these have no kernels but those of the planners that they ask, each of which is tried here
ASKING = ("auto", "jobs", "rs-ag")


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if case.values[0] not in ASKING])
def test_both_speeds_of_the_kernels_give_the_same_plan(name, kind, monkeypatch):
    net = random_network(13)
    monkeypatch.setattr("stretto.bounds.concurrent.ROUNDS", FEW_ROUNDS)
    digests, completions, ready = set(), set(), set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        plan = planned(name, net, work(kind, net, chunks=2), FEW_TRIES.get(name), SEARCH_EFFORT)
        assert verify(plan).ok
        digests.add(plan.digest())
        completions.add(simulate(plan).completion_s)
        untimed = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
        ready.add(simulate(untimed).completion_s)
    assert len(digests) == len(completions) == len(ready) == 1


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_faster_links_and_larger_chunks_change_nothing_but_the_unit_of_time(name, kind):
    net = random_network(17)
    faster = replace(net, bandwidth=net.bandwidth * 4, latency_s=net.latency_s / 2)
    # parts are whole bytes, and not cut below some size: of little they are cut otherwise than of twice as much
    for size in (5040, 5_040_000, 5_040_000_000)[name in SEARCHING :]:
        plan, scaled = planned(name, net, work(kind, net, size)), planned(name, faster, work(kind, faster, size * 2))
        if plan.workload.chunk_count == scaled.workload.chunk_count:
            break
    # where cutting finer gains a per cent or less, rounding decides whether it is tried
    if name in SEARCHING:
        assert simulate(scaled).completion_s == pytest.approx(simulate(plan).completion_s / 2, rel=0.01)
        return
    assert plan.workload.chunk_count == scaled.workload.chunk_count
    if plan.workload.chunk_count != work(kind, net).chunk_count:
        assert simulate(scaled).completion_s == pytest.approx(simulate(plan).completion_s / 2, rel=1e-3)
        return
    assert np.array_equal(plan.chunk, scaled.chunk)
    assert np.array_equal(plan.route.values, scaled.route.values)
    assert simulate(scaled).completion_s == pytest.approx(simulate(plan).completion_s / 2, rel=1e-12)


@cache
def on_a_ring(name: str, kind: str) -> float:
    """Seconds of a plan for a ring of five ranks."""
    return simulate(planned(name, ring(5), work(kind, ring(5)))).completion_s


@pytest.mark.parametrize(("name", "kind"), CASES)
@for_drawn(few=examples(2), many=examples(3), order=st.permutations(range(5)))
def test_relabelled_nodes_are_served_as_well(name, kind, order):
    # ties may break differently, so what is kept is that the plan is right and near as good
    net, usual_s = ring(5), on_a_ring(name, kind)
    links = [(order[a], order[b], w, t) for a, b, w, t in zip(net.src, net.dst, net.bandwidth, net.latency_s)]
    again = make_topology("relabelled", [0] * 5, links)
    plan = run_planner(name, again, work(kind, again, nodes=order))
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.5 * usual_s


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_plan_survives_its_file(name, kind, tmp_path):
    plan = plan_for(name, Case(kind, 11))
    write_plan(plan, str(tmp_path / "p.parquet"))
    assert read_plan(str(tmp_path / "p.parquet")).digest() == plan.digest()


@pytest.mark.parametrize("name", [e.name for e in PLANNERS])
def test_several_collectives_share_a_network(name):
    net = random_network(23)
    kinds = next(e for e in PLANNERS if e.name == name).collectives[:2]
    each = (work(kind, net, 5000).collectives[0] for kind in kinds)
    workload = Workload(tuple(replace(c, start_s=0.001 * i) for i, c in enumerate(each)))
    plan = planned(name, net, workload)
    assert verify(plan).ok
    timeline = simulate(plan)
    assert len(timeline.completions_s) == len(kinds)
    assert (timeline.completions_s > 0).all()


@pytest.mark.parametrize("name", [e.name for e in PLANNERS])
def test_what_a_planner_does_not_serve_it_refuses_by_name(name):
    entry = next(e for e in PLANNERS if e.name == name)
    net = star(3)
    for kind in ("allgather", "reducescatter", "allreduce", "alltoall", "reduce", "scatter", "gather"):
        if kind not in entry.collectives:
            with pytest.raises(Unsupported, match=f"{name} does not serve {kind}"):
                run_planner(name, net, Workload((make_collective(kind, net, 100),)))

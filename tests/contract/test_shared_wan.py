"""What every scheme of the WAN paper must keep on the Topology Zoo, whose links have latency."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import Plan
from stretto.planners import registered, run_planner
from stretto.planners.wan.bound import flow_bound
from stretto.planners.wan.flows import flows_of
from stretto.simulate import delays_of, simulate
from stretto.topologies import assume_messages, load_topology
from stretto.topologies.zoo import networks
from stretto.verify import verify

SCHEMES = {
    **{e.name: ({},) for e in registered().values() if e.alone == ("ring",)},
    "non-concurrent": tuple({"solver": s, "solver_work": 0.05} for s in ("greedy", "cp-sat")),
    "multiring": tuple({"inside": s, "solver_work": 0.05} for s in ("shortest", "downstream", "cp-sat")),
    "wan": ({"runs": 5, "proof": 0, "solver_work": 0.05},),
}
MILP = {"non-concurrent": {"solver": "milp"}, "multiring": {"inside": "milp"}}
RESERVING = ("out-of-order", "equal-alloc", "data-aware", "barrier-aware", "rate-alloc", "weight-alloc")
ZOO = networks()

zoo = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def requests(draw, messages: bool = True, most_ranks: int = 7):
    """A network of the Zoo with its latencies, and one to three collectives among a few of its nodes.

    Args:
        messages: whether messages may cost time.
        most_ranks: of each collective.
    """
    net = load_topology(f"zoo:{draw(st.sampled_from(ZOO))}?transit=true")
    if messages and draw(st.booleans()):
        net = assume_messages(net)
    kind = draw(st.sampled_from(["allreduce", "allgather", "reducescatter"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs = [
        make_collective(
            kind, net, int(rng.integers(1000, 60_000_000)), start_s=0.01 * k * float(rng.integers(2)),
            ranks=[int(v) for v in rng.permutation(net.accelerators)[: int(rng.integers(2, most_ranks + 1))]],
        )
        for k in range(int(rng.integers(1, 4)))
    ]  # fmt: skip
    return net, Workload(tuple(jobs))


@pytest.mark.parametrize("name", SCHEMES)
@zoo
@given(request=requests())
def test_plans_verify_keep_their_claim_and_never_beat_the_bound(name, request):
    for options in SCHEMES[name]:
        plan = run_planner(name, *request, options=options)
        assert verify(plan).finding is None, options
        timeline = simulate(plan)
        if not plan.topology.message_s.any() and "objective_s" in plan.meta:
            assert timeline.mean_completion_s == pytest.approx(plan.meta["objective_s"], rel=1e-9)
            assert plan.meta.get("non_concurrent_bound_s", 0.0) <= _best_known(plan, request) * (1 + 1e-9)
        assert timeline.mean_completion_s >= flow_bound(flows_of(plan)).mean_s * (1 - 1e-9)


def _best_known(plan: Plan, request) -> float:
    """The mean completion of a non-concurrent schedule: what the plan's bound holds for."""
    return simulate(run_planner("non-concurrent", *request, options={"solver": "greedy"})).mean_completion_s


@pytest.mark.parametrize("name", MILP)
@zoo
@given(request=requests(most_ranks=4), guard_s=st.sampled_from([0.0, 1e-4]))
def test_the_papers_milp_keeps_links_apart_too(name, request, guard_s):
    plan = run_planner(name, *request, options={**MILP[name], "guard_s": guard_s, "solver_work": 0.05})
    assert verify(plan).finding is None
    if not plan.topology.message_s.any():
        assert _least_rest_s(plan, apart=name == "multiring") >= guard_s * (1 - 1e-6) - 1e-9


@pytest.mark.parametrize("name", RESERVING)
@zoo
@given(request=requests(messages=False))
def test_what_reserved_shares_do_in_time_is_a_plan_that_the_referee_takes(name, request):
    plan = run_planner(name, *request)
    line = simulate(plan)
    # shares are constant while a flow lasts, so that its times say all about it
    timed = replace(plan, sharing="timed", start_s=line.start_s, finish_s=line.finish_s, rate=None, weight=None)
    assert verify(timed).finding is None


@pytest.mark.parametrize("name", ["non-concurrent", "multiring"])
@zoo
@given(request=requests(messages=False), guard_s=st.sampled_from([1e-6, 1e-4, 5e-3]))
def test_links_rest_for_the_guard_time_between_two_flows(name, request, guard_s):
    for options in SCHEMES[name]:
        plan = run_planner(name, *request, options={**options, "guard_s": guard_s})
        assert verify(plan).finding is None
        assert _least_rest_s(plan, apart=name == "multiring") >= guard_s * (1 - 1e-6) - 1e-9


def _least_rest_s(plan: Plan, apart: bool) -> float:
    """The shortest time for which a link rests between two flows; ``apart``: of one collective."""
    owners, link = plan.route.owners, plan.route.values.astype(np.int64)
    begin = plan.start_s[owners] + delays_of(plan).hop_s
    end = plan.finish_s[owners] + delays_of(plan).hop_s
    job = plan.workload.chunk_collective[plan.chunk][owners] * apart
    order = np.lexsort((begin, job, link))
    one, next_ = order[:-1], order[1:]
    same = (link[one] == link[next_]) & (job[one] == job[next_])
    return float((begin[next_] - end[one])[same].min(initial=np.inf))


@pytest.mark.parametrize("name", ["non-concurrent", "multiring"])
@pytest.mark.parametrize("guard_s", [-1.0, np.inf, np.nan])
def test_what_is_no_guard_time_is_refused(name, guard_s):
    net = load_topology("ring:4")
    work = Workload((make_collective("allreduce", net, 1000),))
    with pytest.raises(InputError, match="guard_s"):
        run_planner(name, net, work, options={"guard_s": guard_s})

"""Several collectives planned together: the shortest first, the next in what that leaves idle."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

import stretto as st
from examples import examples
from networks import random_network
from stretto.bounds import bounds, mean_bound
from stretto.cli.work import requested
from stretto.face.jobs import read_jobs
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.verify import verify

KINDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


def pair():
    """Two nodes and a link of 1 MB/s each way, without latency."""
    return make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 1e6, 0.0), (1, 0, 1e6, 0.0)])


def broadcasts(net, *jobs):
    """Broadcasts by (bytes, start, weight)."""
    return Workload(tuple(make_collective("broadcast", net, b, start_s=s, weight=w) for b, s, w in jobs))


def random_workload(net, seed: int, spread_s: float = 0.0):
    """Two to four collectives of different kinds, sizes, ranks, starts and weights."""
    rng = np.random.default_rng(seed)
    nodes = net.accelerators
    drawn = []
    for _ in range(int(rng.integers(2, 5))):
        ranks = rng.permutation(nodes)[: int(rng.integers(2, len(nodes) + 1))]
        drawn.append(
            make_collective(
                str(rng.choice(KINDS)), net, int(rng.integers(1_000, 3_000_000)), ranks=[int(v) for v in ranks],
                start_s=float(spread_s * rng.random()), weight=float(rng.integers(1, 4)),
            )
        )  # fmt: skip
    return Workload(tuple(drawn))


@pytest.mark.parametrize("seed", range(examples(6)))
def test_plans_are_right_and_never_worse_than_one_by_one_nor_better_than_the_bound(seed):
    net = random_network(seed)
    work = random_workload(net, seed, 0.05 if seed % 2 else 0.0)
    plan = run_planner("jobs", net, work, effort="quick")
    timeline = simulate(plan)
    assert verify(plan).finding is None
    assert timeline.mean_completion_s == pytest.approx(plan.meta["objective_s"], rel=1e-9)
    assert timeline.mean_completion_s <= plan.meta["one_by_one_s"] * (1 + 1e-9)
    assert timeline.mean_completion_s >= mean_bound(net, work).seconds * (1 - 1e-9)


def test_the_shortest_for_its_weight_goes_first():
    net = pair()
    even = run_planner("jobs", net, broadcasts(net, (3_000_000, 0.0, 1.0), (1_000_000, 0.0, 1.0)))
    assert simulate(even).completions_s == pytest.approx([4.0, 1.0])
    heavy = run_planner("jobs", net, broadcasts(net, (3_000_000, 0.0, 4.0), (1_000_000, 0.0, 1.0)))
    assert simulate(heavy).completions_s == pytest.approx([3.0, 4.0])
    assert simulate(heavy).mean_completion_s == pytest.approx((4 * 3.0 + 4.0) / 5)


def test_a_shorter_newcomer_interrupts():
    net = pair()
    work = broadcasts(net, (8_000_000, 0.0, 1.0), (1_000_000, 2.0, 1.0))
    for online in (False, True):
        plan = run_planner("jobs", net, work, options={"online": online})
        assert simulate(plan).completions_s == pytest.approx([9.0, 1.0], rel=0.2)
        assert verify(plan).finding is None


@pytest.mark.parametrize("seed", range(6))
def test_online_no_decision_before_a_start_depends_on_what_starts_then(seed):
    net = random_network(seed)
    work = random_workload(net, seed, 0.05)
    last = int(np.argmax([c.start_s for c in work.collectives]))
    late = work.collectives[last].start_s
    other = make_collective("allgather", net, 1_234_567, start_s=late)
    plans = [
        run_planner("jobs", net, Workload((*work.collectives[:last], c, *work.collectives[last + 1 :])),
                    effort="quick", options={"online": True})
        for c in (work.collectives[last], other)
    ]  # fmt: skip
    for plan in plans:
        assert verify(plan).finding is None
    early = [
        sorted(zip(p.start_s[p.start_s < late].tolist(), p.src[p.start_s < late].tolist(), strict=True)) for p in plans
    ]
    assert early[0] == early[1]


def test_the_bound_is_the_optimum_of_one_machine():
    net = pair()
    jobs = [(3_000_000, 0.0, 1.0), (2_000_000, 1.0, 3.0), (1_000_000, 1.5, 1.0), (4_000_000, 0.5, 9.0)]
    work = broadcasts(net, *jobs)

    def ends(order):
        """Preemptive service, the first of the order that has started first."""
        left, end, now = [b / 1e6 for b, _, _ in jobs], [0.0] * 4, 0.0
        while any(left):
            ready = [k for k in order if left[k] and jobs[k][1] <= now]
            coming = [s for _, s, _ in jobs if s > now]
            step = min([left[ready[0]]] if ready else [], default=np.inf)
            step = min([step, *(s - now for s in coming)])
            now += step
            if ready:
                left[ready[0]] = max(left[ready[0]] - step, 0.0) if left[ready[0]] - step > 1e-12 else 0.0
                end[ready[0]] = now
        return end

    weights = np.array([w for _, _, w in jobs])
    best = min(float(weights @ (np.array(ends(o)) - [s for _, s, _ in jobs])) for o in permutations(range(4)))
    assert mean_bound(net, work).seconds == pytest.approx(best / weights.sum())


def test_the_bound_of_many_collectives_is_that_of_smith():
    net = pair()
    sizes = np.arange(1, 21) * 100_000
    work = broadcasts(net, *((int(b), 0.0, 1.0) for b in sizes))
    assert mean_bound(net, work).seconds == pytest.approx(np.cumsum(sizes).mean() / 1e6)


def test_the_bound_of_many_collectives_counts_a_latency_only_for_those_that_cross():
    links = [(a, b, 1e6, latency) for x, y, latency in ((0, 1, 0.0), (1, 2, 10.0)) for a, b in ((x, y), (y, x))]
    net = make_topology("far", [ACCELERATOR] * 3, links)
    near = [make_collective("broadcast", net, 10_000, ranks=[0, 1]) for _ in range(13)]
    far = make_collective("broadcast", net, 10_000_000, ranks=[0, 1, 2])
    work = Workload((*near, far))
    plan = run_planner("jobs", net, work, effort="quick")
    assert mean_bound(net, work).seconds <= simulate(plan).mean_completion_s * (1 + 1e-9)


def test_auto_asks_jobs_and_compares_by_the_mean():
    net = replace(random_network(3), name="net")
    work = random_workload(net, 3)
    plan = run_planner("auto", net, work, effort="normal")
    assert plan.meta["chosen"] == "jobs"
    assert simulate(plan).mean_completion_s <= simulate(run_planner("forest", net, work)).mean_completion_s
    assert {"planner": "jobs", "completion_s": plan.meta["objective_s"]} in plan.meta["tried"]


def test_collectives_alone_are_bounded_by_their_own_bounds():
    net = random_network(1)
    one = make_collective("allgather", net, 1_000_000)
    far = replace(one, start_s=100.0)
    assert mean_bound(net, Workload((one, far))).seconds == pytest.approx(bounds(net, Workload((one,)))[0].seconds)


def test_jobs_are_asked_as_text_as_objects_and_in_a_file(tmp_path):
    file = tmp_path / "jobs.json"
    file.write_text(
        '[{"collective": "allreduce", "size": "5MB"}, {"collective": "allgather", "size": 1e6, "start": "2s"}]'
    )
    objects = [{"collective": "allreduce", "size": "5MB"}, {"collective": "allgather", "size": 1e6, "start": 2.0}]
    asked = "allreduce:5MB,allgather:1MB@2s", objects, read_jobs(file), ["allreduce:5MB", objects[1]]
    found = [[(c.kind, c.size_bytes, c.start_s) for c in st.workload(each, "ring:4").collectives] for each in asked]
    assert found == [[("allreduce", 5_000_000, 0.0), ("allgather", 1_000_000, 2.0)]] * 4


def test_jobs_on_the_command_line_are_a_file_or_written_as_collectives(tmp_path):
    written = "allreduce:5MB,allgather:1MB@2s"
    assert requested(None, None, None, None, written) == written
    (tmp_path / "a:b").write_text('[{"collective": "allreduce", "size": "5MB"}]')
    assert [job["size"] for job in requested(None, None, None, None, str(tmp_path / "a:b"))] == ["5MB"]
    with pytest.raises(InputError, match=r"jobs\.json: cannot be read"):
        requested(None, None, None, None, "jobs.json")
    with pytest.raises(InputError, match="leave out the collective"):
        requested("allgather", None, None, None, written)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"collective": "allreduce", "size": "5XB"}, "job 1: size: '5XB' has an unknown unit"),
        ({"collective": "allreduce", "sizes": "5MB"}, "job 1: 'sizes' is not known"),
        ({"size": "5MB"}, "job 1: 'collective' is missing"),
        ({"collective": "allreduce", "size": "5MB", "ranks": ["gpu0", "x"]}, "job 1: ranks: there is no node 'x'"),
        ({"collective": "allreduce", "size": "5MB", "weight": 0}, "job 1: weight: 0 is not a weight above 0"),
        ({"collective": "allreduce", "size": "5MB", "weight": 10**400}, "job 1: weight: 1000"),
        ({"collective": "allreduce", "size": "5MB", "ranks": [0, 10**30]}, "job 1: ranks: every rank must be"),
        ({"collective": "multicast", "size": "5MB", "receivers": ["a"]}, "job 1: 'receivers' must be a list of ranks"),
        ({"collective": "allreduce", "size": "5MB", "start": "-1s"}, "job 1: start: '-1s' is not a time"),
        ({"collective": "allreduce"}, "job 1: size: give either the size"),
        (7, "job 1: must be an object"),
    ],
)
def test_what_is_wrong_in_a_job_is_named(job, words, tmp_path):
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([{"collective": "broadcast", "size": "1MB"}, job]))
    with pytest.raises(InputError, match=rf"^{re.escape(str(file))}, {re.escape(words)}"):
        st.workload(read_jobs(file), "ring:4")


def test_no_job_and_what_is_no_job_are_refused():
    with pytest.raises(InputError, match="collectives: name at least one"):
        st.plan([], "ring:4", "1MB")
    with pytest.raises(InputError, match="job 1: must be an object"):
        st.workload(["allreduce:1MB", None], "ring:4")


def test_weights_survive_files(tmp_path):
    net = pair()
    plan = run_planner("jobs", net, broadcasts(net, (3_000_000, 0.0, 4.0), (1_000_000, 0.5, 1.0)))
    for name in ("p.json", "p.parquet"):
        write_plan(plan, str(tmp_path / name))
        again = read_plan(str(tmp_path / name))
        assert again.digest() == plan.digest()
        assert again.workload.weights.tolist() == [4.0, 1.0]

"""Links whose bandwidth changes with time: steps, files, simulation, verification, bounds, planners."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import chains, lines
from stretto.bounds import bounds
from stretto.choose.replan import replan
from stretto.model.arrays import Ragged
from stretto.model.changes import NO_CHANGES, make_changes
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, InputError, Unsupported
from stretto.model.plan import Plan, make_plan
from stretto.model.telemetry import Telemetry
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import in_order, simulate
from stretto.topologies import load_topology
from stretto.topologies.files import read_changes, topology_from_json
from stretto.verify import verify


def timed(plan: Plan, start, finish) -> Plan:
    return replace(plan, sharing="timed", start_s=np.array(start, float), finish_s=np.array(finish, float))


def changing(net: Topology, *rows) -> Topology:
    return replace(net, changes=make_changes(rows, net.link_count))


def test_steps_are_sorted_and_say_what_a_link_carries():
    changes = make_changes([(3.0, 1, 0.0), (1.0, 0, 5.0), (2.0, 0, 20.0)], 2)
    assert changes.link.tolist() == [0, 0, 1]
    assert changes.widths(np.array([10.0, 4.0])).tolist() == [[5, 4], [20, 4], [20, 0]]
    assert changes.best(np.array([10.0, 4.0])).tolist() == [20, 4]
    assert changes.carried_bytes(np.array([10.0, 4.0]), 4.0).tolist() == [10 + 5 + 40, 12]
    assert changes.of_links(np.array([1])).to_json() == [{"at_s": 3.0, "link": 0, "bandwidth_Bps": 0.0}]
    later = changes.since(2.5)
    assert (later.at_s.tolist(), later.bandwidth.tolist()) == ([0.0, 0.5], [20.0, 0.0])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((1.0, 2, 5.0), r"change 1 \(of link 2 at 1 s\) is of no link: there are 2"),
        ((-1.0, 0, 5.0), "needs a moment from zero to a year"),
        ((1.0, 0, 0.5), "needs a bandwidth of 0, or 1 B/s to 1e18 B/s"),
        ((0.0, 1, 5.0), "second one of that link at that moment"),
    ],
)
def test_a_wrong_step_is_refused_in_one_line(row, says):
    with pytest.raises(InputError, match=says):
        make_changes([(0.0, 1, 3.0), row], 2)


def test_topology_files_keep_changes_and_name_a_wrong_one(tmp_path):
    net = changing(lines(10), (1.0, 0, 5.0), (2.5, 0, 0.0))
    data = net.to_json()
    assert topology_from_json(json.loads(json.dumps(data)), None).to_json() == data
    data["changes"][1]["bandwidth_Bps"] = -3
    with pytest.raises(InputError, match="x, change 1: 'bandwidth_Bps' must be from 1 B/s to 1e18 B/s, or 0, not -3"):
        topology_from_json(data, "x")
    names = net.names
    path = tmp_path / "changes.csv"
    path.write_text(f"at_s,src,dst,bandwidth_Bps\n1,{names[net.src[0]]},{names[net.dst[0]]},5\n2.5,0,1,0\n")
    assert read_changes(str(path), net).to_json() == net.changes.to_json()


def test_a_late_transfer_pushes_back_what_depends_on_it_and_what_waits_for_its_link():
    net = lines(10)
    plan = timed(chains(net, [[(10, [0]), (10, [0])]], [[(10, [0])]]), [0, 1, 2], [1, 2, 3])
    assert verify(plan).ok
    fails = make_changes([(0.5, 0, 0.0), (2.5, 0, 10.0)], net.link_count)
    line = simulate(plan, fails)
    assert line.finish_s.tolist() == pytest.approx([3, 4, 5])
    assert line.start_s.tolist() == pytest.approx([0, 3, 4])
    faster = make_changes([(0.0, 0, 20.0)], net.link_count)
    assert simulate(plan, faster).finish_s.tolist() == pytest.approx([0.5, 1.5, 2.5])


def test_a_transfer_keeps_its_share_of_a_link_that_changes():
    plan = timed(chains(lines(10), [[(10, [0])]], [[(5, [0])]]), [0, 0], [2, 1])
    half = make_changes([(1.0, 0, 5.0)], plan.topology.link_count)
    assert simulate(plan, half).finish_s.tolist() == pytest.approx([3, 1])


def test_a_link_that_fails_for_good_is_said():
    plan = timed(chains(lines(10), [[(10, [0])]]), [0], [1])
    for sharing in ("timed", "ready-order", "rates", "weights", "fair"):
        shared = replace(plan, sharing=sharing, rate=np.array([10.0]), weight=np.array([1.0]))
        with pytest.raises(Infeasible, match=r"never ends: link .* fails and does not come back"):
            simulate(shared, make_changes([(0.5, 0, 0.0)], plan.topology.link_count))


@st.composite
def networks(draw) -> tuple[Topology, Workload]:
    """A small network with accelerators, a router and a switch, some message costs, random steps, and a multicast."""
    kinds = [ACCELERATOR] * 3 + [ROUTER, SWITCH]
    pairs = [(a, b) for a in range(5) for b in range(5) if a != b]
    kept = draw(st.lists(st.sampled_from(pairs), min_size=4, max_size=12, unique=True))
    around = [(0, 3), (3, 1), (1, 4), (4, 2), (2, 0), (3, 4)]
    links = [
        (a, b, draw(st.integers(5, 40)), draw(st.sampled_from([0.0, 0.125, 0.3])))
        for a, b in dict.fromkeys(around + kept)
    ]
    message_s = [draw(st.sampled_from([0.0, 0.0, 0.25])) for _ in links]
    rows = draw(
        st.dictionaries(
            st.tuples(st.integers(0, 24), st.integers(0, len(links) - 1)),
            st.sampled_from([0, 1, 3, 7, 20, 60]),
            min_size=1, max_size=25,
        )
    )  # fmt: skip
    last = {(30, link): 9 for link in range(len(links))}
    steps = [(t / 4, link, width) for (t, link), width in (rows | last).items()]
    net = make_topology("random", kinds, links, message_s=message_s, changes=steps)
    return net, Workload((make_collective("allgather", net, 90, chunks=2),))


@st.composite
def planned(draw) -> Plan:
    """A right plan on a network that changes: chunks by shortest paths, in an order, as early as links let them."""
    net, workload = draw(networks())
    plan = run_planner(
        draw(st.sampled_from(["shortest-path", "mtegcca", "scale-ccl"])), replace(net, changes=NO_CHANGES), workload
    )
    order = np.asarray(plan.start_s if plan.start_s is not None else simulate(plan).start_s)
    line = in_order(replace(plan, topology=net, sharing="timed"), order)
    return replace(plan, topology=net, sharing="timed", start_s=line.start_s, finish_s=line.finish_s, rate=None)


@settings(max_examples=150, deadline=None)
@given(planned())
def test_a_plan_made_by_the_physics_verifies_and_runs_as_it_says(plan):
    verdict = verify(plan)
    assert verdict.ok, verdict
    assert bounds(plan.topology, plan.workload)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)
    line = simulate(plan)
    assert line.start_s == pytest.approx(plan.start_s, rel=1e-9, abs=1e-9)
    assert line.finish_s == pytest.approx(plan.finish_s, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(planned(), st.data())
def test_a_transfer_that_ends_sooner_than_its_links_let_it_is_refused(plan, data):
    k = data.draw(st.integers(0, plan.transfer_count - 1))
    finish = plan.finish_s.copy()
    finish[k] -= 1e-3 * (finish[k] - plan.start_s[k])
    assert verify(replace(plan, finish_s=finish)).finding.code in ("speed", "before-dependency")


@settings(max_examples=60, deadline=None)
@given(planned(), st.data())
def test_a_plan_made_for_other_bandwidths_is_refused_or_right(plan, data):
    """The simulator decides: a plan that it cannot run in the plan's own times is one that the verifier refuses."""
    changes = plan.topology.changes
    row = data.draw(st.integers(0, len(changes) - 1))
    width = changes.bandwidth.copy()
    width[row] = data.draw(st.sampled_from([0.0, 2.0, 100.0])) if changes.at_s[row] < 7 else 5.0
    other = replace(plan.topology, changes=replace(changes, bandwidth=width))
    line = simulate(plan, other.changes)
    late = (line.finish_s > plan.finish_s + 1e-6).any()
    assert verify(replace(plan, topology=other)).ok <= (not late)


@pytest.mark.parametrize(("finish", "code"), [(3.0, None), (2.9, "capacity")])
def test_shares_of_a_link_that_changes_must_fit_at_each_moment(finish, code):
    """10 B/s, from 1 s on 5: two chunks of 10 bytes take half each until 3 s; the other one may take no more."""
    net = changing(lines(10), (1.0, 0, 5.0))
    plan = timed(chains(net, [[(10, [0])]], [[(10, [0])]]), [0, 0], [3, finish])
    assert getattr(verify(plan).finding, "code", None) == code


def as_simulated(plan):
    """The plan, whose second transfer leaves before its bytes have come, with the times that the simulator gives it."""
    finding = verify(plan).finding
    assert finding is not None
    assert (finding.code, finding.transfer) == ("before-dependency", 1)
    line = simulate(plan)
    return replace(plan, start_s=line.start_s, finish_s=line.finish_s)


def test_no_byte_leaves_a_router_before_it_came():
    """The router gets 1 byte in the first second, and then 9. It may send 10 bytes at once only in the second one."""
    kinds, links = [ACCELERATOR, ROUTER, ACCELERATOR], [(0, 1, 1.0, 0.0), (1, 2, 10.0, 0.0), (2, 0, 10.0, 0.0)]
    net = make_topology("line", kinds, links, changes=[(1.0, 0, 9.0), (1.0, 1, 5.0)])
    work = Workload((make_collective("multicast", net, 10, ranks=[0, 2], receivers=[1]),))
    plan = make_plan(
        net, work, "timed", chunk=[0, 0], src=[0, 1], dst=Ragged.single([1, 2]), route=Ragged.single([0, 1]),
        depends=Ragged.of([[], [0]]), start_s=[0, 0.5], finish_s=[2, 2],
    )  # fmt: skip
    # 5 bytes leave in the second second, so 1 - 5 / 10 of what the start at 0.5 s would send must wait
    right = as_simulated(plan)
    assert verify(right).ok
    assert right.finish_s[1] > 2


def test_no_byte_of_a_sum_leaves_a_router_that_it_passed_on_its_way_in_before_it_came_back():
    """Node 0 sends through the router to the switch, which sends the sum back to the router, 2 s later. 92 of 100 bytes
    leave node 0 from 8 s to 9 s, so they are back from 10 s to 11 s: half of all cannot leave the router by 10 s."""
    kinds = [ACCELERATOR, ACCELERATOR, ROUTER, SWITCH, ACCELERATOR]
    links = [(0, 2, 100.0, 0.0), (2, 3, 100.0, 1.0), (1, 3, 100.0, 0.0), (3, 2, 100.0, 1.0), (2, 4, 50.0, 0.0)]
    net = make_topology(
        "back", kinds, [*links, (4, 2, 50.0, 0.0)], reduces=[k == SWITCH for k in kinds],
        changes=[(0.0, 0, 1.0), (8.0, 0, 92.0)],
    )  # fmt: skip
    plan = make_plan(
        net, Workload((make_collective("reduce", net, 100, root=2),)), "timed", chunk=[0, 0], src=[0, 2], op=[0, 1],
        other_src=Ragged.of([[1], []]), dst=Ragged.of([[2], [4]]), route=Ragged.of([[0, 1, 2, 3], [4]]),
        depends=Ragged.of([[], [0]]), start_s=[0.0, 9.0], finish_s=[9.0, 11.0],
    )  # fmt: skip
    assert verify(as_simulated(plan)).ok


def test_a_cut_is_bounded_by_what_its_links_carry_in_time():
    """20 bytes enter over 10 B/s, which fail from 1 s to 5 s."""
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 10.0, 0.5), (1, 0, 10.0, 0.5)],
                        changes=[(1.0, 0, 0.0), (5.0, 0, 10.0)])  # fmt: skip
    work = Workload((make_collective("broadcast", net, 20),))
    assert bounds(net, work)[0].seconds == pytest.approx(6.5)


def test_planners_that_cannot_heed_changes_say_so_in_one_line():
    net = changing(lines(10), (1.0, 0, 5.0))
    work = Workload((make_collective("allgather", net, 20),))
    with pytest.raises(Unsupported, match=r"forest does not serve .*: it cannot heed bandwidths that change; these "):
        run_planner("forest", net, work)


@pytest.mark.parametrize("planner", ["auto", "mtegcca", "scale-ccl"])
@settings(max_examples=25, deadline=None)
@given(
    asked=networks(), kind=st.sampled_from(["allgather", "allreduce", "alltoall", "broadcast"]), start=st.integers(0, 3)
)
def test_planners_that_heed_changes_make_right_plans(planner, asked, kind, start):
    net = asked[0]
    work = Workload((make_collective(kind, net, 90, chunks=1, start_s=start),))
    if planner == "mtegcca" and kind == "alltoall":
        return
    plan = run_planner(planner, net, work, effort="quick")
    assert verify(plan).ok, verify(plan)
    assert simulate(plan).finish_s == pytest.approx(plan.finish_s, rel=1e-9, abs=1e-9)
    assert bounds(net, work)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)


@pytest.mark.parametrize("planner", ["mtegcca", "scale-ccl"])
def test_who_knows_that_a_link_fails_goes_another_way(planner):
    """Three datacenters; the link between two of them fails for longer than the way round takes."""
    net = load_topology("sites:3,2")
    between = [i for i in range(net.link_count) if net.link_name(i) == "s0.router0→s1.router0"]
    failing = changing(net, (0.0002, between[0], 0.0), (0.02, between[0], 12.5e9))
    work = Workload((make_collective("allgather", net, 60_000_000),))
    blind = simulate(run_planner(planner, net, work), failing.changes).completion_s
    knowing = simulate(run_planner(planner, failing, work)).completion_s
    assert blind > 0.02
    assert knowing < 0.005


def test_compiled_and_interpreted_loops_agree(monkeypatch):
    net = load_topology("sites:3,2?connectivity=1")
    rows = [(i * 1e-4, i % net.link_count, (i % 4) * 4e9) for i in range(1, 60)]
    rows += [(0.01, link, 10e9) for link in range(net.link_count)]
    work = Workload((make_collective("allgather", net, 60_000_000, chunks=2),))
    blind = run_planner("scale-ccl", net, work)
    digests = set()
    for mode in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", mode)
        plan = run_planner("scale-ccl", changing(net, *rows), work)
        assert verify(plan).ok
        line = simulate(blind, plan.topology.changes)
        digests.add((plan.digest(), line.completion_s, verify(replace(blind, topology=plan.topology)).finding.message))
    assert len(digests) == 1


def test_a_long_queue_behind_a_link_that_failed_is_served_in_order():
    """2,000 chunks of a second each wait for a link that is back after all of them should have passed."""
    count = 2000
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 10.0, 0.0), (1, 0, 10.0, 0.0)])
    plan = make_plan(
        net, Workload((make_collective("broadcast", net, 10 * count, chunks=count),)), "timed", chunk=np.arange(count),
        src=np.zeros(count), dst=Ragged.single([1] * count), route=Ragged.single([0] * count),
        depends=Ragged.empty(count), start_s=np.arange(count), finish_s=np.arange(1, count + 1),
    )  # fmt: skip
    line = simulate(plan, make_changes([(0.5, 0, 0.0), (5000.0, 0, 10.0)], 2))
    assert line.finish_s == pytest.approx(5000 + np.arange(count) + 0.5)


def test_what_is_still_to_change_stays_when_the_rest_is_planned_again():
    net = load_topology("sites:3,2")
    failing = changing(net, (0.0002, 3, 5e9), (0.001, 3, 6e9), (0.004, 3, 12.5e9), (0.003, 5, 1e9))
    work = Workload((make_collective("allgather", net, 60_000_000),))
    rest = replan(run_planner("mtegcca", failing, work), Telemetry(at_s=0.002, bandwidth={5: 9e9})).plan
    assert rest is not None
    assert verify(rest).ok
    assert rest.topology.changes.to_json() == [
        {"at_s": 0.0, "link": 3, "bandwidth_Bps": 6e9},
        {"at_s": 0.002, "link": 3, "bandwidth_Bps": 12.5e9},
        {"at_s": 0.001, "link": 5, "bandwidth_Bps": 1e9},
    ]


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 16), st.integers(1, 40)), min_size=1, max_size=5),
    steps=st.dictionaries(st.integers(0, 30), st.sampled_from([0, 2, 5, 10, 20]), max_size=6),
)
def test_transfers_that_share_a_link_are_right_where_their_shares_fit_at_each_moment(rows, steps):
    """A plain sum over eighths of seconds says which plans are right; the simulator runs these as they are."""
    width = np.full(40, 10.0)
    for at, w in sorted(steps.items()):
        width[at:] = w
    start, finish = np.array([r[0] for r in rows]), np.array([r[0] + r[1] for r in rows])
    could = np.array([width[a:b].sum() / 8 for a, b in zip(start, finish, strict=True)])
    size = np.array([r[2] for r in rows])
    share = np.divide(size, could, out=np.full(len(rows), np.inf), where=could > 0)
    active = np.array([(start <= t) & (t < finish) for t in range(40)])
    taken = np.array([share[on].sum() if width[t] > 0 else 0.0 for t, on in enumerate(active)])
    margin = np.append(taken[np.isfinite(taken)], share[np.isfinite(share)])
    if (abs(margin - 1) < 1e-6).any() and (margin > 1 + 1e-12).any():
        return
    changes = [(t / 8, 0, w) for t, w in steps.items()]
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 10.0, 0.0), (1, 0, 10.0, 0.0)], changes=changes)
    work = Workload(tuple(make_collective("broadcast", net, int(each)) for each in size))
    count = len(rows)
    plan = make_plan(
        net, work, "timed", chunk=np.arange(count), src=np.zeros(count), dst=Ragged.single([1] * count),
        route=Ragged.single([0] * count), depends=Ragged.empty(count), start_s=start / 8, finish_s=finish / 8,
    )  # fmt: skip
    assert verify(plan).ok == bool((margin <= 1 + 1e-9).all() and np.isfinite(share).all())
    if verify(plan).ok:
        line = simulate(plan)
        assert line.start_s.tolist() == pytest.approx((start / 8).tolist())
        last = [max(t for t in range(a, b) if width[t] > 0) + 1 for a, b in zip(start, finish, strict=True)]
        assert line.finish_s.tolist() == pytest.approx([t / 8 for t in last])


def test_auto_asks_who_heeds_changes_where_ranks_are_behind_a_switch():
    net = load_topology("star:3")
    work = Workload((make_collective("allreduce", net, 3_000_000),))
    plan = run_planner("auto", changing(net, (0.00001, 0, 0.0), (0.001, 0, 25e9)), work, effort="quick")
    assert plan.meta["chosen"] == "scale-ccl"
    assert verify(plan).ok

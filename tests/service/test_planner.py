"""The planner of the controller, one step at a time, with a clock of the test's own."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

import stretto as st
from stretto.formats.native import plan_from_text
from stretto.model.errors import InputError
from stretto.model.part_plans import part_of
from stretto.service import holding, jobs, networks, published
from stretto.service.database import Database, NotLeader
from stretto.service.documents import parse_job
from stretto.service.listening import Sensitivity
from stretto.service.networks import Conflict
from stretto.service.optical.failing import without
from stretto.service.planner import Planner, Settings
from stretto.service.publishing import Publishing
from stretto.service.telemetry.samples import CAPACITY, CARRIED, UP, Sample
from stretto.service.times import keep_times, parse_times, times_of
from stretto.simulate import simulate
from stretto.verify import verify

NET = st.topology("ring:4", bandwidth="10GB/s")
ALLREDUCE = {"network": "net", "collectives": [{"kind": "allreduce", "size": "6MB"}]}
GATHER = {"network": "net", "ranks": ["gpu0", "gpu1", "gpu2"], "weight": 3,
          "collectives": [{"kind": "allgather", "size": "3MB"}, {"kind": "alltoall", "size": "1MB", "times": 2}]}  # fmt: skip


PLANNER = "shortest-path"  # of the planners that heed slow links the quickest


class Controller:
    """A store with a leader and its planner, without processes."""

    def __init__(self, path, planner=PLANNER, efforts="quick", **how):
        self.database, self.now, self.events = Database(f"sqlite:///{path}/c.sqlite"), 1000.0, []
        self.term = self.database.begin_term("", self.now)
        settings = Settings(efforts, Sensitivity(0.2, 2.0), planner=planner, **how)
        self.planner = Planner(self.database, self.term, settings, self.events.append, lambda: self.now)
        self.write(networks.put_network, "net", NET, self.now)

    def write(self, function, *arguments):
        with self.database.write(self.term) as connection:
            return function(connection, *arguments)

    def read(self, function, *arguments):
        with self.database.read() as connection:
            return function(connection, *arguments)

    def put(self, name, document):
        self.write(jobs.put_job, name, parse_job(document), self.now)

    def work(self):
        """What the planner tells while it does what is to be done."""
        self.events.clear()
        self.again_at = self.planner.work()
        return [event for event in self.events if event["event"] in ("published", "proposed", "held", "telemetry")]

    def plan(self, job, version=None):
        row = self.read(published.published_plan, job, version)
        return self.read(published.find_plan, row.digest)

    def report(self, rate, src="gpu0", dst="gpu1"):
        self.write(networks.keep_samples, "net", [Sample(src, dst, CAPACITY, rate, self.now)])


@pytest.fixture
def controller(tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    return Controller(tmp_path)


def test_jobs_of_a_network_are_planned_together_and_each_gets_its_verified_part(controller):
    controller.put("a", ALLREDUCE)
    controller.put("b", GATHER)
    controller.put("same", ALLREDUCE)
    (event,) = controller.work()
    assert event["refused"] == {}
    assert event["jobs"] == {"a": 1, "b": 1, "same": 1} and event["why"] == "the first plans on this network"
    assert sum(e["event"] == "planned" for e in controller.events) == 3  # equal collectives are planned once
    plans = {name: controller.plan(name) for name in ("a", "b", "same")}
    assert all(verify(plan).ok for plan in plans.values())
    assert [c.weight for c in plans["b"].workload.collectives] == [3.0, 6.0]
    whole = controller.read(published.find_plan, controller.read(published.last_decision, "net").digest)
    assert verify(whole).ok
    assert part_of(whole, [1, 2]).digest() == plans["b"].digest()
    facts = json.loads(controller.read(published.published_plan, "b").facts)
    assert [c["completion_s"] for c in facts["collectives"]] == simulate(whole).completions_s[1:3].tolist()
    assert controller.work() == []


def test_a_planner_that_always_has_work_forgets_what_is_old_meanwhile(controller):
    controller.put("a", ALLREDUCE)
    more = iter([True, True, False])
    controller.planner.step = lambda: controller.events.append({"event": "step"}) or next(more)
    controller.planner.plan_ahead = lambda: False
    controller.work()
    assert [event["event"] for event in controller.events] == ["step", "stored", "step", "step"]


def test_a_job_that_cannot_be_planned_keeps_no_other_from_its_plan(controller):
    controller.put("a", ALLREDUCE)
    controller.put("bad", {**ALLREDUCE, "ranks": ["gpu0", "gpu9"]})
    (event,) = controller.work()
    assert event["jobs"] == {"a": 1}
    assert event["refused"] == {"bad": "collectives[0]: ranks: there is no node 'gpu9' in ring:4?bandwidth=10GB/s"}


def test_a_link_that_is_slow_for_long_enough_leads_to_a_version_that_says_why(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.report(1e9)
    assert controller.work() == [] and controller.again_at == 1002.0
    controller.now = 1002.0
    telemetry, event = controller.work()
    assert telemetry["version"] == 2
    assert event["event"] == "published" and event["jobs"] == {"a": 2}
    assert "gpu0→gpu1 has 1 GB/s instead of 10 GB/s for 2.0 s" in event["why"] and "a gain of" in event["why"]
    row = controller.read(published.published_plan, "a")
    assert (row.network_version, row.version) == (2, 2)
    assert json.loads(row.changed)["completions_before_s"] == simulate(controller.plan("a", 1)).completions_s.tolist()


def test_plans_for_a_link_that_differs_are_made_before_it_counts(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.report(1e9)
    assert controller.work() == []  # for the holding time nothing changes
    assert [event["event"] for event in controller.events].count("planned") == 1 and controller.again_at == 1002.0
    assert controller.work() == controller.events == []  # it is planned once
    controller.now = 1002.0
    told, published_now = controller.work()
    assert (told["event"], published_now["event"]) == ("telemetry", "published")
    assert "planned" not in [event["event"] for event in controller.events]
    assert controller.plan("a").topology.bandwidth.min() == 1e9


def test_nothing_is_planned_ahead_for_a_link_that_is_as_planned_again(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.report(1e9)
    controller.now += 1.0
    controller.report(10e9)
    assert controller.work() == controller.events == []


def test_a_link_of_which_nothing_is_reported_any_more_is_tried_again_later_and_later(controller):
    controller.put("a", ALLREDUCE)
    controller.work()

    def tried_after(wait_s):
        """What is told when nothing has come for some seconds, and nothing a second before."""
        slower(controller, 1e9)
        assert controller.plan("a").topology.bandwidth.min() == 1e9
        controller.now += wait_s - 6.0
        assert controller.work() == []
        controller.now += 1.0
        told, given = controller.work()
        assert given["jobs"] and controller.plan("a").topology.bandwidth.min() == 10e9
        return told["why"]

    for wait_s in (300, 600, 1200):
        assert tried_after(wait_s) == f"nothing was reported of gpu0→gpu1 for {wait_s} s: tried again"
    for _ in range(2):  # it is well for a while
        controller.report(10e9)
        controller.now += 400.0
        controller.work()
    assert "for 300 s" in tried_after(300)


@pytest.mark.parametrize(("kind", "rate"), [(CARRIED, 0.0), (UP, 1.0)])
def test_a_slow_link_is_tried_again_though_counters_of_its_interface_are_reported(controller, kind, rate):
    controller.put("a", ALLREDUCE)
    controller.work()
    slower(controller, 1e9)
    for _ in range(10):
        controller.now += 30.0
        controller.write(networks.keep_samples, "net", [Sample("gpu0", "gpu1", kind, rate, controller.now)])
    assert "tried again" in controller.work()[0]["why"]


def test_a_link_that_is_down_is_not_tried_again(controller):
    controller.put("a", ALLREDUCE)
    controller.report(0.0)
    controller.work()
    controller.now += 1e6
    assert controller.work() == []


def test_a_network_that_is_deleted_while_networks_are_looked_at_is_passed_over(controller, monkeypatch):
    names = networks.network_names
    monkeypatch.setattr(
        "stretto.service.planner.network_names", lambda connection: [("deleted", 1), *names(connection)]
    )
    controller.put("a", ALLREDUCE)
    assert controller.work()[-1]["jobs"] == {"a": 1}


def test_a_plan_that_gains_too_little_is_not_published_and_the_reason_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    controller = Controller(tmp_path, least_gain=0.99)
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.report(1e9)
    controller.now += 5.0
    _, event = controller.work()
    assert event["event"] == "held" and event["jobs"] == {}
    decision = controller.read(published.last_decision, "net")
    assert not decision.published and "is below 99.0 %, so jobs keep their plans" in decision.why
    assert decision.after_s < decision.before_s
    assert controller.read(published.published_plan, "a").version == 1
    assert controller.work() == []


def test_a_decision_with_more_effort_says_that_and_not_the_reason_again(tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    controller = Controller(tmp_path, efforts="normal")
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.report(7.5e9)  # a plan for that gains too little
    controller.now += 5.0
    controller.work()
    more, first = (row.why for row in controller.read(published.network_decisions, "net", 2))
    assert first.startswith("version 2 of the network (telemetry: gpu0→gpu1 has 7.5 GB/s")
    assert more.startswith("planned with the effort normal; mean completion")
    controller.database.close()


def test_a_plan_that_needs_a_dead_link_is_replaced_at_once_whatever_it_gains(tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    controller = Controller(tmp_path, least_gain=0.99)
    controller.put("a", ALLREDUCE)
    controller.work()
    old = controller.plan("a")
    used = int(old.route.values[0])
    ends = [old.topology.names[int(v)] for v in (old.topology.src[used], old.topology.dst[used])]
    controller.write(networks.keep_samples, "net", [Sample(*ends, CAPACITY, 0.0, controller.now)])
    _, event = controller.work()
    assert event["jobs"] == {"a": 2} and "need a link that is down" in event["why"]
    assert controller.plan("a").topology.link_count == NET.link_count - 1


def test_a_restarted_planner_has_nothing_to_do_and_one_of_a_past_term_writes_nothing(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    again = Planner(
        controller.database, controller.term, Settings("quick", planner=PLANNER), print, lambda: controller.now
    )
    assert not again.step()
    controller.put("b", ALLREDUCE)
    controller.database.begin_term("elsewhere", controller.now)
    with pytest.raises(NotLeader):
        controller.planner.work()
    assert controller.read(published.published_plan, "b") is None


def test_a_job_that_ends_leaves_the_others_and_its_plans_are_forgotten(controller):
    controller.put("a", ALLREDUCE)
    controller.put("b", GATHER)
    controller.work()
    controller.write(jobs.delete_job, "b")
    (event,) = controller.work()
    assert "jobs without a plan any more: b" in event["why"]
    assert controller.read(published.published_plan, "b") is None


def test_the_stored_forms_of_a_plan_are_those_of_its_files(controller, tmp_path):
    controller.put("a", ALLREDUCE)
    controller.work()
    row = controller.read(published.plan_row, controller.read(published.published_plan, "a").digest)
    (tmp_path / "plan.parquet").write_bytes(row.parquet)
    plan = st.load(tmp_path / "plan.parquet")
    assert plan.digest() == row.content == controller.plan("a").digest()
    assert plan_from_text(published.plan_to_text(plan), "again").digest() == row.content


def test_a_job_may_go_on_under_another_name(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.write(jobs.delete_job, "a")
    controller.put("b", ALLREDUCE)
    (event,) = controller.work()
    assert event["jobs"] == {"b": 1}
    controller.report(1e9)
    controller.now += 5.0
    _, event = controller.work()
    assert event["jobs"] == {"b": 2} and "a gain of" in event["why"]


def test_a_network_on_which_nothing_can_be_decided_keeps_no_other_from_its_plans(controller, monkeypatch):
    controller.write(networks.put_network, "other", NET, controller.now)
    controller.put("a", ALLREDUCE)
    controller.put("b", {**ALLREDUCE, "network": "other"})
    verdict = Publishing._verdict

    def failing(publishing, connection, state, *how):
        if state.network.name == "net":
            raise KeyError("a bug")
        return verdict(publishing, connection, state, *how)

    monkeypatch.setattr(Publishing, "_verdict", failing)
    (event,) = controller.work()
    assert event["network"] == "other" and event["jobs"] == {"b": 1}
    assert [e["reason"] for e in controller.events if e["event"] == "fault"] == ["KeyError: 'a bug'"]
    monkeypatch.undo()
    controller.put("c", ALLREDUCE)
    (event,) = controller.work()
    assert event["jobs"] == {"a": 1, "c": 1}


ON_PLANES = [
    {"kind": "allreduce", "size": "4MB"},
    {"kind": "alltoall", "size": "1MB"},
    {"kind": "allgather", "size": "1MB"},
]


def on_planes(path, spec="optical:4,2"):
    """A controller with a network of optical planes."""
    controller = Controller(path, planner="auto")
    controller.write(networks.put_network, "fabric", st.topology(spec), controller.now)
    return controller


def put_one(controller, name, *collectives):
    """One more job, a second after the one before."""
    controller.put(name, {"network": "fabric", "collectives": [*collectives]})
    controller.now += 1


def planes_of(controller, *names):
    """By job the planes that its plan uses, which is verified, and those that it was made for."""
    found = {}
    for name in names:
        plan = controller.plan(name)
        said = json.loads(controller.read(published.published_plan, name).facts)
        assert verify(plan).ok and plan.topology.name == "optical:4,2" and len(plan.topology.planes) == 2
        assert {*plan.plane.tolist()} <= {*said["planes"]}
        found[name] = said["planes"]
    return found


def test_the_collectives_of_a_job_on_planes_follow_one_another(tmp_path):
    controller = on_planes(tmp_path)
    put_one(controller, "z", *ON_PLANES)
    assert controller.work()[-1]["jobs"] == {"z": 1}
    plan = controller.plan("z")
    assert verify(plan).ok and [c.kind for c in plan.workload.collectives] == ["allreduce", "alltoall", "allgather"]
    assert {*plan.plane.tolist()} == {0, 1}


def test_jobs_on_one_network_of_planes_have_planes_of_their_own(tmp_path):
    controller = on_planes(tmp_path)
    put_one(controller, "z", *ON_PLANES)
    controller.work()
    put_one(controller, "a", *ON_PLANES[1:])
    put_one(controller, "late", *ON_PLANES[1:])
    (event,) = controller.work()
    assert event["jobs"] == {"a": 1, "z": 2} and planes_of(controller, "a", "z") == {"a": [1], "z": [0]}
    assert event["refused"] == {"late": "none of the 2 optical planes is left for it: a plane serves one job at a time, and these "
                                        "have them: 'a' (1), 'z' (1). Give this job a network of its own, with other "
                                        "planes, or end one of those jobs"}  # fmt: skip
    whole = controller.read(published.find_plan, controller.read(published.last_decision, "fabric").digest)
    assert verify(whole).ok and len(whole.workload.collectives) == 5
    assert controller.work() == []  # what was dealt is dealt again
    controller.write(jobs.delete_job, "z")
    (event,) = controller.work()
    assert event["jobs"] == {"late": 1} and event["refused"] == {}
    assert planes_of(controller, "a", "late") == {"a": [1], "late": [0]}


def test_a_job_that_is_alone_again_gets_all_planes_if_that_gains_enough(tmp_path):
    controller = on_planes(tmp_path)
    for name in ("a", "b"):
        put_one(controller, name, *ON_PLANES[1:])
    controller.work()
    controller.write(jobs.delete_job, "a")
    (event,) = controller.work()
    assert event["jobs"] == {"b": 2} and "jobs without a plan any more: a; mean completion" in event["why"]
    assert planes_of(controller, "b") == {"b": [0, 1]}


def test_a_job_that_is_held_keeps_its_planes(tmp_path):
    controller = on_planes(tmp_path)
    put_one(controller, "a", *ON_PLANES)
    controller.work()
    controller.write(holding.hold_job, "a", "alice", controller.now)
    put_one(controller, "b", *ON_PLANES[1:])
    (event,) = controller.work()
    assert event["jobs"] == {} and event["refused"].keys() == {"b"} and planes_of(controller, "a") == {"a": [0, 1]}
    controller.write(holding.accept_plan, "a", None, False, controller.now)
    (event,) = controller.work()
    assert event["jobs"] == {"a": 2, "b": 1} and planes_of(controller, "a", "b") == {"a": [0], "b": [1]}


def test_a_job_that_its_client_moves_to_another_network_keeps_no_planes_there(tmp_path):
    controller = on_planes(tmp_path)
    controller.write(networks.put_network, "other", st.topology("optical:4,2"), controller.now)
    put_one(controller, "a", *ON_PLANES[1:])
    controller.put("b", {"network": "other", "collectives": ON_PLANES[1:]})
    controller.work()
    for name in ("a", "b"):
        controller.write(holding.hold_job, name, "alice", controller.now)
    put_one(controller, "b", *ON_PLANES[1:])
    controller.work()
    decided = controller.read(published.last_decision, "fabric")
    assert json.loads(decided.refused).keys() == {"b"} and planes_of(controller, "a") == {"a": [0, 1]}


def test_a_job_that_is_held_while_planes_are_dealt_keeps_them(tmp_path, monkeypatch):
    controller = on_planes(tmp_path)
    put_one(controller, "a", *ON_PLANES)
    controller.work()
    put_one(controller, "b", *ON_PLANES[1:])
    decide = Publishing.decide

    def held_meanwhile(self, *arguments):
        controller.write(holding.hold_job, "a", "alice", controller.now)
        return decide(self, *arguments)

    monkeypatch.setattr(Publishing, "decide", held_meanwhile)
    (event,) = controller.work()
    assert event["jobs"] == {} and event["refused"].keys() == {"b"} and planes_of(controller, "a") == {"a": [0, 1]}


def test_a_job_that_cannot_be_planned_leaves_its_planes_to_others(tmp_path):
    controller = on_planes(tmp_path)
    put_one(controller, "a", {"kind": "allreduce", "size": 3})  # fewer bytes than ranks
    put_one(controller, "b", *ON_PLANES[1:])
    (event,) = controller.work()
    assert event["refused"].keys() == {"a"} and planes_of(controller, "b") == {"b": [0, 1]}


def test_a_job_on_planes_gets_a_plan_without_a_port_that_failed(tmp_path):
    controller, fabric = Controller(tmp_path, planner="auto"), st.topology("optical:4,2")
    controller.write(networks.put_network, "fabric", fabric, controller.now)
    controller.put("job", {"network": "fabric", "collectives": [{"kind": "allreduce", "size": "1MB"}]})
    controller.work()
    assert {*controller.plan("job").plane.tolist()} == {0, 1}
    controller.write(networks.put_network, "fabric", without(fabric, {0: {2}}).topology, controller.now)
    controller.work()
    left = controller.plan("job")
    assert {*left.plane.tolist()} == {1} and verify(left).ok


def slower(controller, rate, *link):
    controller.report(rate, *link)
    controller.now += 5.0
    return controller.work()[-1]


def test_a_job_that_is_held_keeps_its_plan_and_is_offered_the_newest(controller):
    for job in ("a", "b"):
        controller.put(job, ALLREDUCE)
    controller.work()
    held, other = (controller.plan(job).digest() for job in ("a", "b"))
    controller.write(holding.hold_job, "a", "alice", controller.now)
    event = slower(controller, 1e9)
    first = event["proposed"]["a"]
    assert event["event"] == "published" and event["jobs"] == {"b": 2}
    assert controller.plan("a").digest() == held and controller.plan("b").digest() != other
    second = slower(controller, 1e9, "gpu1", "gpu0")["proposed"]["a"]
    (row,) = controller.read(holding.proposed_plans).values()
    assert (row.decision, row.job_version) == (second, 1) and "gpu1→gpu0" in row.why
    with pytest.raises(
        Conflict, match=f"proposal {first} to job 'a' is no more: proposal {second} has taken its place"
    ):
        controller.write(holding.accept_plan, "a", first, False, controller.now)
    assert controller.write(holding.accept_plan, "a", second, True, controller.now) == 2
    assert controller.read(published.published_plan, "a").content == row.content != held
    assert controller.read(holding.proposed_plans) == {} and {*controller.read(holding.held_jobs)} == {"a"}
    with pytest.raises(Conflict, match="nothing is proposed"):
        controller.write(holding.accept_plan, "a", second, True, controller.now)


def test_what_is_proposed_is_withdrawn_when_it_is_the_plan_that_the_job_has(controller):
    controller.put("a", ALLREDUCE)
    controller.work()
    controller.write(holding.hold_job, "a", "alice", controller.now)
    assert slower(controller, 1e9)["event"] == "proposed"
    assert {*controller.read(holding.proposed_plans)} == {"a"}
    decided = controller.read(published.last_decision, "net")
    assert (decided.published, decided.proposed) == (False, '["a"]')  # no job has its plan
    assert slower(controller, 10e9)["event"] == "held"
    assert controller.read(holding.proposed_plans) == {}
    assert controller.read(published.published_plan, "a").version == 1
    assert slower(controller, 1e9)["event"] == "proposed"
    assert controller.write(holding.accept_plan, "a", None, False, controller.now) == 2
    assert controller.read(published.last_decision, "net").published
    assert slower(controller, 10e9)["jobs"] == {"a": 3}  # held no more


def test_a_job_that_is_held_and_changes_gets_the_plan_that_it_needs(controller):
    controller.put("a", ALLREDUCE)
    controller.write(holding.hold_job, "a", "alice", controller.now)
    assert controller.work()[-1]["jobs"] == {"a": 1}  # held or not: it has none
    slower(controller, 1e9)
    controller.put("a", GATHER)
    assert controller.read(holding.proposed_plans) == {}  # it was for another job
    assert controller.work()[-1]["jobs"] == {"a": 2}
    assert slower(controller, 10e9)["proposed"].keys() == {"a"}
    controller.write(jobs.delete_job, "a")
    assert controller.read(holding.proposed_plans) == controller.read(holding.held_jobs) == {}


def test_what_collectives_take_stands_beside_what_was_planned_and_the_bound(controller):
    controller.put("a", GATHER)
    controller.work()
    facts = json.loads(controller.read(published.published_plan, "a").facts)["collectives"]
    unmeasured = controller.read(times_of, "a")
    assert [(c["kind"], c["measured_s"], c["version"]) for c in unmeasured] == [
        ("allgather", None, 1), ("alltoall", None, 1)
    ]  # fmt: skip
    assert all(0 < c["bound_s"] <= c["planned_s"] for c in unmeasured)
    report = {"version": 1, "collectives": [{"number": 1, "calls": 20, "measured_s": 0.5}]}
    controller.write(keep_times, "a", parse_times(report), 7.0)
    measured = controller.read(times_of, "a")[1]
    assert (measured["measured_s"], measured["calls"], measured["at"], measured["version"]) == (0.5, 20, 7.0, 1)
    assert measured["planned_s"] == facts[1]["alone_s"]
    with pytest.raises(networks.Missing, match="version 1 of the plan of 'a' has no collective 2"):
        controller.write(
            keep_times, "a", parse_times({**report, "collectives": [{**report["collectives"][0], "number": 2}]}), 8.0
        )
    # measured by an older version, it still shows; another collective in its place does not get its time
    controller.put("a", {**GATHER, "collectives": [{"kind": "broadcast", "size": "3MB"}, GATHER["collectives"][1]]})
    controller.work()
    renewed = controller.read(times_of, "a")
    assert [(c["kind"], c["measured_s"], c["version"]) for c in renewed] == [
        ("broadcast", None, 2),
        ("alltoall", 0.5, 1),
    ]
    controller.write(jobs.delete_job, "a")
    controller.put("a", GATHER)
    assert {c["measured_s"] for c in controller.read(times_of, "a")} == {None}


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"version": 0, "collectives": []}, "times: 'version' must be a whole number from 1"),
        (
            {"version": 1, "collectives": [{"number": 0, "calls": 1}]},
            r"collectives\[0\]: 'measured_s' must be a finite",
        ),
        ({"version": 1, "collectives": [{"number": True, "calls": 1, "measured_s": 1}]}, "'number' must be a whole"),
        ({"version": 1, "collectives": [{"number": 0, "calls": 1, "measured_s": 1, "x": 1}]}, "'x' is not known"),
    ],
)
def test_times_of_the_wrong_form_are_refused(report, message):
    with pytest.raises(InputError, match=message):
        parse_times(report)

"""Process groups whose plans come from a controller: how they are known to it, what they take, and what they refuse."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

import stretto as st  # noqa: E402
from controller_process import Served  # noqa: E402
from stretto.choose.given import plans_given  # noqa: E402
from stretto.choose.library import Library  # noqa: E402
from stretto.choose.quick import quick_plan  # noqa: E402
from stretto.choose.requests import Shape  # noqa: E402
from stretto.formats.native import plan_to_text  # noqa: E402
from stretto.model.errors import InputError  # noqa: E402
from stretto.torch import agent as module  # noqa: E402
from stretto.torch.agent import Agent  # noqa: E402
from stretto.torch.group import StrettoGroup  # noqa: E402
from stretto.torch.job import Job  # noqa: E402
from stretto.torch.link_rates import CHANGED_AFTER, EVERY_S, LinkRates  # noqa: E402
from stretto.verify import verify  # noqa: E402

SPEC, RANKS = "fullmesh:3?bandwidth=50MB/s&latency=0s&message=50us", 3
ELEMENTS = 80_000
"""So few that what comes from one rank says nothing of its link (``LEAST_BYTES``), and the call is timed all the same."""
MOST_STEPS, WAIT_S = 3_000, 60.0


class Training:
    """Three ranks in threads that call an AllReduce again and again."""

    def __init__(self):
        store = torch.distributed.HashStore()
        self.groups = [StrettoGroup(store, r, RANKS, [*range(RANKS)], timedelta(seconds=60)) for r in range(RANKS)]
        self.digests = []

    def step(self):
        tensors = [torch.full((ELEMENTS,), float(r + 1)) for r in range(RANKS)]
        for work in [g.allreduce([t]) for g, t in zip(self.groups, tensors, strict=True)]:
            work.wait()
        assert all(bool((t == 6).all()) for t in tensors)
        uses = [next(iter(g._collectives.plans._uses.values())) for g in self.groups]
        self.digests.append({use.recipe.digest for use in uses})
        return uses[0].recipe.program.plan

    def until(self, there):
        """Step until the plan of the last step is as it should be."""
        plan = next((plan for _ in range(MOST_STEPS) if there(plan := self.step())), None)
        assert plan is not None, "no step ran by such a plan"
        return plan


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    """What happens to a training job: its controller is told of a slow link, is killed, and begins again."""
    folder, text = tmp_path_factory.mktemp("controller"), []
    served, seen = Served(folder, "--hold", 0.05), {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CONTROLLER", served.url), ("JOB", "train"), ("TOPOLOGY", SPEC), ("CACHE", "")):
            patch.setenv(f"STRETTO_{name}", value)
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_world_size", lambda: RANKS)
        patch.setattr(module, "REPORT_S", 0.0)
        patch.setattr("stretto.torch.plans.Plans._say", lambda self, words: text.append((self._library.rank, words)))
        training, client = Training(), served.client()
        training.until(lambda plan: plan.meta.get("made_by") == "stretto serve")
        seen["job"], seen["network"] = client.job("train"), client.network("train")
        while client.job("train")["collectives"][0]["measured_s"] is None:
            training.step()
        seen["times"] = client.job("train")["collectives"]
        client.report("train", {"links": [{"src": "gpu0", "dst": "gpu1", "bandwidth": "10MB/s"}]})
        seen["slow"] = training.until(lambda plan: plan.topology.bandwidth.min() < 20e6)
        seen["version"] = client.plan("train", wait_s=WAIT_S)["version"]
        port = served.url.rpartition(":")[2]
        served.kill()
        training.until(lambda plan: not training.groups[0]._collectives.plans._agent.reached)
        again = Served(folder, "--hold", 0.05, "--port", port)
        try:
            training.until(lambda plan: training.groups[0]._collectives.plans._agent.reached)
            client = again.client()
            client.report("train", {"links": [{"src": "gpu0", "dst": "gpu1", "bandwidth": "50MB/s"}]})
            seen["fast"] = training.until(lambda plan: plan.topology.bandwidth.min() > 40e6)
            restarted = Training()  # a second start of the job takes what the controller knows
            seen["measures"] = [group._links.measures for group in restarted.groups]
            for group in [*training.groups, *restarted.groups]:
                group.shutdown()
        finally:
            again.stop()
    return {**seen, "digests": training.digests, "said": text}


def test_a_job_that_the_controller_does_not_know_is_made_of_what_the_group_calls(life):
    assert life["job"]["job"]["network"] == "train" and life["network"]["topology"]["nodes"]
    (said,) = life["job"]["job"]["collectives"]
    assert said["kind"] == "allreduce" and said["size"] >= 4 * ELEMENTS


def test_all_ranks_take_up_each_version_at_the_same_call(life):
    assert {len(digests) for digests in life["digests"]} == {1}
    order = [next(iter(digests)) for digests in life["digests"]]
    assert sum(a != b for a, b in pairwise(order)) >= 2
    assert verify(life["slow"]).ok and verify(life["fast"]).ok
    assert life["slow"].topology.bandwidth.min() == 10e6


def test_a_group_reports_what_its_collectives_take(life):
    (times,) = life["times"]
    assert times["measured_s"] > 0 and times["calls"] >= 1 and times["version"] == 1
    assert 0 < times["bound_s"] <= times["planned_s"]


def test_a_controller_that_is_killed_is_missed_and_found_again_once_each(life):
    said = [words for rank, words in life["said"] if rank == 0]
    assert sum("no controller answers" in words for words in said) == 1
    assert sum("the controller is back" in words for words in said) == 1
    assert not [words for rank, words in life["said"] if rank != 0]


def test_a_second_start_of_the_job_measures_nothing(life):
    assert life["measures"] == [False] * RANKS


# --- what is refused ------------------------------------------------------------------------------


def library(spec=SPEC, ranks=RANKS, rank=0):
    return Library(st.topology(spec), range(ranks), rank, effort=None)


def allreduce(of):
    return quick_plan(of.request(Shape("allreduce", 1 << 20, 0)))


def without_a_transfer(text):
    """The plan without its last transfer, which some rank needs."""
    plan = json.loads(text)
    plan["transfers"].pop()
    return json.dumps(plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        (plan_to_text(allreduce(library("ring:3"))).replace("gpu2", "gpu7"), "it is for another network"),
        (plan_to_text(allreduce(library("fullmesh:4", 4))), "another network: fullmesh:4 with 4 nodes, not fullmesh:3"),
        (without_a_transfer(plan_to_text(allreduce(library()))), "allreduce does not verify"),
    ],
)
def test_plans_of_a_controller_that_cannot_run_are_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as refused:
        plans_given(text, 1, library(), whole=True)
    assert "\n" not in str(refused.value)


def test_a_plan_for_more_ranks_is_refused_by_a_group_of_all_and_passed_over_by_others():
    few = Library(st.topology(SPEC), range(2), 0, effort=None)
    text = plan_to_text(allreduce(library()))
    with pytest.raises(InputError, match="it is for 3 ranks, and the group has 2"):
        plans_given(text, 1, few, whole=True)
    assert plans_given(text, 1, few, whole=False) == {}


def test_the_plan_of_a_shapes_own_request_is_for_this_shape():
    for size in (1 << 12, 1 << 20):
        shape = Shape("allreduce", size, 0)
        plan = quick_plan(library().request(shape))
        (given,) = plans_given(plan_to_text(plan), 4, library(), whole=True).values()
        assert (given.shape, given.version, given.number) == (shape, 4, 0)
        assert st.simulate(given.plan).completion_s == pytest.approx(st.simulate(plan).completion_s)


class Liar(ThreadingHTTPServer):
    """Answers as a controller would that knows the job, but for what it says of its plan."""

    def __init__(self, plan_of):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.plan_of, self.versions, self.text = plan_of, count(1), ""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            net = {"version": 1, "base": 1, "topology": st.topology(SPEC).to_json()}
            job = {"version": 1, "network": "net", "status": "planned", "job": {"network": "net", "collectives": []}}
            known = {"/networks/net": net, "/jobs/train": job}
            said = known.get(self.path)
            if said is None:
                said = self.server.plan_of(self.path, next(self.server.versions))
            content = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass


def lies(monkeypatch, plan_of):
    """What an agent says of a controller that lies, up to the first line, and the plans that it has taken."""
    said, told = [], threading.Event()
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    liar = Liar(plan_of)
    monkeypatch.setenv("STRETTO_CONTROLLER", f"http://127.0.0.1:{liar.server_port}")

    def say(words):
        said.append(words)
        told.set()

    nothing = lambda: None  # noqa: E731
    agent = Agent(Job("train", "net", True), library(), say, nothing, nothing, nothing)
    agent.begin()
    assert told.wait(WAIT_S)
    agent.close()
    liar.shutdown()
    liar.server_close()
    return said, agent.newest


@pytest.mark.parametrize(
    ("plan", "text", "message"),
    [
        ("<html>", "", "the controller's answer makes no sense: JSONDecodeError"),
        ({"digest": "x"}, "", "the controller's answer makes no sense: KeyError: 'version'"),
        ({"version": 7, "digest": "x"}, "no plan", "version 7 of the plan of job 'train' is refused: plan"),
        (
            {"version": 7, "digest": "x"},
            plan_to_text(allreduce(library("ring:4", 4))),
            "is refused: plan: it is for another",
        ),
    ],
)
def test_nonsense_is_said_once_and_no_plan_is_taken(monkeypatch, plan, text, message):
    said, newest = lies(monkeypatch, lambda path, number: text if path.startswith("/plans/") else plan)
    assert len(said) == 1 and message in said[0] and "\n" not in said[0]
    assert newest == {}


def test_a_report_of_a_link_that_changes_waits_for_those_that_change_with_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("STRETTO_CONTROLLER", "http://127.0.0.1:1")
    nothing = lambda *_: None  # noqa: E731
    agent = Agent(Job("train", "net", True), library(), nothing, nothing, nothing, nothing)
    agent._joined, agent._base, reports = True, dict.fromkeys([(0, 1), (1, 0)], 50e6), []
    client = type("Client", (), {"report": lambda self, network, said: reports.append(said["links"])})()
    agent.gave((0, 1), 1, 40e6)
    agent._send(client)
    assert reports == [] and agent._due_s() == pytest.approx(module.SETTLE_S)
    now[0] += module.SETTLE_S / 2
    agent.gave((1, 0), 0, 40e6)
    assert agent._due_s() == pytest.approx(module.SETTLE_S / 2)  # it does not wait anew
    now[0] += module.SETTLE_S
    agent._send(client)
    assert [{said["src"] for said in links} for links in reports] == [{"gpu0", "gpu1"}]
    agent.gave((0, 1), 1, 50e6)
    assert agent._due_s() == pytest.approx(module.URGENT_S)


# --- what links give ------------------------------------------------------------------------------


def told(calls, seconds=0.1, normal=SPEC):
    """What rank 0 tells of its links where each call has what it got from each node over what was planned."""
    recipe = library().recipe("alltoall", 1 << 20)
    rates = LinkRates(library(normal))
    found = [(i, *each) for i, ratios in enumerate(calls) for each in rates.note(recipe, ratios, i * seconds)]
    return [(i, a, b, rate / 50e6) for i, a, b, rate in found]


def test_a_link_that_becomes_slow_or_fast_is_told_at_once_and_one_slow_call_is_not():
    fine, slow, fast = {1: 1.0, 2: 1.0}, {1: 0.5, 2: 1.0}, {1: 2.0, 2: 1.0}
    assert told([fine, slow, fine, slow, fine]) == []
    begins = CHANGED_AFTER
    assert told([fine] + [slow] * 5 + [fine] * 5) == [(begins, 1, 0, 0.5), (5 + begins, 1, 0, 1.0)]
    assert told([fast] * 5) == [(begins - 1, 1, 0, 2.0)]


def test_what_has_not_changed_is_told_every_few_seconds_and_noise_is_as_planned():
    found = told([{1: 0.8, 2: 1.2}] * 3, EVERY_S)
    assert found == [(1, 1, 0, 1.0), (1, 2, 0, 1.0)]
    assert told([{1: 0.8, 2: 1.2}] * 20, EVERY_S / 100) == []


def test_a_link_that_is_planned_for_as_a_slow_one_is_told_as_it_is():
    (first, second) = told([{1: 0.8, 2: 1.2}] * 3, EVERY_S, SPEC.replace("50MB", "90MB"))
    assert first == (1, 1, 0, pytest.approx(0.8)) and second == (1, 2, 0, pytest.approx(1.2))


def test_a_rank_to_which_all_comes_slowly_tells_of_no_slow_link():
    assert told([{1: 0.4, 2: 0.45}] * 20) == []

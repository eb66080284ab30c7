"""A link between two ranks that dies under a running group, on emulated links: packets are lost, and no one says so."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto import emulator  # noqa: E402
from stretto.choose.dead_links import connects, without_pairs  # noqa: E402
from stretto.choose.library import Library, joined_by_one_switch  # noqa: E402
from stretto.choose.requests import Shape  # noqa: E402
from stretto.model.errors import InputError, PeerFailed, Unsupported  # noqa: E402
from stretto.model.kinds import KINDS  # noqa: E402
from stretto.topologies import load_topology  # noqa: E402
from stretto.torch.relays import first_hops  # noqa: E402
from stretto.torch.stores import part_again, set_once  # noqa: E402

RANKS, ELEMENTS, MOST_CALLS, TIMEOUT_S = 3, 1 << 16, 200, 60.0
SPEC = f"fullmesh:{RANKS}?bandwidth=5000000B/s&latency=0s&message=50us"
SILENT_S = 0.7
"""Seconds without an answer: the kernel sends again after 0.2 and 0.6 s."""


def pairs(*of):
    return frozenset(frozenset(pair) for pair in of)


class Job:
    """Ranks in namespaces that add up numbers again and again, while links are cut.

    Attributes:
        calls: for each rank what each call ended with: None where the sum was right.
        plans: the plans of rank 0's calls.
    """

    def __init__(self, places, host_nodes) -> None:
        self.places, self.nodes = places, host_nodes
        self.calls: list[list[str | None]] = [[] for _ in range(RANKS)]
        self.plans: list = []
        self.detours = 0
        self.barrier, self.store = threading.Barrier(RANKS), torch.distributed.HashStore()

    def cut(self, a: int, b: int) -> None:
        for u, v in ((a, b), (b, a)):
            where = self.places[self.nodes[u]].argument
            subprocess.run(["ip", "-n", where, "link", "set", f"to{self.nodes[v]}", "down"], check=True)

    def next_act(self, number: int) -> bool:
        """Called at rank 0 before each call, while no rank is in one; whether there is another one."""
        raise NotImplementedError

    def rank(self, r: int) -> None:
        from stretto.torch.group import StrettoGroup

        place = self.places[self.nodes[r]]
        emulator.enter(place.argument)  # a namespace is a thread's own
        group = StrettoGroup(self.store, r, RANKS, range(RANKS), timedelta(seconds=TIMEOUT_S), host=place.host)
        goes = [True]
        for number in range(MOST_CALLS):
            if self.barrier.wait(TIMEOUT_S) == 0:
                self.going = self.next_act(number)
            self.barrier.wait(TIMEOUT_S)
            goes[0] = self.going
            if not goes[0]:
                break
            numbers = torch.arange(ELEMENTS, dtype=torch.float64) * (r + 1) + number
            try:
                group.allreduce([numbers], torch.distributed.AllreduceOptions()).wait()
                assert torch.equal(numbers, torch.arange(ELEMENTS, dtype=torch.float64) * 6 + 3 * number)
                self.calls[r].append(None)
            except PeerFailed as failure:
                self.calls[r].append(str(failure))
            if r == 0:
                use = next(iter(group._collectives.plans._uses.values()), None)
                self.plans.append(None if use is None or use.recipe is None else use.recipe.program.plan)
        if self.calls[r][-1] is None:
            self.go_on_by_detours(r, group)
        if r == 0 and self.calls[0][-1] is None:
            with pytest.raises(Unsupported, match="rank 1 cannot be reached: the link of ranks 0 and 1 is dead"):
                group.send([torch.zeros(1)], 1)
        group.abort()

    def go_on_by_detours(self, r: int, group) -> None:
        """What goes straight between ranks elsewhere works without the link of two of them, too."""
        counts = [[(2 * a + b) % 4 for b in range(RANKS)] for a in range(RANKS)]  # rank a sends so many to rank b
        sent = [torch.arange(n, dtype=torch.float32) + 100 * r + 10 * b for b, n in enumerate(counts[r])]
        came = [torch.full((counts[a][r],), -1.0) for a in range(RANKS)]
        group.alltoall(came, sent).wait()
        for a, found in enumerate(came):
            assert torch.equal(found, torch.arange(counts[a][r], dtype=torch.float32) + 100 * a + 10 * r)
        wrong = [torch.zeros(4 if (a, r) == (0, 1) else n) for a, n in enumerate(counts[a][r] for a in range(RANKS))]
        with pytest.raises(InputError, match="rank 0 sends 1 elements to rank 1, which waits for 4"):
            group.alltoall(wrong, sent).wait()
        for _ in range(2):
            group.monitored_barrier(timedelta(seconds=TIMEOUT_S))
        if r != 1:
            with pytest.raises(PeerFailed, match=r"Rank 1 failed to pass monitoredBarrier within 0\.5 s"):
                group.monitored_barrier(timedelta(seconds=0.5))
        self.detours += 1

    def run(self) -> None:
        with ThreadPoolExecutor(RANKS) as pool:
            list(pool.map(self.rank, range(RANKS)))


@pytest.fixture
def net(monkeypatch):
    """The network of a job whose first plans are its only ones."""
    monkeypatch.setenv("STRETTO_DEAD_LINK_S", str(SILENT_S))
    monkeypatch.setenv("STRETTO_TOPOLOGY", SPEC)
    monkeypatch.setenv("STRETTO_EFFORT", "none")
    return load_topology(SPEC)


def failures(job):
    """The numbers of the calls that failed at each rank, and what was said."""
    numbers = [[i for i, said in enumerate(calls) if said is not None] for calls in job.calls]
    return numbers, [said for calls in job.calls for said in calls if said is not None]


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_one_collective_fails_at_all_ranks_and_the_next_goes_another_way_until_no_way_is_left(net):
    class Cut(Job):
        def next_act(self, number):
            if number == 3:
                self.cut(0, 1)
            if number == 7:
                self.cut(1, 2)
            return number < 10

    with emulator.built(net) as places:
        job = Cut(places, net.accelerators.tolist())
        job.run()
    numbers, said = failures(job)
    assert numbers[0][0] == 3
    first = [n for n in numbers[0] if n < 7]
    assert all([n for n in of if n < 7][-1:] == first[-1:] for of in numbers)
    assert len(first) <= 2
    assert all(of[-3:] == [7, 8, 9] for of in numbers)
    for words in said[: len(first)]:
        assert "rank 0: its link with rank 1 is dead" in words or "rank 1: its link with rank 0 is dead" in words
    assert not {(0, 1), (1, 0)} & {*zip(job.plans[6].topology.src.tolist(), job.plans[6].topology.dst.tolist())}


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_all_to_all_and_monitored_barriers_go_on_by_way_of_others(net):
    class Cut(Job):
        def next_act(self, number):
            if number == 1:
                self.cut(0, 1)
            return number < 5

    with emulator.built(net) as places:
        job = Cut(places, net.accelerators.tolist())
        job.run()
    assert job.detours == RANKS


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_the_controller_is_told_and_all_ranks_take_its_plan_without_the_link(tmp_path, monkeypatch, capfd):
    for module in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client"):
        pytest.importorskip(module)
    from controller_process import Served

    net = load_topology(SPEC)

    def made(plan):
        """Links of the network for which the controller made a plan; 0 for plans of the group."""
        return plan.topology.link_count if plan is not None and plan.meta.get("made_by") == "stretto serve" else 0

    class Cut(Job):
        links = net.link_count

        def next_act(self, number):
            if made(self.plans[-1] if self.plans else None) != self.links:
                return True
            if self.links == net.link_count:
                self.cut(0, 1)
                self.links -= 2
                return True
            return False

    with emulator.built(net) as places:
        host = places[0].host
        inside = "ip", "netns", "exec", places[0].argument
        served = Served(tmp_path, "--hold", 0.2, "-p", "auto", "--host", host, "--insecure", inside=inside)
        try:
            monkeypatch.setenv("STRETTO_CONTROLLER", served.url)
            monkeypatch.setenv("STRETTO_JOB", "train")
            monkeypatch.setenv("STRETTO_DEAD_LINK_S", str(SILENT_S))
            monkeypatch.setenv("STRETTO_TOPOLOGY", SPEC)
            monkeypatch.setenv("STRETTO_EFFORT", "none")
            job = Cut(places, net.accelerators.tolist())
            job.run()
        finally:
            served.stop()
    numbers, said = failures(job)
    assert said
    assert all(of[-1] == numbers[0][-1] for of in numbers)
    assert made(job.plans[-1]) == net.link_count - 2


@pytest.mark.parametrize("spec", ["fullmesh:4", "sites:2,2", "switch"])
def test_plans_without_a_pair_send_nothing_between_its_ranks(spec):
    net = joined_by_one_switch(4) if spec == "switch" else load_topology(spec)
    dead = pairs((1, 2), (0, 3))
    for kind in KINDS:
        for rank in range(4):
            library = Library(net, range(4), rank)
            library.lose(dead)
            assert library.first_plan(Shape.of(kind, 1 << 16, 0)).topology.names == net.names
            partners = library.recipe(kind, 1 << 16).program.partners
            assert library.nodes[{0: 3, 1: 2, 2: 1, 3: 0}[rank]] not in partners
    with pytest.raises(Unsupported, match="the link of ranks 1 and 2 is dead"):
        library.recipe("alltoall", 1 << 16, direct=True)


def test_links_of_other_pairs_stay_as_they_are():
    net = load_topology("fullmesh:3?bandwidth=7MB/s")
    left = without_pairs(net, [0, 1, 2], pairs((0, 2)))
    assert sorted(zip(left.src.tolist(), left.dst.tolist())) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert set(left.bandwidth.tolist()) == {7e6}


def test_notes_go_the_shortest_way_that_is_left():
    line = pairs((0, 2), (0, 3), (1, 3))
    assert first_hops(0, 4, line) == {1: 1, 2: 1, 3: 1}
    assert first_hops(3, 4, line) == {2: 2, 1: 2, 0: 2}
    assert connects(4, line)
    assert not connects(4, line | pairs((1, 2)))


def test_ranks_that_decide_at_once_agree_on_the_first_decision():
    store = part_again(torch.distributed.HashStore(), 1)
    for decision in ("go on", "end"):
        set_once(store, "decided", decision)
    assert store.get("decided") == b"go on"

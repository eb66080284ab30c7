"""The process group for torchft: its members are threads of this process, but for those that are killed."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from stretto.model.errors import InputError, PeerFailed

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
pytest.importorskip("torchft", reason="torchft is missing: pip install 'stretto[torchft]'")

dist = torch.distributed
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Members:
    """Processes that go from quorum to quorum."""

    def __init__(self, count: int, sites: bool = False) -> None:
        from stretto.torchft import ProcessGroupStretto

        self.server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        named = [f"site {m}" if sites else "" for m in range(count)]
        self.all = [ProcessGroupStretto(timedelta(seconds=30), site=site) for site in named]
        self.pool, self.quorums = ThreadPoolExecutor(count), 0

    def address(self, quorum: int) -> str:
        return f"localhost:{self.server.port}/quorum/{quorum}"

    def quorum(self, *members: int) -> list:
        """Let these come together; returns what :meth:`configure` raised at each."""
        self.quorums += 1
        to = self.address(self.quorums)
        waiting = [self.pool.submit(self.all[m].configure, to, str(m), r, len(members)) for r, m in enumerate(members)]
        return [w.exception() for w in waiting]

    def sum(self, *members: int) -> list[float]:
        tensors = [torch.full((300,), 2.0**m) for m in members]
        for work in [self.all[m].allreduce([t], dist.ReduceOp.SUM) for m, t in zip(members, tensors)]:
            work.wait()
        return [float(t[-1]) for t in tensors]


@pytest.fixture
def members(request):
    made = Members(4, getattr(request, "param", False))
    yield made
    for pg in made.all:
        pg.shutdown()


@pytest.mark.parametrize("members", [True], indirect=True)  # on one machine nothing is measured within a site
def test_a_new_quorum_sums_what_its_members_have_and_measures_only_who_is_new(members):
    assert members.quorum(0, 1, 2) == [None] * 3
    assert members.sum(0, 1, 2) == [7.0] * 3
    names = [pg._known.name for pg in members.all]
    before = members.all[0]._known.pairs[names[1]]
    assert members.quorum(3, 1, 0) == [None] * 3
    assert members.sum(3, 1, 0) == [11.0] * 3
    assert members.all[0]._known.pairs.keys() == {names[1], names[3]}
    assert members.all[0]._known.pairs[names[1]] == before
    assert members.quorum(2) == [None]
    assert members.sum(2) == [4.0]


def test_a_quorum_connects_to_no_store_in_which_the_last_one_met_and_to_one_that_begins_anew(members, monkeypatch):
    from torchft import process_group

    made, create = [], process_group.create_store_client
    monkeypatch.setattr(
        process_group, "create_store_client", lambda *a, **more: made.append(a[0]) or create(*a, **more)
    )
    assert members.quorum(0, 1) + members.quorum(1, 0) == [None] * 4
    at = members.server.port
    assert made == [f"localhost:{at}/"] * 2
    members.server = None
    members.server = dist.TCPStore("localhost", at, is_master=True, wait_for_workers=False)
    assert members.quorum(0, 1) == [None] * 2
    assert members.sum(0, 1) == [3.0] * 2
    assert made == [f"localhost:{at}/"] * 4


def test_a_new_quorum_ends_what_is_under_way_at_once(members):
    members.quorum(0, 1, 2)
    waiting = [members.all[m].allreduce([torch.ones(5)], dist.ReduceOp.SUM) for m in (0, 1)]
    assert members.quorum(1, 0) == [None] * 2
    for work in waiting:
        with pytest.raises(PeerFailed, match=r"died|left|leave|broke"):
            work.wait()
    assert members.sum(1, 0) == [3.0] * 2
    assert members.all[0].errored() is None


def test_a_member_that_dies_is_an_error_that_asks_for_a_new_quorum(members):
    members.quorum(0, 1, 2)
    members.all[2].shutdown()
    with pytest.raises(PeerFailed, match=r"rank 2: .*\(Connection closed by peer\)"):
        members.all[0].allreduce([torch.ones(5)], dist.ReduceOp.SUM).wait()
    assert "aborted: rank 2: " in str(members.all[0].errored())


def test_a_member_that_does_not_come_is_named_and_so_is_one_that_gives_up(members):
    members.all[0]._connect_timeout = timedelta(seconds=0.1)
    with pytest.raises(PeerFailed, match=r"rank 1: it did not come: timeout after 100ms"):
        members.all[0].configure(members.address(90), "0", 0, 2)
    waiting = members.pool.submit(members.all[1].configure, members.address(91), "1", 0, 2)
    server = dist.TCPStore("localhost", members.server.port, is_master=False)
    store = dist.PrefixStore("stretto/group 1", dist.PrefixStore("quorum/91", server))  # of the first group there
    store.set("stretto/failed", "rank 1\nits host is on fire")
    with pytest.raises(PeerFailed, match="rank 1: its host is on fire"):
        waiting.result()


def test_a_quorum_that_is_still_connecting_can_be_given_up(members):
    waiting = members.pool.submit(members.all[0].configure, members.address(92), "0", 0, 2)
    while not waiting.done():
        members.all[0].abort()
    assert isinstance(waiting.exception(), PeerFailed)


def test_a_quorum_can_be_given_up_before_it_has_begun_to_connect(members, monkeypatch):
    import torchft.process_group

    connect = torchft.process_group.create_store_client

    def given_up(*arguments, **named):
        members.pool.submit(members.all[0].abort).result()
        return connect(*arguments, **named)

    monkeypatch.setattr(torchft.process_group, "create_store_client", given_up)
    with pytest.raises(PeerFailed, match="rank 0: it gave the quorum up"):
        members.all[0].configure(members.address(93), "0", 0, 2)
    assert members.all[0]._pg is None


def test_who_waits_for_what_a_member_tells_notices_that_it_has_died(members):
    members.quorum(0, 1, 2)
    waiting = members.pool.submit(members.all[0].parent._links.told, "what it never tells", 2)
    members.all[2].shutdown()
    with pytest.raises(PeerFailed, match="rank 2: it died"):
        waiting.result()


def test_what_a_pair_has_measured_counts_only_if_both_know_it():
    from stretto.model.measurements import Measured, Pair
    from stretto.torch.measuring import Known

    def pair(value: float) -> Pair:
        return Pair(Measured(value, value, value), None, {1: Measured(1e9, 1e9, None)})

    a, b, c = Known(), Known(), Known()
    a.pairs, b.pairs = {b.name: pair(1.0), c.name: pair(2.0)}, {a.name: pair(3.0)}
    a.between[b.name] = Measured(5e6, 5e6, None), 4
    rows, all_told = [None] * 3, threading.Barrier(3)

    def share(rank: int, value):
        rows[rank] = json.loads(json.dumps(value))
        all_told.wait()
        return rows

    with ThreadPoolExecutor(3) as pool:
        agreed = pool.map(lambda at: at[1].agree(lambda name, value: share(at[0], value)), enumerate((b, c, a)))
    (names, sites, earlier), *others = agreed
    assert all(other == (names, sites, earlier) for other in others)
    assert sites is None  # not all have named theirs
    assert names == [b.name, c.name, a.name]
    assert {ends: p.latency_s.value for ends, p in earlier.pairs.items()} == {(0, 2): 1.0, (2, 0): 3.0}
    assert earlier.of_sites([0], [2], 4) == Measured(5e6, 5e6, None)
    assert earlier.of_sites([0], [2], 5) is None  # more flows may find more


def test_torchfts_own_tests_pass(monkeypatch):
    import torchft.process_group

    from stretto.torchft import ProcessGroupStretto

    monkeypatch.setattr(torchft.process_group, "ProcessGroupGloo", ProcessGroupStretto)
    pytest.importorskip("parameterized", reason="torchft's own tests need it: pip install 'stretto[dev]'")
    module = importlib.import_module("torchft.process_group_test")
    of_gloo = module.NormalGlooMultiPgTest
    names = [n for n in dir(of_gloo) if n.startswith("test_collective") and n.endswith(("allreduce", "barrier"))]
    assert len(names) == 4
    cases = [*(of_gloo(name) for name in names), module.ProcessGroupTest("test_gloo_apis_0_cpu")]
    result = unittest.TestResult()
    unittest.TestSuite(cases).run(result)
    assert not [text for _, text in [*result.failures, *result.errors]] and not result.skipped


def test_no_sum_is_wrong_while_members_are_killed(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))
    monkeypatch.setenv("RES_OPTIONS", "attempts:0")  # the benchmark sets it, too
    stress = importlib.import_module("torchft_stress")
    arguments = argparse.Namespace(changes=5, members=3, kills=0.6, hurry=0.0, within=0.6, seed=2, timeout=10.0)
    ended = stress.run(arguments)
    assert not ended.bad
    assert sum(change.victim is not None for change in ended.changes) >= 2
    assert sum(len(change.told) for change in ended.changes) >= 2


def test_streaming_diloco_in_int8_reaches_the_loss_of_full_precision():
    # in a process of its own: torchft keeps copies in pinned memory of an accelerator, if another test has made one up
    program = (
        "import json, torchft_diloco as d\n"
        "runs = [d.train(run, replicas=2, outer_steps=12, every=8, seed=0) for run in ('full precision', 'int8')]\n"
        "print(json.dumps(runs))"
    )
    path = ":".join([str(BENCHMARKS), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    full, int8 = json.loads(done.stdout.splitlines()[-1])
    assert full["loss"] < 0.02 < 10 * full["loss"]
    assert int8["loss"] == pytest.approx(full["loss"], rel=0.01)
    assert full["bytes"] > 3.5 * int8["bytes"]


def test_what_is_left_out_of_a_step_that_does_not_commit_is_not_added_to_the_next():
    from stretto.torchft import DiLoCo, ProcessGroupStretto
    from stretto.torchft.diloco import _Fed

    class Fragment:
        commits, value = True, 0.0

        def prepare_sync(self) -> None:
            self.used = [group._buckets.next(), group._buckets.next()]
            for number, feedback in enumerate(self.used):
                feedback.keep(torch.full((2,), self.value + number))

        def perform_sync(self) -> bool:
            return self.commits

    group, fragment = ProcessGroupStretto(compress="int8"), Fragment()
    _Fed(fragment, group)
    for fragment.value, fragment.commits in ((1.0, True), (5.0, False)):
        fragment.prepare_sync()
        assert group._buckets is None
        assert fragment.perform_sync() is fragment.commits
    assert [f.rest.tolist() for f in fragment.used] == [[1.0, 1.0], [2.0, 2.0]]
    with pytest.raises(InputError, match="compressed as int8 or fp8"):
        ProcessGroupStretto(compress="int3")
    assert issubclass(DiLoCo, importlib.import_module("torchft.local_sgd").DiLoCo)

"""The ranks of a group as objects of one process: what is asked for, told and left behind, call by call."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest

from stretto.model.errors import InputError, PeerFailed, Unsupported
from stretto.runtime import channel, connect
from stretto.runtime.credentials import chosen_secret
from tls_files import ENVIRONMENT
from waiting import until

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed


def group(store, rank: int, size: int):
    from stretto.torch.group import StrettoGroup

    return StrettoGroup(store, rank, size, list(range(size)), timedelta(seconds=20))


@pytest.fixture
def groups():
    made = [group(store, rank, 3) for store in [dist.HashStore()] for rank in range(3)]
    yield made
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda g: g.abort(), made))


def test_a_topology_of_another_size_is_refused(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "ring:4")
    with pytest.raises(InputError, match="STRETTO_TOPOLOGY: ring:4 has 4 accelerators, the world 3 ranks"):
        group(dist.HashStore(), 0, 3)


def test_groups_may_follow_one_another_on_one_store():
    store = dist.HashStore()
    for _ in range(3):
        made = [group(store, rank, 2) for rank in range(2)]
        tensors = [torch.full((3,), float(rank)) for rank in range(2)]
        for work in [g.allreduce([t]) for g, t in zip(made, tensors, strict=True)]:
            work.wait()
        assert all(t.tolist() == [1.0] * 3 for t in tensors)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda g: g.shutdown(), made))


def test_two_ranks_exchange_messages_while_the_third_does_nothing(groups):
    got = torch.empty(5)
    waiting = groups[1].recv([got], 0, 7)
    groups[0].send([torch.arange(5.0)], 1, 7).wait()
    waiting.wait()
    assert got.tolist() == [0, 1, 2, 3, 4]


def test_a_rank_that_leaves_is_named_to_those_that_wait_and_so_is_what_they_wait_for(groups):
    for work in [g.barrier() for g in groups]:  # the network is measured, and a plan made
        work.wait()
    message, whole = groups[0].recv([torch.empty(5)], 2, 7), groups[1].allreduce([torch.ones(5)])
    groups[2].abort()
    with pytest.raises(RuntimeError, match=r"rank 2: .*in the message with tag 7 from rank 2") as caught:
        message.wait()
    assert isinstance(caught.value, PeerFailed)
    with pytest.raises(RuntimeError, match=r"rank 2: .*in transfer"):
        whole.wait()
    with pytest.raises(RuntimeError, match="rank 2: "):
        groups[0].barrier().wait()


def test_a_rank_that_leaves_because_another_did_is_not_blamed(groups):
    first, second = groups[0].recv([torch.empty(5)], 1, 0), groups[1].recv([torch.empty(5)], 2, 0)
    groups[2].abort()
    with pytest.raises(PeerFailed, match="rank 2: "):
        second.wait()
    (collectives,) = groups[0]._links._meshes
    until(lambda: collectives.failure is not None)  # rank 0 has seen rank 2 leave before rank 1 does
    groups[1].abort()
    with pytest.raises(PeerFailed, match=r"rank 2: .*as rank 1 says"):
        first.wait()
    with pytest.raises(PeerFailed, match=r"rank 2: "):
        groups[0].allreduce([torch.ones(5)]).wait()


def test_a_tag_that_was_used_leaves_nothing_behind(groups):
    for tag in range(20):
        early = tag % 2
        sent = groups[0].send([torch.ones(2)], 1, tag) if early else None
        waiting = groups[1].recv([torch.empty(2)], 0, tag)
        for work in (sent or groups[0].send([torch.ones(2)], 1, tag), waiting):
            work.wait()
    for g in groups[:2]:
        assert not g._links.inbox.waiting and not g._links.inbox.early


def test_a_message_of_another_size_is_refused_by_the_rank_that_gets_it(groups):
    waiting = groups[1].recv([torch.empty(5)], 0, 7)
    groups[0].send([torch.ones(6)], 1, 7).wait()
    with pytest.raises(
        PeerFailed, match="rank 0: it sent 24 bytes with tag 7 where 20 were due, in the message with tag 7"
    ):
        waiting.wait()


def test_a_future_has_the_result_and_calls_back_or_raises_what_wait_raises(groups):
    tensors = [torch.full((5,), float(rank)) for rank in range(3)]
    works = [g.allreduce([t]) for g, t in zip(groups, tensors)]
    doubled = works[0].get_future().then(lambda future: 2 * future.value()[0])
    assert doubled.wait().tolist() == [6.0] * 5
    assert works[0].is_completed()
    waiting = groups[0].allreduce([tensors[0]])
    groups[2].abort()
    with pytest.raises(RuntimeError, match="PeerFailed: rank 2"):
        waiting.get_future().wait()
    with pytest.raises(RuntimeError, match="PeerFailed: rank 2"):  # in C++, too, where DDP takes it for a result else
        torch.futures.collect_all([waiting.get_future()]).wait()
    with pytest.raises(PeerFailed, match="rank 2"):
        waiting.wait()


def test_a_future_has_ended_when_wait_returns_even_if_the_thread_for_futures_is_late(groups, monkeypatch):
    from stretto.runtime.native.listeners import Listeners
    from stretto.torch.pending import Started

    monkeypatch.setenv("STRETTO_KERNELS", "compiled")  # else a group has no loop until that has been compiled
    monkeypatch.setattr(Listeners, "call", lambda self, place: None)
    for work in [g.allreduce([torch.ones(5)]) for g in groups]:  # the first one is planned in a thread
        work.wait()
    works = [g.allreduce([torch.ones(5)]) for g in groups]
    assert {type(work) for work in works} == {Started}
    futures = [work.get_future() for work in works]
    for work in works:
        work.wait()
    assert [future.done() for future in futures] == [True] * 3
    assert [work.get_future().value()[0].tolist() for work in works] == [[3.0] * 5] * 3


def test_a_long_timeout_is_told_in_whole_milliseconds(monkeypatch):
    from stretto.torch import meeting

    now_s = iter((0.0, 1801.0))
    monkeypatch.setattr(meeting, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    with pytest.raises(PeerFailed, match=r"rank 1: it did not come: timeout after 1800000ms"):
        meeting.Meeting(dist.HashStore(), SimpleNamespace(rank=0, size=2), 1800.0).told("address", 1)


def test_what_is_not_there_is_refused_by_name(groups):
    from stretto.torch.tensors import reducer

    with pytest.raises(Unsupported, match="does not reduce by PREMUL_SUM; it does by SUM, AVG"):
        reducer(dist.ReduceOp.RedOpType.PREMUL_SUM, torch.float32)
    with pytest.raises(Unsupported, match="sparse tensors; it moves dense"):
        groups[0].broadcast([torch.eye(2).to_sparse()], dist.BroadcastOptions())
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.MAX
    with pytest.raises(Unsupported, match="sparse tensors by SUM alone"):
        groups[0].allreduce([torch.eye(2).to_sparse()], opts)
    with pytest.raises(Unsupported, match="meta"):
        groups[0].allreduce([torch.empty(2, device="meta")])
    with pytest.raises(Unsupported, match="4 rows do not divide among 3 ranks"):
        groups[0]._allgather_base(torch.empty(4), torch.empty(1))


@pytest.mark.parametrize(
    ("op", "dtype", "said"),
    [
        ("BAND", torch.float32, "does not reduce torch.float32 by BAND"),
        ("AVG", torch.bool, "does not reduce torch.bool by AVG"),
    ],
)
def test_a_sum_that_does_not_exist_is_refused_before_a_byte_moves(op, dtype, said, groups):
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp(getattr(dist.ReduceOp, op))
    for work in [g.allreduce([torch.ones(5, dtype=dtype)], opts) for g in groups]:
        with pytest.raises(Unsupported, match=said):
            work.wait()
    for work in [g.barrier() for g in groups]:  # and the group still serves
        work.wait()


def test_a_group_of_one_rank_copies():
    alone = group(dist.HashStore(), 0, 1)
    given, made = torch.arange(4.0), torch.zeros(4)
    alone._allgather_base(made, given).wait()
    assert torch.equal(made, given)
    alone.shutdown()


def test_no_thread_outlives_its_process_whatever_is_pending():
    # one that wakes while PyTorch is torn down ends the process by "terminate called without an active exception"
    program = """
        import atexit, threading
        others = lambda: [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        atexit.register(lambda: print("left", others()))
        from datetime import timedelta
        import torch, torch.distributed as dist
        from stretto.torch.group import StrettoGroup
        store = dist.HashStore()
        groups = [StrettoGroup(store, r, 2, [0, 1], timedelta(seconds=60)) for r in range(2)]
        for work in [g.barrier() for g in groups]:
            work.wait()
        pending = groups[0].recv([torch.empty(3)], 1, 0), groups[1].allreduce([torch.ones(3)])
        lonely = StrettoGroup(dist.HashStore(), 0, 2, [0, 1], timedelta(seconds=60))
        print("had", len(others()) > 0)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["had True", "left []"], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"STRETTO_FRAMES": "authenticated"},
        {"STRETTO_SECRET": "a secret of twelve or more"},
        ENVIRONMENT,
    ],
    ids=["authenticated", "chosen", "tls"],
)
def test_a_group_over_tcp_is_protected_as_the_environment_says(monkeypatch, variables):
    for name, value in {"STRETTO_HOST": "127.0.0.1", "STRETTO_TOPOLOGY": "ring:3", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(connect, "machine", lambda: None)  # as if each rank had a machine of its own
    store = dist.HashStore()
    groups = [group(store, rank, 3) for rank in range(3)]
    tensors = [torch.full((1000,), float(rank)) for rank in range(3)]
    message = groups[1].recv([torch.empty(5)], 0, 7)
    groups[0].send([torch.ones(5)], 1, 7).wait()
    message.wait()
    for work in [g.allreduce([t]) for g, t in zip(groups, tensors)]:
        work.wait()
    assert all((t == 3).all() for t in tensors)
    channels = {isinstance(c.sock, channel.Channel) for g in groups for c in g._links.mesh().connections}
    assert channels == {"STRETTO_SECRET" not in variables}  # on loopback frames are plain unless somebody asks
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda g: g.abort(), groups))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"STRETTO_SECRET": "short"}, "STRETTO_SECRET: the secret has 5 characters, and needs 12"),
        ({"STRETTO_SECRET_FILE": "/nowhere"}, "/nowhere: the secret cannot be read"),
        (
            {"STRETTO_SECRET": "a" * 20, "STRETTO_SECRET_FILE": "/nowhere"},
            "STRETTO_SECRET or STRETTO_SECRET_FILE, not both",
        ),
        ({"STRETTO_FRAMES": "signed"}, "STRETTO_FRAMES: 'signed' is none of plain, authenticated, encrypted"),
        (
            {"STRETTO_TLS_CERT": "/nowhere"},
            "STRETTO_TLS_KEY: TLS needs STRETTO_TLS_CERT, STRETTO_TLS_KEY and STRETTO_TLS_CA",
        ),
    ],
)
def test_credentials_that_do_not_serve_are_refused_at_once(monkeypatch, variables, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=words):
        group(dist.HashStore(), 0, 3)


def test_a_secret_in_a_file_is_for_its_owner_alone(tmp_path):
    file = tmp_path / "secret"
    file.write_text("  a secret of twelve or more\n")
    file.chmod(0o640)
    with pytest.raises(InputError, match=r"secret: others than its owner may read the secret \(mode 640\)"):
        chosen_secret({"STRETTO_SECRET_FILE": str(file)})
    file.chmod(0o600)
    assert chosen_secret({"STRETTO_SECRET_FILE": str(file)}) == b"a secret of twelve or more"

"""Ranks that call different things, or call them wrongly, learn it at once; what does not end runs into its timeout."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from stretto.model.errors import ArgumentError, PeerFailed
from stretto.runtime import messages

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed
RANKS = 3


def group(store, rank: int, timeout_s: float):
    from stretto.torch.group import StrettoGroup

    return StrettoGroup(store, rank, RANKS, list(range(RANKS)), timedelta(seconds=timeout_s))


def connected(timeout_s: float) -> list:
    """The ranks of a group, which have measured the network."""
    store = dist.HashStore()
    made = [group(store, rank, timeout_s) for rank in range(RANKS)]
    for work in [g.barrier() for g in made]:
        work.wait()
    return made


def leave(groups: list) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.abort(), groups))


@pytest.fixture
def groups():
    made = connected(60)
    yield made
    leave(made)


@pytest.fixture
def hasty():
    """A group whose operations may take a second."""
    made = connected(1)
    yield made
    leave(made)


def rooted(name: str, root: int):
    options = getattr(dist, f"{name}Options")()
    options.rootRank = root
    return options


def with_op(op):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def failures(works: list) -> list[str]:
    """What those works that fail say; every work ends."""
    said = []
    for work in works:
        try:
            work.wait()
        except PeerFailed as failure:
            said.append(str(failure))
    return said


def broadcast(g, root: int):
    return g.broadcast([torch.ones(1024)], rooted("Broadcast", root))


def reduced(g, count: int = 1024, dtype=torch.float32, op=dist.ReduceOp.SUM):
    return g.allreduce([torch.ones(count, dtype=dtype)], with_op(op))


@pytest.mark.parametrize(
    ("of_most", "of_the_last", "texts"),
    [
        (partial(broadcast, root=0), partial(broadcast, root=1), ["broadcast(root=0, float32[1024])", "root=1"]),
        (reduced, partial(reduced, count=1025), ["all_reduce(SUM, float32[1024])", "float32[1025]"]),
        (reduced, partial(reduced, count=512, dtype=torch.float64), ["float32[1024]", "float64[512]"]),
        (reduced, partial(reduced, op=dist.ReduceOp.MAX), ["all_reduce(SUM", "all_reduce(MAX"]),
        (reduced, lambda g: g.barrier(), ["all_reduce(SUM, float32[1024])", "barrier()"]),
        (partial(broadcast, root=0), lambda g: g.barrier(), ["broadcast(root=0", "barrier()"]),
    ],
    ids=["root", "size", "type", "operation", "kind", "kind of one root"],
)
def test_ranks_that_call_something_else_are_told_both_calls_at_once(of_most, of_the_last, texts, groups):
    began = time.monotonic()
    works = [of_most(groups[0]), of_most(groups[1]), of_the_last(groups[2])]
    said = failures(works)
    assert said and time.monotonic() - began < 30  # the timeout is 60 s
    assert all(text in said[0] for text in texts), said
    assert all(f"rank {r} calls" in said[0] for r in {0, 2}) or "rank 1 calls" in said[0], said
    for g in groups:  # who had ended knows it by the next call
        assert failures([g.barrier()])


def test_calls_that_differ_are_found_although_the_ranks_that_differ_exchange_nothing(groups):
    """Rank 0 broadcasts, and is done; the others wait for the other root until they see what it called."""
    works = [broadcast(groups[0], 0), broadcast(groups[1], 2), broadcast(groups[2], 0)]
    said = failures(works)
    assert said and "root=0" in said[0] and "root=2" in said[0]


def test_splits_that_differ_between_two_ranks_are_named(groups):
    counts = [[2, 2, 2] for _ in range(RANKS)]
    given = [[torch.ones(n) for n in row] for row in counts]
    room = [[torch.zeros(n) for n in row] for row in counts]
    given[2][0] = torch.ones(3)  # rank 0 expects two
    works = [g.alltoall(out, source) for g, out, source in zip(groups, room, given)]
    assert "it sends 12 bytes where 8 are due" in failures(works)[0]


def test_a_collective_whose_peers_are_alive_but_elsewhere_runs_into_its_timeout(hasty):
    began = time.monotonic()
    message = hasty[1].recv([torch.ones(5)], 0, 3)  # rank 0 waits in a collective, and pings
    whole = reduced(hasty[0])
    (said,) = failures([whole])
    assert time.monotonic() - began >= 1
    assert "for the timeout of 1 s" in said
    assert failures([message])


def test_a_timeout_of_one_call_counts_instead_of_the_groups(groups):
    options = dist.BarrierOptions()
    options.timeout = timedelta(seconds=0.5)
    began = time.monotonic()
    (said,) = failures([groups[0].barrier(options)])
    assert 0.5 <= time.monotonic() - began < 30
    assert "it has said nothing for the timeout of 0.5 s" in said


def test_the_timeout_of_a_group_can_be_set(groups):
    groups[0].set_timeout(timedelta(seconds=0.5))
    (said,) = failures([groups[0].barrier()])
    assert "for the timeout of 0.5 s" in said


def test_wait_returns_when_its_timeout_is_over_and_the_operation_goes_on(groups):
    got = torch.empty(5)
    waiting = groups[1].recv([got], 0, 7)
    with pytest.raises(RuntimeError, match=r"within the timeout of 0\.05 s"):
        waiting.wait(timedelta(seconds=0.05))
    groups[0].send([torch.arange(5.0)], 1, 7).wait()
    assert waiting.wait(timedelta(seconds=30)) and got.tolist() == [0, 1, 2, 3, 4]


FLOATS, DOUBLES = torch.ones(4), torch.ones(12, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g: g._allgather_base(DOUBLES, FLOATS), "one type, found torch.float32 and torch.float64"),
        (lambda g: g._allgather_base(torch.ones(9), FLOATS), "the output has 3 elements, the input 4"),
        (lambda g: g.allgather([[torch.ones(4)] * 2], [FLOATS]), "each of 3 ranks, found 2"),
        (lambda g: g.allgather([[torch.ones(5)] * 3], [FLOATS]), "the output has 5 elements, the input 4"),
        (lambda g: g._reduce_scatter_base(FLOATS, torch.ones(15), dist.ReduceScatterOptions()), "has 4 elements"),
        (lambda g: g.reduce_scatter([FLOATS], [[FLOATS] * 4], dist.ReduceScatterOptions()), "ranks, found 4"),
        (lambda g: g.gather([[FLOATS, FLOATS, torch.ones(5)]], [FLOATS], rooted("Gather", 0)), "found [4, 5]"),
        (lambda g: g.gather([], [FLOATS], rooted("Gather", 0)), "each of 3 ranks, found 0"),
        (lambda g: g.scatter([FLOATS], [[FLOATS, FLOATS, torch.ones(5)]], rooted("Scatter", 0)), "found [4, 5]"),
        (lambda g: g.broadcast([FLOATS], rooted("Broadcast", 3)), "rank 3 is not in the group of 3"),
        (lambda g: g.alltoall([FLOATS] * 3, [FLOATS] * 2), "each of 3 ranks, found 2"),
        (lambda g: g.alltoall([FLOATS] * 3, [torch.ones(5)] * 3), "has 4 elements, the input 5"),
        (lambda g: g.alltoall_base(torch.ones(6), torch.ones(6), [2, 2, 2], [1, 2, 2]), "must add up to 6 rows"),
        (lambda g: g.alltoall_base(torch.ones(12), DOUBLES, [], []), "one type"),
        (lambda g: g.send([FLOATS], 3, 0), "rank 3 is not in the group of 3"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_a_byte_moves(call, words, groups):
    with pytest.raises(ArgumentError) as caught:
        call(groups[0])
    assert words in str(caught.value)
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, ValueError)
    assert failures([g.barrier() for g in groups]) == []  # and the group still serves


def test_a_receive_from_any_source_takes_what_comes_first_and_says_from_whom(groups):
    first, second = torch.empty(3), torch.empty(3)
    waiting = groups[0].recv_anysource([first], 5)
    groups[2].send([torch.full((3,), 2.0)], 0, 5).wait()
    waiting.wait()
    assert (waiting._source_rank(), first.tolist()) == (2, [2.0] * 3)
    groups[1].send([torch.full((3,), 1.0)], 0, 5).wait()
    later = groups[0].recv_anysource([second], 5)
    later.wait()
    assert (later._source_rank(), second.tolist()) == (1, [1.0] * 3)


def test_messages_beyond_what_is_kept_wait_at_the_sender_and_hold_up_no_other(groups, monkeypatch):
    monkeypatch.setattr(messages, "MOST_EARLY", 1 << 12)
    for g in groups:
        for peer in g._links.everyone().values():
            peer.credit = 1 << 12
    many = [groups[1].send([torch.full((300,), float(tag))], 0, tag) for tag in range(10)]
    large = groups[2].send([torch.full((5000,), 7.0)], 0, 9)
    assert not large.is_completed() and not many[9].is_completed()
    for tag in (9, *range(9)):  # the last first
        got = torch.empty(300)
        groups[0].recv([got], 1, tag).wait(timedelta(seconds=30))
        assert got.tolist() == [float(tag)] * 300
    got = torch.empty(5000)
    anyone = groups[0].recv_anysource([got], 9)
    anyone.wait(timedelta(seconds=30))
    assert anyone._source_rank() == 2 and got.tolist() == [7.0] * 5000
    assert failures([*many, large]) == []


def test_the_order_of_messages_with_one_tag_is_kept_across_early_and_announced_ones(groups, monkeypatch):
    monkeypatch.setattr(messages, "MOST_EARLY", 1 << 11)
    groups[1]._links.everyone()[0].credit = 1 << 11
    sent = [groups[1].send([torch.full((100 * (i % 3 + 1),), float(i))], 0, 1) for i in range(12)]
    for i in range(12):
        got = torch.empty(100 * (i % 3 + 1))
        groups[0].recv([got], 1, 1).wait(timedelta(seconds=30))
        assert got[0] == i
    assert failures(sent) == []


def test_a_message_that_nobody_receives_does_not_wait_for_ever(hasty, monkeypatch):
    hasty[1]._links.everyone()[0].credit = 0
    (said,) = failures([hasty[1].send([torch.ones(5)], 0, 4)])
    assert "it is alive, but has not received the message with tag 4 within the timeout of 1 s" in said


def test_a_receive_from_any_source_does_not_wait_for_ever(hasty):
    (said,) = failures([hasty[1].recv_anysource([torch.ones(5)], 4)])
    assert "all ranks: none has sent within the timeout of 1 s, in the message with tag 4" in said


def test_a_monitored_barrier_names_those_who_do_not_come(groups):
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.monitored_barrier(timedelta(seconds=30)), groups))
        short = timedelta(seconds=0.3)
        late = pool.submit(groups[2].monitored_barrier, timedelta(seconds=30))
        with pytest.raises(RuntimeError, match=r"Rank 1 failed to pass monitoredBarrier within 0\.3 s"):
            groups[0].monitored_barrier(short)
        with pytest.raises(RuntimeError, match=r"rank 0: Rank 1 failed to pass .*rank 2 has reached it"):
            late.result()
        with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier"):
            groups[0].monitored_barrier(short, wait_all_ranks=True)
        for g in groups[1:]:
            with pytest.raises(RuntimeError, match="rank 0: "):
                g.monitored_barrier(short)
    with pytest.raises(RuntimeError, match="Rank 0 timed out in monitoredBarrier"):
        groups[0].monitored_barrier(timedelta())
    assert failures([g.barrier() for g in groups]) == []  # the group still serves


def test_sparse_tensors_are_summed(groups):
    dense = [torch.tensor([[0.0, r, 0.0], [1.0, 0.0, r * r]]) for r in range(RANKS)]
    sparse = [t.to_sparse() for t in dense]
    hybrid = [t.to_sparse(1) for t in dense]
    for tensors in (sparse, hybrid):
        assert failures([g.allreduce([t]) for g, t in zip(groups, tensors)]) == []
        assert all(torch.equal(t.to_dense(), sum(dense)) for t in tensors)
    works = [g.allreduce([torch.ones(2 + (r == 2)).to_sparse()]) for r, g in enumerate(groups)]
    for work in works:
        with pytest.raises(ArgumentError, match=r"all_reduce: rank . has a sparse tensor of"):
            work.wait()


def test_a_storage_can_be_resized_after_a_collective(groups):
    """FSDP frees the storage of what it has gathered, which NumPy's view of a tensor forbids for ever."""
    tensors = [torch.full((100,), float(r)) for r in range(RANKS)]
    for work in [g.allreduce([t]) for g, t in zip(groups, tensors)]:
        work.wait()
    for t in tensors:
        assert t.tolist() == [3.0] * 100
        t.untyped_storage().resize_(0)
    conjugate = [torch.full((4,), 1 + 2j).conj() for _ in range(RANKS)]
    for work in [g.allreduce([t]) for g, t in zip(groups, conjugate)]:
        work.wait()
    assert conjugate[0].resolve_conj().tolist() == [3 - 6j] * 4

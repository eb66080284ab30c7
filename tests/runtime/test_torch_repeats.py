"""Collectives on memory that they had before are given to the compiled loop without being looked up again."""

from __future__ import annotations

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.model.errors import PeerFailed
from stretto.runtime import sharing
from stretto.runtime.native import kernel_layout as at
from stretto.runtime.native.records import WORD

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed
RANKS = 3
LOOKED_UP = 3
"""Calls that are looked up: the first makes the plan, and memory may be used only once."""


@pytest.fixture
def groups(monkeypatch):
    from stretto.torch.group import StrettoGroup

    monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    monkeypatch.setenv("STRETTO_TOPOLOGY", f"fullmesh:{RANKS}")
    monkeypatch.setenv("STRETTO_EFFORT", "none")
    monkeypatch.setattr(sharing, "_RANKS", {})
    store, ranks = dist.HashStore(), list(range(RANKS))
    made = [StrettoGroup(store, rank, RANKS, ranks, timedelta(seconds=60)) for rank in ranks]
    wait([g.barrier() for g in made])
    yield made
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.abort(), made))


@pytest.fixture
def looked_up(monkeypatch):
    """The kinds of collectives that are looked up, in the order in which all ranks call them."""
    from stretto.torch.group import StrettoGroup

    said: list[str] = []
    begin = StrettoGroup._begin

    def noted(self, calls, outputs):
        said.extend(arguments[0] for arguments, _ in calls)
        return begin(self, calls, outputs)

    monkeypatch.setattr(StrettoGroup, "_begin", noted)
    return said


@pytest.fixture
def asked(monkeypatch):
    """Whether each call that is looked for was found."""
    from stretto.torch.repeats import Repeats

    found: list[bool] = []
    begin = Repeats.begin

    def noted(self, *arguments):
        work = begin(self, *arguments)
        found.append(work is not None)
        return work

    monkeypatch.setattr(Repeats, "begin", noted)
    return found


def wait(works: list) -> None:
    for work in works:
        assert work.wait(timedelta(seconds=30))


def options(name: str, **fields):
    made = getattr(dist.distributed_c10d, f"{name}Options")()
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def numbers(groups, count: int = 6) -> list:
    return [torch.zeros(count) for _ in groups]


CALLS = {
    "allreduce": lambda g, a, b: g.allreduce([a], options("Allreduce")),
    "largest": lambda g, a, b: g.allreduce([a], options("Allreduce", reduceOp=dist.ReduceOp.MAX)),
    "reduce": lambda g, a, b: g.reduce([a], options("Reduce", rootRank=1)),
    "broadcast": lambda g, a, b: g.broadcast([a], options("Broadcast", rootRank=2)),
    "all_gather": lambda g, a, b: g.allgather([list(b.split(6))], [a], options("Allgather")),
    "all_gather_into": lambda g, a, b: g._allgather_base(b, a, options("Allgather")),
    "reduce_scatter": lambda g, a, b: g.reduce_scatter([a], [list(b.split(6))], options("ReduceScatter")),
    "reduce_scatter_of": lambda g, a, b: g._reduce_scatter_base(a, b, options("ReduceScatter")),
    "gather": lambda g, a, b: g.gather(
        [list(b.split(6))] if g.rank() == 1 else [], [a], options("Gather", rootRank=1)
    ),
    "scatter": lambda g, a, b: g.scatter(
        [a], [list(b.split(6))] if g.rank() == 1 else [], options("Scatter", rootRank=1)
    ),
    "all_to_all": lambda g, a, b: g.alltoall(list(a.split(2)), list(b[:6].split(2)), options("AllToAll")),
    "all_to_all_single": lambda g, a, b: g.alltoall_base(a, b[:6], [], [], options("AllToAll")),
    "uneven": lambda g, a, b: g.alltoall_base(
        b[: 3 * (g.rank() + 1)], a, [g.rank() + 1] * 3, [1, 2, 3], options("AllToAll")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_gives_what_one_with_new_memory_gives(name, groups, looked_up, asked):
    here = [(torch.zeros(6), torch.zeros(18)) for _ in groups]
    kept = []  # so that memory is new
    for turn in range(LOOKED_UP + 3):
        given = [torch.randint(0, 100, (24,), generator=torch.Generator().manual_seed(9 * turn + r)) for r in range(3)]
        kept.append(anew := [(g[:6].float(), g[6:].float()) for g in given])
        for (a, b), (x, y) in zip(here, anew, strict=True):
            a.copy_(x), b.copy_(y)
        looked_up.clear(), asked.clear()
        wait([CALLS[name](g, a, b) for g, (a, b) in zip(groups, here, strict=True)])
        assert turn < LOOKED_UP or asked == [True] * RANKS  # not by parts
        assert turn == LOOKED_UP - 1 or len(looked_up) == (RANKS if turn < LOOKED_UP else 0)  # plans of barriers serve
        wait([CALLS[name](g, a, b) for g, (a, b) in zip(groups, anew, strict=True)])
        for (a, b), (x, y) in zip(here, anew, strict=True):
            assert torch.equal(a, x) and torch.equal(b, y)


def test_a_barrier_is_repeated(groups, looked_up):
    for _ in range(LOOKED_UP):
        wait([g.barrier(opts=options("Barrier")) for g in groups])
    looked_up.clear()
    wait([g.barrier(opts=options("Barrier")) for g in groups])
    assert not looked_up
    with pytest.raises(PeerFailed, match=r"for the timeout of 0\.5 s"):
        groups[0].barrier(opts=options("Barrier", timeout=timedelta(seconds=0.5))).wait()


@pytest.mark.parametrize(
    "other",
    [
        lambda t: {"opts": options("Allreduce", reduceOp=dist.ReduceOp.MIN)},
        lambda t: {"opts": options("Allreduce", timeout=timedelta(seconds=50))},
        lambda t: {"tensors": [t[:3]]},
        lambda t: {"tensors": [t.view(torch.int32)]},
    ],
    ids=["operation", "timeout", "size", "type"],
)
def test_a_call_on_the_same_memory_that_differs_is_looked_up(other, groups, looked_up):
    tensors = numbers(groups)
    for _ in range(LOOKED_UP + 1):
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])
    looked_up.clear()
    given = [{"tensors": [t], "opts": options("Allreduce"), **other(t)} for t in tensors]
    wait([g.allreduce(i["tensors"], i["opts"]) for g, i in zip(groups, given, strict=True)])
    assert len(looked_up) == RANKS


def test_a_call_whose_numbers_do_not_lie_in_memory_as_they_are_is_looked_up(groups, looked_up):
    tensors = [torch.full((6,), complex(1, r)) for r in range(RANKS)]
    for _ in range(LOOKED_UP + 1):
        looked_up.clear()
        wait([g.broadcast([t.conj()], options("Broadcast")) for g, t in zip(groups, tensors, strict=True)])
        assert len(looked_up) == RANKS
    assert all(t.tolist() == [complex(1, 0)] * 6 for t in tensors)


def test_a_group_whose_timeout_is_set_looks_up_again(groups, looked_up):
    tensors = numbers(groups)
    for _ in range(LOOKED_UP + 1):
        wait([g.broadcast([t], options("Broadcast")) for g, t in zip(groups, tensors, strict=True)])
    groups[1].set_timeout(timedelta(seconds=0.5))
    with pytest.raises(PeerFailed, match=r"for the timeout of 0\.5 s"):
        groups[1].broadcast([tensors[1]], options("Broadcast")).wait()


def test_a_repeated_call_takes_up_a_new_plan_at_the_same_call_at_all_ranks(groups):
    from stretto.choose.requests import Shape

    tensors = numbers(groups)

    def call() -> None:
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])

    for _ in range(LOOKED_UP + 1):
        call()
    uses = [g._collectives.plans._uses[Shape.of("allreduce", 24, 0)] for g in groups]
    for use, g in zip(uses, groups, strict=True):
        use.next, use.change_at = g._collectives.plans._library.recipe_of(use.recipe.program.plan), use.begun + 1
    old = [use.recipe for use in uses]
    call()
    assert [use.recipe for use in uses] == old
    for _ in range(LOOKED_UP + 1):
        call()
        assert not any(use.recipe is before for use, before in zip(uses, old, strict=True))
    assert {use.begun for use in uses} == {2 * LOOKED_UP + 3}


def test_a_repeated_call_has_its_number_before_it_is_given_to_the_loop(groups, monkeypatch):
    """A failure while it is given there counts it among the calls that have begun."""
    from stretto.torch.collectives import Collectives

    tensors, begun = numbers(groups), []
    repeat = Collectives.repeat

    def noted(self, *arguments):
        begun.append([g._order.last_without_result() for g in groups if g._collectives is self])
        return repeat(self, *arguments)

    def call() -> None:
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])

    for _ in range(LOOKED_UP):
        call()
    numbered = [g._order.call() for g in groups]
    monkeypatch.setattr(Collectives, "repeat", noted)
    call()
    assert begun == [[number + 1] for number in numbered]


def test_a_call_that_is_looked_up_at_one_rank_alone_has_one_number(groups, monkeypatch):
    tensors = numbers(groups)

    def call() -> None:
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])

    for _ in range(LOOKED_UP + 1):
        call()
    with monkeypatch.context() as patch:
        patch.setattr(groups[1]._collectives, "repeat", lambda *_: None)
        call()
    call()
    assert len({g._order.call() for g in groups}) == 1


def test_a_future_of_a_repeated_call_has_the_result(groups):
    whole, own = numbers(groups, 18), numbers(groups)
    for _ in range(LOOKED_UP):
        wait([g._allgather_base(o, i, options("Allgather")) for g, o, i in zip(groups, whole, own, strict=True)])
    works = [g._allgather_base(o, i, options("Allgather")) for g, o, i in zip(groups, whole, own, strict=True)]
    for work, given in zip(works, whole, strict=True):
        (parts,) = work.get_future().wait()
        assert [p.data_ptr() for p in parts] == [p.data_ptr() for p in given.split(6)]


def test_a_repeated_call_keeps_its_tensors_until_it_has_ended_and_no_longer(groups):
    tensors = numbers(groups)
    for _ in range(LOOKED_UP):
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])
    groups[0].allreduce([tensors[0]], options("Allreduce"))
    groups[0].barrier()  # a group knows its last call
    alive = weakref.ref(tensors[0])
    tensors[0] = None
    gc.collect()
    assert alive() is not None
    wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups[1:], tensors[1:], strict=True)])
    wait([g.barrier() for g in groups[1:]])
    wait([g.barrier() for g in groups])
    gc.collect()
    assert alive() is None


def test_a_repeated_call_keeps_tensors_that_its_caller_takes_out_of_a_list(groups):
    own, lists = numbers(groups), [numbers(groups) for _ in groups]
    for _ in range(LOOKED_UP):
        wait([g.allgather([o], [t], options("Allgather")) for g, o, t in zip(groups, lists, own, strict=True)])
    work = groups[0].allgather([lists[0]], [own[0]], options("Allgather"))
    alive = weakref.ref(lists[0][1])
    lists[0].clear()
    assert alive() is not None
    others = zip(groups[1:], lists[1:], own[1:], strict=True)
    wait([work, *(g.allgather([o], [t], options("Allgather")) for g, o, t in others)])


class Own(torch.Tensor):
    """Of a type whose calls are not repeated."""


@pytest.mark.parametrize("kind", [torch.Tensor, Own])
def test_a_call_that_has_ended_keeps_no_tensor_that_it_reads(kind, groups, looked_up):
    own, whole = [torch.zeros(6).as_subclass(kind) for _ in groups], numbers(groups, 18)
    for _ in range(LOOKED_UP + 1):
        looked_up.clear()
        wait([g._allgather_base(o, t, options("Allgather")) for g, o, t in zip(groups, whole, own, strict=True)])
    assert len(looked_up) == (RANKS if kind is Own else 0)
    alive = weakref.ref(own[0])
    own.clear()
    gc.collect()
    assert alive() is None


def test_works_that_are_collected_with_a_cycle_of_objects_leave_no_event_to_two_runs(groups):
    tensors, others = numbers(groups), numbers(groups)

    def call(group, tensor):
        return group.allreduce([tensor], options("Allreduce"))

    for _ in range(LOOKED_UP):
        for given in (tensors, others):
            wait([call(g, t) for g, t in zip(groups, given, strict=True)])
    cycle = [[call(g, t) for g, t in zip(groups, tensors, strict=True)]]
    wait(cycle[0])
    cycle.append(cycle)
    wait([g.barrier() for g in groups])  # else the groups know their last call
    del cycle
    gc.collect()
    turns = [tensors, *[others] * 12]
    works = [call(groups[0], given[0]) for given in turns]
    events = [int(run.block[at.WAKE // WORD]) for work in works for run in work._runs]
    assert len({*events}) == len(turns)
    for given in turns:
        wait([call(g, t) for g, t in zip(groups[1:], given[1:], strict=True)])
    wait(works)


def test_calls_that_can_be_repeated_hold_no_descriptors(groups):
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    many = [numbers(groups) for _ in range(30)]
    for turn in range(LOOKED_UP + 2):
        for tensors in many:
            wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])
        if turn == 0:
            before = open_files()
    assert open_files() <= before + 2 * RANKS


def test_a_repeated_call_keeps_no_group_alive(groups):
    for _ in range(LOOKED_UP + 1):
        wait([g.barrier(opts=options("Barrier")) for g in groups])
    alive = weakref.ref(groups[2])
    del groups[2]
    gc.collect()
    assert alive() is None


def test_a_repeated_call_of_a_group_that_has_failed_raises(groups):
    tensors = numbers(groups)
    for _ in range(LOOKED_UP + 1):
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])
    groups[2].abort()
    for _ in range(2):
        with pytest.raises(PeerFailed, match="rank 2"):
            groups[0].allreduce([tensors[0]], options("Allreduce")).wait()


def test_the_memory_of_runs_that_have_ended_is_used_again(groups):
    tensors = numbers(groups)
    places = []
    for _ in range(LOOKED_UP + 5):
        works = [g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)]
        wait(works)
        places += [run.place for run in getattr(works[0], "_runs", [])]
    assert len(places) >= 7 and len({*places[2:]}) <= 3


def test_no_more_calls_are_remembered_than_a_bound(groups, monkeypatch):
    from stretto.torch import repeats

    monkeypatch.setattr(repeats, "MOST_KEPT", 5)
    many = [numbers(groups) for _ in range(12)]
    for tensors in many:
        wait([g.allreduce([t], options("Allreduce")) for g, t in zip(groups, tensors, strict=True)])
    assert all(len(g.repeats._kept) <= 5 for g in groups)

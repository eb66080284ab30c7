"""PyTorch's groups over shared connections: what goes wrong in one of them is said as ever, and the others go on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.model.errors import PeerFailed
from stretto.runtime import sharing
from stretto.runtime.native import engine
from stretto.runtime.native.shared import SharedMesh

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed
RANKS = 3


def sums(g, count: int, timeout_s: float | None = None):
    options = dist.AllreduceOptions()
    if timeout_s is not None:
        options.timeout = timedelta(seconds=timeout_s)
    return g.allreduce([torch.ones(count)], options)


def adds_up(groups) -> None:
    works = [sums(g, 5000) for g in groups]
    for work in works:
        work.wait(timedelta(seconds=30))
        assert work.get_future().value()[0].tolist() == [RANKS] * 5000


def failures(works) -> list[str]:
    said = []
    for work in works:
        with pytest.raises(PeerFailed) as failed:
            work.wait(timedelta(seconds=30))
        said.append(str(failed.value))
    return said


@pytest.fixture(scope="module", autouse=True)
def loop():
    """The compiled loop, which may have to be compiled first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRETTO_KERNELS", "compiled")
        assert engine.hold() is not None
        yield
    engine.let_go()


@pytest.fixture
def world(monkeypatch):
    """Two groups of the same ranks."""
    from stretto.torch.group import StrettoGroup

    monkeypatch.setattr(sharing, "_RANKS", {})
    store, everyone = dist.HashStore(), list(range(RANKS))
    made = []
    for name in ("first", "second"):
        own = dist.PrefixStore(name, store)
        made.append([StrettoGroup(own, rank, RANKS, everyone, timedelta(seconds=60)) for rank in everyone])
        adds_up(made[-1])
    for group in made:
        assert all(isinstance(g._links.mesh(), SharedMesh) for g in group)
    yield made
    with ThreadPoolExecutor(2 * RANKS) as pool:
        list(pool.map(lambda g: g.abort(), [g for group in made for g in group]))


@pytest.mark.parametrize("which", [0, 1])
def test_ranks_that_call_something_else_are_told_both_calls(which, world):
    ends, stays = world[which], world[1 - which]
    waits = [sums(g, 300_000) for g in stays[1:]]
    began = time.monotonic()
    said = failures([sums(ends[0], 1024), sums(ends[1], 1024), ends[2].barrier()])
    assert time.monotonic() - began < 20
    assert all("all_reduce(SUM, float32[1024])" in text and "barrier()" in text for text in said), said
    for work in [*waits, sums(stays[0], 300_000)]:
        work.wait(timedelta(seconds=30))
    adds_up(stays)


@pytest.mark.parametrize("which", [0, 1])
def test_a_group_that_is_destroyed_in_the_middle_of_a_tensor_leaves_the_other_alone(which, world):
    ends, stays = world[which], world[1 - which]
    works = [
        sums(g, 5_000_000) for g in ends[:2]
    ]  # the third rank never calls it, and what comes there stays half sent
    waits = [sums(g, 300_000) for g in stays[1:]]
    ends[2].abort()
    assert all("rank 2: " in text for text in failures(works))
    for work in [*waits, sums(stays[0], 300_000)]:
        work.wait(timedelta(seconds=30))
    adds_up(stays)


def test_timeouts_count_for_each_group(world):
    hasty, patient = world
    waits = [sums(g, 5_000_000, 30) for g in patient[:2]]
    (said,) = failures([sums(hasty[0], 1024, 0.5)])
    assert "for the timeout of 0.5 s" in said
    for work in [*waits, sums(patient[2], 5_000_000, 30)]:
        work.wait(timedelta(seconds=30))
    adds_up(patient)

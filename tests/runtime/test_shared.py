"""Groups of a process share the connections for their collectives: no group holds up another, and none gets its bytes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from meshes import meshes
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.model.messages import message_count
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.native import engine, kernel_engine, kernel_frames, kernel_sending
from stretto.runtime.native import kernel_layout as at
from stretto.runtime.native.machine import get
from stretto.runtime.native.runs import Run
from stretto.runtime.native.shared import Roads, SharedMesh
from stretto.runtime.sharing import new_number
from stretto.runtime.wire import HEADER
from stretto.schedule.collecting import collected
from stretto.topologies import load_topology

RANKS = 4
IN_MESSAGES = "alltoall, several chunks in a message"
KINDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", IN_MESSAGES)
PLANS: dict = {}


def plan_of(kind: str, ranks: int, size: int, planner: str) -> Plan:
    if kind != IN_MESSAGES:
        net = load_topology(f"fullmesh:{ranks}")
        return run_planner(planner, net, Workload((make_collective(kind, net, size),)))
    net = load_topology(f"fullmesh:{ranks}?message=20us")
    plan = collected(run_planner(planner, net, Workload((make_collective("alltoall", net, size, chunks=4),))))
    assert plan is not None and message_count(plan) < plan.transfer_count
    return plan


class Begun(NamedTuple):
    """A collective at one rank, and what it ends with."""

    run: Run
    plan: object
    outputs: dict

    def check(self) -> None:
        assert self.run.wait(60), "it does not end"
        assert self.run.failure is None, self.run.failure
        assert content.wrong_chunks(self.plan, self.outputs) == []


class World:
    """Ranks in one process, and the connections of their first group."""

    def __init__(self, loop: engine.Engine) -> None:
        self.loop = loop
        first = meshes(list(range(RANKS)))
        self.roads = {v: Roads(loop, {w: c for w, (c,) in mesh.peers.items()}) for v, mesh in first.items()}

    def group(self, members: Sequence[int]) -> dict[int, SharedMesh]:
        """The mesh of each member of a group."""
        numbers, made = {m: new_number() for m in members}, {}
        names = {i: f"rank {m}" for i, m in enumerate(members)}
        for i, m in enumerate(members):
            assert self.roads[m].hold()
            others = {k: w for k, w in enumerate(members) if w != m}
            own = numbers[m], {k: numbers[w] for k, w in others.items()}
            made[m] = SharedMesh(i, names, self.roads[m], others, own)
        return made

    def begin(self, mesh: SharedMesh, kind: str, size: int, planner="shortest-path", reduce=np.add) -> Begun:
        """Begin a collective at one rank."""
        key = len(mesh.names), kind, size, planner
        if key not in PLANS:
            plan = plan_of(kind, len(mesh.names), size, planner)
            PLANS[key] = plan, lower(plan)
        plan, programs = PLANS[key]
        steps, v = programs[mesh.node].steps, mesh.node
        outputs = content.outputs(plan, steps.wanted)
        how = {"sizes": None, "dtype": np.uint8, "reduce": reduce, "timeout_s": 60, "call": bytes(24)}
        run = self.loop.begin(mesh, programs[v], content.inputs(plan, steps.held, v), outputs, **how)
        return Begun(run, plan, outputs)

    def close(self) -> None:
        for roads in self.roads.values():
            roads.release(lingers=True)


@pytest.fixture(scope="module")
def loop() -> Iterator[engine.Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRETTO_KERNELS", "compiled")
        held = engine.hold()
    assert held is not None
    yield held
    engine.let_go()


@pytest.fixture
def world(loop) -> Iterator[World]:
    made = World(loop)
    yield made
    made.close()


def close(*groups: dict[int, SharedMesh]) -> None:
    for group in groups:
        for mesh in group.values():
            mesh.close()


def do_random_collectives(world: World, seed: int, rounds: int) -> None:
    """Groups of random ranks, which call random collectives; each rank calls those of its groups in an order of its
    own, and lets one group wait for all others."""
    choose = random.Random(seed)
    for _ in range(rounds):
        members = [sorted(choose.sample(range(RANKS), choose.randint(2, RANKS))) for _ in range(choose.randint(1, 5))]
        groups = [world.group(m) for m in members]
        calls = [
            [(choose.choice(KINDS), choose.choice((24, 3000, 70_000, 600_000, 2_500_000))) for _ in range(choose.randint(1, 6))]
            for _ in groups
        ]  # fmt: skip
        begun: list[Begun] = []

        def rank(v: int, seed: int) -> None:
            order = random.Random(seed)
            left = {g: list(calls[g]) for g, m in enumerate(members) if v in m}  # noqa: B023
            late = order.choice([-1, *left])
            while any(left.values()):
                ready = [g for g in left if left[g]]
                g = order.choice([g for g in ready if g != late] or ready)
                begun.append(world.begin(groups[g][v], *left[g].pop(0)))  # noqa: B023

        threads = [threading.Thread(target=rank, args=(v, choose.random())) for v in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in begun:
            one.check()
        close(*groups)


def test_random_groups_with_random_collectives_in_random_orders_get_every_byte(world):
    do_random_collectives(world, seed=7, rounds=10)
    assert all(len(roads._ends) <= 5 for roads in world.roads.values()), "records of groups that have left are kept"


@pytest.mark.parametrize("early", [200, 5000, 400_000])
def test_senders_stop_where_receivers_are_late_and_go_on(early, monkeypatch):
    """The same loop interpreted, with little room for what is early."""
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    for module in (kernel_engine, kernel_sending):
        monkeypatch.setattr(module, "EARLY_BYTES", early)
    own, keep_frame, most = engine.Engine(kernel_engine.serve), kernel_frames.keep_frame, [0]

    def keep(loop: int, c: int) -> None:
        keep_frame(loop, c)
        block, kept = get(c + at.EARLY), 0
        while block:
            if get(block + at.E_FRAME) in (kernel_sending.DATA, kernel_sending.SIGNAL):
                kept += get(block + at.E_FRAME + at.LENGTH - at.KIND) + HEADER.size + kernel_sending.STREAM_BYTES
            block = get(block + at.E_NEXT)
        most[0] = max(most[0], kept)

    monkeypatch.setattr(kernel_frames, "keep_frame", keep)
    made = World(own)
    group, other = made.group([0, 1]), made.group([0, 1])
    waits = [made.begin(other[1], "allgather", 24)]  # so it must read on
    first = [made.begin(group[0], "broadcast", 24) for _ in range(3)]  # as many as come before the other rank begins
    for one in first:
        one.run.wait(0.02)
    for one in [*first, *(made.begin(group[1], "broadcast", 24) for _ in first)]:
        one.check()
    for one in [*waits, made.begin(other[0], "allgather", 24)]:
        one.check()
    close(group, other)
    do_random_collectives(made, seed=early, rounds=2)
    made.close()
    own.stop()
    assert 0 < most[0] <= early


def test_a_receiver_that_is_late_keeps_little_and_holds_up_no_other_group(world):
    late, other = world.group(range(RANKS)), world.group(range(RANKS))
    begun = [world.begin(late[v], "broadcast", 300_000) for _ in range(20) for v in (0, 1, 2)]
    for _ in range(10):
        for one in [world.begin(other[v], "allreduce", 600_000, "ring") for v in range(RANKS)]:
            one.check()
    assert not begun[-3].run.ended, "more was sent than the receiver may keep"
    for one in [*begun, *(world.begin(late[3], "broadcast", 300_000) for _ in range(20))]:
        one.check()
    close(late, other)


@pytest.mark.parametrize("how", ["abort", "leave", "close"])
def test_a_group_that_ends_amid_a_collective_leaves_the_others_alone(how, world):
    ends, stays = world.group(range(RANKS)), world.group(range(RANKS))
    plan = ("alltoall", 20_000_000)
    fails = [world.begin(ends[v], *plan) for v in (0, 2, 3)]  # rank 1 has not called it
    goes_on = [world.begin(stays[v], *plan) for v in range(RANKS)]
    if how == "abort":
        ends[1].abort(PeerFailed("rank 2", "it computes nonsense"), 2)
    else:
        getattr(ends[1], how)()
    why = {
        "abort": "rank 2: it computes nonsense \\(as rank 1 says\\)",
        "leave": "rank 1: it died",
        "close": "rank 1: it closed the connection",
    }[how]
    for one in fails:
        with pytest.raises(PeerFailed, match=why):
            one.run.result()
    for one in goes_on:
        one.check()
    for one in [world.begin(stays[v], "allreduce", 30_000, "ring") for v in range(RANKS)]:
        one.check()
    close(ends, stays)


@pytest.mark.parametrize("kind", ["alltoall", IN_MESSAGES])
def test_a_group_that_ends_while_its_bytes_are_on_the_way_lets_their_memory_go(kind, world):
    stays = world.group(range(RANKS))
    for number in range(4):
        ends = world.group(range(RANKS))
        one = [world.begin(ends[v], kind, 12_000_000) for v in range(RANKS)]
        other = [world.begin(stays[v], "allgather", 2_000_000) for v in range(RANKS)]
        ends[number % RANKS].leave()
        for mesh in ends.values():
            mesh.abort(PeerFailed("rank 0", "enough"), 0)
        for begun in one:  # its arrays are filled anew: what is still sent must not come from there
            for array in begun.outputs.values():
                array[:] = 0
        del one
        for begun in other:
            begun.check()
        close(ends)
    close(stays)


def test_a_connection_that_ends_is_told_to_all_its_groups(world):
    groups = [world.group(range(RANKS)), world.group([1, 2])]
    waits = [world.begin(group[1], "allgather", 3000) for group in groups]
    world.roads[2].connections[1].sock.shutdown(2)
    for one in waits:
        with pytest.raises(PeerFailed, match=r"rank 2: it died"):
            one.run.result()
    close(*groups)


def test_bytes_that_are_no_frame_end_all_groups_of_a_connection(world):
    groups = [world.group([0, 1]), world.group([0, 1, 2])]
    (waits,) = [world.begin(groups[0][0], "allgather", 3000)]
    world.roads[1].connections[0].sock.send(bytes(kernel_sending.STREAM_BYTES) + b"GET / HTTP/1.1\r\n" * 4)
    with pytest.raises(PeerFailed, match="rank 1: it sent 4745 where a frame must begin"):
        waits.run.result()
    with pytest.raises(PeerFailed, match="rank 1: it sent 4745 where a frame must begin"):
        world.begin(groups[1][0], "allgather", 3000).run.result()
    close(*groups)


def test_groups_are_made_and_destroyed_many_times(world):
    for number in range(60):
        group = world.group([0, 1])
        for one in [world.begin(group[v], "allreduce", 3000, "ring") for v in (0, 1)]:
            one.check()
        if number % 2:
            group[0].leave()
        close(group)
    assert all(len(roads._ends) <= 2 for roads in world.roads.values())


def test_a_group_may_be_collected_in_the_thread_of_the_loop(world):
    group, other = world.group([0, 1]), world.group([0, 1])

    def sums(a, b, out):
        while other:
            other.popitem()[1].leave()  # waits for the loop, were it another thread
        np.add(a, b, out=out)

    for one in [world.begin(group[v], "allreduce", 3000, "ring", sums) for v in (0, 1)]:
        one.check()
    assert not other
    close(group)


class Watched(SharedMesh):
    """A mesh in which another thread runs when one has seen whether it has failed."""

    other: threading.Thread | None = None

    @property
    def failure(self) -> PeerFailed | None:
        seen, other, self.other = self.__dict__.get("failure"), self.other, None
        if other is not None:
            other.start()
            other.join(0.1)
        return seen

    @failure.setter
    def failure(self, failure: PeerFailed | None) -> None:
        self.__dict__["failure"] = failure


def test_of_two_threads_that_abort_one_mesh_the_first_says_why(world, monkeypatch):
    group = world.group([0, 1])
    mesh, said, release = group[0], [], world.loop.release
    mesh.__class__ = Watched
    monkeypatch.setattr(
        world.loop, "release", lambda ends, failure, last: (said.append(last), release(ends, failure, last))[1]
    )
    other = mesh.other = threading.Thread(target=mesh.abort, args=[PeerFailed("rank 1", "it is late"), 1])
    mesh.abort(PeerFailed("rank 1", "it computes nonsense"), 1)
    other.join()
    assert (mesh.failure.reason, [last.text for last in said]) == ("it computes nonsense", [b"it computes nonsense"])
    close(group)

"""What a runtime takes for a program at a size, against a clock that shares nothing with stretto."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from msccl_clock import seconds
from stretto.formats import exporters
from stretto.formats.msccl_in import read_threads
from stretto.formats.threads import Step, Threads, at_size
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import make_plan
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology


def program(net: str, kind: str, planner: str, folder, chunks: int = 1):
    topology = assume_messages(load_topology(net))
    workload = Workload((make_collective(kind, topology, 4096 * chunks, chunks=chunks),))
    path = folder / "program.xml"
    exporters()["msccl"].write(simulate(run_planner(planner, topology, workload)), str(path))
    return topology, path


def run_s(threads, size: int) -> float:
    run = at_size(threads, size)
    return simulate(run.plan, follows=run.follows).completion_s


def link_of(topology):
    links = {
        (int(a), int(b)): (float(topology.bandwidth[k]), float(topology.latency_s[k]), float(topology.message_s[k]))
        for k, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))
    }
    return lambda a, b: links[a, b]


@pytest.mark.parametrize(
    ("net", "kind", "planner", "chunks"),
    [
        ("ring:4", "allreduce", "ring", 1),
        ("ring:5", "allgather", "mtegcca", 3),
        ("fullmesh:4", "alltoall", "pairwise", 2),
        ("torus:3x3", "reducescatter", "shortest-path", 1),
        ("mesh:2x3", "broadcast", "mtegcca", 4),
        ("line:4", "reduce", "shortest-path", 2),
    ],
)
@pytest.mark.parametrize("size", [1000, 3_333_333, 50_000_000])
def test_it_is_what_the_clock_says(net, kind, planner, chunks, size, tmp_path):
    """Small sizes, chunks of nearly two passes, and of many."""
    topology, path = program(net, kind, planner, tmp_path, chunks)
    size = -(-size // 720) * 720  # whole bytes for every chunk
    clock = seconds(path.read_text(), size, link_of(topology))
    assert run_s(read_threads(str(path), topology), size) == pytest.approx(clock, rel=1e-9)


def test_chunks_that_one_step_sends_are_one_message(tmp_path):
    """Up to what half a buffer holds."""
    topology, path = program("ring:2", "alltoall", "pairwise", tmp_path)
    text = path.read_text().replace('_chunks="2"', '_chunks="4"').replace('nchunksperloop="2"', 'nchunksperloop="4"')
    for offset in "10":
        text = text.replace(f'off="{offset}"', f'off="{2 * int(offset)}"')
    path.write_text(text.replace('cnt="1"', 'cnt="2"'))
    threads = read_threads(str(path), topology)
    for size, messages in ((4_000_000, 1), (12_000_000, 4)):
        run = at_size(threads, size)
        assert (np.bincount(run.plan.src)[topology.accelerators] == messages).all()
        assert run.plan.size_bytes.sum() == size
        assert run_s(threads, size) == pytest.approx(seconds(path.read_text(), size, link_of(topology)))


def test_a_thread_sends_one_message_after_the_other():
    """Rank 0 passes on what it gets from 2, and sends its own to the same rank: ready at once, but behind the other."""
    topology = assume_messages(load_topology("fullmesh:3"))
    link = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))}
    plan = make_plan(
        topology, Workload((make_collective("allgather", topology, 3_000_000),)), "ready-order", chunk=[2, 2, 0],
        src=[2, 0, 0], dst=Ragged.single([0, 1, 1]), route=Ragged.of([[link[2, 0]], [link[0, 1]], [link[0, 1]]]),
        depends=Ragged.of([[], [0], []]),
    )  # fmt: skip
    steps = [Step(0, (), (0,)), Step(1, (), (), (0,)), Step(2, (1,), (1,)), Step(2, (), (2,)),
             Step(3, (), (), (1,)), Step(3, (), (), (2,))]  # fmt: skip
    run = at_size(Threads(plan, steps, TARGETS["nccl-p2p"], "", 3_000_000), 3_000_000)
    start, finish = (getattr(simulate(run.plan, follows=run.follows), name) for name in ("start_s", "finish_s"))
    assert start[1] > finish[0] and start[2] == finish[1]
    alone = at_size(
        Threads(
            plan, [s._replace(thread=s.thread + (2 in s.sends) * 9) for s in steps], TARGETS["nccl-p2p"], "", 3_000_000
        ),
        3_000_000,
    )
    own = int(np.flatnonzero((alone.plan.src == 0) & (alone.plan.depends.lengths == 0))[0])
    assert simulate(alone.plan, follows=alone.follows).start_s[own] == 0.0


def test_a_program_that_buffers_cannot_hold_gets_stuck(tmp_path):
    topology, path = program("ring:2", "allgather", "mtegcca", tmp_path, chunks=3)
    threads = read_threads(str(path), topology)
    first = [i for i, step in enumerate(threads.steps) if step.sends and threads.plan.src[step.sends[0]] == 0]
    receives = [i for i, step in enumerate(threads.steps) if step.receives and threads.plan.src[step.receives[0]] == 0]
    order = [i for i in range(len(threads.steps)) if i not in receives] + receives
    steps = [threads.steps[i] for i in order]
    steps[order.index(receives[0])] = steps[order.index(receives[0])]._replace(waits=(order.index(first[2]),))
    with pytest.raises(InputError, match="gets stuck: buffers hold 2 messages"):
        at_size(replace(threads, steps=steps), 1000)
    at_size(replace(threads, steps=steps, target=replace(threads.target, in_flight=3)), 1000)


def test_a_program_that_sends_before_it_received_is_refused(tmp_path):
    topology, path = program("line:3", "allgather", "shortest-path", tmp_path)
    path.write_text(path.read_text().replace('depid="', 'depid="-1" was="'))
    with pytest.raises(InputError, match=r"does not wait for it|where nothing is"):
        at_size(read_threads(str(path), topology), 3000)


def test_other_protocols_are_refused(tmp_path):
    topology, path = program("ring:2", "allgather", "ring", tmp_path)
    path.write_text(path.read_text().replace('proto="Simple"', 'proto="LL"'))
    with pytest.raises(Unsupported, match="protocol 'LL'"):
        read_threads(str(path), topology)


def test_the_root_is_the_rank_that_holds_the_data(tmp_path):
    topology = load_topology("ring:4")
    for kind in ("broadcast", "reduce"):
        workload = Workload((make_collective(kind, topology, 4096, root=2),))
        path = tmp_path / "program.xml"
        exporters()["msccl"].write(simulate(run_planner("shortest-path", topology, workload)), str(path))
        assert read_threads(str(path), topology).plan.workload.collectives[0].root == 2

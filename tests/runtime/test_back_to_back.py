"""Messages of several chunks, as processes send them: all chunks by one system call, every byte right."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from meshes import Threads, meshes
from stretto.choose.expected import expected
from stretto.choose.library import Cut, Recipe
from stretto.lower import lower
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import PeerFailed
from stretto.model.messages import message_count
from stretto.model.plan import Plan, make_plan
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.credentials import Credentials, Protection, random_secret
from stretto.runtime.execute import execute
from stretto.runtime.local import run_local
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.native import engine
from stretto.runtime.wire import HEADER, NO_CALL, Kind, encode
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def plan_of(kind: str, spec: str = "star:5?message=20us") -> Plan:
    net = load_topology(spec)
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, 10_007),)))
    assert message_count(plan) < plan.transfer_count
    return plan


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "alltoall"])
def test_every_byte_is_right(kind):
    assert run_local(plan_of(kind)).wrong == []


@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
def test_every_byte_is_right_where_steps_wait_for_each_other(kind):
    plan = replace(plan_of(kind), barriers=True, sharing="ready-order", start_s=None, finish_s=None)
    assert verify(plan).ok
    assert run_local(plan).wrong == []


def test_every_byte_is_right_where_frames_are_authenticated():
    ways = Credentials(random_secret(), frames=Protection.AUTHENTICATED)
    assert run_local(plan_of("alltoall"), credentials=ways).wrong == []


def one_message(chunks: int) -> Plan:
    """A message of several chunks of 100 bytes from one node to another."""
    net = load_topology("fullmesh:2?message=20us")
    work = Workload((alltoallv(net, [[0, 100 * chunks], [0, 0]], chunks=chunks),))
    link = next(e for e in range(net.link_count) if net.src[e] == 0)
    return make_plan(
        net, work, "ready-order", chunk=list(range(chunks)), src=[0] * chunks, op=[0] * chunks,
        dst=Ragged.single([1] * chunks), route=Ragged.single([link] * chunks), message=[0] * chunks,
        depends=Ragged.of([[]] * chunks),
    )  # fmt: skip


def test_every_byte_is_right_where_a_pair_has_several_connections():
    plan, threads = plan_of("alltoall"), Threads(5, subflows=1, lanes=2)
    try:
        outputs = threads.run(plan)
        assert [content.wrong_chunks(plan, outputs[v]) for v in outputs] == [[]] * 5
    finally:
        threads.close()


@pytest.fixture
def python(monkeypatch):
    """Programs run in Python's loop, though the process may have a compiled one."""
    monkeypatch.setattr(engine, "for_mesh", lambda mesh: None)


def received(plan: Plan) -> tuple[Mesh, socket.socket, bytes]:
    """The mesh of the receiver of one message, the sender's end, and the frame that brings the message."""
    ours, theirs = socket.socketpair()
    rows = range(plan.transfer_count)
    payload = b"".join(content.initial_bytes(plan, int(plan.chunk[k]), 0).tobytes() for k in rows)
    frame = encode(Kind.DATA, 1, 0, len(payload), NO_CALL, len(payload), 0, len(rows) - 1) + payload
    return Mesh(1, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 0)]), theirs, frame


@pytest.mark.parametrize("room", [HEADER.size, 100, 300, 1000])
def test_a_frame_of_several_chunks_may_come_in_pieces(python, room):
    plan = one_message(4)
    mesh, theirs, frame = received(plan)
    mesh.connections[0].read = memoryview(bytearray(room))
    theirs.sendall(frame + encode(Kind.DONE, 1))
    program = lower(plan)[1]
    outputs = content.outputs(plan, program.steps.wanted)
    execute(mesh, program, {}, outputs, timeout_s=5)
    assert content.wrong_chunks(plan, outputs) == []
    mesh.close()
    theirs.close()


@pytest.mark.parametrize(("came", "row"), [(0, 0), (99, 0), (150, 1), (399, 3)])
def test_a_peer_that_dies_amid_a_frame_of_several_chunks_is_named(came, row):
    plan = one_message(4)
    mesh, theirs, frame = received(plan)
    theirs.sendall(frame[: HEADER.size + came])
    theirs.close()
    program = lower(plan)[1]
    with pytest.raises(PeerFailed, match=rf"gpu0: it died \(Connection closed by peer\), in transfer {row} "):
        execute(mesh, program, {}, content.outputs(plan, program.steps.wanted), timeout_s=5)
    mesh.close()


@pytest.mark.parametrize(
    ("further", "length", "words"),
    [
        (3, 399, "399 bytes where 400 were due"),
        (4, 400, "which do(es)? not come from it"),
        (2, 400, "where 300 were due"),
    ],
)
def test_a_frame_of_other_chunks_than_are_due_is_refused(further, length, words):
    plan = one_message(4)
    mesh, theirs, _ = received(plan)
    theirs.sendall(encode(Kind.DATA, 1, 0, length, NO_CALL, length, 0, further) + bytes(length))
    program = lower(plan)[1]
    with pytest.raises(PeerFailed, match=words):
        execute(mesh, program, {}, content.outputs(plan, program.steps.wanted), timeout_s=5)
    mesh.close()
    theirs.close()


def test_all_chunks_of_a_message_are_sent_by_one_system_call(python, monkeypatch):
    plan, made = one_message(8), meshes([0, 1])
    c = made[0].connection(1, 0)
    parts, flush = [], c.flush
    monkeypatch.setattr(c, "flush", lambda: (parts.append(len(c.unsent)), flush()))
    program = lower(plan)[0]
    execute(made[0], program, content.inputs(plan, program.steps.held, 0), {})
    assert parts[0] == 1 + 8  # a header, and the bytes of each
    for mesh in made.values():
        mesh.close()


def test_sums_go_round_in_messages_of_several_chunks():
    net = load_topology("star:4?message=20us")
    plan = run_planner("rabenseifner", net, Workload((make_collective("allreduce", net, 10_007),)))
    assert message_count(plan) == 4 * 4 < plan.transfer_count
    assert run_local(plan).wrong == []


def test_a_paced_run_sends_a_message_in_its_time():
    plan = plan_of("allgather")
    line = simulate(plan)
    timed = replace(plan, sharing="timed", start_s=line.start_s, finish_s=line.finish_s)
    assert run_local(timed, pace=100.0).wrong == []


def test_a_sender_waits_for_all_chunks_of_its_message():
    """In the second step of an AllGather among four a message takes a chunk that its rank has, and one that has come."""
    net = load_topology("star:4?message=20us")
    plan = run_planner("rabenseifner", net, Workload((make_collective("allgather", net, 4_000),)))
    programs = lower(plan)
    for rank in range(4):
        assert programs[rank].sends.waits.tolist() == [0, 1, 1]


def test_a_program_knows_its_plan_as_it_was_given():
    """Those who ask how long a program takes simulate its plan: a message costs once there, whatever it carries."""
    plan = plan_of("allgather")
    program = lower(plan)[0]
    assert program.plan.digest() == plan.digest()
    recipe = Recipe(program, Cut.of(plan.workload.collectives[0]))
    assert expected(recipe).seconds == simulate(plan).completion_s

"""What happens when a process dies, stalls, lies or is not who it should be: an error that names it, and soon."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import struct
import threading
from functools import cache
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows import over_routers
from meshes import CREDENTIALS, meshes
from networks import ring
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.model.kinds import KINDS
from stretto.model.plan import Plan
from stretto.model.progress import silent
from stretto.planners import run_planner
from stretto.runtime import content, local
from stretto.runtime.connect import join, listen
from stretto.runtime.credentials import Credentials
from stretto.runtime.execute import execute
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.messages import Messages
from stretto.runtime.wire import HEADER, NO_CALL, Frame, Kind, Malformed, decode, encode
from worker import work

RANKS = 4
TIMEOUT_S = 20.0


@cache
def plans() -> list[Plan]:
    net = ring(RANKS)
    sizes = (64, 5000, 300_000)
    wanted = [make_collective(kind, net, size) for kind in KINDS for size in sizes]
    return [run_planner("shortest-path", net, Workload((c,))) for c in wanted]


@contextlib.contextmanager
def processes(timeout_s: float, moments: dict[int, int] | None = None):
    """Ranks that run collectives; some say when they begin the one that ``moments`` gives."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["worker"])
    pairs = [context.Pipe() for _ in range(RANKS)]
    children = [
        context.Process(target=work, args=(v, pairs[v][1], plans(), timeout_s, (moments or {}).get(v)), daemon=True)
        for v in range(RANKS)
    ]
    pipes = [ours for ours, _ in pairs]
    try:
        for child in children:
            child.start()
        ports = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send(ports)
        assert [pipe.recv() for pipe in pipes] == ["ready"] * RANKS
        yield children, pipes
    finally:
        for child in children:
            child.kill()
            child.join()


def reports(pipes, without: int, within_s: float) -> list:
    found = []
    for v, pipe in enumerate(pipes):
        if v != without:
            assert pipe.poll(within_s), f"rank {v} hangs"
            found.append(pipe.recv())
    return found


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_left_names_the_one_that_was_killed(seed):
    rng = random.Random(seed)
    victim = rng.randrange(RANKS)
    with processes(TIMEOUT_S, {victim: rng.randrange(100)}) as (children, pipes):
        assert pipes[victim].recv() == "now"
        os.kill(children[victim].pid, signal.SIGKILL)
        for peer, transfer, message, _ in reports(pipes, victim, TIMEOUT_S + 5):
            assert peer == f"gpu{victim}", message
            assert transfer is not None, message
            assert "transfer" in transfer


def test_whoever_waits_names_the_one_that_stalled():
    with processes(1.0) as (children, pipes):
        os.kill(children[2].pid, signal.SIGSTOP)
        for peer, transfer, message, _ in reports(pipes, 2, 8):
            assert peer == "gpu2", message
            assert "said nothing" in message
            assert transfer is not None, message


def test_a_thousand_collectives_in_a_row():
    with processes(20.0) as (_, pipes):
        assert reports(pipes, without=-1, within_s=120) == ["ended"] * RANKS


def test_a_wrong_secret_is_turned_away_and_both_sides_say_so():
    found = meshes([0, 1, 2], timeout_s=1.0, credentials={2: Credentials(bytes(32))})
    assert isinstance(found[2], PeerFailed)
    assert "secret" in str(found[2])
    assert found[0].peer == "node 2"
    assert "does not know the secret" in str(found[0])


def test_strangers_at_the_door_do_not_count():
    listeners = [listen(), listen()]
    addresses = {v: ("127.0.0.1", s.getsockname()[1]) for v, s in enumerate(listeners)}
    names = {0: "a", 1: "b"}
    strangers = [socket.create_connection(addresses[0]) for _ in range(5)]
    for i, s in enumerate(strangers[1:]):
        s.sendall(random.Random(i).randbytes(200))
    other = threading.Thread(target=lambda: join(1, listeners[1], addresses, names, CREDENTIALS, timeout_s=5).close())
    other.start()
    mesh = join(0, listeners[0], addresses, names, CREDENTIALS, timeout_s=5)
    other.join()
    assert list(mesh.peers) == [1]
    mesh.close()


@given(header=st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_bytes_of_a_header_are_a_frame_or_are_refused(header):
    try:
        frame = decode(header)
    except Malformed:
        return
    assert decode(encode(*frame)) == frame


FRAMES = st.builds(
    lambda frame, payload: encode(*frame) + payload,
    st.builds(
        Frame,
        st.sampled_from(Kind),
        st.integers(0, 3),
        st.integers(0, 8),
        st.sampled_from([0, 1, 99, 1000, 2**20, 2**31]),
        st.just(NO_CALL),
        st.sampled_from([0, 1, 99, 1000, 2**64 - 1]),
        st.sampled_from([0, 1, 96, 1000, 2**64 - 1]),
        st.sampled_from([0, 1, 2, 255]),
    ),
    st.binary(max_size=100),
)


@given(chunks=st.lists(st.one_of(FRAMES, st.binary(max_size=64)), max_size=8))
def test_whatever_a_peer_sends_it_is_at_fault_and_nothing_is_complete(chunks):
    net = ring(2)
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 2000),)))
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    program = lower(plan)[0]
    theirs.sendall(b"".join(chunks))
    theirs.close()
    with pytest.raises(PeerFailed) as caught:
        execute(mesh, program, content.inputs(plan, program.steps.held, 0), content.outputs(plan, [0, 1]), timeout_s=5)
    assert "transfer" in str(caught.value)
    with pytest.raises(PeerFailed):  # a mesh that failed serves no more
        execute(mesh, program, {}, {})
    mesh.close()


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "where a frame must begin"),
        (HEADER.pack(0x5C7E, 99, 1, 0, 0, NO_CALL, 0, 0), "unknown kind 99"),
        (encode(Kind.DATA, 1, 0, 2**21), "at most"),
        (encode(Kind.DATA, 1, 77, 4), "does not come from it"),
        (encode(Kind.PING, 1) + 2 * (encode(Kind.DATA, 1, 1, 1000, total=1000) + bytes(1000)), "or came before"),
        (encode(Kind.DATA, 1, 1, 1001), "where 1000 were due"),
        (encode(Kind.DATA, 1, 1, 500, offset=500), "for place 500, which are not due"),
        (encode(Kind.SIGNAL, 1, 5), "nothing here waits for"),
        (encode(Kind.DATA, 0, 1, 4), "of run 0 in run 1"),
        (encode(Kind.DATA, 2, 0, 4), "of run 2 in run 1"),
    ],
)
def test_messages_say_what_was_wrong_with_a_frame(frame, words):
    net = ring(2)
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 2000),)))
    program = lower(plan)[0]
    row = next(iter(program.steps.receives))
    if words == "where 1000 were due":
        frame = encode(Kind.DATA, 1, row, 1001)
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    theirs.sendall(frame + bytes(HEADER.size))
    with pytest.raises(PeerFailed, match=words) as caught:
        execute(mesh, program, content.inputs(plan, program.steps.held, 0), content.outputs(plan, [0, 1]), timeout_s=5)
    assert caught.value.peer == "gpu1"
    mesh.close()
    theirs.close()


@pytest.mark.parametrize("unread", [False, True])
def test_a_process_that_dies_before_it_reads_what_it_is_told_is_named(unread):
    (ours, theirs), (other, live) = multiprocessing.Pipe(), multiprocessing.Pipe()
    if not unread:
        theirs.close()
    local._tell({0: ours, 1: other}, "begin")
    assert live.recv() == "begin"
    theirs.close()  # with what it has not read the other end gets no plain end of file
    with pytest.raises(PeerFailed, match="gpu0: its process died"):
        local._gather(over_routers([2], 1000), {0: ours}, 20.0, silent, "sending")
    for pipe in (ours, other, live):
        pipe.close()


def two_subflows() -> tuple[Mesh, socket.socket, socket.socket]:
    """The mesh of node 1 with two connections to node 0, and node 0's ends of them."""
    (first, one), (second, other) = socket.socketpair(), socket.socketpair()
    return Mesh(1, {0: "gpu0", 1: "gpu1"}, [Connection(first, 0), Connection(second, 0, 1)]), one, other


@pytest.mark.parametrize("dead", [0, 1])
def test_a_peer_fails_if_one_of_its_subflows_does(dead):
    plan = over_routers([2, 3], 1000)
    mesh, *theirs = two_subflows()
    theirs[1 - dead].sendall(encode(Kind.DATA, 1, 1 - dead, 1000) + bytes(1000) + encode(Kind.DONE, 1))
    theirs[dead].close()
    with pytest.raises(PeerFailed, match=rf"gpu0: it died \(Connection closed by peer\), in transfer {dead}"):
        execute(mesh, lower(plan)[1], {}, content.outputs(plan, [0, 1]), timeout_s=5)
    theirs[1 - dead].close()
    mesh.close()


def test_a_subflow_may_end_before_another_one_does():
    chunks, size = 41, 100_000
    plan = over_routers([2] * (chunks - 1) + [3], size)
    frames = [encode(Kind.DATA, 1, row, size) + content.initial_bytes(plan, row, 0).tobytes() for row in range(chunks)]
    mesh, one, other = two_subflows()
    other.sendall(frames.pop() + encode(Kind.DONE, 1) + encode(Kind.BYE, 1))
    other.close()
    # more than a socket keeps, so most of it comes later
    sender = threading.Thread(target=lambda: one.sendall(b"".join(frames) + encode(Kind.DONE, 1)))
    sender.start()
    outputs = content.outputs(plan, list(range(chunks)))
    execute(mesh, lower(plan)[1], {}, outputs, timeout_s=5)
    sender.join()
    assert content.wrong_chunks(plan, outputs) == []
    mesh.close()
    one.close()


def test_a_row_comes_on_its_own_subflow():
    plan = over_routers([2, 3], 1000)
    mesh, one, _ = two_subflows()
    one.sendall(encode(Kind.DATA, 1, 1, 1000))
    with pytest.raises(PeerFailed, match="gpu0: it sent data of row 1, which does not come from it"):
        execute(mesh, lower(plan)[1], {}, content.outputs(plan, [0, 1]), timeout_s=5)
    mesh.close()
    one.close()


HEADS = st.builds(
    lambda word, tag, number, length, payload: struct.pack("!BxxxIqQQ", word, 0, tag, number, length) + payload,
    st.integers(0, 8),
    st.sampled_from([-3, -2, -1, 0, 7]),
    st.sampled_from([0, 1, 2**63]),
    st.sampled_from([0, 1, 20, 1000, 2**28, 2**40, 2**63]),
    st.binary(max_size=40),
)


@given(chunks=st.lists(st.one_of(HEADS, st.binary(max_size=64)), max_size=6))
def test_whatever_comes_instead_of_a_message_is_refused_or_ends_it(chunks):
    ours, theirs = socket.socketpair()
    into, told = bytearray(20), SimpleQueue()
    messages = Messages(ours, "rank 1", timeout_s=20.0)
    messages.receive(7, memoryview(into), told.put)
    with contextlib.suppress(BrokenPipeError):
        theirs.sendall(b"".join(chunks))
    theirs.close()
    failure = told.get(timeout=10)
    if failure is not None:
        assert isinstance(failure, PeerFailed)
        assert "rank 1" in str(failure)
    messages.close()


def test_a_message_that_a_live_peer_does_not_send_is_not_waited_for_for_ever():
    ours, theirs = socket.socketpair()
    told: SimpleQueue = SimpleQueue()
    mine, other = Messages(ours, "rank 1", timeout_s=1.0), Messages(theirs, "rank 0", timeout_s=1.0)
    mine.receive(7, memoryview(bytearray(20)), told.put)
    assert "rank 1: it is alive, but has not sent within the timeout of 1 s, in the message with tag 7" in str(
        told.get(timeout=20)
    )
    mine.close()
    other.close()


def test_a_peer_that_says_nothing_is_named_by_those_who_wait_for_its_message():
    ours, theirs = socket.socketpair()
    told: SimpleQueue = SimpleQueue()
    messages = Messages(ours, "rank 1", timeout_s=0.2)
    messages.receive(7, memoryview(bytearray(20)), told.put)
    assert "rank 1: it has said nothing for 0.1 s, in the message with tag 7" in str(told.get(timeout=20))
    messages.close()
    theirs.close()


def test_a_peer_that_takes_nothing_is_named_by_those_who_send_to_it():
    ours, theirs = socket.socketpair()
    told: SimpleQueue = SimpleQueue()
    messages = Messages(ours, "rank 1", timeout_s=0.2)
    messages.send(7, memoryview(bytearray(1 << 23)), told.put)
    assert "rank 1: it has taken nothing for 0.2 s" in str(told.get(timeout=20))
    messages.close()
    theirs.close()


def test_a_peer_that_closes_its_listener_when_it_is_let_in_is_not_taken_for_dead():
    from stretto.runtime import connect

    listener = listen()
    missed = connect._Missed({1: ("127.0.0.1", listener.getsockname()[1])}, {1: "rank 1"}, None)
    listener.close()
    missed._at = 0.0
    missed.look([(1, 0)], "")  # its last word may be on its way to who calls this
    missed._at = 0.0
    with pytest.raises(PeerFailed, match="rank 1: it died, or gave up, before it connected"):
        missed.look([(1, 0)], "")

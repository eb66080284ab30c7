"""Bytes that nobody can change on their way."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joined import both_ends
from meshes import Threads, wrong
from networks import ring
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, PeerFailed
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.channel import CODE_BYTES, RECORD_BYTES, Channel, Forged, Records
from stretto.runtime.credentials import Credentials, Protection, frames_of
from stretto.runtime.execute import execute
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.messages import Messages
from stretto.runtime.streams import stream
from tls_files import with_tls

KEYS = bytes(32), bytes(range(32))
AUTHENTICATED = Credentials(bytes(range(32)), frames=Protection.AUTHENTICATED)
PROTECTED = {"authenticated": AUTHENTICATED, "tls": with_tls()}
HAS_KEYS = sys.version_info >= (3, 13)
if HAS_KEYS:
    PROTECTED["encrypted"] = Credentials(bytes(range(32)), frames=Protection.ENCRYPTED)


def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    return Channel(ours, Records(*KEYS)), Channel(theirs, Records(*KEYS[::-1]))


def records(*contents: bytes) -> list[bytes]:
    """The records that an end sends, one for each content."""
    codec = Records(*KEYS)
    return [b"".join(codec.seal([memoryview(content)])) for content in contents]


def taken(sent: bytes) -> tuple[bytes, str]:
    """What the other end takes of these bytes, and its error."""
    ours, theirs = socket.socketpair()
    end, content = Channel(theirs, Records(*KEYS[::-1])), b""
    ours.sendall(sent)
    ours.close()
    try:
        while more := end.recv(100):
            content += more
    except Forged as error:
        return content, str(error)
    finally:
        end.close()
    return content, ""


ONE, TWO, THREE = b"one", b"the second", b"third"


@pytest.mark.parametrize(
    ("change", "comes"),
    [
        (lambda r: r, ONE + TWO + THREE),
        (lambda r: [r[0], r[1][:5] + b"?" + r[1][6:], r[2]], ONE),  # changed
        (lambda r: [r[0], r[1][:-1] + bytes([r[1][-1] ^ 1]), r[2]], ONE),  # its code is changed
        (lambda r: [r[0], r[2]], ONE),  # one is left out
        (lambda r: [r[0], r[0], r[1], r[2]], ONE),  # one is repeated
        (lambda r: [r[1], r[0], r[2]], b""),  # out of order
        (lambda r: [r[0], bytes(4), r[1], r[2]], ONE),  # a record of nothing
        (lambda r: [r[0], b"\xff\xff\xff\xff" + r[1][4:], r[2]], ONE),  # a huge length
        (lambda r: [r[0], (len(TWO) - 1).to_bytes(4, "big") + r[1][4:], r[2]], ONE),  # a length that is too small
    ],
)
def test_a_record_that_was_changed_left_out_repeated_or_moved_is_refused(change, comes):
    sent = records(ONE, TWO, THREE)
    content, error = taken(b"".join(change(list(sent))))
    assert content == comes
    assert bool(error) == (comes != ONE + TWO + THREE)
    assert not error or error.startswith("a record")


def test_records_of_the_other_direction_or_of_another_connection_are_refused():
    back = Records(*KEYS[::-1])
    assert taken(b"".join(back.seal([memoryview(ONE)])))[1]
    assert taken(b"".join(Records(KEYS[1], KEYS[1]).seal([memoryview(ONE)])))[1]


@pytest.mark.parametrize("kept", [3, 10, 25, 30])
def test_nothing_of_a_record_that_was_cut_is_taken(kept):
    sent = b"".join(records(ONE, TWO))
    whole = len(records(ONE)[0])
    assert taken(sent[:kept]) == (ONE if kept >= whole else b"", "")


@given(st.lists(st.binary(max_size=300_000), min_size=1, max_size=6), st.integers(1, 200_000), st.booleans())
@settings(max_examples=20, deadline=None)
def test_all_bytes_come_in_order_through_small_and_large_buffers(parts, room, blocking):
    ours, theirs = pair()
    for end in (ours, theirs):
        end.setblocking(blocking)
    text, buffer, came = b"".join(parts), bytearray(room), bytearray()

    def send() -> None:
        rest = [memoryview(part) for part in parts if part]
        while rest:
            try:
                sent = ours.sendmsg(rest)
            except BlockingIOError:
                continue
            while sent:
                step = min(sent, len(rest[0]))
                sent, rest[0] = sent - step, rest[0][step:]
                if not len(rest[0]):
                    rest.pop(0)

    sender = threading.Thread(target=send)
    sender.start()
    while len(came) < len(text):
        with contextlib.suppress(BlockingIOError):
            came += buffer[: theirs.recv_into(buffer)]
    sender.join()
    assert came == text
    assert not theirs.pending
    ours.close()
    theirs.close()


def test_nothing_is_handed_on_before_its_code_has_come():
    ours, theirs = socket.socketpair()
    end = Channel(theirs, Records(*KEYS[::-1]))
    end.setblocking(False)
    whole = records(bytes(RECORD_BYTES))[0]
    ours.settimeout(0.0)
    sent, came, buffer = 0, b"", bytearray(1 << 17)
    while sent < len(whole):
        with contextlib.suppress(BlockingIOError):
            sent += ours.send(whole[sent : len(whole) - 1] or whole[sent:])
        if sent < len(whole):
            with pytest.raises(BlockingIOError):
                end.recv_into(buffer)
    assert end.recv_into(buffer) == RECORD_BYTES
    assert came == b"" and not any(buffer) and len(whole) == RECORD_BYTES + 4 + CODE_BYTES
    ours.close()
    end.close()


@pytest.fixture(scope="module", params=PROTECTED)
def protected(request):
    threads = Threads(3, 2, PROTECTED[request.param], lanes=2)
    assert all(isinstance(c.sock, Channel) for c in threads.meshes[0].connections)
    yield threads
    threads.close()


@pytest.mark.parametrize(("kind", "size"), [("allreduce", 4_000_000), ("alltoall", 3_000_000), ("allgather", 999),
                                            ("reducescatter", 2_000_001)])  # fmt: skip
def test_plans_run_over_protected_connections(protected, kind, size):
    net = ring(3)
    plan = run_planner("shortest-path", net, Workload((make_collective(kind, net, size),)))
    for seed in range(2):
        assert wrong(plan, protected.run(plan, seed), seed) == []
    assert wrong(plan, protected.run(plan, 2, pace=1e-3), 2) == []


@pytest.mark.skipif(HAS_KEYS, reason="this Python has TLS without certificates")
def test_tls_without_certificates_is_refused_where_python_has_none():
    with pytest.raises(InputError, match=r"STRETTO_FRAMES: `encrypted` needs Python 3\.13, and this one is 3"):
        frames_of("encrypted", "STRETTO_FRAMES")


@pytest.mark.skipif(not HAS_KEYS, reason="TLS without certificates needs Python 3.13")
@pytest.mark.parametrize("chosen", [False, True])
def test_ends_that_have_a_secret_speak_tls_without_certificates(chosen):
    credentials = Credentials(b"correct horse battery staple of 32 bytes", chosen, frames=frames_of("encrypted", ""))
    ends = both_ends(credentials, credentials)
    assert [end.codec.tls.version() for end in ends] == ["TLSv1.3"] * 2
    for end in ends:
        end.close()


def test_a_man_in_the_middle_who_changes_a_frame_ends_the_run_and_is_seen():
    size, seen = 400_000, []

    def between(near: socket.socket, far: socket.socket) -> None:
        def pass_on(source: socket.socket, to: socket.socket) -> None:
            passed = 0
            with contextlib.suppress(OSError):
                while content := bytearray(source.recv(1 << 16)):
                    passed += len(content)
                    if source is near and passed > size // 2 and not seen:
                        content[len(content) // 2] ^= 1
                        seen.append(passed)
                    to.sendall(content)
            for end in (source, to):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        back = threading.Thread(target=pass_on, args=(far, near))
        back.start()
        pass_on(near, far)
        back.join()

    caller, host = both_ends(AUTHENTICATED, AUTHENTICATED, between)
    net = ring(2)
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 2 * size),)))
    names = {0: "rank 0", 1: "rank 1"}

    def one(node: int, end: Channel) -> PeerFailed | None:
        mesh, program = Mesh(node, names, [Connection(end, 1 - node)]), lower(plan)[node]
        try:
            execute(
                mesh,
                program,
                content.inputs(plan, program.steps.held, node),
                content.outputs(plan, [0, 1]),
                timeout_s=10,
            )
        except PeerFailed as failure:
            return failure
        finally:
            mesh.close()

    with ThreadPoolExecutor(2) as pool:
        failures = list(pool.map(one, range(2), (host, caller)))
    assert seen
    assert "rank 1: the connection broke (a record was changed on its way" in str(failures[0])


@pytest.mark.parametrize("kind", PROTECTED)
def test_messages_go_both_ways_at_once_over_protected_connections(kind):
    ends = both_ends(PROTECTED[kind], PROTECTED[kind])
    one, other = (Messages(end, f"rank {i}", timeout_s=20.0) for i, end in enumerate(ends))
    told: SimpleQueue = SimpleQueue()
    count, size = 4, 700_000
    texts = [np.random.default_rng(i).bytes(size) for i in range(count)]
    places = [[bytearray(size) for _ in range(count)] for _ in range(2)]
    for i, text in enumerate(texts):
        for end, place in ((one, places[0]), (other, places[1])):
            end.send(i, memoryview(text), told.put)
            end.receive(i, memoryview(place[i]), told.put)
    assert [told.get(timeout=20) for _ in range(4 * count)] == [None] * 4 * count
    assert [bytes(place) for place in places[0]] == texts == [bytes(place) for place in places[1]]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Messages.close, (one, other)))


@pytest.mark.parametrize("kind", PROTECTED)
def test_networks_are_measured_over_protected_connections(kind):
    """Twice in a row: what comes early, for the second time, is not lost."""
    caller, host = both_ends(PROTECTED[kind], PROTECTED[kind])

    def one(sends: bool, end: Channel) -> int:
        ends, came = {(1, 0): end}, 0
        for _ in range(2):
            outgoing, incoming = (ends, {}) if sends else ({}, ends)
            names = {(1, 0): "the other"}
            arrivals = stream(outgoing, incoming, seconds=0.05, most_bytes=1 << 20, timeout_s=20.0, names=names)
            came += sum(arrival.total_bytes for arrival in arrivals.values())
            sends = not sends
        return came

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, (True, False), (caller, host))) == [1 << 20, 1 << 20]
    caller.close()
    host.close()

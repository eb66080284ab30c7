"""A transfer keeps its rate: by the kernel while it is alone on its connection, by a token bucket elsewhere."""

from __future__ import annotations

import math
import socket
import struct
import threading
import time

import pytest

from stretto.runtime.pacing import LEAST_SEGMENT, WORTH_BYTES, Outgoing, Queue, paces
from stretto.runtime.wire import SEGMENT_BYTES

RATE = 1_000_000.0
PACING_RATE = 47


@pytest.fixture
def pair():
    """The ends of a TCP connection whose segments are as small as those of a network."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as ours:
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
        with theirs:
            for end in (ours, theirs):
                end.settimeout(20)
            yield ours, theirs


def limit(sock: socket.socket) -> float:
    number = struct.unpack("I", sock.getsockopt(socket.SOL_SOCKET, PACING_RATE, 4))[0]
    return math.inf if number == 0xFFFFFFFF else number


def transfer(row: int, size: int = 1 << 20) -> Outgoing:
    return Outgoing(row, memoryview(bytes(size)), RATE, 0.0, 0.0)


def test_the_kernel_paces_tcp_with_small_segments_only(pair):
    assert paces(pair[0])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not paces(ours)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as large:
        assert not paces(large)


def test_a_transfer_alone_is_left_to_the_kernel_and_two_are_not(pair):
    queue = Queue(False, pair[0])
    first, second = transfer(0), transfer(1)
    queue.waiting.append(first)
    assert queue.next(0.0) is not None and limit(pair[0]) == RATE
    assert first.next_at == 0.0  # the next piece need not wait here
    queue.waiting.append(second)
    assert queue.next(0.0) is not None and limit(pair[0]) == math.inf
    assert first.next_at > 0.0 == second.next_at
    for out in (first, second):
        out.left = out.left[:1]
    while queue.next(1e9):
        pass
    assert limit(pair[0]) == math.inf


def test_without_the_kernel_a_bucket_says_when_the_next_piece_may_go():
    queue, out = Queue(False), transfer(0, 3 * LEAST_SEGMENT)
    queue.waiting.append(out)
    now, sent = 0.0, 0
    while found := queue.next(now):
        sent += len(found[1])
        assert sent <= RATE * now + 2 * LEAST_SEGMENT
        now = queue.wake_at if math.isfinite(queue.wake_at) else out.next_at
    assert sent == 3 * LEAST_SEGMENT


def test_a_short_transfer_is_not_left_to_the_kernel(pair):
    queue, out = Queue(False, pair[0]), transfer(0, WORTH_BYTES - 1)
    queue.waiting.append(out)
    assert queue.next(0.0) is not None and limit(pair[0]) == math.inf
    assert out.next_at > 0.0


def test_an_unpaced_transfer_goes_as_fast_as_it_can(pair):
    queue = Queue(False, pair[0])
    queue.waiting.append(Outgoing(0, memoryview(bytes(2 * SEGMENT_BYTES)), math.inf, 0.0, 0.0))
    found = queue.next(0.0)
    assert found is not None and len(found[1]) == SEGMENT_BYTES and limit(pair[0]) == math.inf


def test_the_kernel_keeps_the_rate_that_it_is_told(pair):
    queue, out = Queue(False, pair[0]), transfer(0, 300_000)
    queue.waiting.append(out)

    def send() -> None:
        while (found := queue.next(0.0)) is not None:
            pair[0].sendall(found[1])
            if out.finished:
                return  # the limit stays for what is on its way

    began, got = time.monotonic(), 0
    sender = threading.Thread(target=send)
    sender.start()
    while got < 300_000:
        got += len(pair[1].recv(1 << 16))
    sender.join()
    assert time.monotonic() - began > 0.5 * 300_000 / RATE

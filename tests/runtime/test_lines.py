"""All groups of a process share connections for messages, and one thread serves them."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import SimpleQueue

import pytest

from stretto.model.errors import PeerFailed
from stretto.runtime import message_frames, messages, sharing, switchboard
from stretto.runtime.lines import Line
from stretto.runtime.messages import Messages

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

RANKS, GROUPS = 3, 3


def members(store, prefix: str, timeout_s: float = 60.0) -> list:
    from stretto.torch.group import StrettoGroup

    own = torch.distributed.PrefixStore(prefix, store)
    everyone = list(range(RANKS))
    return [StrettoGroup(own, rank, RANKS, everyone, timedelta(seconds=timeout_s)) for rank in everyone]


def each(call, groups) -> list:
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(call, groups))


@contextmanager
def world(monkeypatch, groups: int, timeout_s: float = 60.0):
    """Groups of the same ranks in one store."""
    monkeypatch.setenv("STRETTO_TOPOLOGY", f"fullmesh:{RANKS}")
    monkeypatch.setattr(sharing, "_RANKS", {})
    store = torch.distributed.HashStore()
    made = [members(store, str(i), timeout_s) for i in range(groups)]
    try:
        for group in made:
            each(lambda g: g._links.connect(), group)
        yield made
    finally:
        each(lambda g: g.abort(), [g for group in made for g in group])


def lines_of(group) -> set:
    return {stream.line for stream in group._links.everyone().values()}


def socket_count() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


def exchange(one, other, value: float) -> None:
    got = torch.zeros(4)
    came = other.recv([got], 0, 1)
    one.send([torch.full((4,), value)], 1, 1).wait(timedelta(seconds=30))
    came.wait(timedelta(seconds=30))
    assert got.tolist() == [value] * 4


@pytest.mark.parametrize("shares", [False, True])
def test_messages_of_all_groups_have_one_thread_and_one_connection_a_pair(shares, monkeypatch):
    from stretto.torch import links

    if shares:
        monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    else:
        monkeypatch.setattr(links, "hold", lambda: None)  # Python's loop shares nothing
    before, sockets = set(threading.enumerate()), socket_count()
    with world(monkeypatch, GROUPS) as groups:
        pairs = RANKS * (RANKS - 1)
        # at both ends of each pair one of each group's collectives, or one of all collectives, and one of all messages;
        # and the thread's own two
        assert socket_count() - sockets == pairs * ((1 if shares else GROUPS) + 1) + 2
        for rank in range(RANKS):
            assert len({line for group in groups for line in lines_of(group[rank])}) == RANKS - 1
        kinds = {type(group[rank]._links.mesh()).__name__ for group in groups for rank in range(RANKS)}
        assert kinds == {"SharedMesh" if shares else "Mesh"}
        of_messages = [t for t in set(threading.enumerate()) - before if t.name == "stretto-messages"]
        assert len(of_messages) == 1
        for i, group in enumerate(groups):
            exchange(group[0], group[1], float(i))
    assert not any(t.name == "stretto-messages" and t.is_alive() for t in set(threading.enumerate()) - before)
    assert socket_count() <= sockets
    assert not any(shared._lines for shared in sharing._RANKS.values())


@pytest.mark.parametrize("count", [1, 4])
def test_more_groups_need_no_more_threads_and_no_more_connections(count, monkeypatch):
    from stretto.torch import pending

    monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    monkeypatch.setattr(pending, "IDLE_S", 0.0)
    before, sockets = set(threading.enumerate()), socket_count()
    with world(monkeypatch, count) as groups:
        assert socket_count() - sockets == 2 * RANKS * (RANKS - 1) + 2  # collectives and messages; the thread's own two
        for group in groups:
            tensors = [torch.full((100,), float(rank)) for rank in range(RANKS)]
            for work in [g.allreduce([t]) for g, t in zip(group, tensors, strict=True)]:
                work.wait(timedelta(seconds=30))
            assert all(t.tolist() == [3.0] * 100 for t in tensors)
        for thread in set(threading.enumerate()) - before:
            if thread.name in {f"stretto-{rank}" for rank in range(RANKS)}:  # connects and plans, and has ended then
                thread.join(30)
        threads = threading.enumerate()
        assert [t.name for t in set(threads) - before if t.name != "stretto"] == ["stretto-messages"]
        assert sum(t.name == "stretto" for t in threads) == 1  # the process's own, which an earlier test may have begun


def test_worlds_share_nothing(monkeypatch):
    with world(monkeypatch, 1) as (one,), world(monkeypatch, 1) as (other,):
        assert not lines_of(one[0]) & lines_of(other[0])


def test_a_group_that_receives_nothing_holds_up_no_other_one(monkeypatch):
    monkeypatch.setattr(messages, "MOST_EARLY", 1 << 20)
    monkeypatch.setattr(message_frames, "PIECE_BYTES", 1 << 14)
    with world(monkeypatch, 2) as (stuck, free):
        many = [stuck[0].send([torch.full((50_000,), float(i))], 1, i) for i in range(20)]  # 4 MB, of which 1 is kept
        for i in range(5):
            exchange(free[0], free[1], float(i))
        assert not many[-1].is_completed()
        got = torch.zeros(50_000)
        for i in reversed(range(20)):
            stuck[1].recv([got], 0, i).wait(timedelta(seconds=30))
            assert (got == i).all()
        for work in many:
            work.wait(timedelta(seconds=30))


def test_a_group_that_ends_in_the_middle_of_a_message_leaves_the_others_alone(monkeypatch):
    monkeypatch.setattr(message_frames, "PIECE_BYTES", 1 << 14)
    with world(monkeypatch, 2) as (ends, stays):
        got = torch.zeros(1 << 24)  # 4096 pieces, so that the group ends before
        waits = ends[1].recv([got], 0, 7)
        sent = ends[0].send([torch.ones(1 << 24)], 1, 7)
        ends[1].abort()
        with pytest.raises(PeerFailed, match="the group was destroyed"):
            waits.wait(timedelta(seconds=30))
        exchange(stays[0], stays[1], 3.0)
        with pytest.raises(PeerFailed, match="it died, or left the group"):
            ends[0].recv([got], 1, 8).wait(timedelta(seconds=30))
        assert sent is not None
        exchange(stays[0], stays[1], 4.0)


def test_a_connection_that_ends_is_told_to_all_groups(monkeypatch):
    with world(monkeypatch, 2) as groups:
        waits = [group[0].recv([torch.zeros(1)], 1, 5) for group in groups]
        (line,) = {group[1]._links.everyone()[0].line for group in groups}
        line.connection.sock.shutdown(2)
        for work in waits:
            with pytest.raises(PeerFailed, match="rank 1: it died, or left the group"):
                work.wait(timedelta(seconds=30))


def test_a_receive_takes_the_rest_of_a_message_that_is_arriving(monkeypatch):
    """The bytes that came before it was asked for are copied, the others go to their place."""
    monkeypatch.setattr(message_frames, "PIECE_BYTES", 10)
    ours, theirs = socket.socketpair()
    text, into, told = bytes(range(35)), bytearray(35), SimpleQueue()
    stream = messages.Messages(ours, "rank 1", timeout_s=60.0)
    head = message_frames.HEAD
    word = message_frames.Word
    theirs.sendall(head.pack(word.MESSAGE, 0, 7, 0, 35) + text[:10])
    while not stream.inbox.early:
        threading.Event().wait(0.001)
    stream.receive(7, memoryview(into), told.put)
    for at in (10, 20, 30):
        theirs.sendall(head.pack(word.PART, 0, 0, 0, len(text[at : at + 10])) + text[at : at + 10])
    assert told.get(timeout=30) is None and bytes(into) == text
    stream.close()
    theirs.close()


def test_a_group_may_be_left_in_the_thread_of_the_messages():
    ours, theirs = socket.socketpair()
    stream, left = Messages(ours, "rank 1", timeout_s=20.0), threading.Event()

    def collected() -> None:
        with stream.inbox.lock:  # as where memory runs short while the thread looks for a receive
            stream.leave()
        left.set()

    assert stream.line.board is not None
    stream.line.board.call(collected)
    assert left.wait(10)
    theirs.close()


def test_a_group_may_be_collected_in_the_thread_of_the_messages(monkeypatch):
    with world(monkeypatch, 2) as (ends, stays):
        called, begins, heard = threading.Event(), threading.Event(), SimpleQueue()
        monkeypatch.setattr("stretto.torch.leaving.GRACE_S", 30.0)

        def job() -> None:  # of the group's own thread, for whose end a group that is left waits
            begins.set()
            heard.put(called.wait(10))

        ends[0]._order.later(job, None)
        assert begins.wait(30)
        board = switchboard._BOARD
        assert board is not None
        board.call(ends[0]._leave)
        board.call(called.set)
        assert heard.get(timeout=30), "all messages wait for the group's thread"
        exchange(stays[0], stays[1], 5.0)
        with pytest.raises(PeerFailed, match="it died, or left the group"):
            ends[1].recv([torch.zeros(1)], 0, 8).wait(timedelta(seconds=30))


def test_a_callback_that_raises_an_exception_keeps_no_message_from_others(capfd):
    ours, theirs = socket.socketpair()
    stream, into, told = Messages(ours, "rank 1", timeout_s=20.0), bytearray(4), SimpleQueue()

    def raises(failure: PeerFailed | None) -> None:
        raise ValueError("a mistake of the caller")

    stream.receive(1, memoryview(bytearray(4)), raises)
    stream.receive(2, memoryview(into), told.put)
    head, word = message_frames.HEAD, message_frames.Word
    theirs.sendall(b"".join(head.pack(word.MESSAGE, 0, tag, 0, 4) + b"four" for tag in (1, 2)))
    assert told.get(timeout=10) is None and into == b"four"
    assert "a mistake of the caller" in capfd.readouterr().err
    stream.close()
    theirs.close()


def test_a_thread_that_ends_has_let_the_last_line_go(monkeypatch):
    monkeypatch.setattr(switchboard, "END_S", 0.2)
    board = switchboard.Switchboard()

    class AtOnce(switchboard.Switchboard):
        """Its thread ends as soon as it may."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "closed" and value:
                self._tell.send(b"\0")
                self._thread.join(10)

    monkeypatch.setattr(switchboard, "_BOARD", board)
    board.__class__ = AtOnce
    ours, theirs = socket.socketpair()
    line, serves = Line(ours), threading.Event()
    switchboard.switchboard_with(line)
    board.call(serves.set)
    assert serves.wait(10)
    board.remove(line)
    assert not board._watched
    ours.close()
    theirs.close()


def test_a_message_that_can_no_longer_be_sent_when_it_is_pulled_has_failed():
    ours, theirs = socket.socketpair()
    stream, told = Messages(ours, "rank 1", timeout_s=20.0), []
    stream.credit = 0
    stream.send(3, memoryview(bytearray(9)), told.append)
    stream.line.detach(stream.number)  # another thread ends the stream, while this one has read the answer
    stream.begin(message_frames.Word.PULL, 0, 1, 0)
    assert [str(failure) for failure in told] == [
        "rank 1: it died, or left the group, in the message with tag 3 to rank 1"
    ]
    stream.leave()
    theirs.close()


def test_what_a_peer_got_before_it_left_has_been_sent():
    ours, theirs = socket.socketpair()
    stream, peer = (Messages(sock, name, timeout_s=20.0) for sock, name in ((ours, "rank 1"), (theirs, "rank 0")))
    arrived, told = threading.Event(), SimpleQueue()
    peer.receive(3, memoryview(bytearray(9)), lambda failure: arrived.set())
    connection, ended = stream.line.connection, threading.Event()
    flush = connection.flush

    def flush_and_sleep() -> None:
        flush()
        if threading.current_thread() is sending:
            ended.wait(20)  # as a thread does that gets no processor

    connection.flush = flush_and_sleep
    sending = threading.Thread(target=stream.send, args=(3, memoryview(bytearray(9)), told.put))
    sending.start()
    assert arrived.wait(20)
    peer.leave()
    while stream.line.failure is None:
        time.sleep(0.01)
    ended.set()
    sending.join(20)
    assert told.get(timeout=20) is None and told.empty()
    stream.leave()

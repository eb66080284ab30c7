"""Connections for messages, one a pair of processes: all groups share them, and one thread serves all of a process.

Groups are *streams* of a line. Frames of several streams take turns on it, with at most ``PIECE_BYTES`` of a message,
so a long message of one group delays those of others by no more than a piece. The thread always reads: where a message
goes, its stream says at once (:mod:`.messages` keeps no more than it has allowed the peer to send). So a group that
receives nothing holds up no other one. A thread that sends tries the socket itself; what the kernel does not take, the
line's thread sends.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ..model.errors import PeerFailed
from . import message_frames
from .channel import Forged, Wire
from .inbox import Done
from .mesh import GRACE_S, LINGER_S, LOOK_S, READ_BYTES, Connection
from .message_frames import GONE, HEAD, LIMIT, Item, Stream, Word
from .reach import Reach
from .sockets import on_the_way
from .switchboard import Switchboard, switchboard_with
from .telling import beside

BATCH_BYTES = 1 << 18
"""Frames are collected up to this number of bytes, then sent by one system call."""
READS_AT_ONCE = 8
PING = 1 / 8
"""Part of the shortest timeout of a line's streams: the time between two pings, and between two looks at what waits."""
LEFT = "it died, or left the group"


class Line:
    """One connection of a process with another one.

    Args:
        sock: a connected socket, used for nothing else.
    Attributes:
        users: how many groups have the line, or are about to; its maker is one.
        failure: why it has ended.
        closed: called when it has been closed.
        reach: by stream, what looks after the path to the peer.
    """

    def __init__(self, sock: Wire) -> None:
        self.connection = Connection(sock, 0)
        self.users = 1
        self.closed: Callable[[], None] = _nothing
        self.failure: str | None = None
        self.streams: dict[int, Stream] = {}
        self.reach: dict[Stream, Reach] = {}
        self.heard_at = self.look_at = time.monotonic()
        self._moved = 0, self.heard_at  # the bytes that the kernel has taken, and since when no more, though some wait
        # reentrant: Python may collect a group, which leaves the line, while the thread has it
        self._lock, self._sending = threading.RLock(), threading.Lock()
        self._queues: dict[Stream, deque[Item]] = {}
        self._turns: deque[Stream] = deque()
        self._begun: dict[Stream, int] = {}  # bytes that have been sent of the first item
        self._under_way: deque[tuple[int, Stream, Item]] = deque()
        self._reading: Stream | None = None
        self._nowhere = memoryview(b"")
        self._said = False
        self._sent = threading.Condition(self._lock)
        self.board: Switchboard | None = None

    # --- streams ----------------------------------------------------------------------------------

    def attach(self, number: int, stream: Stream) -> None:
        """Hand frames of a number to a stream. Before the first one nothing is read."""
        with self._lock:
            failure, board = self.failure, self.board
            self._queues[stream] = deque()
            self.streams[number] = stream
            if board is None:
                self.board = switchboard_with(self)
        if failure is not None:
            stream.ended(PeerFailed(stream.name, failure))
        if board is not None:
            board.look_soon(self)

    def watch(self, stream: Stream, reach: Reach) -> None:
        """Look after the path to the peer while a stream is there."""
        self.reach[stream] = reach
        self._call(lambda board: board.look_soon(self))

    def _call(self, call: Callable[[Switchboard], None]) -> None:
        if self.board is not None:
            call(self.board)

    def detach(self, number: int) -> list[Item]:
        """Tell the peer that a stream has left, and drop its frames from now on.

        What is being sent ends, since other streams come after it.

        Returns:
            What had not begun, and is not sent.
        """
        with self._lock:
            stream = self.streams.pop(number, None)
            if stream is None or self.failure is not None:
                return []
            self.reach.pop(stream, None)
            queue = self._queues.pop(stream)
            begun = bool(self._begun.get(stream))
            dropped = list(queue)[begun:]
            self._queues[stream] = deque([*list(queue)[:begun], Item(Word.LEAVE, 0, 0, 0, memoryview(b""), _ignore)])
            if stream not in self._turns:
                self._turns.append(stream)
        self._call(lambda board: board.call(partial(self._turn_away, stream)))
        self.push()
        return dropped

    def _turn_away(self, stream: Stream) -> None:
        """Put no more bytes where a stream wanted them. In the line's thread."""
        if self._reading is stream:
            self._reading, self.connection.target = GONE, self._drain(len(self.connection.target))

    def _drain(self, count: int) -> memoryview:
        """Where bytes go that nobody wants."""
        if not len(self._nowhere):
            self._nowhere = memoryview(bytearray(message_frames.PIECE_BYTES))
        return self._nowhere[:count]

    def hold(self) -> bool:
        """Keep the line for another group; False if it has ended."""
        with self._lock:
            if self.failure is not None or self.users == 0:
                return False
            self.users += 1
            return True

    def release(self, lingers: bool = True) -> None:
        """One group has the line no more. The last one closes it, when all that was sent has come if it ``lingers``."""
        with self._lock:
            self.users -= 1
            if self.users:
                return
        sock = self.connection.sock
        if lingers:
            self.wait_sent(None, GRACE_S)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_S
        while lingers and self.failure is None and on_the_way(sock) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        self._call(lambda board: board.remove(self))
        self._end(LEFT)
        sock.close()
        self.closed()

    # --- sending ----------------------------------------------------------------------------------

    def queue(self, stream: Stream, item: Item) -> bool:
        """Send something after what the stream is sending; call :meth:`push` then. False where nothing is sent any
        more."""
        with self._lock:
            if self.failure is not None or stream not in self._queues:
                return False
            if not self._queues[stream] and stream not in self._turns:
                self._turns.append(stream)
            self._queues[stream].append(item)
            return True

    def push(self) -> None:
        """Send what the kernel takes now; the line's thread sends the rest."""
        c, sent = self.connection, []
        while self._sending.acquire(blocking=False):
            try:
                while True:
                    with self._lock:
                        while c.unsent_bytes < BATCH_BYTES and self._collect():
                            pass
                    if not c.unsent or c.broken:
                        break
                    c.flush()
                    sent += self._take_sent()
                    if c.unsent:
                        break
            finally:
                self._sending.release()
            if c.unsent or c.broken or not self._turns:
                break  # else another thread has found this one sending
        if c.unsent or c.broken:
            self._call(lambda board: board.watch(self))
        self._tell_sent(sent)
        if self.failure is not None:
            self._settle()  # what this thread was sending when another one found the line's end

    def _take_sent(self) -> list[Item]:
        """Take out what the kernel has of what is under way. Only for who has the right to send."""
        sent = []
        with self._lock:
            while self._under_way and self._under_way[0][0] <= self.connection.sent_bytes:
                sent.append(self._under_way.popleft()[2])
        return sent

    def _tell_sent(self, sent: list[Item]) -> None:
        for item in sent:
            item.done(None)
        if sent:
            with self._sent:
                self._sent.notify_all()

    def _settle(self) -> None:
        """Tell who waits for what was under way when the line ended.

        A peer that leaves may have got all of it before the thread that sent it comes to say so, which is no failure.
        So while a thread sends, it alone knows, and does this afterwards.
        """
        if not self._sending.acquire(blocking=False):
            return
        try:
            sent = self._take_sent()
            with self._lock:
                unsent, why = list(self._under_way), self.failure or LEFT
                self._under_way.clear()
        finally:
            self._sending.release()
        self._tell_sent(sent)
        if unsent:
            beside(partial(_fail_all, [(item.done, PeerFailed(s.name, why)) for _, s, item in unsent]))

    def _collect(self) -> bool:
        """Queue the next frame of the stream whose turn it is; False if there is none."""
        if not self._turns:
            return False
        stream = self._turns.popleft()
        queue, at = self._queues[stream], self._begun.get(stream, 0)
        item = queue[0]
        piece = item.payload[at : at + message_frames.PIECE_BYTES]
        if at == 0:
            head = HEAD.pack(item.word, stream.peer_number, item.tag, item.number, item.length)
        else:
            head = HEAD.pack(Word.PART, stream.peer_number, 0, 0, len(piece))
        self.connection.queue(head, piece)
        self._said = True
        if at + len(piece) < len(item.payload):
            self._begun[stream] = at + len(piece)
        else:
            self._begun.pop(stream, None)
            queue.popleft()
            self._under_way.append((self.connection.sent_bytes + self.connection.unsent_bytes, stream, item))
        if queue:
            self._turns.append(stream)
        elif stream not in self.streams.values():
            del self._queues[stream]  # it has left
        return True

    def wait_sent(self, stream: Stream | None, within_s: float) -> None:
        """Wait until the kernel has all that a stream sends (or all streams), or for a time."""

        def is_sent() -> bool:
            of = [*self._turns, *(s for _, s, _ in self._under_way)]
            return self.failure is not None or not (of if stream is None else stream in of)

        with self._sent:
            self._sent.wait_for(is_sent, within_s)

    # --- the line's thread ------------------------------------------------------------------------

    def read(self) -> None:
        """Read what has come, ``READS_AT_ONCE`` times at most."""
        c = self.connection
        for _ in range(READS_AT_ONCE):
            if self.failure is not None:
                return
            try:
                count = c.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(str(error) if isinstance(error, Forged) else LEFT)
                return
            if count == 0:
                self._end(LEFT)
                return
            self.heard_at = time.monotonic()
            self._look()
            if count < READ_BYTES and not c.pending:  # the kernel had no more
                return
        self._call(lambda board: board.again(self))

    def _look(self) -> None:
        """Handle what has been read."""
        c = self.connection
        while self.failure is None:
            if self._reading is not None:
                piece = c.read[c.at : min(c.end, c.at + len(c.target))]
                c.target[: len(piece)] = piece
                c.target, c.at = c.target[len(piece) :], c.at + len(piece)
                if len(c.target):
                    return
                stream, self._reading = self._reading, None
                _end_frame(stream)
            elif c.end - c.at >= HEAD.size:
                word, to, tag, number, length = HEAD.unpack_from(c.read, c.at)
                c.at += HEAD.size
                if word not in LIMIT or length > LIMIT[Word(word)]:
                    self._end(f"it sent a message of {length} bytes with tag {tag} and kind {word}")
                    return
                self._take(Word(word), self.streams.get(to), tag, number, length)
            else:
                return

    def _take(self, word: Word, stream: Stream | None, tag: int, number: int, length: int) -> None:
        """Handle a frame whose head has been read."""
        if word is Word.PING:
            return
        follows = 0 if word is Word.ANNOUNCE else min(length, message_frames.PIECE_BYTES)
        stream = stream or GONE
        target = stream.begin(word, tag, number, length)[:follows]
        if len(target) < follows:  # nobody wants it
            stream, target = GONE, self._drain(follows)
        if follows:
            self._reading, self.connection.target = stream, target
        else:
            _end_frame(stream)

    def look(self) -> float:
        """Say that this process is alive, and look at what waits; returns the seconds until the next look."""
        with self._lock:
            streams, reach = list(self.streams.values()), list(self.reach.values())
        every_s = PING * min((s.timeout_s for s in streams), default=60.0)
        every_s = min([every_s, *(r.every_s for r in reach)])
        if not self._said and streams and self._sending.acquire(blocking=False):
            try:
                if not self.connection.unsent:
                    self.connection.queue(HEAD.pack(Word.PING, 0, 0, 0, 0))
                    self.connection.flush()
            finally:
                self._sending.release()
        self.push()
        self._said = False
        self.read()  # what has come while this process stood still
        self._look_at_progress(max((s.timeout_s for s in streams), default=60.0))
        for stream in streams:
            stream.look(time.monotonic() - self.heard_at)
        for each in reach:
            each.look()
        return every_s

    def _look_at_progress(self, timeout_s: float) -> None:
        """End the line if the peer has taken nothing of what waits for it, for the longest timeout of all streams."""
        c, now = self.connection, time.monotonic()
        if c.sent_bytes != self._moved[0] or not c.unsent:
            self._moved = c.sent_bytes, now
        elif now - self._moved[1] > timeout_s:
            self._end(f"it has taken nothing for {timeout_s:g} s")

    def _end(self, why: str) -> None:
        """Nothing more comes, or can be sent."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = why
            streams = list(self.streams.items())
            items = [(s, item) for s, queue in self._queues.items() for item in queue]
            for kept in (self._queues, self._turns, self._begun):
                kept.clear()
            self._sent.notify_all()
        self._call(lambda board: board.unwatch(self))
        self._settle()
        for _, stream in streams:
            stream.ended(PeerFailed(stream.name, why))
        failed = partial(_fail_all, [(item.done, PeerFailed(s.name, why)) for s, item in items])
        if items:
            beside(failed)


def _end_frame(stream: Stream) -> None:
    """Let a stream handle what has come; a callback that raises an exception must not keep what follows from others."""
    try:
        stream.end()
    except Exception:
        traceback.print_exc()


def _nothing() -> None:
    pass


def _ignore(failure: PeerFailed | None) -> None:
    pass


def _fail_all(calls: Iterable[tuple[Done, PeerFailed | None]]) -> None:
    for done, failure in calls:
        done(failure)

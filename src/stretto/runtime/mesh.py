"""The connections of one process to all others that run programs with it.

Every pair of processes has a connection, whose ends have proven that they know the secret. Where the network can route
several subflows of a pair apart (an emulated one can), the pair has a connection for each of them. Where one connection
does not fill the link, since the network caps flows or loses packets, a connection has further *lanes*: connections
that take segments of the same transfers, whichever has room. A mesh serves many runs, one after another. After a
failure it serves no more runs.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from ..lower import FIRST_CIRCUIT
from ..model.errors import PeerFailed
from .channel import Channel, Wire
from .pacing import Outgoing, Queue
from .pool import Pool
from .sockets import await_room, on_the_way
from .wire import NO_CALL, TEXT_BYTES, Frame, Kind, encode

GRACE_S = 1.0
"""Seconds for which an aborting process tries to tell its peers why."""
LINGER_S = 10.0
"""Seconds for which a closing process waits until its last bytes are acknowledged."""
LOOK_S = 0.002
"""Seconds between two checks for that: the kernel has no event for the last acknowledgement."""
READ_BYTES = 1 << 16
"""Bytes to receive at once besides a payload whose place is known; they are copied to their places."""
MOST_PARTS = 512
"""The most headers and payloads to send at once; Linux takes 1,024."""
LATE = 1.25
"""Times the timeout after which an operation has failed although all processes are alive. It is more than 1, so that
who waits for a process that has died can name it to those who wait for him."""
CALLS_KEPT = 64
"""Runs whose calls are kept, to be named when a frame of an earlier run shows that a peer called something else."""
WAKE_BYTES = 1 << 16
"""Bytes of a payload for which the kernel wakes this process, instead of for each packet (``SO_RCVLOWAT``). On links of
10 MB/s that halves the CPU time of a transfer."""
FIRST_LANE, MOST_CONNECTIONS = 240, 16
"""The number of a connection's first further lane, as a subflow's number in the handshake; and the most connections
that a pair has, with the first one."""
UNIX_SEND_BYTES = 1 << 20
"""Bytes of a Unix socket's send buffer. With the kernel's default a transfer takes four times as many system calls."""


def mark(subflow: int) -> int:
    """The type of service (``IP_TOS``) that the packets of a subflow have, by which a network can route them."""
    return subflow << 2


class Connection:
    """One end of a connection to a peer, which carries the transfers of a subflow (:func:`stretto.lower.subflows`).

    One thread runs programs over it; another one may send why the mesh ends.

    Attributes:
        subflow: its number.
        main: the connection that carries what is no data: this one, or the first to the peer where this one goes over
            an optical circuit, which is not always there.
        lead: the connection whose transfers this one sends, too: itself, unless it is a further lane.
        lanes: at a connection that leads, all that send its transfers, itself first.
        unsent, unsent_bytes: the rest of the frames that are being sent, headers and payloads.
        sent_bytes: all that the kernel has taken.
        frame: the frame whose payload is being received; None while a header is.
        target: the rest of the memory that is being filled with a piece of that payload.
        read: what has been received, of which ``read[at:end]`` has not been looked at.
        text: the payload of an abort.
        begun, done: the numbers of the last runs that the peer is known to have begun and to have finished.
        heard_at: when the peer last sent anything, by the monotonic clock.
        low: the bytes that must have come before the selector tells.
        most_rate: bytes/s to which the kernel keeps the connection where the plan does not say; infinite for no limit.
        now_rate: what lanes are kept to while they have a part of that. limit: what the kernel keeps it to now.
        most_unsent: the bytes that may wait in the kernel for their first transmission; 0 for the kernel's default.
        channel: what protects the bytes; None where nothing does, and ``sock`` is a plain socket.
        closed: why nothing more can be received; None while the connection is open. closed_by: the number of the
            error, 0 at the end of the stream.
        broken: whether nothing more can be sent; bytes that the peer sent before may still arrive.
        ahead: the first frame of a later run, which is taken when that run begins.
        parked: the first frame of a row that has come before its turn.
        place, due: where in its transfer the piece that is being received begins, and its frame's bytes from there.
        further: the rows that follow the one that is being received in the same frame.
        outgoing, under_way, events: of this run: the transfers to send, those whose last segment is being sent and the
            value of ``sent_bytes`` at its end, and what the selector looks for.
    """

    def __init__(self, sock: Wire, peer: int, subflow: int = 0) -> None:
        self.sock, self.peer, self.subflow = sock, peer, subflow
        self.channel = sock if isinstance(sock, Channel) else None
        self.main = self.lead = self
        self.lanes = [self]
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if 0 < subflow < FIRST_CIRCUIT:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark(subflow))
        sock.setblocking(False)
        self._sending = threading.RLock()  # reentrant: Python may collect a group while the thread has it
        self.unsent: deque[memoryview] = deque()
        self.unsent_bytes = self.sent_bytes = 0
        self.read = memoryview(bytearray(READ_BYTES))
        self.at = self.end = 0
        self.low = 1
        self.most_rate = self.now_rate = self.limit = math.inf
        self.most_unsent = 0
        self.frame: Frame | None = None
        self.target = memoryview(b"")
        self.text = bytearray()
        self.begun = self.done = 0
        self.closed: str | None = None
        self.closed_by = 0
        self.broken = False
        self.said_bye = False
        self.ahead: Frame | None = None
        self.place = self.due = self.further = 0

    def begin(self, outgoing: Queue) -> None:
        """Begin a run."""
        self.outgoing, self.events = outgoing, 0
        self.under_way: deque[tuple[Outgoing, int]] = deque()
        self.parked: Frame | None = None
        self.heard_at = time.monotonic()

    @property
    def stopped(self) -> bool:
        """Whether nothing is read for now: the peer is a run ahead, or its next row must wait for its turn."""
        return self.ahead is not None or self.parked is not None

    @property
    def pending(self) -> bool:
        """Whether there is something to read of which the selector knows nothing."""
        return self.channel is not None and self.channel.pending

    def doze(self) -> None:
        """Let the kernel wake this process only when a good part of a payload has come, not for each packet."""
        due = len(self.target) - (self.channel.buffered if self.channel is not None else 0)
        low = min(due, WAKE_BYTES) if due > WAKE_BYTES // 8 else 1
        if low != self.low and self.sock.family != socket.AF_UNIX:
            self.low = low
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    def hold_back(self, size: int) -> None:
        """Let the kernel take no more than about ``size`` bytes ahead of the network: what one lane has taken, no other
        can send."""
        if size != self.most_unsent and self.sock.family != socket.AF_UNIX:
            self.most_unsent = size
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)

    def queue(self, *parts: bytes | memoryview) -> None:
        """Send a frame, in parts, after those that are being sent."""
        with self._sending:
            for part in parts:
                if len(part):
                    self.unsent.append(memoryview(part))
                    self.unsent_bytes += len(part)

    def receive(self) -> int:
        """Receive what is there: first the rest of ``target``, then up to ``READ_BYTES`` more; returns the number of
        bytes, which is 0 at the end.

        All that was received before must have been looked at, but for the beginning of a header.
        """
        if self.at:
            self.read[: self.end - self.at] = self.read[self.at : self.end]
            self.at, self.end = 0, self.end - self.at
        if not len(self.target):
            count = self.sock.recv_into(self.read[self.end :])
            self.end += count
            return count
        count = self.sock.recvmsg_into([self.target, self.read])[0]
        self.end = max(0, count - len(self.target))
        self.target = self.target[count:]
        return count

    def flush(self) -> None:
        """Send what the kernel takes now. An error breaks the connection; reading from it tells why."""
        with self._sending:
            try:
                self._flush()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.broken = True
                self.unsent.clear()
                self.unsent_bytes = 0

    def _flush(self) -> None:
        unsent = self.unsent
        while unsent:
            sent = self.sock.sendmsg(islice(unsent, MOST_PARTS))
            self.unsent_bytes -= sent
            self.sent_bytes += sent
            while sent:
                if sent < len(unsent[0]):
                    unsent[0] = unsent[0][sent:]
                    return  # the kernel is full
                sent -= len(unsent.popleft())

    def lingers(self) -> bool:
        """Whether the peer's kernel has not acknowledged everything yet. What the peer sends meanwhile is read, since
        unread data would turn the close into a reset, which drops what has not arrived."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                while self.sock.recv(1 << 16):
                    pass
            except ConnectionError:
                return False
        return on_the_way(self.sock) > 0


class Server(Protocol):
    """What runs programs over a mesh's connections in place of Python's loop (:mod:`.native`)."""

    def drain(self) -> None:
        """Return when all runs have ended."""

    def release(self, failure: PeerFailed | None, gives_back: bool = True) -> Sequence[Callable[[], None]]:
        """Serve the mesh no more: runs that have not ended fail, and its connections are Python's again if the server
        ``gives_back``. Returns the listeners of these runs, which are to be called without a lock: they may wait for
        other threads that end the mesh."""


class Mesh:
    """A process's connections. Made by :func:`.connect.join`.

    Args:
        connections: one or more to each peer, in the order of their subflows.
    Attributes:
        peers: the connections to each peer. routes: those over links. over_circuits: the others, by peer and subflow.
        node: the node of this process.
        runs: the number of runs begun; all processes of a mesh must run the same programs in the same order.
        describe: the words for the code of a call.
        failure: what ended the mesh; None while it serves.
        condemned: the node that a peer names as at fault, and why; no run begins after that.
        pool: memory for arrivals.
        server: what runs its programs without Python's lock, if anything does.
        told: what the server calls when a peer has failed.
        watched: whether another thread may condemn a node.
        ending: held by the thread that takes the connections back, and says over them why the mesh ends. Several
            threads may learn of failures at the same time.
    """

    def __init__(self, node: int, names: Mapping[int, str], connections: Sequence[Connection]) -> None:
        self.node, self.names, self.connections = node, dict(names), connections
        self.peers: dict[int, list[Connection]] = {}
        for c in connections:
            self._place(c)
        self.routes = {p: [c for c in to if c.main is c] for p, to in self.peers.items()}
        self.over_circuits = {(c.peer, c.subflow): c for c in connections if FIRST_CIRCUIT <= c.subflow < FIRST_LANE}
        self.runs = 0
        self.describe: Callable[[bytes], str] = bytes.hex
        self._calls = [NO_CALL] * CALLS_KEPT
        self.failure: PeerFailed | None = None
        self.condemned: tuple[int, str] | None = None
        self.pool = Pool()
        self.server: Server | None = None
        self.watched = False
        self.told: Callable[[PeerFailed], None] | None = None
        self.ending = threading.RLock()
        self._closing, self._closed = threading.RLock(), False

    def take_back(self) -> None:
        """Let the connections be Python's, if compiled code serves them."""
        with self.ending:
            listeners = self._leave_server()
        for call in listeners:
            call()

    def _leave_server(self, gives_back: bool = True) -> Sequence[Callable[[], None]]:
        """Take the mesh from the server, if one has it; returns the listeners of runs that fail."""
        server, self.server = self.server, None
        return () if server is None else server.release(self.failure, gives_back)

    def widen(self, lanes: Sequence[Connection]) -> None:
        """Let further connections send what the first connections to their peers send. Only between runs, and before
        the next one at both ends."""
        self.connections = [*self.connections, *lanes]
        for c in lanes:
            self._place(c)

    def serve(self) -> None:
        """Let connections serve runs again after they have been used for something else."""
        for c in self.connections:
            c.sock.setblocking(False)
            if c.sock.family != socket.AF_UNIX:
                c.most_unsent = 0
                c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0)  # the kernel's default

    def _place(self, c: Connection) -> None:
        to = self.peers.setdefault(c.peer, [])
        to.append(c)
        c.main = c if c.subflow < FIRST_CIRCUIT else to[0]
        if c.subflow >= FIRST_LANE:
            c.lead = to[0]
            to[0].lanes.append(c)

    def finish(self) -> None:
        """The same when all runs have ended that were begun."""
        if self.server is not None:
            self.server.drain()
        self.take_back()

    def connection(self, peer: int, subflow: int) -> Connection:
        """The connection for the transfers of a subflow; where it has none, it shares one with other routes."""
        c = self.over_circuits.get((peer, subflow))
        if c is not None:
            return c
        routes = self.routes[peer]
        return routes[subflow % len(routes)] if subflow < FIRST_CIRCUIT else routes[0]

    def begin(self, call: bytes) -> int:
        """Begin the next run, which is of this call; returns its number."""
        self.runs += 1
        self._calls[self.runs % CALLS_KEPT] = call
        return self.runs

    def call_of(self, run: int) -> bytes | None:
        """The code of the call of a run; None if that was long ago, or is yet to come."""
        return self._calls[run % CALLS_KEPT] if self.runs - CALLS_KEPT < run <= self.runs and run else None

    def differs(self, peer: int, run: int, theirs: bytes) -> PeerFailed:
        """The failure of a run that a peer called otherwise than this process; names both calls."""
        ours, other = self.describe(self.call_of(run) or NO_CALL), self.describe(theirs)
        both = f"{self.name(self.node)} calls {ours}, {self.name(peer)} calls {other}"
        if ours == other:
            both = f"{both}, with another plan or other sizes of parts"
        return PeerFailed(self.name(peer), f"as collective {run} of the group {both}")

    def name(self, node: int) -> str:
        return self.names.get(node, f"node {node}")

    def abort(self, failure: PeerFailed, culprit: int) -> None:
        """Tell every peer who is at fault, and end the mesh."""
        listeners: Sequence[Callable[[], None]] = ()
        try:
            with self.ending:
                if self.failure is None:
                    self.failure = failure
                    listeners = self._leave_server()
                    self._tell(failure, culprit)
        finally:
            for call in listeners:
                call()

    def _tell(self, failure: PeerFailed, culprit: int) -> None:
        text = failure.reason + (f", in {failure.transfer}" if failure.transfer else "")
        payload = text.encode()[:TEXT_BYTES]
        mains = [c for c in self.connections if c.main is c]
        for c in mains:
            c.queue(encode(Kind.ABORT, self.runs, culprit, len(payload)) + payload)
        deadline = time.monotonic() + GRACE_S
        for c in mains:  # who is at fault may be alive, and call something else
            c.flush()
        unaware = [c for c in mains if c.closed is None and c.peer != culprit]
        while unaware and time.monotonic() < deadline:
            for c in unaware:
                c.flush()
            unaware = [c for c in unaware if c.unsent]
            await_room((c.sock for c in unaware), deadline - time.monotonic())
        for c in self.connections:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """End the run of another thread without blaming anyone: to the peers this process seems to die."""
        self.failure = self.failure or PeerFailed(self.name(self.node), "it left")
        for call in self._leave_server(gives_back=False):  # without waiting for a thread that ends the mesh
            call()
        for c in self.connections:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Say goodbye, and close when everything sent has been acknowledged, or after ``LINGER_S``."""
        with self.ending:
            listeners = self._leave_server()
            if lingers := self.failure is None:
                for c in self.connections:
                    if c.closed is None and c.main is c:
                        c.queue(encode(Kind.BYE, self.runs))
                        c.flush()
                        with contextlib.suppress(OSError):
                            c.sock.shutdown(socket.SHUT_WR)
        for call in listeners:
            call()
        with self._closing:  # a second thread waits, as it may end the process next
            if not self._closed:
                self._closed = True
                self._close(lingers)

    def _close(self, lingers: bool) -> None:
        deadline = time.monotonic() + LINGER_S
        while lingers and sum(c.lingers() for c in self.connections) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        for c in self.connections:
            c.sock.close()

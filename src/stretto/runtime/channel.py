"""A connection whose bytes nobody can change on their way, used like a socket.

What is sent is cut into records. By TLS they are encrypted. Without TLS each is its length, the bytes, and a code
(BLAKE2b under a key that only this direction of this connection has) over its number, its length and its bytes. A
record that was changed, left out, repeated or moved has another code than its receiver expects. No byte of a record is
handed on before its code has been checked.

A connection that is cut ends like that of a process that has died: whoever still needs something names the peer.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import itertools
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl

RECORD_BYTES = 1 << 16
"""Bytes of a record, at most: it is kept until it is whole."""
BATCH_RECORDS = 4
"""Records to send by one system call, at most."""
CODE_BYTES = 16
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!QI")
_BEYOND = _LENGTH.size + CODE_BYTES
BUFFER_BYTES = BATCH_RECORDS * (RECORD_BYTES + _BEYOND)
TLS_RECORD_BYTES = 1 << 14
MOST_PARTS = 512


class Forged(ConnectionError):
    """What came is not what the peer sent."""


class Codec(Protocol):
    """Makes records, and takes them apart."""

    @property
    def buffered(self) -> int:
        """At least the bytes that have come and were not handed on."""

    def seal(self, parts: list[memoryview]) -> list[memoryview]:
        """The records of these bytes."""

    def room(self) -> memoryview:
        """Where what the socket receives next goes."""

    def came(self, count: int) -> None:
        """So many bytes have been received there."""

    def open_into(self, target: memoryview) -> int:
        """Fill a target with bytes of whole records, as far as they go; returns their number."""

    def more(self) -> bool:
        """Whether there are bytes for another target."""


class Channel:
    """A connected socket and what protects its bytes. One thread may send while another one receives.

    The methods are those of a socket. What a call to send has taken it has also handed to the kernel, whole records
    at a time; after BlockingIOError or TimeoutError the next call must begin with the same bytes.
    """

    def __init__(self, sock: socket.socket, codec: Codec) -> None:
        self.raw, self.codec, self.family = sock, codec, sock.family
        self._sending = threading.Lock()
        self._sealed: deque[memoryview] = deque()
        self._covers = 0

    @property
    def pending(self) -> bool:
        """Whether bytes can be received without the socket, which then need not become readable."""
        return self.codec.more()

    @property
    def buffered(self) -> int:
        return self.codec.buffered

    def sendmsg(self, parts: Iterable[Any]) -> int:
        with self._sending:
            if not self._sealed:
                self._seal(parts)
            while self._sealed:
                sent = self.raw.sendmsg(itertools.islice(self._sealed, MOST_PARTS))
                while sent:
                    if sent < len(self._sealed[0]):
                        self._sealed[0] = self._sealed[0][sent:]
                        break
                    sent -= len(self._sealed.popleft())
            return self._covers

    def _seal(self, parts: Iterable[Any]) -> None:
        records, record, left = 0, [], RECORD_BYTES
        self._covers = 0
        for part in parts:
            rest = memoryview(part)
            while len(rest) and records < BATCH_RECORDS:
                record.append(rest[:left])
                rest, left = rest[left:], left - len(record[-1])
                self._covers += len(record[-1])
                if not left:
                    self._sealed += self.codec.seal(record)
                    records, record, left = records + 1, [], RECORD_BYTES
            if records == BATCH_RECORDS:
                return
        if record:
            self._sealed += self.codec.seal(record)

    def send(self, data: Any) -> int:
        return self.sendmsg([data])

    def sendall(self, data: Any) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.sendmsg([rest]) :]

    def recvmsg_into(self, buffers: Iterable[memoryview]) -> tuple[int, list[Any], int, Any]:
        targets = list(buffers)
        while any(map(len, targets)):
            count = 0
            try:
                for target in targets:
                    got = self.codec.open_into(target)
                    count += got
                    if got < len(target):
                        break
            except Forged:
                if not count:  # else what came before counts, and the next call fails
                    raise
            if count:
                return count, [], 0, None
            came = self.raw.recv_into(self.codec.room())
            if not came:
                return 0, [], 0, None
            self.codec.came(came)
        return 0, [], 0, None

    def recv_into(self, buffer: Any) -> int:
        return self.recvmsg_into([memoryview(buffer)])[0]

    def recv(self, most: int) -> bytes:
        buffer = bytearray(most)
        return bytes(buffer[: self.recv_into(buffer)])

    def makefile(self, mode: str) -> io.TextIOWrapper:
        """A text file to read from (``r``) or to write to (``w``), each line at once; for a blocking socket."""
        file: Any = _File(self)
        buffered: Any = io.BufferedReader(file) if mode == "r" else io.BufferedWriter(file)
        return io.TextIOWrapper(buffered, encoding="utf-8")

    def fileno(self) -> int:
        return self.raw.fileno()

    def setblocking(self, flag: bool) -> None:
        self.raw.setblocking(flag)

    def settimeout(self, seconds: float | None) -> None:
        self.raw.settimeout(seconds)

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self.raw.setsockopt(level, name, value)

    def getsockopt(self, *option: int) -> Any:
        return self.raw.getsockopt(*option)

    def getsockname(self) -> Any:
        return self.raw.getsockname()

    def getpeername(self) -> Any:
        return self.raw.getpeername()

    def shutdown(self, how: int) -> None:
        self.raw.shutdown(how)

    def close(self) -> None:
        self.raw.close()


class _File(io.RawIOBase):
    """A channel as a file."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._channel.recv_into(buffer)

    def write(self, data: Any) -> int:
        return self._channel.send(data)


Wire = socket.socket | Channel
"""What a mesh sends and receives over."""


class Records:
    """Records that are authenticated and not encrypted.

    Args:
        sends, receives: the keys of the two directions.
    """

    def __init__(self, sends: bytes, receives: bytes) -> None:
        self._sends, self._receives = (hashlib.blake2b(key=k, digest_size=CODE_BYTES) for k in (sends, receives))
        self._sent = self._received = 0
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        # what has come is buffer[at:end], and ready[...] of it has been checked
        self._at = self._end = 0
        self._ready = self._buffer[:0]

    @property
    def buffered(self) -> int:
        return self._end - self._at + len(self._ready)

    def seal(self, parts: list[memoryview]) -> list[memoryview]:
        length, code = sum(map(len, parts)), self._sends.copy()
        code.update(_NUMBER.pack(self._sent, length))
        for part in parts:
            code.update(part)
        self._sent += 1
        return [memoryview(_LENGTH.pack(length)), *parts, memoryview(code.digest())]

    def room(self) -> memoryview:
        if self._at:
            self._buffer[: self._end - self._at] = self._buffer[self._at : self._end]
            self._at, self._end = 0, self._end - self._at
        return self._buffer[self._end :]

    def came(self, count: int) -> None:
        self._end += count

    def more(self) -> bool:
        return len(self._ready) > 0 or self._is_whole()

    def open_into(self, target: memoryview) -> int:
        count = 0
        while count < len(target):
            if not len(self._ready):
                if not self._is_whole():
                    break
                why = self._open()
                if why and not count:
                    raise Forged(why)
                if why:  # what came before counts, and the next call fails
                    break
            piece, rest = self._ready[: len(target) - count], self._ready[len(target) - count :]
            target[count : count + len(piece)] = piece
            count, self._ready = count + len(piece), rest
        return count

    def _length(self) -> int:
        """What the next record says that it has; 0 if that has not come."""
        came = self._end - self._at >= _LENGTH.size
        return int(_LENGTH.unpack_from(self._buffer, self._at)[0]) if came else 0

    def _is_whole(self) -> bool:
        """Whether the next record is here, or the beginning of something else."""
        came, length = self._end - self._at, self._length()
        return came >= _LENGTH.size and (not 0 < length <= RECORD_BYTES or came >= length + _BEYOND)

    def _open(self) -> str:
        """Check the next record; returns what is wrong with it, "" if nothing is."""
        length, begin = self._length(), self._at + _LENGTH.size
        if not 0 < length <= RECORD_BYTES:
            return f"a record of {length} bytes came, which no peer sends"
        content, code = self._buffer[begin : begin + length], self._receives.copy()
        code.update(_NUMBER.pack(self._received, length))
        code.update(content)
        if not hmac.compare_digest(code.digest(), self._buffer[begin + length : begin + length + CODE_BYTES]):
            return "a record was changed on its way, or came twice or out of order"
        self._received += 1
        self._ready, self._at = content, begin + length + CODE_BYTES
        return ""


class Tls:
    """TLS over buffers in memory: its calls never wait, and a lock lets one thread send while another one receives.

    Args:
        context, calls, name: of the end that calls, with the name that its peer's certificate must have, or of the end
            that accepts.
    """

    def __init__(self, context: ssl.SSLContext, calls: bool, name: str | None) -> None:
        import ssl

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not calls, server_hostname=name)
        self._wants_read, self._ended, self._failed = ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLError
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._lock = threading.Lock()
        self._full = False

    def shake(self, sock: socket.socket, limit: Callable[[], None]) -> None:
        """The handshake over a blocking socket; raises OSError if the ends do not come together.

        Args:
            limit: called before each wait, to set the timeout of the socket.
        """
        while True:
            try:
                self.tls.do_handshake()
            except self._wants_read:
                limit()
                sock.sendall(self._outgoing.read())
                count = sock.recv_into(self._buffer)
                if not count:
                    raise ConnectionError("it closed the connection") from None
                self._incoming.write(self._buffer[:count])
            except OSError:
                with contextlib.suppress(OSError):
                    sock.sendall(self._outgoing.read())  # tell the peer why
                raise
            else:
                sock.sendall(self._outgoing.read())
                return

    @property
    def buffered(self) -> int:
        return self._incoming.pending + 2 * TLS_RECORD_BYTES

    def seal(self, parts: list[memoryview]) -> list[memoryview]:
        with self._lock:
            rest = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
            while len(rest):
                rest = rest[self.tls.write(rest) :]
            return [memoryview(self._outgoing.read())]

    def room(self) -> memoryview:
        return self._buffer

    def came(self, count: int) -> None:
        with self._lock:
            self._incoming.write(self._buffer[:count])

    def more(self) -> bool:
        return self._full

    def open_into(self, target: memoryview) -> int:
        count = 0
        with self._lock:
            try:
                while count < len(target):
                    got: int = self.tls.read(len(target) - count, target[count:])  # type: ignore[assignment]
                    if not got:
                        break
                    count += got
            except (self._wants_read, self._ended):
                pass
            except self._failed as error:
                if not count:  # else what came before counts, and the next call fails
                    raise Forged(f"TLS: {said(error)}") from None
                self._full = True
                return count
        self._full = count == len(target) > 0
        return count


def said(error: OSError) -> str:
    """What TLS says about a failure, in words."""
    reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error.strerror or error
    return str(reason).lower().replace("_", " ")

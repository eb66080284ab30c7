"""The records of the compiled loop for a mesh: words in NumPy arrays (:mod:`.kernel_layout`)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Int64
from ..incoming import DIED
from ..mesh import CALLS_KEPT, READ_BYTES, Connection, Mesh
from ..wire import CALL_BYTES, HEADER, TEXT_BYTES, Frame, Kind
from . import kernel_layout as at
from .kernel_engine import NEVER

WORD = 8
SPARE_UNSENT = 8
"""Parts that may wait besides the most that the loop queues."""


def words(count: int) -> Int64:
    return np.zeros(count, dtype=np.int64)


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


class Wires:
    """The records of connections.

    Args:
        head: bytes before each header that name its stream; 0 where the connections are one group's alone.
    Attributes:
        place: the address of each record.
        keep: what must live as long.
    """

    def __init__(self, connections: Sequence[Connection], head: int) -> None:
        self.connections = list(connections)
        count = len(self.connections)
        self.rows = words(count * at.WIRE_WORDS // WORD).reshape(count, at.WIRE_WORDS // WORD)
        self.place = {c: address(row) for c, row in zip(self.connections, self.rows, strict=True)}
        self.keep: list[Any] = []
        for c, row in zip(self.connections, self.rows, strict=True):
            self._fill(c, row, head)

    def _fill(self, c: Connection, row: Int64, head: int) -> None:
        """Hand a connection to the loop as it is now."""
        headers = np.zeros((HEADER.size + head) * (at.MOST_HEADERS + 2), np.uint8)
        buffer = np.frombuffer(c.read, dtype=np.uint8)
        unsent = words(2 * (at.MOST_UNSENT + SPARE_UNSENT + len(c.unsent)))
        owners = words(len(unsent) // 2)
        parts = [np.frombuffer(part, dtype=np.uint8) for part in c.unsent]
        for i, part in enumerate(parts):
            unsent[2 * i : 2 * i + 2] = address(part), len(part)
        self.keep += [headers, buffer, unsent, owners, *parts]
        assert len(c.read) == READ_BYTES
        _set(row, {
            at.W_FD: c.sock.fileno(), at.W_HEAD: head, at.W_UNIX: c.sock.family == socket.AF_UNIX,
            at.W_BUFFER: address(buffer), at.W_AT: c.at, at.W_END: c.end, at.W_LOW: c.low,
            at.W_STATE: at.HEADER_READ if c.ahead is None else at.AHEAD,
            at.W_CLOSED: 0 if c.closed is None else c.closed_by + 1, at.W_BROKEN: c.broken,
            at.W_HEADERS: address(headers), at.W_UNSENT: address(unsent), at.W_OWNERS: address(owners),
            at.W_UNSENT_COUNT: len(parts), at.W_UNSENT_BYTES: c.unsent_bytes, at.W_SENT_BYTES: c.sent_bytes,
        })  # fmt: skip

    def give_back(self) -> None:
        """Set the connections to where the loop has left them."""
        for c, row in zip(self.connections, self.rows, strict=True):
            get = {where: int(row[where // WORD]) for where in range(0, at.WIRE_WORDS, WORD)}
            c.at, c.end, c.low = get[at.W_AT], get[at.W_END], get[at.W_LOW] & 0xFFFFFFFF
            c.sent_bytes, c.broken = get[at.W_SENT_BYTES], bool(get[at.W_BROKEN])
            c.unsent.clear()
            c.unsent_bytes = 0
            for i in range(get[at.W_UNSENT_AT], get[at.W_UNSENT_COUNT]):
                place, count = memory(get[at.W_UNSENT] + 16 * i, 2)
                c.queue(bytes(memory(int(place), int(count), np.uint8)))
            c.frame, c.ahead, c.target = None, None, memoryview(b"")


class Last(NamedTuple):
    """What a group says last to its peers, where it shares connections.

    Attributes:
        words: parts (:mod:`.kernel_layout`). culprit, text: who is at fault, and why.
    """

    words: int
    culprit: int = 0
    text: bytes = b""


NOTHING_SAID = Last(at.SAY_LEAVE)


class Ends:
    """The records of a mesh: of its group, and of its stream on each connection.

    Args:
        shared: the addresses of the records of its connections, where groups share them.
        numbers: the numbers of the streams there: what this process is called by, and what it calls each peer by.
    Attributes:
        address: of the group's record.
        added: an event that tells that the loop serves the mesh, or -1.
        keep: what must live as long.
    """

    def __init__(
        self, mesh: Mesh, shared: Mapping[Connection, int] | None = None,
        numbers: tuple[int, Mapping[int, int]] | None = None, added: int = -1,
    ) -> None:  # fmt: skip
        count = len(mesh.connections)
        self.mesh, self.shares, self._noting = mesh, shared is not None, threading.RLock()
        self.wires = Wires([] if shared is not None else mesh.connections, 0)
        self._wire_of = shared if shared is not None else self.wires.place
        self.group = words(at.GROUP_WORDS // WORD)
        self.address = address(self.group)
        self.connections = words(count * at.CONNECTION_WORDS // WORD).reshape(count, at.CONNECTION_WORDS // WORD)
        self.place = {c: address(row) for c, row in zip(mesh.connections, self.connections, strict=True)}
        self.by_address = {place: c for c, place in self.place.items()}
        places, calls = np.array([*self.place.values()], dtype=np.int64), words(CALLS_KEPT * CALL_BYTES // WORD)
        for k in range(CALLS_KEPT):
            number = mesh.runs - mesh.runs % CALLS_KEPT + k
            calls[3 * k : 3 * k + 3] = np.frombuffer(mesh.call_of(number) or bytes(CALL_BYTES), dtype=np.int64)
        self.calls = calls
        self.keep: list[NDArray[Any]] = [places, calls]
        _set(self.group, {
            at.RUNS: mesh.runs, at.CONNECTIONS: address(places), at.CONNECTION_COUNT: count, at.CALLS: address(calls),
            at.DONE_AT: NEVER, at.ADDED: added,
        })  # fmt: skip
        own, theirs = numbers or (0, dict.fromkeys(mesh.peers, 0))
        for c, row in zip(mesh.connections, self.connections, strict=True):
            self._fill(c, row, own, theirs[c.peer])

    def _fill(self, c: Connection, row: Int64, own: int, theirs: int) -> None:
        """Hand the group's part of a connection to the loop as it is now."""
        text, wire = np.zeros(TEXT_BYTES, np.uint8), self._wire_of[c]
        self.keep.append(text)
        _set(row, {
            at.WIRE: wire, at.GROUP: address(self.group), at.PEER: c.peer, at.MAIN: self.place[c.main], at.HERE: own,
            at.THERE: theirs, at.BEGUN: c.begun, at.DONE: c.done, at.BYE: c.said_bye, at.TEXT: address(text),
            at.CLOSED: 0 if c.closed is None else c.closed_by + 1, at.READY: -1, at.UNDER_WAY: -1, at.SIGNALS: -1,
        })  # fmt: skip
        if not self.shares:
            memory(wire + at.W_STREAM, 1)[0] = address(row)
        if c.ahead is not None:
            frame = c.ahead
            call = np.frombuffer(frame.call, dtype=np.int64)
            _set(row, {
                at.KIND: frame.kind, at.RUN: frame.run, at.ROW: frame.row, at.LENGTH: frame.length,
                at.TOTAL: frame.total, at.PLACE: frame.offset, at.FURTHER: frame.further,
                at.CALL: call[0], at.CALL_1: call[1], at.CALL_2: call[2],
            })  # fmt: skip

    @property
    def gone(self) -> bool:
        """Whether the loop has left all streams, after their last words."""
        return all(self.connections[:, at.GONE // WORD])

    def note_runs(self) -> None:
        """Let the mesh know which runs were begun."""
        mesh, runs = self.mesh, int(self.group[at.RUNS // WORD])
        with self._noting:  # threads that end the mesh at the same time
            for number in range(max(mesh.runs + 1, runs - CALLS_KEPT + 1), runs + 1):
                mesh.runs = number - 1
                k = number % CALLS_KEPT
                mesh.begin(self.calls[3 * k : 3 * k + 3].tobytes())

    def give_back(self) -> None:
        """Set the mesh's connections to where the loop has left them, unless groups share them."""
        self.note_runs()
        if self.shares:
            return
        self.wires.give_back()
        for c, row, wire in zip(self.mesh.connections, self.connections, self.wires.rows, strict=True):
            get = {where: int(row[where // WORD]) for where in range(0, at.CONNECTION_WORDS, WORD)}
            c.begun, c.done, c.said_bye = get[at.BEGUN], get[at.DONE], bool(get[at.BYE])
            if get[at.CLOSED] and c.closed is None:
                c.closed_by = get[at.CLOSED] - 1
                c.closed = closed_words(c.closed_by, c.said_bye)
            if wire[at.W_STATE // WORD] == at.AHEAD:
                call = row[at.CALL // WORD : at.CALL // WORD + 3].tobytes()
                c.ahead = Frame(
                    Kind(get[at.KIND]), get[at.RUN], get[at.ROW], get[at.LENGTH], call, get[at.TOTAL], get[at.PLACE],
                    get[at.FURTHER],
                )  # fmt: skip

    def text(self, place: int) -> str:
        """What the peer of a connection says in its abort."""
        row = self.connections[[*self.by_address].index(place)]
        count = int(row[at.TEXT_BYTES_READ // WORD])
        return bytes(memory(int(row[at.TEXT // WORD]), count, np.uint8)).decode(errors="replace")


def _set(record: Int64, values: Mapping[int, int]) -> None:
    for where, value in values.items():
        record[where // WORD] = value


def closed_words(error: int, said_bye: bool) -> str:
    """Why a connection is closed: by an error of a system call, or by its peer."""
    if error:
        return f"the connection broke (Read error: {os.strerror(error)})"
    return "it closed the connection" if said_bye else DIED


def memory(place: int, count: int, kind: Any = np.int64) -> NDArray[Any]:
    """An array of what is at an address."""

    class Memory:
        __array_interface__ = {  # noqa: RUF012
            "shape": (count,), "typestr": np.dtype(kind).str, "data": (place, False), "version": 3,
        }  # fmt: skip

    return np.asarray(Memory()) if count else np.zeros(0, dtype=kind)

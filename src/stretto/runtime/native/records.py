"""The records of the compiled loop for a mesh: words in NumPy arrays (:mod:`.kernel_layout`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(eq=False)
class Ends:
    """The records of a mesh: of its group, and of each connection.

    Attributes:
        keep: what must live as long.
    """

    mesh: Mesh
    group: Int64 = field(init=False)
    connections: Int64 = field(init=False)
    keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        mesh, count = self.mesh, len(self.mesh.connections)
        self.group = words(at.GROUP_WORDS // WORD)
        self.connections = words(count * at.CONNECTION_WORDS // WORD).reshape(count, -1)
        self.place = {c: address(row) for c, row in zip(mesh.connections, self.connections, strict=True)}
        self.by_address = {place: c for c, place in self.place.items()}
        places, calls = np.array([*self.place.values()], dtype=np.int64), words(CALLS_KEPT * CALL_BYTES // WORD)
        for k in range(CALLS_KEPT):
            number = mesh.runs - mesh.runs % CALLS_KEPT + k
            calls[3 * k : 3 * k + 3] = np.frombuffer(mesh.call_of(number) or bytes(CALL_BYTES), dtype=np.int64)
        self.calls = calls
        self.keep += [places, calls]
        self._set(self.group, {
            at.RUNS: mesh.runs, at.CONNECTIONS: address(places), at.CONNECTION_COUNT: count, at.CALLS: address(calls),
            at.DONE_AT: NEVER,
        })  # fmt: skip
        for c, row in zip(mesh.connections, self.connections, strict=True):
            self._fill(c, row)

    def _set(self, record: Int64, values: Mapping[int, int]) -> None:
        for where, value in values.items():
            record[where // WORD] = value

    def _fill(self, c: Connection, row: Int64) -> None:
        """Hand a connection to the loop as it is now."""
        headers, text = np.zeros(HEADER.size * (at.MOST_HEADERS + 2), np.uint8), np.zeros(TEXT_BYTES, np.uint8)
        buffer = np.frombuffer(c.read, dtype=np.uint8)
        unsent = words(2 * (at.MOST_UNSENT + SPARE_UNSENT + len(c.unsent)))
        parts = [np.frombuffer(part, dtype=np.uint8) for part in c.unsent]
        for i, part in enumerate(parts):
            unsent[2 * i : 2 * i + 2] = address(part), len(part)
        self.keep += [headers, text, buffer, unsent, *parts]
        assert len(c.read) == READ_BYTES
        self._set(row, {
            at.FD: c.sock.fileno(), at.GROUP: address(self.group), at.PEER: c.peer, at.MAIN: self.place[c.main],
            at.UNIX: c.sock.family == socket.AF_UNIX, at.BUFFER: address(buffer), at.AT: c.at, at.END: c.end,
            at.BEGUN: c.begun, at.DONE: c.done, at.LOW: c.low, at.CLOSED: 0 if c.closed is None else c.closed_by + 1,
            at.BROKEN: c.broken, at.BYE: c.said_bye, at.TEXT: address(text), at.HEADERS: address(headers),
            at.UNSENT: address(unsent), at.UNSENT_COUNT: len(parts), at.UNSENT_BYTES: c.unsent_bytes,
            at.SENT_BYTES: c.sent_bytes, at.READY: -1, at.UNDER_WAY: -1, at.SIGNALS: -1,
        })  # fmt: skip
        if c.ahead is not None:
            frame = c.ahead
            call = np.frombuffer(frame.call, dtype=np.int64)
            self._set(row, {
                at.STATE: at.AHEAD, at.KIND: frame.kind, at.RUN: frame.run, at.ROW: frame.row, at.LENGTH: frame.length,
                at.TOTAL: frame.total, at.PLACE: frame.offset, at.CALL: call[0], at.CALL_1: call[1], at.CALL_2: call[2],
            })  # fmt: skip

    def give_back(self) -> None:
        """Set the mesh's connections to where the loop has left them."""
        mesh = self.mesh
        runs = int(self.group[at.RUNS // WORD])
        for number in range(max(mesh.runs + 1, runs - CALLS_KEPT + 1), runs + 1):
            mesh.runs = number - 1
            k = number % CALLS_KEPT
            mesh.begin(self.calls[3 * k : 3 * k + 3].tobytes())
        for c, row in zip(mesh.connections, self.connections, strict=True):
            get = {where: int(row[where // WORD]) for where in range(0, at.CONNECTION_WORDS, WORD)}
            c.at, c.end, c.begun, c.done, c.low = (get[w] for w in (at.AT, at.END, at.BEGUN, at.DONE, at.LOW))
            c.low &= 0xFFFFFFFF
            c.sent_bytes, c.broken, c.said_bye = get[at.SENT_BYTES], bool(get[at.BROKEN]), bool(get[at.BYE])
            if get[at.CLOSED] and c.closed is None:
                c.closed_by = get[at.CLOSED] - 1
                c.closed = closed_words(c.closed_by, c.said_bye)
            c.unsent.clear()
            c.unsent_bytes = 0
            for i in range(get[at.UNSENT_AT], get[at.UNSENT_COUNT]):
                place, count = memory(get[at.UNSENT] + 16 * i, 2)
                c.queue(bytes(memory(int(place), int(count), np.uint8)))
            c.frame, c.ahead, c.target = None, None, memoryview(b"")
            if get[at.STATE] == at.AHEAD:
                call = row[at.CALL // WORD : at.CALL // WORD + 3].tobytes()
                c.ahead = Frame(
                    Kind(get[at.KIND]), get[at.RUN], get[at.ROW], get[at.LENGTH], call, get[at.TOTAL], get[at.PLACE]
                )

    def text(self, place: int) -> str:
        """What the peer of a connection says in its abort."""
        row = self.connections[[*self.by_address].index(place)]
        count = int(row[at.TEXT_BYTES_READ // WORD])
        return bytes(memory(int(row[at.TEXT // WORD]), count, np.uint8)).decode(errors="replace")


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

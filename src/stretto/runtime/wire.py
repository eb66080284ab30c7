"""Bytes and frames on a connection. A frame is a header of 56 bytes, then at most a segment of payload.

A reader knows from the header alone how much follows, and refuses too much before it reads any of it. Data is sent
in segments, so that transfers can take turns on a connection and an abort need not wait for a long transfer. Every
header names the call that it belongs to, so that processes that call different collectives see it at the first frame.
A frame may have several whole transfers, which are then the chunks of a message: its header names the first one, and
says how many follow.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from .channel import Wire

SEGMENT_BYTES = 1 << 20
TEXT_BYTES = 1024
CALL_BYTES = 24
NO_CALL = bytes(CALL_BYTES)
"""The code of a call where the caller gives none."""
HEADER = struct.Struct(f"!HBxIII{CALL_BYTES}sQQ")
FURTHER = 3
"""Where a header says how many transfers follow the first one."""
MAGIC = 0x5C7E
MOST_CHUNKS = 64
"""Transfers of a frame, at most."""


class Kind(IntEnum):
    """Kinds of frames."""

    DATA = 1
    """The next bytes of a transfer."""
    SIGNAL = 2
    """A row has happened at the sender, for which the receiver waits."""
    DONE = 3
    """The sender has finished its program."""
    PING = 4
    """The sender is alive, and waits."""
    ABORT = 5
    """The sender gives up; ``row`` is the node at fault and the payload says why."""
    BYE = 6
    """The sender closes the connection on purpose."""


LIMIT = dict.fromkeys(Kind, 0) | {Kind.DATA: SEGMENT_BYTES, Kind.ABORT: TEXT_BYTES}
"""The most bytes that may follow a header of each kind."""
_KIND = {int(kind): kind for kind in Kind}


class Frame(NamedTuple):
    """A header.

    Attributes:
        run: the number of the program, of those that a mesh has run.
        length: bytes of payload that follow.
        call: the code of the call that the sender runs.
        total: bytes of the whole transfer of which this frame has a part.
        offset: where in the transfer that part begins: parts of one transfer may go over several connections.
        further: the rows that follow this one in the frame, each whole; ``length`` and ``total`` are then of all.
    """

    kind: Kind
    run: int
    row: int
    length: int
    call: bytes = NO_CALL
    total: int = 0
    offset: int = 0
    further: int = 0


class Malformed(Exception):
    """The bytes are no frame."""


def encode(
    kind: Kind, run: int, row: int = 0, length: int = 0, call: bytes = NO_CALL, total: int = 0, offset: int = 0,
    further: int = 0,
) -> bytes:  # fmt: skip
    header = HEADER.pack(MAGIC, kind, run, row, length, call, total, offset)
    return header if not further else header[:FURTHER] + bytes([further]) + header[FURTHER + 1 :]


def decode(header: bytes | bytearray | memoryview, at: int = 0) -> Frame:
    """The frame whose header begins at an index; raises Malformed if it is none."""
    magic, number, run, row, length, call, total, offset = HEADER.unpack_from(header, at)
    if magic != MAGIC:
        raise Malformed(f"it sent {bytes(header[at : at + 2]).hex()} where a frame must begin")
    kind = _KIND.get(number)
    if kind is None:
        raise Malformed(f"it sent a frame of unknown kind {number}")
    if length > LIMIT[kind]:
        raise Malformed(f"it sent a {kind.name} frame of {length} bytes; at most {LIMIT[kind]} may follow")
    return Frame(kind, run, row, length, call, total, offset, header[at + FURTHER])


def receive(sock: Wire, count: int, idle: Callable[[float], None] | None = None) -> bytearray:
    """Receive ``count`` bytes; see :func:`fill`."""
    content = bytearray(count)
    fill(sock, memoryview(content), idle)
    return content


def fill(sock: Wire, target: memoryview, idle: Callable[[float], None] | None = None) -> None:
    """Receive from a blocking socket until ``target`` is full.

    Args:
        idle: called with the seconds since the last byte, whenever no byte has come for the timeout of the socket.
    Raises:
        OSError: the connection ended or broke; without ``idle`` also: the timeout of the socket has passed.
    """
    heard_at = time.monotonic()
    while len(target):
        try:
            count = sock.recv_into(target)
        except TimeoutError:
            if idle is None:
                raise
            idle(time.monotonic() - heard_at)
            continue
        if not count:
            raise ConnectionError("it closed the connection")
        target, heard_at = target[count:], time.monotonic()

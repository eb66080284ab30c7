"""What a connection is about to send, in compiled code: headers, and the places of bytes."""

from __future__ import annotations

from .kernel_layout import (
    MOST_HEADERS, MOST_UNSENT, OWES_DONE, OWES_WORD, SAID, SENT, TAKEN, THERE, W_HEAD, W_HEADER_COUNT, W_HEADERS,
    W_OWNERS, W_UNSENT, W_UNSENT_BYTES, W_UNSENT_COUNT, WIRE,
)  # fmt: skip
from .machine import get, move, put, put_byte

HEADER_BYTES, FURTHER_BYTE = 56, 3
"""As of :mod:`stretto.runtime.wire`."""
STREAM_BYTES = 12
"""Bytes before a header on a connection that groups share: the number of the stream, and the bytes of data and signals
of the peer that this process has taken."""
DATA, SIGNAL, DONE_FRAME, PING, ABORT, BYE_FRAME, LEAVE_FRAME = range(1, 8)


def store(at: int, value: int, count: int) -> None:
    """Put a number into bytes, the highest first."""
    for i in range(count):
        put_byte(at + i, (value >> (8 * (count - 1 - i))) & 0xFF)


def queue(w: int, place: int, count: int, owner: int) -> None:
    """Send bytes after those that are being sent.

    Args:
        owner: the stream in whose group's memory they are, or 0.
    """
    put(get(w + W_OWNERS) + 8 * get(w + W_UNSENT_COUNT), owner)
    at = get(w + W_UNSENT) + 16 * get(w + W_UNSENT_COUNT)
    put(at, place)
    put(at + 8, count)
    put(w + W_UNSENT_COUNT, get(w + W_UNSENT_COUNT) + 1)
    put(w + W_UNSENT_BYTES, get(w + W_UNSENT_BYTES) + count)


def has_room(w: int) -> bool:
    """Whether a frame can be queued."""
    return get(w + W_HEADER_COUNT) < MOST_HEADERS and get(w + W_UNSENT_COUNT) < MOST_UNSENT


def queue_header(c: int, kind: int, number: int, row: int, length: int, call: int, total: int, offset: int) -> int:
    """Queue a header; ``call`` is the address of the code of the call. Returns the header's own."""
    w = get(c + WIRE)
    head = get(w + W_HEAD)
    begin = get(w + W_HEADERS) + (HEADER_BYTES + head) * get(w + W_HEADER_COUNT)
    put(w + W_HEADER_COUNT, get(w + W_HEADER_COUNT) + 1)
    if head:
        store(begin, get(c + THERE), 4)
        store(begin + 4, get(c + TAKEN), 8)
        put(c + SAID, get(c + TAKEN))
        if kind == DATA or kind == SIGNAL:
            put(c + SENT, get(c + SENT) + STREAM_BYTES + HEADER_BYTES + length)
        if get(c + OWES_WORD) and number >= get(c + OWES_WORD):
            put(c + OWES_WORD, 0)  # this frame says so, too
    at = begin + head
    store(at, 0x5C7E, 2)
    store(at + 2, kind, 1)
    store(at + 3, 0, 1)
    store(at + 4, number, 4)
    store(at + 8, row, 4)
    store(at + 12, length, 4)
    move(at + 16, call, 24)
    store(at + 40, total, 8)
    store(at + 48, offset, 8)
    queue(w, begin, head + HEADER_BYTES, 0)
    if number > get(c + OWES_DONE):
        put(c + OWES_DONE, 0)  # this frame says so, too
    return at

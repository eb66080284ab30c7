"""The sending side of a run in compiled code: which bytes go next, in frames, many by one system call."""

from __future__ import annotations

from .kernel_chunks import leave_version
from .kernel_layout import (
    ACTIVE, AHEAD, BROKEN, C_CONNECTION, C_END, C_LEFT, C_NEXT, C_PLACE, C_SEND, C_TOTAL, C_TURNS, CLOSED, CURRENT,
    FAILED, FD, G_NEXT, G_ROW, GROUP, HEADER_COUNT, HEADERS, HELD, IS_ACTIVE, L_BYTES, LAST_READY, LAST_UNDER_WAY,
    MESSAGE, MOST_HEADERS, MOST_UNSENT, NEXT_ACTIVE, NUMBER, OWED_CALL, OWES_DONE, OWN_CALL, PARKED, POLLER, READY,
    S_BEGAN, S_COPIES, S_GONE, S_PRIORITY, S_ROW, S_SLOT, S_VERSION, SENT_BYTES, SIGNALS, SIGNALS_LEFT, STATE,
    TAKES_TURNS, UNDER_WAY, UNSENT, UNSENT_AT, UNSENT_BYTES, UNSENT_COPIES, UNSENT_COUNT, UNSENT_HERE, V_ARRAY, WATCHED,
    column,
)  # fmt: skip
from .machine import EAGAIN, EINTR, EVENT_DATA, clock_ns, get, move, put, put_byte, send, watch

HEADER_BYTES, SEGMENT_BYTES = 56, 1 << 20
BATCH_BYTES, BATCHES_AT_ONCE = 1 << 18, 4
"""As of :mod:`stretto.runtime.loop`."""
DATA, SIGNAL, DONE_FRAME, PING = 1, 2, 3, 4
READABLE, WRITABLE = 1, 4
"""Linux's ``EPOLLIN`` and ``EPOLLOUT``."""


def store(at: int, value: int, count: int) -> None:
    """Put a number into bytes, the highest first."""
    for i in range(count):
        put_byte(at + i, (value >> (8 * (count - 1 - i))) & 0xFF)


def activate(engine: int, c: int) -> None:
    """Let a connection send when this round of events has been handled."""
    if get(c + IS_ACTIVE) == 0:
        put(c + IS_ACTIVE, 1)
        put(c + NEXT_ACTIVE, get(engine + ACTIVE))
        put(engine + ACTIVE, c)


def queue(c: int, place: int, count: int) -> None:
    """Send bytes after those that are being sent."""
    at = get(c + UNSENT) + 16 * get(c + UNSENT_COUNT)
    put(at, place)
    put(at + 8, count)
    put(c + UNSENT_COUNT, get(c + UNSENT_COUNT) + 1)
    put(c + UNSENT_BYTES, get(c + UNSENT_BYTES) + count)


def has_room(c: int) -> bool:
    """Whether a frame can be queued."""
    return get(c + HEADER_COUNT) < MOST_HEADERS and get(c + UNSENT_COUNT) < MOST_UNSENT


def queue_header(c: int, kind: int, number: int, row: int, length: int, call: int, total: int, offset: int) -> None:
    """Queue a header; ``call`` is the address of the code of the call."""
    at = get(c + HEADERS) + HEADER_BYTES * get(c + HEADER_COUNT)
    put(c + HEADER_COUNT, get(c + HEADER_COUNT) + 1)
    store(at, 0x5C7E, 2)
    store(at + 2, kind, 1)
    store(at + 3, 0, 1)
    store(at + 4, number, 4)
    store(at + 8, row, 4)
    store(at + 12, length, 4)
    move(at + 16, call, 24)
    store(at + 40, total, 8)
    store(at + 48, offset, 8)
    queue(c, at, HEADER_BYTES)
    if number > get(c + OWES_DONE):
        put(c + OWES_DONE, 0)  # this frame says so, too


def append(c: int, first: int, last: int, links: int, item: int) -> None:
    """Put an item at the end of a list of a connection.

    Args:
        first, last: where the connection has the list's ends.
        links: the column that has, for each item, the one after it.
    """
    put(links + 8 * item, -1)
    if get(c + first) < 0:
        put(c + first, item)
    else:
        put(links + 8 * get(c + last), item)
    put(c + last, item)


def ready(engine: int, run: int, index: int) -> None:
    """Begin a send whose dependencies have all happened."""
    slot = get(column(run, S_SLOT) + 8 * index)
    place = get(column(run, V_ARRAY) + 8 * get(column(run, S_VERSION) + 8 * index))
    size = get(column(run, L_BYTES) + 8 * slot)
    first, last = get(column(run, S_COPIES) + 8 * index), get(column(run, S_COPIES) + 8 * index + 8)
    for copy in range(first, last):
        c = get(column(run, C_CONNECTION) + 8 * copy)
        put(column(run, C_PLACE) + 8 * copy, place)
        put(column(run, C_LEFT) + 8 * copy, size)
        put(column(run, C_TOTAL) + 8 * copy, size)
        append(c, READY, LAST_READY, column(run, C_NEXT), copy)
        activate(engine, c)


def choose(run: int, c: int) -> int:
    """The copy that sends its next segment: of the highest priority the first, or the one that has had fewest turns."""
    best = get(c + READY)
    turns = get(run + TAKES_TURNS)
    copy = get(column(run, C_NEXT) + 8 * best)
    priority = get(column(run, S_PRIORITY) + 8 * get(column(run, C_SEND) + 8 * best))
    while copy >= 0:
        its = get(column(run, S_PRIORITY) + 8 * get(column(run, C_SEND) + 8 * copy))
        fewer = turns and get(column(run, C_TURNS) + 8 * copy) < get(column(run, C_TURNS) + 8 * best)
        if its > priority or (its == priority and fewer):
            best, priority = copy, its
        copy = get(column(run, C_NEXT) + 8 * copy)
    return best


def remove_ready(run: int, c: int, copy: int) -> None:
    """Take a copy out of the list of those that have something to send."""
    after = get(column(run, C_NEXT) + 8 * copy)
    if get(c + READY) == copy:
        put(c + READY, after)
        return
    before = get(c + READY)
    while get(column(run, C_NEXT) + 8 * before) != copy:
        before = get(column(run, C_NEXT) + 8 * before)
    put(column(run, C_NEXT) + 8 * before, after)
    if after < 0:
        put(c + LAST_READY, before)


def collect(run: int, c: int) -> bool:
    """Queue the next frame of the run; False if there is none, or no room."""
    if not has_room(c):
        return False
    signal = get(c + SIGNALS)
    if signal >= 0:
        put(c + SIGNALS, get(column(run, G_NEXT) + 8 * signal))
        put(run + SIGNALS_LEFT, get(run + SIGNALS_LEFT) - 1)
        queue_header(c, SIGNAL, get(run + NUMBER), get(column(run, G_ROW) + 8 * signal), 0, run + OWN_CALL, 0, 0)
        return True
    if get(c + READY) < 0:
        return False
    copy = choose(run, c)
    index = get(column(run, C_SEND) + 8 * copy)
    left, place = get(column(run, C_LEFT) + 8 * copy), get(column(run, C_PLACE) + 8 * copy)
    count = min(left, SEGMENT_BYTES)
    if get(column(run, S_BEGAN) + 8 * index) == 0:
        put(column(run, S_BEGAN) + 8 * index, clock_ns())
    total, row = get(column(run, C_TOTAL) + 8 * copy), get(column(run, S_ROW) + 8 * index)
    queue_header(c, DATA, get(run + NUMBER), row, count, run + OWN_CALL, total, total - left)
    if count:
        queue(c, place, count)
    put(column(run, C_PLACE) + 8 * copy, place + count)
    put(column(run, C_LEFT) + 8 * copy, left - count)
    put(column(run, C_TURNS) + 8 * copy, get(column(run, C_TURNS) + 8 * copy) + 1)
    if left == count:
        remove_ready(run, c, copy)
        put(column(run, C_END) + 8 * copy, get(c + SENT_BYTES) + get(c + UNSENT_BYTES))
        append(c, UNDER_WAY, LAST_UNDER_WAY, column(run, C_NEXT), copy)
    return True


def flush(engine: int, c: int) -> None:
    """Send what the kernel takes now. An error breaks the connection; reading from it tells why."""
    message = get(engine + MESSAGE)
    while get(c + UNSENT_AT) < get(c + UNSENT_COUNT):
        put(message + 16, get(c + UNSENT) + 16 * get(c + UNSENT_AT))
        put(message + 24, get(c + UNSENT_COUNT) - get(c + UNSENT_AT))
        sent = send(get(c + FD), message)
        if sent == -EAGAIN or sent == -EINTR:
            return
        if sent < 0:
            put(c + BROKEN, 1)
            put(c + UNSENT_BYTES, 0)
            break
        put(c + UNSENT_BYTES, get(c + UNSENT_BYTES) - sent)
        put(c + SENT_BYTES, get(c + SENT_BYTES) + sent)
        while get(c + UNSENT_AT) < get(c + UNSENT_COUNT):
            part = get(c + UNSENT) + 16 * get(c + UNSENT_AT)
            if sent < get(part + 8):
                put(part, get(part) + sent)
                put(part + 8, get(part + 8) - sent)
                return  # the kernel is full
            sent -= get(part + 8)
            put(c + UNSENT_AT, get(c + UNSENT_AT) + 1)
    put(c + UNSENT_AT, 0)
    put(c + UNSENT_COUNT, 0)
    put(c + HEADER_COUNT, 0)


def write(engine: int, c: int) -> bool:
    """Send up to ``BATCHES_AT_ONCE`` batches; returns whether there is more to send now."""
    group = get(c + GROUP)
    for _ in range(BATCHES_AT_ONCE):
        run = get(group + CURRENT)
        if get(c + BROKEN) or get(c + CLOSED) or get(group + FAILED):
            while run and get(c + SIGNALS) >= 0:  # nobody is there to be told
                put(c + SIGNALS, get(column(run, G_NEXT) + 8 * get(c + SIGNALS)))
                put(run + SIGNALS_LEFT, get(run + SIGNALS_LEFT) - 1)
            return False
        if run:
            while get(c + UNSENT_BYTES) < BATCH_BYTES and collect(run, c):
                pass
        if get(c + UNSENT_COUNT) == 0:
            return False
        flush(engine, c)
        if run:
            end_copies(engine, run, c)
        if get(c + UNSENT_COUNT):
            return False  # the poller tells when the kernel takes more
    return True


def end_copies(engine: int, run: int, c: int) -> None:
    """Note the transfers of which the kernel has taken the last byte."""
    while get(c + UNDER_WAY) >= 0 and get(column(run, C_END) + 8 * get(c + UNDER_WAY)) <= get(c + SENT_BYTES):
        copy = get(c + UNDER_WAY)
        put(c + UNDER_WAY, get(column(run, C_NEXT) + 8 * copy))
        index = get(column(run, C_SEND) + 8 * copy)
        put(column(run, S_GONE) + 8 * index, clock_ns())
        put(run + UNSENT_COPIES, get(run + UNSENT_COPIES) - 1)
        put(c + UNSENT_HERE, get(c + UNSENT_HERE) - 1)
        leave_version(engine, run, get(column(run, S_VERSION) + 8 * index))


def say_done(engine: int, c: int) -> None:
    """Tell a peer that this process has finished the run of which it has not said so yet."""
    if get(c + OWES_DONE) and get(c + BROKEN) == 0 and get(c + CLOSED) == 0 and has_room(c):
        queue_header(c, DONE_FRAME, get(c + OWES_DONE), 0, 0, c + OWED_CALL, 0, 0)
        put(c + OWES_DONE, 0)
        activate(engine, c)


def register(engine: int, c: int) -> None:
    """Register with the poller the events that a connection now waits for."""
    stopped = get(c + STATE) == AHEAD or get(c + STATE) == PARKED or get(c + STATE) == HELD
    events = 0 if stopped or get(c + CLOSED) else READABLE
    if get(c + UNSENT_COUNT) and get(c + CLOSED) == 0 and get(c + BROKEN) == 0:
        events |= WRITABLE
    if get(get(c + GROUP) + FAILED):
        events = 0
    before = get(c + WATCHED)
    if events == before:
        return
    put(c + WATCHED, events)
    event = get(engine + MESSAGE) + 64
    put(event, events)
    put(event + EVENT_DATA, c)
    watch(get(engine + POLLER), 2 if events == 0 else 1 if before == 0 else 3, get(c + FD), event)

"""The receiving side of connections in compiled code: bytes become frames, which go to the streams of groups."""

from __future__ import annotations

from .kernel_frames import end_piece, leave_stream, replay, take_data, take_frame, wait_ahead
from .kernel_layout import (
    AHEAD, BEGUN, CALL, CLOSED, CONNECTIONS, CONNECTION_COUNT, CURRENT, DONE, EARLY, E_WHOLE, FAILED, FURTHER, GROUP,
    HEADER_READ, HEARD_AT, HEARD_RUN_AT, HELD, HERE, KEEPS, KIND, LANDING, LENGTH, LOOK_AT, NEXT_STREAM, NO_FRAME,
    PARKED, PARKED_COUNT, PARTS, PAYLOAD, PLACE, READY, ROW, RUN, R_AHEAD, R_DRY_AT, R_DRY_BYTES, R_GOT, R_VERSION,
    SIGNALS, TOLD, TOO_LONG, TOTAL, UNKNOWN_KIND, UNPARKED, WIRE, W_AT, W_BUFFER, W_CLOSED, W_END, W_FD, W_HEAD,
    W_KIND, W_LENGTH, W_LOW, W_READ_AT, W_SKIP, W_STATE, W_STREAM, W_STREAMS, W_TARGET, W_TARGET_LEFT, W_UNIX,
    W_WRONG, column,
)  # fmt: skip
from .machine import EAGAIN, EINTR, clock_ns, get, get_byte, move, put, receive_parts, set_low
from .kernel_rows import PIECE_BYTES, fail
from .kernel_queue import ABORT, BYE_FRAME, DATA, HEADER_BYTES, LEAVE_FRAME, PING, FURTHER_BYTE
from .kernel_sending import SEGMENT_BYTES, activate, register

READ_BYTES, READS_AT_ONCE = 1 << 16, 8
WAKE_BYTES, CALL_BYTES, TEXT_BYTES = 1 << 16, 24, 1024
"""As of :mod:`stretto.runtime.mesh` and :mod:`stretto.runtime.wire`."""


def close(engine: int, w: int, why: int) -> None:
    """Handle a closed connection: its peer has failed where something is still expected of it."""
    put(w + W_CLOSED, why)
    register(engine, w)
    c = get(w + W_STREAMS)
    while c:
        if get(c + CLOSED) == 0:
            leave_stream(c, why)
        c = get(c + NEXT_STREAM)


def read(engine: int, w: int) -> None:
    """Read what a peer has sent, ``READS_AT_ONCE`` times at most."""
    for _ in range(READS_AT_ONCE):
        state = get(w + W_STATE)
        if get(w + W_CLOSED) or (state != HEADER_READ and state != PAYLOAD) or has_failed(w):
            break
        count = fill(engine, w)
        if count == -EAGAIN or count == -EINTR:
            note_dry(w)
            break
        if count <= 0:
            close(engine, w, 1 - count)
            return
        put(w + W_READ_AT, clock_ns())
        if get(w + W_STREAM):
            hear(w, get(w + W_STREAM))
        look(engine, w)
        if count < READ_BYTES:  # the kernel had no more
            note_dry(w)
            break
    doze(w)


def note_dry(w: int) -> None:
    """Note when all that had come of a row was first read, and how much: what comes later comes as the network gives
    it, while earlier bytes may have waited in the kernel."""
    c = get(w + W_STREAM)
    if get(w + W_STATE) != PAYLOAD or get(w + W_SKIP) or c == 0 or get(c + KEEPS) or get(c + KIND) != DATA:
        return
    group, receive = get(c + GROUP), get(c + LANDING)
    run = get(group + CURRENT) if group else 0
    if run == 0 or get(column(run, R_DRY_AT) + 8 * receive):
        return
    ahead = get(column(run, R_AHEAD) + 8 * receive)
    piece = ahead if get(column(run, R_VERSION) + 8 * receive) < 0 else min(ahead, PIECE_BYTES)
    put(column(run, R_DRY_AT) + 8 * receive, clock_ns())
    put(column(run, R_DRY_BYTES) + 8 * receive, get(column(run, R_GOT) + 8 * receive) + piece - get(w + W_TARGET_LEFT))


def has_failed(w: int) -> bool:
    """Whether a connection is that of one group alone, which has failed."""
    return get(w + W_HEAD) == 0 and get(get(get(w + W_STREAM) + GROUP) + FAILED) != 0


def hear(w: int, c: int) -> None:
    """Note that a peer has said something in a group."""
    now, group = get(w + W_READ_AT), get(c + GROUP)
    put(c + HEARD_AT, max(now, get(c + HEARD_AT)))
    run = get(group + CURRENT) if group else 0
    if run:
        put(run + HEARD_RUN_AT, max(now, get(run + HEARD_RUN_AT)))


def fill(engine: int, w: int) -> int:
    """Receive what is there: first the rest of the target, then more into the buffer; the number of bytes."""
    buffer, at, end = get(w + W_BUFFER), get(w + W_AT), get(w + W_END)
    if at:
        move(buffer, buffer + at, end - at)
        end -= at
        put(w + W_AT, 0)
        put(w + W_END, end)
    parts, target = get(engine + PARTS), get(w + W_TARGET_LEFT)
    put(parts, get(w + W_TARGET))
    put(parts + 8, target)
    put(parts + 16, buffer + end)
    put(parts + 24, READ_BYTES - end)
    count = receive_parts(get(w + W_FD), parts if target else parts + 16, 2 if target else 1)
    if count > 0:
        filled = min(count, target)
        put(w + W_TARGET, get(w + W_TARGET) + filled)
        put(w + W_TARGET_LEFT, target - filled)
        put(w + W_END, end + count - filled)
    return count


def doze(w: int) -> None:
    """Let the kernel wake this process only when a good part of a payload has come, not for each packet."""
    left = get(w + W_TARGET_LEFT)
    low = min(left, WAKE_BYTES) if left > WAKE_BYTES // 8 else 1
    if low != get(w + W_LOW) and get(w + W_UNIX) == 0:
        put(w + W_LOW, low)
        set_low(get(w + W_FD), w + W_LOW)


def look(engine: int, w: int) -> None:
    """Handle what has been received from a peer, until the rest must wait."""
    while not has_failed(w):
        state, head = get(w + W_STATE), get(w + W_HEAD)
        at, have = get(w + W_BUFFER) + get(w + W_AT), get(w + W_END) - get(w + W_AT)
        if get(w + W_SKIP):
            count = min(have, get(w + W_SKIP))
            put(w + W_AT, get(w + W_AT) + count)
            put(w + W_SKIP, get(w + W_SKIP) - count)
            if get(w + W_SKIP):
                return
        elif state == PAYLOAD:
            count = min(have, get(w + W_TARGET_LEFT))
            if count:
                move(get(w + W_TARGET), at, count)
                put(w + W_TARGET, get(w + W_TARGET) + count)
                put(w + W_TARGET_LEFT, get(w + W_TARGET_LEFT) - count)
                put(w + W_AT, get(w + W_AT) + count)
            if get(w + W_TARGET_LEFT):
                return
            c = get(w + W_STREAM)
            if get(c + KEEPS):
                end_kept(engine, c)
            else:
                end_piece(engine, c)
        elif state == HEADER_READ and have >= head + HEADER_BYTES:
            c = stream_of(w, number_at(at, 4)) if head else get(w + W_STREAM)
            wrong = decode(w, c, at + head)
            if wrong and (head or get(get(c + GROUP) + CURRENT) == 0):
                hold_back(engine, w, wrong)
                return
            if wrong:
                fail(get(c + GROUP), c, wrong, -1, get(w + W_KIND), get(w + W_LENGTH))
                return
            put(w + W_AT, get(w + W_AT) + head + HEADER_BYTES)
            if head:
                take_of_stream(engine, w, c, number_at(at + 4, 8))
            else:
                take_frame(engine, c)
        else:
            return


def stream_of(w: int, number: int) -> int:
    """The stream of a number, or 0 if the group has left or failed: nobody wants its frames."""
    c = get(w + W_STREAMS)
    while c:
        if get(c + HERE) == number:
            group = get(c + GROUP)
            return c if group and get(group + FAILED) == 0 else 0
        c = get(c + NEXT_STREAM)
    return 0


def hold_back(engine: int, w: int, wrong: int) -> None:
    """Read no more: what came is no frame, and the groups are told: now, or when they begin a run."""
    put(w + W_STATE, HELD)
    put(w + W_WRONG, wrong)
    register(engine, w)
    c = get(w + W_STREAMS)
    while c:
        group = get(c + GROUP)
        if group and get(group + CURRENT):
            fail(group, c, wrong, -1, get(w + W_KIND), get(w + W_LENGTH))
        c = get(c + NEXT_STREAM)


def take_of_stream(engine: int, w: int, c: int, taken: int) -> None:
    """Handle a frame of a connection that groups share; ``taken`` is what the peer has taken of this stream."""
    put(w + W_STREAM, c)
    if c == 0:
        put(w + W_SKIP, get(w + W_LENGTH))
        return
    hear(w, c)
    if taken > get(c + TOLD):
        put(c + TOLD, min(taken, 1 << 62))
    if get(c + KIND) <= PING and get(c + RUN) > get(c + BEGUN):
        put(c + BEGUN, get(c + RUN))
        put(c + DONE, max(get(c + DONE), get(c + RUN) - 1))
    if get(c + READY) >= 0 or get(c + SIGNALS) >= 0:
        activate(engine, c)
    if get(c + EARLY) and get(c + KIND) != PING:
        wait_ahead(engine, c)
    else:
        take_frame(engine, c)
        if get(w + W_STATE) == HEADER_READ:  # a frame with a payload that nobody takes has failed its group
            put(w + W_SKIP, get(w + W_LENGTH))


def end_kept(engine: int, c: int) -> None:
    """A frame that is kept is here whole."""
    put(get(c + WIRE) + W_STATE, HEADER_READ)
    put(get(c + KEEPS) + E_WHOLE, 1)
    put(c + KEEPS, 0)
    if get(get(c + GROUP) + CURRENT):
        replay(engine, c)


def decode(w: int, c: int, at: int) -> int:
    """Read a header into the words of a stream (of none if that is 0); returns what is wrong with it, or 0."""
    wrong = 0
    kind, length = get_byte(at + 2), number_at(at + 12, 4)
    if number_at(at, 2) != 0x5C7E:
        wrong = NO_FRAME
        kind = number_at(at, 2)
    elif kind < DATA or kind > (LEAVE_FRAME if get(w + W_HEAD) else BYE_FRAME):
        wrong = UNKNOWN_KIND
    elif length > (SEGMENT_BYTES if kind == DATA else TEXT_BYTES if kind == ABORT else 0):
        wrong = TOO_LONG
    put(w + W_KIND, kind)
    put(w + W_LENGTH, length)
    if c:
        put(c + KIND, kind)
        put(c + RUN, number_at(at + 4, 4))
        put(c + ROW, number_at(at + 8, 4))
        put(c + LENGTH, length)
        move(c + CALL, at + 16, CALL_BYTES)
        put(c + TOTAL, number_at(at + 40, 8))
        put(c + PLACE, number_at(at + 48, 8))
        put(c + FURTHER, get_byte(at + FURTHER_BYTE))
    return wrong


def number_at(at: int, count: int) -> int:
    """The number in some bytes, the highest first."""
    value = 0
    for i in range(count):
        value = (value << 8) | get_byte(at + i)
    return value


def resume(engine: int, w: int) -> None:
    """Read on where a connection waits for a run of one group, since another group needs it now."""
    group = get(get(w + W_STREAM) + GROUP) if get(w + W_STREAM) else 0
    if get(w + W_STATE) == AHEAD:
        put(w + W_STATE, HEADER_READ)
        look(engine, w)
        register(engine, w)
    elif get(w + W_STATE) == PARKED and group:
        put(w + W_STATE, UNPARKED)
        go_on(engine, get(group + CURRENT), group)
    else:
        return
    put(engine + LOOK_AT, 0)  # another group's run may have ended, or failed


def go_on(engine: int, run: int, group: int) -> None:
    """Read on where a connection was parked and need not be any longer."""
    again = True
    while again:
        again = False
        for i in range(get(group + CONNECTION_COUNT)):
            c = get(get(group + CONNECTIONS) + 8 * i)
            w = get(c + WIRE)
            if get(w + W_STATE) == UNPARKED and get(w + W_STREAM) == c and get(group + FAILED) == 0:
                put(run + PARKED_COUNT, get(run + PARKED_COUNT) - 1)
                put(w + W_STATE, HEADER_READ)
                take_data(engine, run, c, False)
                look(engine, w)
                register(engine, w)
                again = True

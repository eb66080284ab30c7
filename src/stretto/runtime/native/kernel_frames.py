"""The receiving side of a run in compiled code: what :mod:`stretto.runtime.incoming` does, by the same rules."""

from __future__ import annotations

from .kernel_chunks import add_piece, comes_early
from .kernel_layout import (
    AHEAD, AT, BEGUN, BUFFER, BYE, CALL, CALLS, CLOSED, CONDEMNED, CONNECTION_COUNT, CONNECTIONS, CURRENT,
    CUT_ELEMENT, DONE, END, FAILED, FD, GROUP, HEADER_READ, HEARD_AT, HEARD_RUN_AT, HELD, ITEM_BYTES, KIND, L_BYTES,
    LANDING, LENGTH, LOOK_AT, LOW, MAIN, NO_DATA_DUE, NO_FRAME, NUMBER, OTHER_CALL, OTHER_PLACE, OTHER_TOTAL, PARKED,
    PARKED_COUNT, PARTS, PAYLOAD, PLACE, R_AHEAD, R_ARRAY, R_CONNECTION, R_GOT, R_SLOT, R_STATE, R_VERSION, ROW, RUN,
    RUNS, STATE, TARGET, TARGET_LEFT, TEXT, TEXT_BYTES_READ, TOLD, TOO_LONG, TOO_MUCH, TOTAL, UNIX, UNKNOWN_KIND,
    UNPARKED, WRONG_RUN, column,
)  # fmt: skip
from .machine import EAGAIN, EINTR, clock_ns, get, get_byte, move, put, receive_parts, set_low
from .kernel_rows import (
    PIECE_BYTES, arrived, closing, fail, find_row, is_awaited, is_complete, is_pending, land, needs, take_signal,
)  # fmt: skip
from .kernel_sending import HEADER_BYTES, SEGMENT_BYTES, register

READ_BYTES, READS_AT_ONCE = 1 << 16, 8
PARKED_BYTES, WAKE_BYTES = 1 << 16, 1 << 16
"""As of :mod:`stretto.runtime.incoming` and :mod:`stretto.runtime.mesh`."""
PATIENCE_NS = 5_000_000
"""As of :mod:`stretto.runtime.incoming`."""
CALLS_KEPT, CALL_BYTES, TEXT_BYTES = 64, 24, 1024
DATA, SIGNAL, DONE_FRAME, PING, ABORT, BYE_FRAME = 1, 2, 3, 4, 5, 6


def close(engine: int, c: int, why: int) -> None:
    """Handle a closed connection: its peer has failed if something is still expected on it."""
    put(c + CLOSED, why)
    register(engine, c)
    group = get(c + GROUP)
    run = get(group + CURRENT)
    if run and is_awaited(run, c):
        fail(group, c, closing(c), -1, get(c + CLOSED) - 1, 0)


def read(engine: int, c: int) -> None:
    """Read what a peer has sent, ``READS_AT_ONCE`` times at most."""
    for _ in range(READS_AT_ONCE):
        state = get(c + STATE)
        if get(c + CLOSED) or state == AHEAD or state == PARKED or state >= UNPARKED or get(get(c + GROUP) + FAILED):
            break
        count = fill(engine, c)
        if count == -EAGAIN or count == -EINTR:
            break
        if count <= 0:
            close(engine, c, 1 - count)
            return
        now = clock_ns()
        put(c + HEARD_AT, now)
        run = get(get(c + GROUP) + CURRENT)
        if run:
            put(run + HEARD_RUN_AT, now)
        look(engine, c)
        if count < READ_BYTES:  # the kernel had no more
            break
    doze(c)


def fill(engine: int, c: int) -> int:
    """Receive what is there: first the rest of the target, then more into the buffer; the number of bytes."""
    buffer, at, end = get(c + BUFFER), get(c + AT), get(c + END)
    if at:
        move(buffer, buffer + at, end - at)
        end -= at
        put(c + AT, 0)
        put(c + END, end)
    parts, target = get(engine + PARTS), get(c + TARGET_LEFT)
    put(parts, get(c + TARGET))
    put(parts + 8, target)
    put(parts + 16, buffer + end)
    put(parts + 24, READ_BYTES - end)
    count = receive_parts(get(c + FD), parts if target else parts + 16, 2 if target else 1)
    if count > 0:
        filled = min(count, target)
        put(c + TARGET, get(c + TARGET) + filled)
        put(c + TARGET_LEFT, target - filled)
        put(c + END, end + count - filled)
    return count


def doze(c: int) -> None:
    """Let the kernel wake this process only when a good part of a payload has come, not for each packet."""
    left = get(c + TARGET_LEFT)
    low = min(left, WAKE_BYTES) if left > WAKE_BYTES // 8 else 1
    if low != get(c + LOW) and get(c + UNIX) == 0:
        put(c + LOW, low)
        set_low(get(c + FD), c + LOW)


def look(engine: int, c: int) -> None:
    """Handle what has been received from a peer, until the rest must wait."""
    while get(get(c + GROUP) + FAILED) == 0:
        state = get(c + STATE)
        at, have = get(c + BUFFER) + get(c + AT), get(c + END) - get(c + AT)
        if state == PAYLOAD:
            count = min(have, get(c + TARGET_LEFT))
            if count:
                move(get(c + TARGET), at, count)
                put(c + TARGET, get(c + TARGET) + count)
                put(c + TARGET_LEFT, get(c + TARGET_LEFT) - count)
                put(c + AT, get(c + AT) + count)
            if get(c + TARGET_LEFT):
                return
            end_piece(engine, c)
        elif state == HEADER_READ and have >= HEADER_BYTES:
            wrong = decode(c, at)
            if wrong and get(get(c + GROUP) + CURRENT) == 0:
                put(c + STATE, HELD)
                register(engine, c)
                return
            if wrong:
                fail(get(c + GROUP), c, wrong, -1, get(c + KIND), get(c + LENGTH))
                return
            put(c + AT, get(c + AT) + HEADER_BYTES)
            take_frame(engine, c)
        else:
            return


def number_at(at: int, count: int) -> int:
    """The number in some bytes, the highest first."""
    value = 0
    for i in range(count):
        value = (value << 8) | get_byte(at + i)
    return value


def decode(c: int, at: int) -> int:
    """Read a header; returns what is wrong with it, or 0."""
    wrong = 0
    kind, length = get_byte(at + 2), number_at(at + 12, 4)
    if number_at(at, 2) != 0x5C7E:
        wrong = NO_FRAME
        kind = number_at(at, 2)
    elif kind < DATA or kind > BYE_FRAME:
        wrong = UNKNOWN_KIND
    elif length > (SEGMENT_BYTES if kind == DATA else TEXT_BYTES if kind == ABORT else 0):
        wrong = TOO_LONG
    put(c + KIND, kind)
    put(c + RUN, number_at(at + 4, 4))
    put(c + ROW, number_at(at + 8, 4))
    put(c + LENGTH, length)
    move(c + CALL, at + 16, CALL_BYTES)
    put(c + TOTAL, number_at(at + 40, 8))
    put(c + PLACE, number_at(at + 48, 8))
    return wrong


def wait_ahead(engine: int, c: int) -> None:
    """Read no more until the run begins to which the frame belongs."""
    put(c + STATE, AHEAD)
    register(engine, c)


def take_frame(engine: int, c: int) -> None:
    """Handle a frame whose header has been read."""
    group = get(c + GROUP)
    if get(group + FAILED):
        return
    run, kind, number = get(group + CURRENT), get(c + KIND), get(c + RUN)
    put(c + STATE, HEADER_READ)
    if kind == ABORT:
        put(c + TEXT_BYTES_READ, get(c + LENGTH))
        expect(engine, c, get(c + TEXT), get(c + LENGTH))
        return
    if kind == BYE_FRAME:
        put(c + BYE, 1)
        return
    main = get(c + MAIN)
    if number > get(main + BEGUN):
        put(main + BEGUN, number)
        put(main + DONE, max(get(main + DONE), number - 1))
    if differs(group, c):
        if run:
            fail(group, c, OTHER_CALL, -1, number, 0)
        else:
            wait_ahead(engine, c)
    elif kind == PING:
        return
    elif kind == DONE_FRAME and number <= get(group + RUNS):
        put(c + DONE, max(get(c + DONE), number))
    elif number > get(group + RUNS):
        if run and needs(run, c):
            fail(group, c, WRONG_RUN, -1, kind, number)
            return
        put(c + DONE, max(get(c + DONE), get(group + RUNS)))
        wait_ahead(engine, c)
    elif run == 0:
        wait_ahead(engine, c)
    elif number < get(run + NUMBER):
        fail(group, c, WRONG_RUN, -1, kind, number)
    elif kind == SIGNAL:
        take_signal(engine, run, c)
    else:
        take_data(engine, run, c, True)


def differs(group: int, c: int) -> bool:
    """Whether a peer calls something else than this process, or did in an earlier run."""
    number = get(c + RUN)
    if number <= 0 or number > get(group + RUNS) or number <= get(group + RUNS) - CALLS_KEPT:
        return False
    own = get(group + CALLS) + CALL_BYTES * (number % CALLS_KEPT)
    return get(own) != get(c + CALL) or get(own + 8) != get(c + CALL + 8) or get(own + 16) != get(c + CALL + 16)


def take_data(engine: int, run: int, c: int, may_park: bool) -> None:
    """Handle the header of the next bytes of a transfer."""
    group, row, length = get(c + GROUP), get(c + ROW), get(c + LENGTH)
    receive = find_row(run, row)
    if receive < 0 or get(column(run, R_CONNECTION) + 8 * receive) != c or get(column(run, R_STATE) + 8 * receive) == 2:
        fail(group, c, NO_DATA_DUE, -1, row, 0)
        return
    size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
    landed = get(column(run, R_STATE) + 8 * receive) == 1
    got = get(column(run, R_GOT) + 8 * receive) if landed else 0
    if get(c + TOTAL) and get(c + TOTAL) != size:
        fail(group, c, OTHER_TOTAL, row, get(c + TOTAL), size)
        return
    if got + length > size or (length == 0 and (size or landed)):
        fail(group, c, TOO_MUCH, row, got + length, size)
        return
    if get(c + PLACE) != got:
        fail(group, c, OTHER_PLACE, row, length, get(c + PLACE))
        return
    if length % get(run + ITEM_BYTES):
        fail(group, c, CUT_ELEMENT, row, length, 0)
        return
    if not landed:
        if may_park and length >= PARKED_BYTES and comes_early(run, receive):
            put(c + STATE, PARKED)
            put(run + PARKED_COUNT, get(run + PARKED_COUNT) + 1)
            put(engine + LOOK_AT, min(get(engine + LOOK_AT), clock_ns() + PATIENCE_NS))
            register(engine, c)
            return
        land(engine, run, receive, size)
    put(column(run, R_AHEAD) + 8 * receive, length)
    put(c + LANDING, receive)
    expect_piece(engine, run, c, receive)


def expect_piece(engine: int, run: int, c: int, receive: int) -> None:
    """Read the next piece of a payload, or all of it."""
    ahead, array = get(column(run, R_AHEAD) + 8 * receive), get(column(run, R_ARRAY) + 8 * receive)
    if get(column(run, R_VERSION) + 8 * receive) < 0:
        expect(engine, c, array + get(column(run, R_GOT) + 8 * receive), ahead)
    else:
        expect(engine, c, array, min(ahead, PIECE_BYTES))


def expect(engine: int, c: int, place: int, count: int) -> None:
    """Read bytes into memory."""
    put(c + TARGET, place)
    put(c + TARGET_LEFT, count)
    put(c + STATE, PAYLOAD)
    if count == 0:
        end_payload(engine, c)


def end_piece(engine: int, c: int) -> None:
    """Handle a piece of a payload that has been read."""
    if get(c + KIND) == DATA:
        run, receive = get(get(c + GROUP) + CURRENT), get(c + LANDING)
        got, ahead = get(column(run, R_GOT) + 8 * receive), get(column(run, R_AHEAD) + 8 * receive)
        version, count = get(column(run, R_VERSION) + 8 * receive), ahead
        if version >= 0:
            count = min(ahead, PIECE_BYTES)
            add_piece(engine, run, version, got, get(column(run, R_ARRAY) + 8 * receive), count)
        put(column(run, R_GOT) + 8 * receive, got + count)
        put(column(run, R_AHEAD) + 8 * receive, ahead - count)
        if ahead > count:
            put(c + TARGET, get(column(run, R_ARRAY) + 8 * receive))
            put(c + TARGET_LEFT, min(ahead - count, PIECE_BYTES))
            return
    end_payload(engine, c)


def end_payload(engine: int, c: int) -> None:
    """Handle a frame that is here whole."""
    group = get(c + GROUP)
    run = get(group + CURRENT)
    put(c + STATE, HEADER_READ)
    if get(c + KIND) == ABORT:
        if get(group + CONDEMNED) == 0:
            put(group + CONDEMNED, c)
        if run and is_pending(run):
            fail(group, c, TOLD, -1, 0, 0)
        return
    receive = get(c + LANDING)
    if is_complete(run, receive):
        arrived(engine, run, c, receive)


def go_on(engine: int, run: int, group: int) -> None:
    """Read on where a connection was parked and need not be any longer."""
    again = True
    while again:
        again = False
        for i in range(get(group + CONNECTION_COUNT)):
            c = get(get(group + CONNECTIONS) + 8 * i)
            if get(c + STATE) == UNPARKED and get(group + FAILED) == 0:
                put(run + PARKED_COUNT, get(run + PARKED_COUNT) - 1)
                put(c + STATE, HEADER_READ)
                take_data(engine, run, c, False)
                look(engine, c)
                register(engine, c)
                again = True

"""What frames mean to a run in compiled code: what :mod:`stretto.runtime.incoming` does, by the same rules."""

from __future__ import annotations

from .kernel_buckets import is_paced
from .kernel_chunks import add_piece, comes_early, give_block, take_block
from .kernel_layout import (
    AHEAD, BEGUN, BYE, CALL, CALLS, CLOSED, CONDEMNED, CONDEMNED_NODE, CURRENT, CUT_ELEMENT, DONE, EARLY, E_FRAME,
    E_NEXT, E_PAYLOAD, E_WHOLE, FAILED, FURTHER, GROUP, HEADER_READ, ITEM_BYTES, KEEPS, KIND, LANDING, LAST_EARLY,
    LENGTH, LOOK_AT, L_BYTES, MAIN, NEXT_STREAM, NO_DATA_DUE, NUMBER, OTHER_CALL, OTHER_PLACE, OTHER_TOTAL, PARKED,
    PARKED_COUNT, PAYLOAD, PLACE, RECEIVE_COUNT, REPLAYS, ROW, RUN, RUNS, R_AHEAD, R_ARRAY, R_CONNECTION, R_GOT,
    R_ROW, R_SLOT, R_STATE, R_VERSION, TAKEN, TEXT, TEXT_BYTES_READ, TOLD, TOO_MUCH, TOTAL, WIRE, WRONG_RUN, W_AT,
    W_HEAD, W_SKIP, W_STATE, W_STREAM, W_STREAMS, W_TARGET, W_TARGET_LEFT, column,
)  # fmt: skip
from .machine import clock_ns, get, move, put
from .kernel_pacing import comes_late
from .kernel_rows import (
    PIECE_BYTES, arrived, closing, fail, find_row, is_awaited, is_complete, is_pending, land, needs, take_signal,
)  # fmt: skip
from .kernel_queue import ABORT, BYE_FRAME, DATA, DONE_FRAME, HEADER_BYTES, LEAVE_FRAME, PING, SIGNAL, STREAM_BYTES
from .kernel_sending import register

PARKED_BYTES, PATIENCE_NS = 1 << 16, 5_000_000
"""As of :mod:`stretto.runtime.incoming`."""
CALLS_KEPT, CALL_BYTES = 64, 24


def take_frame(engine: int, c: int) -> None:
    """Handle a frame whose header has been read."""
    group = get(c + GROUP)
    if get(group + FAILED):
        return
    run, kind, number = get(group + CURRENT), get(c + KIND), get(c + RUN)
    put(get(c + WIRE) + W_STATE, HEADER_READ)
    if kind == ABORT:
        put(c + TEXT_BYTES_READ, get(c + LENGTH))
        expect(engine, c, get(c + TEXT), get(c + LENGTH))
        return
    if kind == BYE_FRAME:
        put(c + BYE, 1)
        return
    if kind == LEAVE_FRAME:
        if get(c + CLOSED) == 0:
            leave_stream(c, 1)
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
    else:
        put(c + TAKEN, get(c + TAKEN) + STREAM_BYTES + HEADER_BYTES + get(c + LENGTH))
        if kind == SIGNAL:
            take_signal(engine, run, c)
        else:
            take_data(engine, run, c, get(c + REPLAYS) == 0 and not is_paced(run) and not others_need(get(c + WIRE), c))


def leave_stream(c: int, why: int) -> None:
    """Handle a peer that has left a group, or whose connection is closed."""
    put(c + CLOSED, why)
    group = get(c + GROUP)
    if group and get(group + CURRENT) and is_awaited(get(group + CURRENT), c):
        fail(group, c, closing(c), -1, why - 1, 0)


def differs(group: int, c: int) -> bool:
    """Whether a peer calls something else than this process, or did in an earlier run."""
    number = get(c + RUN)
    if number <= 0 or number > get(group + RUNS) or number <= get(group + RUNS) - CALLS_KEPT:
        return False
    own = get(group + CALLS) + CALL_BYTES * (number % CALLS_KEPT)
    return get(own) != get(c + CALL) or get(own + 8) != get(c + CALL + 8) or get(own + 16) != get(c + CALL + 16)


def wait_ahead(engine: int, c: int) -> None:
    """Do nothing with a frame until the run begins to which it belongs: read no more, or, where another group needs the
    connection meanwhile, keep it."""
    w = get(c + WIRE)
    if get(c + REPLAYS):
        put(c + REPLAYS, 2)
    elif others_need(w, c):
        keep_frame(engine, c)
    else:
        if get(w + W_HEAD):  # its header is read again then, after the frames that are kept
            put(w + W_AT, get(w + W_AT) - get(w + W_HEAD) - HEADER_BYTES)
        put(w + W_STATE, AHEAD)
        register(engine, w)


def others_need(w: int, c: int) -> bool:
    """Whether a group that shares the connection of a stream has a run: it must hear what its peer says."""
    other = get(w + W_STREAMS)
    while other:
        group = get(other + GROUP)
        if other != c and group and get(group + CURRENT):
            return True
        other = get(other + NEXT_STREAM)
    return False


def keep_frame(engine: int, c: int) -> None:
    """Keep a frame whose run has not begun; what follows it goes there, too."""
    w, length = get(c + WIRE), get(c + LENGTH)
    block = take_block(engine, E_PAYLOAD + length)
    put(block + E_NEXT, 0)
    put(block + E_WHOLE, 0 if length else 1)
    move(block + E_FRAME, c + KIND, E_PAYLOAD - E_FRAME)
    if get(c + EARLY):
        put(get(c + LAST_EARLY) + E_NEXT, block)
    else:
        put(c + EARLY, block)
    put(c + LAST_EARLY, block)
    if length:
        put(c + KEEPS, block)
        put(w + W_STREAM, c)
        put(w + W_TARGET, block + E_PAYLOAD)
        put(w + W_TARGET_LEFT, length)
        put(w + W_STATE, PAYLOAD)


def replay(engine: int, c: int) -> None:
    """Take the frames that came before the run that has begun, as far as they are here."""
    w = get(c + WIRE)
    state, stream = get(w + W_STATE), get(w + W_STREAM)
    target, left = get(w + W_TARGET), get(w + W_TARGET_LEFT)
    while get(c + EARLY) and get(get(c + EARLY) + E_WHOLE) and get(get(c + GROUP) + FAILED) == 0:
        block = get(c + EARLY)
        move(c + KIND, block + E_FRAME, E_PAYLOAD - E_FRAME)
        put(c + REPLAYS, 1)
        put(w + W_STATE, HEADER_READ)
        take_frame(engine, c)
        at, end = block + E_PAYLOAD, block + E_PAYLOAD + get(block + E_FRAME + LENGTH - KIND)
        while get(w + W_STATE) == PAYLOAD and at < end:
            count = min(end - at, get(w + W_TARGET_LEFT))
            move(get(w + W_TARGET), at, count)
            put(w + W_TARGET_LEFT, get(w + W_TARGET_LEFT) - count)
            at += count
            end_piece(engine, c)
        waits = get(c + REPLAYS) == 2
        put(c + REPLAYS, 0)
        if waits:
            break
        put(c + EARLY, get(block + E_NEXT))
        give_block(engine, block)
    put(w + W_STATE, state)
    put(w + W_STREAM, stream)
    put(w + W_TARGET, target)
    put(w + W_TARGET_LEFT, left)


def take_data(engine: int, run: int, c: int, may_park: bool) -> None:
    """Handle the header of the next bytes of a transfer."""
    group, row, length = get(c + GROUP), get(c + ROW), get(c + LENGTH)
    receive = find_row(run, row)
    if receive < 0 or get(column(run, R_CONNECTION) + 8 * receive) != c or get(column(run, R_STATE) + 8 * receive) == 2:
        fail(group, c, NO_DATA_DUE, -1, row, 0)
        return
    size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
    if get(c + FURTHER):
        take_several(engine, run, c, receive)
        return
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
            put(get(c + WIRE) + W_STATE, PARKED)
            put(run + PARKED_COUNT, get(run + PARKED_COUNT) + 1)
            put(engine + LOOK_AT, min(get(engine + LOOK_AT), clock_ns() + PATIENCE_NS))
            register(engine, get(c + WIRE))
            return
        land(engine, run, receive, size)
    put(column(run, R_AHEAD) + 8 * receive, length)
    put(c + LANDING, receive)
    expect_piece(engine, run, c, receive)


def take_several(engine: int, run: int, c: int, receive: int) -> None:
    """Handle the header of a frame that has several whole rows, from one on."""
    group, total, first = get(c + GROUP), 0, receive
    for i in range(get(c + FURTHER) + 1):
        receive = first + i
        if receive >= get(run + RECEIVE_COUNT) or get(column(run, R_ROW) + 8 * receive) != get(c + ROW) + i:
            fail(group, c, NO_DATA_DUE, -1, get(c + ROW) + i, 0)
            return
        if get(column(run, R_CONNECTION) + 8 * receive) != c or get(column(run, R_STATE) + 8 * receive):
            fail(group, c, NO_DATA_DUE, -1, get(c + ROW) + i, 0)
            return
        size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
        if size % get(run + ITEM_BYTES):
            fail(group, c, CUT_ELEMENT, get(c + ROW) + i, size, 0)
            return
        total += size
    if total != get(c + LENGTH) or total != get(c + TOTAL) or get(c + PLACE):
        fail(group, c, TOO_MUCH, get(c + ROW), get(c + LENGTH), total)
        return
    begin_row(engine, run, c, first)
    if get(get(c + WIRE) + W_TARGET_LEFT) == 0:
        end_payload(engine, c)


def begin_row(engine: int, run: int, c: int, receive: int) -> None:
    """Read a row of a frame that has several."""
    size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
    land(engine, run, receive, size)
    put(column(run, R_AHEAD) + 8 * receive, size)
    put(c + LANDING, receive)
    whole = get(column(run, R_VERSION) + 8 * receive) < 0
    aim(c, get(column(run, R_ARRAY) + 8 * receive), size if whole else min(size, PIECE_BYTES))


def expect_piece(engine: int, run: int, c: int, receive: int) -> None:
    """Read the next piece of a payload, or all of it."""
    ahead, array = get(column(run, R_AHEAD) + 8 * receive), get(column(run, R_ARRAY) + 8 * receive)
    if get(column(run, R_VERSION) + 8 * receive) < 0:
        expect(engine, c, array + get(column(run, R_GOT) + 8 * receive), ahead)
    else:
        expect(engine, c, array, min(ahead, PIECE_BYTES))


def expect(engine: int, c: int, place: int, count: int) -> None:
    """Read bytes into memory."""
    aim(c, place, count)
    if count == 0:
        end_payload(engine, c)


def aim(c: int, place: int, count: int) -> None:
    """Let the next bytes of a connection go into memory."""
    w = get(c + WIRE)
    put(w + W_STREAM, c)
    put(w + W_TARGET, place)
    put(w + W_TARGET_LEFT, count)
    put(w + W_STATE, PAYLOAD)


def end_piece(engine: int, c: int) -> None:
    """Handle a piece of a payload that has been read."""
    w = get(c + WIRE)
    if get(c + REPLAYS) == 0 and get(get(c + GROUP) + FAILED):
        put(w + W_STATE, HEADER_READ)
        put(w + W_SKIP, after_piece(c))
        return
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
            put(w + W_TARGET, get(column(run, R_ARRAY) + 8 * receive))
            put(w + W_TARGET_LEFT, min(ahead - count, PIECE_BYTES))
            return
    end_payload(engine, c)


def after_piece(c: int) -> int:
    """The bytes that follow the piece of a payload that is being read."""
    run, receive = get(get(c + GROUP) + CURRENT), get(c + LANDING)
    if get(c + KEEPS) or get(c + KIND) != DATA or run == 0:
        return 0
    count = 0
    for i in range(get(c + FURTHER)):
        count += get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * (receive + 1 + i)))
    if get(column(run, R_VERSION) + 8 * receive) < 0:
        return count
    return count + max(0, get(column(run, R_AHEAD) + 8 * receive) - PIECE_BYTES)


def end_payload(engine: int, c: int) -> None:
    """Handle a frame that is here whole."""
    group = get(c + GROUP)
    run = get(group + CURRENT)
    put(get(c + WIRE) + W_STATE, HEADER_READ)
    if get(c + KIND) == ABORT:
        if get(group + CONDEMNED) == 0:
            put(group + CONDEMNED, c)
            put(group + CONDEMNED_NODE, get(c + ROW))
        if run and is_pending(run):
            fail(group, c, TOLD, -1, 0, 0)
        return
    receive = get(c + LANDING)
    while is_complete(run, receive):
        if not comes_late(engine, run, receive):
            arrived(engine, run, c, receive)
        if get(c + FURTHER) == 0:
            return
        put(c + FURTHER, get(c + FURTHER) - 1)
        receive += 1
        begin_row(engine, run, c, receive)
        if get(get(c + WIRE) + W_TARGET_LEFT):
            return
        put(get(c + WIRE) + W_STATE, HEADER_READ)

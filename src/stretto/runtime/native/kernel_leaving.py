"""How groups leave the compiled loop: what they say last, and that nothing refers to their memory any more."""

from __future__ import annotations

from .kernel_chunks import drop_chunks, give_block, take_block
from .kernel_frames import after_piece
from .kernel_layout import (
    ACTIVE, AHEAD, CONNECTION_COUNT, CONNECTIONS, CURRENT, E_NEXT, EARLY, FAILED, GROUP, GROUPS, HEADER_READ, HERE,
    KEEPS, LAST_CULPRIT, LAST_RUN_NUMBER, LAST_TEXT, LAST_TEXT_BYTES, LAST_WORDS, LENGTH, MESSAGE, NEXT_GROUP, OFF,
    PARKED, PAYLOAD, RUNS, SAY_ABORT, UNPARKED, W_BROKEN, W_CLOSED, W_HEAD, W_IS_ACTIVE, W_NEXT_ACTIVE, W_OWNERS,
    W_SKIP, W_SPARE, W_STATE, W_STREAM, W_TARGET_LEFT, W_TURNS, W_UNSENT, W_UNSENT_AT, W_UNSENT_COUNT, WIRE,
)  # fmt: skip
from .kernel_reading import look
from .kernel_sending import activate, detach, end_turn, register, say_done, write
from .machine import get, give, move, put

NOTHING = -1


def wake(engine: int, descriptor: int) -> None:
    """Set an event."""
    room = get(engine + MESSAGE) + 96
    put(room, 1)
    give(descriptor, room, 8)


def drop_group(engine: int, group: int, last: int) -> None:
    """Forget a group: connections that are its own are Python's again, and its streams on others end.

    Args:
        last: the address of what is said at the end of streams: the parts, who is at fault, and the bytes and the
            address of the reason.
    """
    before = engine + GROUPS
    while get(before) and get(before) != group:
        before = get(before) + NEXT_GROUP
    if get(before) == 0:
        return
    put(before, get(group + NEXT_GROUP))
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(get(c + WIRE) + W_HEAD):
            end_stream(engine, group, c, last)
        else:
            say_done(engine, c)
            write(engine, get(c + WIRE))
    leave_connections(engine, group)
    if get(group + CURRENT):
        drop_chunks(engine, get(group + CURRENT))


def end_stream(engine: int, group: int, c: int, last: int) -> None:
    """Let nothing refer to a group's memory, and say its last words when there is room."""
    w, run = get(c + WIRE), get(group + CURRENT)
    copy_unsent(engine, c)
    if get(w + W_STREAM) == c:
        state = get(w + W_STATE)
        if state == PARKED or state == UNPARKED:
            put(w + W_SKIP, get(c + LENGTH))
        elif state == PAYLOAD:
            put(w + W_SKIP, get(w + W_TARGET_LEFT) + (after_piece(c) if run else 0))
        if state == PARKED or state == UNPARKED or state == PAYLOAD or state == AHEAD:
            put(w + W_STATE, HEADER_READ)
        put(w + W_TARGET_LEFT, 0)
        put(w + W_STREAM, 0)
    while get(c + EARLY):
        block = get(c + EARLY)
        put(c + EARLY, get(block + E_NEXT))
        give_block(engine, block)
    put(c + KEEPS, 0)
    put(c + HERE, NOTHING)
    put(c + GROUP, 0)
    put(c + LAST_RUN_NUMBER, get(group + RUNS))
    put(c + LAST_WORDS, get(last))
    put(c + LAST_CULPRIT, get(last + 8))
    put(c + LAST_TEXT_BYTES, get(last + 16))
    if get(last) & SAY_ABORT:
        text = take_block(engine, 8 + get(last + 16))
        move(text + 8, get(last + 24), get(last + 16))
        put(c + LAST_TEXT, text)
    activate(engine, c)
    look(engine, w)
    register(engine, w)


def copy_unsent(engine: int, c: int) -> None:
    """Copy what waits to be sent and lies in memory of a group that leaves."""
    w = get(c + WIRE)
    for i in range(get(w + W_UNSENT_AT), get(w + W_UNSENT_COUNT)):
        if get(get(w + W_OWNERS) + 8 * i) == c:
            part = get(w + W_UNSENT) + 16 * i
            block = take_block(engine, 8 + get(part + 8))
            move(block + 8, get(part), get(part + 8))
            put(block, get(w + W_SPARE))
            put(w + W_SPARE, block)
            put(part, block + 8)
            put(get(w + W_OWNERS) + 8 * i, 0)


def leave_connections(engine: int, group: int) -> None:
    """Listen no more to the connections that are a group's own."""
    if get(group + FAILED) == 0:
        put(group + FAILED, NOTHING)
    for k in range(get(group + CONNECTION_COUNT)):
        w = get(get(get(group + CONNECTIONS) + 8 * k) + WIRE)
        if get(w + W_HEAD) == 0:
            register(engine, w)
            deactivate(engine, w)


def deactivate(engine: int, w: int) -> None:
    """Take a connection off the list of those that have something to send."""
    before = engine + ACTIVE
    while get(before) and get(before) != w:
        before = get(before) + W_NEXT_ACTIVE
    if get(before):
        put(before, get(w + W_NEXT_ACTIVE))
        put(w + W_IS_ACTIVE, 0)


def drop_wires(engine: int, request: int) -> None:
    """Leave connections that no group uses any more.

    Args:
        request: words: how many, an event, whether to leave them although something is still to be sent, whether any
            was left to send, and the connections.
    """
    waits = 0
    for k in range(get(request)):
        w = get(request + 32 + 8 * k)
        if get(w + W_BROKEN) == 0 and get(w + W_CLOSED) == 0:
            write(engine, w)
            waits += 1 if get(w + W_UNSENT_COUNT) or get(w + W_TURNS) else 0
    put(request + 24, waits)
    for k in range(get(request) if waits == 0 or get(request + 16) else 0):
        w = get(request + 32 + 8 * k)
        put(w + W_STATE, OFF)
        register(engine, w)
        deactivate(engine, w)
        while get(w + W_TURNS):
            c = end_turn(w)
            if get(c + LAST_WORDS):
                put(c + LAST_WORDS, 0)
                detach(c)
    wake(engine, get(request + 8))

"""What a run still waits for, and what happens when a row has arrived, in compiled code."""

from __future__ import annotations

from .kernel_chunks import arrive, comes_early, finish_row, give_block, memory_for, next_on, take_block
from .kernel_layout import (
    A_CONNECTION, A_ROW, A_SEEN, A_WAKES, A_WAKES_OF, AWAITED_COUNT, BROKE, BYE, CLOSED, CONNECTION_COUNT,
    CONNECTIONS, CULPRIT, DETAIL, DIED, DONE, FAILED, FAILED_ROW, G_CONNECTION, G_NEXT, GROUP, L_BYTES, LAST_SIGNAL,
    MAIN, MISSING, MISSING_HERE, NO_SIGNAL_DUE, NUMBER, PARKED, PARKED_COUNT, PEER, R_ARRAY, R_ARRIVED, R_CAME,
    R_CONNECTION, R_COPIES, R_GOT, R_ROW, R_SIGNALS, R_SLOT, R_STATE, R_VERSION, R_WAKES, R_WAKES_OF, RECEIVE_COUNT,
    ROW, S_WAITS, SAID_BYE, SECOND_DETAIL, SIGNALS, SIGNALS_DUE, SIGNALS_HERE, TAKES_PART, UNPARKED, UNSENT_COPIES,
    UNSENT_HERE, W_STATE, W_STREAM, WIRE, column,
)  # fmt: skip
from .machine import clock_ns, get, put
from .kernel_buckets import append
from .kernel_sending import activate, ready

PIECE_BYTES = 1 << 18
"""As of :mod:`stretto.runtime.incoming`."""


def fail(group: int, culprit: int, code: int, row: int, detail: int, second: int) -> None:
    """Give up the group because of the peer of a connection; the first reason counts."""
    if get(group + FAILED) == 0:
        put(group + FAILED, code)
        put(group + CULPRIT, culprit)
        put(group + FAILED_ROW, row)
        put(group + DETAIL, detail)
        put(group + SECOND_DETAIL, second)


def is_pending(run: int) -> bool:
    """Whether a row is still to be received or sent, or a signal is missing."""
    return get(run + MISSING) + get(run + UNSENT_COPIES) + get(run + SIGNALS_DUE) > 0


def needs(run: int, c: int) -> bool:
    """Whether something is still to be received or sent on a connection."""
    if get(c + UNSENT_HERE) > 0 or get(c + SIGNALS_HERE) > 0:
        return True
    if get(c + MISSING_HERE) == 0:
        return False
    for receive in range(get(run + RECEIVE_COUNT)):
        if get(column(run, R_CONNECTION) + 8 * receive) == c and not is_complete(run, receive):
            return True
    return False


def is_complete(run: int, receive: int) -> bool:
    """Whether all bytes of a row are here."""
    state = get(column(run, R_STATE) + 8 * receive)
    size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
    return state == 2 or (state == 1 and get(column(run, R_GOT) + 8 * receive) >= size)


def is_awaited(run: int, c: int) -> bool:
    """Whether a run that has not ended waits for the peer of a connection."""
    if get(c + TAKES_PART) == 0 or not is_pending(run):
        return False
    return get(get(c + MAIN) + DONE) < get(run + NUMBER) or needs(run, c)


def closing(c: int) -> int:
    """The code of why a connection is closed."""
    if get(c + CLOSED) > 1:
        return BROKE
    return SAID_BYE if get(c + BYE) else DIED


def take_signal(engine: int, run: int, c: int) -> None:
    """A row has happened at a peer, for which rows here may wait."""
    for awaited in range(get(run + AWAITED_COUNT)):
        source = get(column(run, A_CONNECTION) + 8 * awaited)
        seen = column(run, A_SEEN) + 8 * awaited
        here = get(column(run, A_ROW) + 8 * awaited) == get(c + ROW) and get(source + PEER) == get(c + PEER)
        if here and get(seen) == 0:
            put(seen, clock_ns())
            put(run + SIGNALS_DUE, get(run + SIGNALS_DUE) - 1)
            put(source + SIGNALS_HERE, get(source + SIGNALS_HERE) - 1)
            wake_rows(engine, run, A_WAKES, A_WAKES_OF, awaited)
            return
    fail(get(c + GROUP), c, NO_SIGNAL_DUE, -1, get(c + ROW), 0)


def wake_rows(engine: int, run: int, lists: int, values: int, index: int) -> None:
    """Release the sends that wait for something that has happened."""
    first, last = get(column(run, lists) + 8 * index), get(column(run, lists) + 8 * index + 8)
    for i in range(first, last):
        waiting = get(column(run, values) + 8 * i)
        waits = column(run, S_WAITS) + 8 * waiting
        put(waits, get(waits) - 1)
        if get(waits) == 0:
            ready(engine, run, waiting)


def find_row(run: int, row: int) -> int:
    """The receive of a row; -1 if there is none."""
    low, high = 0, get(run + RECEIVE_COUNT)
    while low < high:
        middle = (low + high) // 2
        if get(column(run, R_ROW) + 8 * middle) < row:
            low = middle + 1
        else:
            high = middle
    return low if low < get(run + RECEIVE_COUNT) and get(column(run, R_ROW) + 8 * low) == row else -1


def land(engine: int, run: int, receive: int, size: int) -> None:
    """Begin an arrival: it is stored, or added piece by piece to the sum in which it is next."""
    version = next_on(run, receive)
    if version < 0:
        array = memory_for(engine, run, receive, get(column(run, R_COPIES) + 8 * receive))
    else:
        array = take_block(engine, min(size, PIECE_BYTES))
    put(column(run, R_VERSION) + 8 * receive, version)
    put(column(run, R_ARRAY) + 8 * receive, array)
    put(column(run, R_STATE) + 8 * receive, 1)
    put(column(run, R_GOT) + 8 * receive, 0)
    put(column(run, R_CAME) + 8 * receive, clock_ns())


def arrived(engine: int, run: int, c: int, receive: int) -> None:
    """A row is here."""
    put(column(run, R_STATE) + 8 * receive, 2)
    put(column(run, R_ARRIVED) + 8 * receive, clock_ns())
    put(run + MISSING, get(run + MISSING) - 1)
    put(c + MISSING_HERE, get(c + MISSING_HERE) - 1)
    array = get(column(run, R_ARRAY) + 8 * receive)
    if get(column(run, R_VERSION) + 8 * receive) < 0:
        arrive(engine, run, receive, array)
    else:
        give_block(engine, array)
        finish_row(engine, run, receive)
    first, last = get(column(run, R_SIGNALS) + 8 * receive), get(column(run, R_SIGNALS) + 8 * receive + 8)
    for signal in range(first, last):
        to = get(column(run, G_CONNECTION) + 8 * signal)
        append(to, SIGNALS, LAST_SIGNAL, column(run, G_NEXT), signal)
        activate(engine, to)
    wake_rows(engine, run, R_WAKES, R_WAKES_OF, receive)
    if get(run + PARKED_COUNT):
        unpark_next(run, get(c + GROUP), get(column(run, R_SLOT) + 8 * receive))


def unpark_next(run: int, group: int, slot: int) -> None:
    """Let parked rows of a chunk go on whose turn to be added has come."""
    for i in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * i)
        w = get(c + WIRE)
        if get(w + W_STATE) == PARKED and get(w + W_STREAM) == c:
            receive = find_row(run, get(c + ROW))
            if get(column(run, R_SLOT) + 8 * receive) == slot and not comes_early(run, receive):
                put(w + W_STATE, UNPARKED)

"""The sending side of a run in compiled code: which bytes go next, in frames, many by one system call."""

from __future__ import annotations

from .kernel_buckets import append, choose, choose_due, fill_bucket, first_due, is_paced, remove_ready
from .kernel_chunks import give_block, leave_version
from .kernel_layout import (
    ACTIVE, AHEAD, BEGUN, CLOSED, CURRENT, C_CONNECTION, C_END, C_LEFT, C_NEXT, C_PLACE, C_SEND, C_TOTAL, C_TURNS,
    FAILED, GONE, GROUP, G_NEXT, G_ROW, HAS_TURN, HELD, LAST_CULPRIT, LAST_READY, LAST_RUN_NUMBER, LAST_TEXT,
    LAST_TEXT_BYTES, LAST_UNDER_WAY, LAST_WORDS, LOOK_AT, L_BYTES, MESSAGE, MOST_CHUNKS, MOST_UNSENT, NEXT_STREAM,
    NEXT_TURN, NUMBER, OFF, OWED_CALL, OWES_DONE, OWES_WORD, OWN_CALL, PACING, PARKED, POLLER, READY, SAY_ABORT,
    SAY_BYE, SENT, SIGNALS, SIGNALS_LEFT, S_BEGAN, S_COPIES, S_GONE, S_MESSAGE, S_ROW, S_SLOT, S_VERSION, TOLD,
    T_DUE, T_RATE, T_SEGMENT, UNDER_WAY, UNSENT_COPIES, UNSENT_HERE, V_ARRAY, WIRE, W_BROKEN, W_CLOSED, W_FD,
    W_HEAD, W_HEADER_COUNT, W_IS_ACTIVE, W_LAST_TURN, W_NEXT_ACTIVE, W_SENT_BYTES, W_SPARE, W_STATE, W_STREAM,
    W_STREAMS, W_TURNS, W_UNSENT, W_UNSENT_AT, W_UNSENT_BYTES, W_UNSENT_COUNT, W_WATCHED, column,
)  # fmt: skip
from .kernel_queue import (
    ABORT, BYE_FRAME, DATA, DONE_FRAME, FURTHER_BYTE, HEADER_BYTES, LEAVE_FRAME, PING, SIGNAL, STREAM_BYTES,
    has_room, queue, queue_header,
)  # fmt: skip
from .machine import EAGAIN, EINTR, EVENT_DATA, clock_ns, get, put, put_byte, send, watch

SEGMENT_BYTES = 1 << 20
BATCH_BYTES, BATCHES_AT_ONCE = 1 << 18, 4
"""As of :mod:`stretto.runtime.loop`."""
EARLY_BYTES = 1 << 22
"""Bytes, headers counted, that a stream may send to a peer that has not begun the run to which they belong."""
READABLE, WRITABLE = 1, 4
"""Linux's ``EPOLLIN`` and ``EPOLLOUT``."""


def activate(engine: int, c: int) -> None:
    """Let a stream send when this round of events has been handled."""
    w = get(c + WIRE)
    if get(c + HAS_TURN) == 0:
        put(c + HAS_TURN, 1)
        put(c + NEXT_TURN, 0)
        if get(w + W_TURNS):
            put(get(w + W_LAST_TURN) + NEXT_TURN, c)
        else:
            put(w + W_TURNS, c)
        put(w + W_LAST_TURN, c)
    activate_wire(engine, w)


def activate_wire(engine: int, w: int) -> None:
    """Let the streams of a connection send when this round of events has been handled."""
    if get(w + W_IS_ACTIVE) == 0:
        put(w + W_IS_ACTIVE, 1)
        put(w + W_NEXT_ACTIVE, get(engine + ACTIVE))
        put(engine + ACTIVE, w)


def end_turn(w: int) -> int:
    """Take the stream whose turn it is out of the list."""
    c = get(w + W_TURNS)
    put(w + W_TURNS, get(c + NEXT_TURN))
    put(c + HAS_TURN, 0)
    return c


def may_send(run: int, c: int, length: int) -> bool:
    """Whether a frame of the run may go: the peer has begun the run, or keeps no more than it may of what is early."""
    if get(get(c + WIRE) + W_HEAD) == 0 or get(c + BEGUN) >= get(run + NUMBER):
        return True
    return get(c + SENT) + STREAM_BYTES + HEADER_BYTES + length <= get(c + TOLD) + EARLY_BYTES


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
        if is_paced(run):
            fill_bucket(run, index, copy)
        append(c, READY, LAST_READY, column(run, C_NEXT), copy)
        activate(engine, c)


def collect_next(engine: int, w: int) -> bool:
    """Queue a frame of the stream whose turn it is, or end its turn; False if none has a turn, or there is no room."""
    if get(w + W_TURNS) == 0 or not has_room(w):
        return False
    c = end_turn(w)
    if collect(engine, c):
        activate(engine, c)
    return True


def collect(engine: int, c: int) -> bool:
    """Queue the next frame of a stream; False if there is none that may go now."""
    w, group = get(c + WIRE), get(c + GROUP)
    if get(c + LAST_WORDS):
        return say_last(c)
    if group == 0:
        return False
    run = get(group + CURRENT)
    if get(group + FAILED) or get(c + CLOSED):
        if run:
            drop_signals(run, c)
        return False
    if run == 0:
        return False
    if get(c + OWES_WORD):
        queue_header(c, PING, get(run + NUMBER), 0, 0, run + OWN_CALL, 0, 0)
        return True
    signal = get(c + SIGNALS)
    if signal >= 0:
        if not may_send(run, c, 0):
            return False
        put(c + SIGNALS, get(column(run, G_NEXT) + 8 * signal))
        put(run + SIGNALS_LEFT, get(run + SIGNALS_LEFT) - 1)
        queue_header(c, SIGNAL, get(run + NUMBER), get(column(run, G_ROW) + 8 * signal), 0, run + OWN_CALL, 0, 0)
        return True
    if get(c + READY) < 0:
        return False
    pacing, paced = get(run + PACING), is_paced(run)
    copy = choose_due(run, c) if paced else choose(run, c)
    if copy < 0:
        put(engine + LOOK_AT, min(get(engine + LOOK_AT), first_due(run, c)))
        return False
    together = 1 if paced else count_together(run, w, copy)
    if together > 1:
        return collect_together(run, c, copy, together)
    index = get(column(run, C_SEND) + 8 * copy)
    left, place = get(column(run, C_LEFT) + 8 * copy), get(column(run, C_PLACE) + 8 * copy)
    count = min(left, get(column(pacing, T_SEGMENT) + 8 * index) if paced else SEGMENT_BYTES)
    if not may_send(run, c, count):
        return False
    if paced and get(column(pacing, T_RATE) + 8 * index):
        due = column(pacing, T_DUE) + 8 * copy
        put(due, get(due) + count * 1_000_000_000 // get(column(pacing, T_RATE) + 8 * index))
    if get(column(run, S_BEGAN) + 8 * index) == 0:
        put(column(run, S_BEGAN) + 8 * index, clock_ns())
    total, row = get(column(run, C_TOTAL) + 8 * copy), get(column(run, S_ROW) + 8 * index)
    queue_header(c, DATA, get(run + NUMBER), row, count, run + OWN_CALL, total, total - left)
    if count:
        queue(w, place, count, c)
    put(column(run, C_PLACE) + 8 * copy, place + count)
    put(column(run, C_LEFT) + 8 * copy, left - count)
    put(column(run, C_TURNS) + 8 * copy, get(column(run, C_TURNS) + 8 * copy) + 1)
    if left == count:
        remove_ready(run, c, copy)
        put(column(run, C_END) + 8 * copy, get(w + W_SENT_BYTES) + get(w + W_UNSENT_BYTES))
        append(c, UNDER_WAY, LAST_UNDER_WAY, column(run, C_NEXT), copy)
    return True


def count_together(run: int, w: int, copy: int) -> int:
    """How many copies go in one frame, from one on: whole chunks of one message that are ready."""
    index = get(column(run, C_SEND) + 8 * copy)
    row, message = get(column(run, S_ROW) + 8 * index), get(column(run, S_MESSAGE) + 8 * index)
    size, most = get(column(run, C_LEFT) + 8 * copy), min(MOST_CHUNKS, MOST_UNSENT - get(w + W_UNSENT_COUNT) - 1)
    if message < 0 or size != get(column(run, C_TOTAL) + 8 * copy):
        return 1
    count = 1
    while count < most:
        copy = get(column(run, C_NEXT) + 8 * copy)
        if copy < 0:
            return count
        index = get(column(run, C_SEND) + 8 * copy)
        size += get(column(run, C_TOTAL) + 8 * copy)
        its_row, its_message = get(column(run, S_ROW) + 8 * index), get(column(run, S_MESSAGE) + 8 * index)
        if its_message != message or its_row != row + count or size > SEGMENT_BYTES:
            return count
        count += 1
    return count


def collect_together(run: int, c: int, copy: int, count: int) -> bool:
    """Queue a frame of several copies, from one on; False if it may not go now."""
    w, size, last = get(c + WIRE), 0, copy
    for _ in range(count):
        size += get(column(run, C_LEFT) + 8 * last)
        last = get(column(run, C_NEXT) + 8 * last)
    if not may_send(run, c, size):
        return False
    row = get(column(run, S_ROW) + 8 * get(column(run, C_SEND) + 8 * copy))
    header = queue_header(c, DATA, get(run + NUMBER), row, size, run + OWN_CALL, size, 0)
    put_byte(header + FURTHER_BYTE, count - 1)
    end, now = get(w + W_SENT_BYTES) + get(w + W_UNSENT_BYTES) + size, clock_ns()
    for _ in range(count):
        after, index = get(column(run, C_NEXT) + 8 * copy), get(column(run, C_SEND) + 8 * copy)
        if get(column(run, S_BEGAN) + 8 * index) == 0:
            put(column(run, S_BEGAN) + 8 * index, now)
        if get(column(run, C_LEFT) + 8 * copy):
            queue(w, get(column(run, C_PLACE) + 8 * copy), get(column(run, C_LEFT) + 8 * copy), c)
        put(column(run, C_LEFT) + 8 * copy, 0)
        put(column(run, C_END) + 8 * copy, end)
        remove_ready(run, c, copy)
        append(c, UNDER_WAY, LAST_UNDER_WAY, column(run, C_NEXT), copy)
        copy = after
    return True


def drop_signals(run: int, c: int) -> None:
    """Send the signals of a stream no more: nobody is there to be told."""
    while get(c + SIGNALS) >= 0:
        put(c + SIGNALS, get(column(run, G_NEXT) + 8 * get(c + SIGNALS)))
        put(run + SIGNALS_LEFT, get(run + SIGNALS_LEFT) - 1)


def say_last(c: int) -> bool:
    """Queue the next of the last words of a group that has left, and say whether there are more; then the stream is
    gone."""
    w, words, number = get(c + WIRE), get(c + LAST_WORDS), get(c + LAST_RUN_NUMBER)
    if get(c + OWES_DONE):
        queue_done(c)
    elif words & SAY_ABORT:
        count = get(c + LAST_TEXT_BYTES)
        queue_header(c, ABORT, number, get(c + LAST_CULPRIT), count, c + OWED_CALL, 0, 0)
        text = get(c + LAST_TEXT)
        put(c + LAST_TEXT, 0)
        queue(w, text + 8, count, 0)
        put(text, get(w + W_SPARE))
        put(w + W_SPARE, text)
        put(c + LAST_WORDS, words & ~SAY_ABORT)
    elif words & SAY_BYE:
        queue_header(c, BYE_FRAME, number, 0, 0, c + OWED_CALL, 0, 0)
        put(c + LAST_WORDS, words & ~SAY_BYE)
    else:
        queue_header(c, LEAVE_FRAME, number, 0, 0, c + OWED_CALL, 0, 0)
        put(c + LAST_WORDS, 0)
        detach(c)
        return False
    return True


def detach(c: int) -> None:
    """Take a stream off its connection, which has no turn any more."""
    w = get(c + WIRE)
    before = w + W_STREAMS
    while get(before) != c:
        before = get(before) + NEXT_STREAM
    put(before, get(c + NEXT_STREAM))
    if get(w + W_STREAM) == c:
        put(w + W_STREAM, 0)
    put(c + GONE, 1)


def flush(engine: int, w: int) -> None:
    """Send what the kernel takes now. An error breaks the connection; reading from it tells why."""
    message = get(engine + MESSAGE)
    while get(w + W_UNSENT_AT) < get(w + W_UNSENT_COUNT):
        put(message + 16, get(w + W_UNSENT) + 16 * get(w + W_UNSENT_AT))
        put(message + 24, get(w + W_UNSENT_COUNT) - get(w + W_UNSENT_AT))
        sent = send(get(w + W_FD), message)
        if sent == -EAGAIN or sent == -EINTR:
            return
        if sent < 0:
            put(w + W_BROKEN, 1)
            put(w + W_UNSENT_BYTES, 0)
            break
        put(w + W_UNSENT_BYTES, get(w + W_UNSENT_BYTES) - sent)
        put(w + W_SENT_BYTES, get(w + W_SENT_BYTES) + sent)
        while get(w + W_UNSENT_AT) < get(w + W_UNSENT_COUNT):
            part = get(w + W_UNSENT) + 16 * get(w + W_UNSENT_AT)
            if sent < get(part + 8):
                put(part, get(part) + sent)
                put(part + 8, get(part + 8) - sent)
                return  # the kernel is full
            sent -= get(part + 8)
            put(w + W_UNSENT_AT, get(w + W_UNSENT_AT) + 1)
    put(w + W_UNSENT_AT, 0)
    put(w + W_UNSENT_COUNT, 0)
    put(w + W_HEADER_COUNT, 0)
    while get(w + W_SPARE):
        block = get(w + W_SPARE)
        put(w + W_SPARE, get(block))
        give_block(engine, block)


def write(engine: int, w: int) -> bool:
    """Send up to ``BATCHES_AT_ONCE`` batches; returns whether there is more to send now."""
    for _ in range(BATCHES_AT_ONCE):
        if get(w + W_BROKEN) or get(w + W_CLOSED):
            give_up_turns(w)
            return False
        while get(w + W_UNSENT_BYTES) < BATCH_BYTES and collect_next(engine, w):
            pass
        if get(w + W_UNSENT_COUNT) == 0:
            return False
        flush(engine, w)
        c = get(w + W_STREAMS)
        while c:
            group = get(c + GROUP)
            if group and get(group + CURRENT) and get(group + FAILED) == 0:
                end_copies(engine, get(group + CURRENT), c)
            c = get(c + NEXT_STREAM)
        if get(w + W_UNSENT_COUNT):
            return False  # the poller tells when the kernel takes more
    return True


def give_up_turns(w: int) -> None:
    """Nothing more can be sent on a connection."""
    while get(w + W_TURNS):
        c = end_turn(w)
        group = get(c + GROUP)
        if group and get(group + CURRENT):
            drop_signals(get(group + CURRENT), c)
        if get(c + LAST_WORDS):
            put(c + LAST_WORDS, 0)
            detach(c)


def end_copies(engine: int, run: int, c: int) -> None:
    """Note the transfers of which the kernel has taken the last byte."""
    sent_bytes = get(get(c + WIRE) + W_SENT_BYTES)
    while get(c + UNDER_WAY) >= 0 and get(column(run, C_END) + 8 * get(c + UNDER_WAY)) <= sent_bytes:
        copy = get(c + UNDER_WAY)
        put(c + UNDER_WAY, get(column(run, C_NEXT) + 8 * copy))
        index = get(column(run, C_SEND) + 8 * copy)
        put(column(run, S_GONE) + 8 * index, clock_ns())
        put(run + UNSENT_COPIES, get(run + UNSENT_COPIES) - 1)
        put(c + UNSENT_HERE, get(c + UNSENT_HERE) - 1)
        leave_version(engine, run, get(column(run, S_VERSION) + 8 * index))


def say_done(engine: int, c: int) -> bool:
    """Tell a peer that this process has finished the run of which it has not said so yet; False where there is no room
    for that now."""
    w = get(c + WIRE)
    if get(c + OWES_DONE) == 0 or get(w + W_BROKEN) or get(c + CLOSED):
        return True
    if not has_room(w):
        return False
    queue_done(c)
    activate_wire(engine, w)
    return True


def queue_done(c: int) -> None:
    """Queue the word that a run is done."""
    queue_header(c, DONE_FRAME, get(c + OWES_DONE), 0, 0, c + OWED_CALL, 0, 0)
    put(c + OWES_DONE, 0)


def register(engine: int, w: int) -> None:
    """Register with the poller the events that a connection now waits for."""
    state = get(w + W_STATE)
    stopped = state == AHEAD or state == PARKED or state == HELD or state == OFF
    events = 0 if stopped or get(w + W_CLOSED) else READABLE
    if get(w + W_UNSENT_COUNT) and get(w + W_CLOSED) == 0 and get(w + W_BROKEN) == 0:
        events |= WRITABLE
    if state == OFF or (get(w + W_HEAD) == 0 and get(get(get(w + W_STREAM) + GROUP) + FAILED)):
        events = 0
    before = get(w + W_WATCHED)
    if events == before:
        return
    put(w + W_WATCHED, events)
    event = get(engine + MESSAGE) + 64
    put(event, events)
    put(event + EVENT_DATA, w)
    watch(get(engine + POLLER), 2 if events == 0 else 1 if before == 0 else 3, get(w + W_FD), event)

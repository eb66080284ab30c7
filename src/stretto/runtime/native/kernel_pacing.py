"""A run that keeps the starts and rates of its plan, or whose arrivals are late, in compiled code: what
:mod:`stretto.runtime.pacing` does, by the same rules."""

from __future__ import annotations

from .kernel_buckets import first_due
from .kernel_layout import (
    CONNECTION_COUNT, CONNECTIONS, LATE_COUNT, LOOK_AT, KEEPS_TIMES, NEXT_START, PACING, READY, R_CONNECTION,
    STARTED_AT, START_COUNT, S_WAITS, T_DELAY, T_LATE, T_LATE_AT, T_ORDER, T_START, column,
)  # fmt: skip
from .kernel_rows import arrived
from .kernel_sending import activate, ready
from .machine import clock_ns, get, put


def keep_pace(engine: int, run: int, group: int, now: int) -> None:
    """Begin and end what is due, and look again when more will be."""
    pacing = get(run + PACING)
    while get(pacing + LATE_COUNT) and get(column(pacing, T_LATE_AT)) <= now:
        receive = pop_late(pacing)
        arrived(engine, run, get(column(run, R_CONNECTION) + 8 * receive), receive)
    if get(pacing + LATE_COUNT):
        put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(column(pacing, T_LATE_AT))))
    if get(pacing + KEEPS_TIMES) == 0:
        return
    while get(pacing + NEXT_START) < get(run + START_COUNT):
        index = get(column(pacing, T_ORDER) + 8 * get(pacing + NEXT_START))
        at = get(run + STARTED_AT) + get(column(pacing, T_START) + 8 * index)
        if at > now:
            put(engine + LOOK_AT, min(get(engine + LOOK_AT), at))
            break
        put(pacing + NEXT_START, get(pacing + NEXT_START) + 1)
        waits = column(run, S_WAITS) + 8 * index
        put(waits, get(waits) - 1)
        if get(waits) == 0:
            ready(engine, run, index)
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + READY) >= 0:
            due = first_due(run, c)
            if due <= now:
                activate(engine, c)
            else:
                put(engine + LOOK_AT, min(get(engine + LOOK_AT), due))


def comes_late(engine: int, run: int, receive: int) -> bool:
    """Whether a row that is here arrives later only; then it waits."""
    pacing = get(run + PACING)
    if pacing == 0 or get(column(pacing, T_DELAY) + 8 * receive) == 0:
        return False
    at = clock_ns() + get(column(pacing, T_DELAY) + 8 * receive)
    push_late(pacing, at, receive)
    put(engine + LOOK_AT, min(get(engine + LOOK_AT), at))
    return True


def push_late(pacing: int, at: int, receive: int) -> None:
    """Put an arrival into the heap."""
    times, receives = column(pacing, T_LATE_AT), column(pacing, T_LATE)
    i = get(pacing + LATE_COUNT)
    put(pacing + LATE_COUNT, i + 1)
    while i and get(times + 8 * ((i - 1) // 2)) > at:
        put(times + 8 * i, get(times + 8 * ((i - 1) // 2)))
        put(receives + 8 * i, get(receives + 8 * ((i - 1) // 2)))
        i = (i - 1) // 2
    put(times + 8 * i, at)
    put(receives + 8 * i, receive)


def pop_late(pacing: int) -> int:
    """Take the first arrival out of the heap."""
    times, receives = column(pacing, T_LATE_AT), column(pacing, T_LATE)
    count = get(pacing + LATE_COUNT) - 1
    put(pacing + LATE_COUNT, count)
    first, at, receive = get(receives), get(times + 8 * count), get(receives + 8 * count)
    i = 0
    while 2 * i + 1 < count:
        child = 2 * i + 1
        if child + 1 < count and get(times + 8 * (child + 1)) < get(times + 8 * child):
            child += 1
        if get(times + 8 * child) >= at:
            break
        put(times + 8 * i, get(times + 8 * child))
        put(receives + 8 * i, get(receives + 8 * child))
        i = child
    put(times + 8 * i, at)
    put(receives + 8 * i, receive)
    return first

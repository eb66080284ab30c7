"""Which of the transfers that are ready on a connection sends its next segment, in compiled code."""

from __future__ import annotations

from .kernel_layout import (
    AHEAD_NS, C_NEXT, C_SEND, C_TURNS, KEEPS_TIMES, LAST_READY, PACING, READY, STARTED_AT, S_PRIORITY, TAKES_TURNS,
    T_DUE, T_RATE, T_START, column,
)  # fmt: skip
from .machine import clock_ns, get, put


def is_paced(run: int) -> bool:
    """Whether sends have starts and rates."""
    return get(run + PACING) != 0 and get(get(run + PACING) + KEEPS_TIMES) != 0


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


def fill_bucket(run: int, index: int, copy: int) -> None:
    """Let the first segment of a copy go when the bucket of its send is full: where the plan gives starts it is then,
    and what is late catches up."""
    pacing, due = get(run + PACING), 0
    if get(column(pacing, T_RATE) + 8 * index):
        ahead_ns = get(pacing + AHEAD_NS)
        starts_at = get(run + STARTED_AT) + get(column(pacing, T_START) + 8 * index)
        due = starts_at - ahead_ns if ahead_ns >= 0 else clock_ns()
    put(column(pacing, T_DUE) + 8 * copy, due)


def first_due(run: int, c: int) -> int:
    """When the first of the copies that are ready on a connection may send its next segment."""
    dues, copy = column(get(run + PACING), T_DUE), get(c + READY)
    due = get(dues + 8 * copy)
    while copy >= 0:
        due = min(due, get(dues + 8 * copy))
        copy = get(column(run, C_NEXT) + 8 * copy)
    return due


def choose_due(run: int, c: int) -> int:
    """The copy of a paced run that sends its next segment: of those that may, of the highest priority the one that is
    most behind, or, where the network decides, that has had fewest turns; -1 if none may."""
    dues, now, best, priority, least = column(get(run + PACING), T_DUE), clock_ns(), -1, 0, 0
    turns = get(run + TAKES_TURNS)
    copy = get(c + READY)
    while copy >= 0:
        its, due = get(column(run, S_PRIORITY) + 8 * get(column(run, C_SEND) + 8 * copy)), get(dues + 8 * copy)
        order = get(column(run, C_TURNS) + 8 * copy) if turns and due == 0 else due
        if due <= now and (best < 0 or its > priority or (its == priority and order < least)):
            best, priority, least = copy, its, order
        copy = get(column(run, C_NEXT) + 8 * copy)
    return best

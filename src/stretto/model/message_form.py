"""The form of the column ``message``: which transfers may be one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Int64, Ragged

if TYPE_CHECKING:
    from .plan import Plan

SHARING = ("timed", "ready-order")
"""Ways of sharing links in which a message may carry several chunks."""


def wrong_message(plan: Plan) -> tuple[int | None, str] | None:
    """What is wrong with the messages of a plan: the first transfer concerned, None if it is all, and the reason."""
    message = plan.message
    if message is None or not len(message):
        return None
    if plan.sharing not in SHARING:
        return None, f"messages of several chunks are for plans that share by {' or '.join(SHARING)}"
    if plan.topology.planes or plan.other_src is not None:
        return None, "messages of several chunks are for networks without optical planes, and have one source each"
    steps = np.diff(message)
    if message[0] != 0 or ((steps != 0) & (steps != 1)).any():
        return None, "column 'message' must begin at 0 and rise by at most 1 from transfer to transfer"
    rows = np.flatnonzero(steps == 0) + 1  # each is in the message of the transfer before it
    stores = plan.topology.store_and_forward
    ends_store = stores[plan.src]
    ends_store[plan.dst.owners[~stores[plan.dst.values]]] = False
    unlike: list[tuple[Any, str]] = [
        (plan.src[rows] != plan.src[rows - 1], "has another source"),
        (_differ(plan.dst, rows), "has another receiver"),
        (_differ(plan.route, rows), "has another route"),
        (_changes(plan.workload.chunk_collective[plan.chunk], rows), "is of another collective"),
        (~ends_store[rows], "begins or ends at a node that sends on what still comes"),
    ]
    for name in ("group", "start_s", "finish_s"):
        if (column := getattr(plan, name)) is not None:
            unlike.append((_changes(column, rows), f"has another {name!r}"))
    for bad, words in unlike:
        if bad.any():
            k = int(rows[int(bad.argmax())])
            return k, f"{words}, though it is in one message with transfer {k - 1}"
    waits = plan.depends
    inside = message[waits.owners] == message[waits.values]
    if inside.any():
        k = int(waits.owners[int(inside.argmax())])
        return k, f"depends on transfer {int(waits.values[int(inside.argmax())])} of its own message"
    order = np.lexsort((plan.chunk, message))
    twice = (np.diff(message[order]) == 0) & (np.diff(plan.chunk[order]) == 0)
    if twice.any():
        k = int(order[1:][int(twice.argmax())])
        return k, f"carries chunk {int(plan.chunk[k])}, which is in its message already"
    return None


def _changes(column: Any, rows: Int64) -> Any:
    return column[rows] != column[rows - 1]


def _differ(lists: Ragged, rows: Int64) -> Any:
    """bool[rows], whether the list of a row is another one than that of the row before."""
    here, before = lists.take(rows), lists.take(rows - 1)
    differ = here.lengths != before.lengths
    if not differ.any():
        differ[here.owners[here.values != before.values]] = True
    return differ

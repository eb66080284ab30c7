"""Where the words of the compiled loop are: of the engine, a group, a connection and a run.

All numbers are 64-bit words at addresses; a constant is the distance in bytes from the beginning of its record. The
records are memory of NumPy arrays, which Python makes (:mod:`.records`) and keeps alive.
"""

from __future__ import annotations

from .machine import get

# --- the engine -----------------------------------------------------------------------------------
(
    POLLER, COMMANDS, EVENTS, PARTS, MESSAGE, GROUPS, ACTIVE, POOL, POOL_KINDS, KEPT_BYTES, LOOK_AT, ENDED, STOPS,
    ENGINE_WORDS,
) = range(0, 8 * 14, 8)  # fmt: skip
"""POLLER, COMMANDS: descriptors. EVENTS, PARTS, MESSAGE: memory for system calls. GROUPS, ACTIVE: the first of the
groups, and of the connections that have something to send. POOL: pairs of words, a size and its first free block.
LOOK_AT: when to look after runs again. ENDED: a pipe that tells who listens of ended runs. STOPS: whether to end."""

MOST_EVENTS, MOST_COMMANDS, MOST_POOL_KINDS = 64, 32, 1024

# --- a group --------------------------------------------------------------------------------------
(
    NEXT_GROUP, RUNS, CURRENT, FIRST_RUN, LAST_RUN, CONNECTIONS, CONNECTION_COUNT, CALLS, FAILED, CULPRIT, FAILED_ROW,
    DETAIL, SECOND_DETAIL, CONDEMNED, REPORTED, GROUP_ENGINE, DONE_AT, GROUP_WORDS,
) = range(0, 8 * 18, 8)  # fmt: skip
"""CURRENT: the run that is running; FIRST_RUN, LAST_RUN: those that wait for it. CALLS: the codes of the last
``CALLS_KEPT`` runs. FAILED: why the group has failed, one of the codes below, or 0; CULPRIT: a connection to who is at
fault, or 0 for this process; FAILED_ROW: the row that shows it, or -1. CONDEMNED: the connection whose peer says who is
at fault. REPORTED: whether Python was told that. DONE_AT: when to say that runs are done, if no frame does."""

(
    DIED, SAID_BYE, BROKE, NO_FRAME, UNKNOWN_KIND, TOO_LONG, WRONG_RUN, NO_SIGNAL_DUE, NO_DATA_DUE, OTHER_TOTAL,
    TOO_MUCH, CUT_ELEMENT, SILENT, OVER, OTHER_CALL, TOLD, OTHER_PLACE,
) = range(1, 18)  # fmt: skip
"""Codes of failures. DETAIL and SECOND_DETAIL are what the words of :mod:`.failures` need."""

# --- a connection ---------------------------------------------------------------------------------
(
    FD, GROUP, PEER, MAIN, WATCHED, UNIX, BUFFER, AT, END, STATE, KIND, RUN, ROW, LENGTH, TOTAL, PLACE, CALL, CALL_1,
    CALL_2, TARGET, TARGET_LEFT, LANDING, BEGUN, DONE, HEARD_AT, LOW, CLOSED, BROKEN, BYE, TEXT, TEXT_BYTES_READ,
    HEADERS, HEADER_COUNT, UNSENT, UNSENT_AT, UNSENT_COUNT, UNSENT_BYTES, SENT_BYTES, READY, LAST_READY, UNDER_WAY,
    LAST_UNDER_WAY, SIGNALS, LAST_SIGNAL, IS_ACTIVE, NEXT_ACTIVE, TAKES_PART, MISSING_HERE, UNSENT_HERE, SIGNALS_HERE,
    OWES_DONE, OWED_CALL, OWED_CALL_1, OWED_CALL_2, CONNECTION_WORDS,
) = range(0, 8 * 55, 8)  # fmt: skip
"""WATCHED: the events for which it is registered. BUFFER: what was read, of which AT to END is still new. STATE: one
of the codes below. KIND to CALL_2: the frame that is being read. TARGET, TARGET_LEFT: the rest of the memory that is
being filled. LANDING: the receive whose payload comes. CLOSED: 0, 1 at the end of the stream, else 1 and the error.
HEADERS: memory for headers that are being sent. UNSENT: ``struct iovec`` for what is being sent. READY, UNDER_WAY,
SIGNALS: the first of the copies to send, of those whose last segment is being sent, and of the signals to send; -1 if
none. MISSING_HERE, UNSENT_HERE, SIGNALS_HERE: what the current run still expects of this connection. OWES_DONE: the run
of which this process has not said yet that it is done, or 0."""

HEADER_READ, PAYLOAD, AHEAD, PARKED, UNPARKED, HELD = range(6)
"""States of a connection: a header is read, a payload is, its frame waits for a later run, its frame waits for its turn
to be added, its turn has come, what was read is no frame and is told to the next run."""
MOST_HEADERS, MOST_UNSENT = 120, 250

# --- a run ----------------------------------------------------------------------------------------
(
    RUN_GROUP, NEXT_RUN, NUMBER, OWN_CALL, OWN_CALL_1, OWN_CALL_2, TIMEOUT_NS, WAKE, STATUS, LISTENS, RELEASED, ADDS,
    ADDS_BY, ITEM_BYTES, STARTED_AT, ENDED_AT, OVER_AT, PING_AT, HEARD_RUN_AT, MISSING, UNSENT_COPIES, SIGNALS_DUE,
    PARKED_COUNT, TAKES_TURNS, START_COUNT, COPY_COUNT, RECEIVE_COUNT, SLOT_COUNT, VERSION_COUNT, AWAITED_COUNT,
    PART_COUNT, SIGNALS_LEFT,
    P_CONNECTION,  # the connections that take part
    # columns of sends
    S_ROW, S_SLOT, S_VERSION, S_WAITS, S_COPIES, S_PRIORITY, S_BEGAN, S_GONE,
    # of copies, one for each receiver of a send
    C_SEND, C_CONNECTION, C_PLACE, C_LEFT, C_TOTAL, C_NEXT, C_TURNS, C_END,
    # of receives
    R_ROW, R_SLOT, R_CONNECTION, R_COPIES, R_WAKES, R_WAKES_OF, R_SIGNALS, R_VERSIONS, R_VERSIONS_OF, R_LEFT,
    R_PAYLOAD, R_STATE, R_GOT, R_AHEAD, R_ARRAY, R_VERSION, R_CAME, R_ARRIVED,
    # of signals to send
    G_ROW, G_CONNECTION, G_NEXT,
    # of signals that are due
    A_ROW, A_CONNECTION, A_WAKES, A_WAKES_OF, A_SEEN,
    # of chunks
    L_VERSIONS, L_FINAL, L_INPUT, L_OUTPUT, L_BYTES, L_OUTPUT_FREE, L_IN_PLACE,
    # of versions
    V_SLOT, V_BASE, V_ADDS, V_ADDS_OF, V_ARRAY, V_OUT, V_PUT, V_USERS,
    RUN_WORDS,
) = range(0, 8 * 91, 8)  # fmt: skip
"""WAKE: a descriptor of an event, which tells that the run has ended. STATUS: 0, or one of the codes below. LISTENS:
whether Python wants to be told by the pipe ENDED. RELEASED: whether the loop looks at the run no more.
ADDS, ADDS_BY, ITEM_BYTES: how numbers are added. The columns have
their distance in bytes from the beginning of the run. ``R_WAKES`` and other columns that are followed by one that ends
in ``_OF`` say where the lists of each begin, and where the last one ends. R_STATE: 0, 1 once bytes are here, 2 when
the row has arrived. R_VERSION: the version to which a row is added while it comes, or -1."""

RUNNING, ENDED_WELL, ENDED_BADLY = range(3)


def column(run: int, which: int) -> int:
    """The address of a column of a run."""
    return run + get(run + which)

"""Where the words of the compiled loop are: of the engine, a group, a connection, a stream and a run.

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
    DETAIL, SECOND_DETAIL, CONDEMNED, REPORTED, GROUP_ENGINE, DONE_AT, ADDED,
    CONDEMNED_NODE, GROUP_WORDS,
) = range(0, 8 * 20, 8)  # fmt: skip
"""CURRENT: the run that is running; FIRST_RUN, LAST_RUN: those that wait for it. CONNECTIONS: its streams. CALLS: the
codes of the last ``CALLS_KEPT`` runs. FAILED: why the group has failed, a code below, or 0; CULPRIT: the stream
of who is at fault, or 0 for this process; FAILED_ROW: the row that shows it, or -1. CONDEMNED, CONDEMNED_NODE: the
stream whose peer says who is at fault, and that node. REPORTED: whether Python was told that. DONE_AT: when to say that
runs are done, if no frame does. ADDED: an event that tells that the group is served, or -1."""

(
    DIED, SAID_BYE, BROKE, NO_FRAME, UNKNOWN_KIND, TOO_LONG, WRONG_RUN, NO_SIGNAL_DUE, NO_DATA_DUE, OTHER_TOTAL,
    TOO_MUCH, CUT_ELEMENT, SILENT, OVER, OTHER_CALL, TOLD, OTHER_PLACE,
) = range(1, 18)  # fmt: skip
"""Codes of failures. DETAIL and SECOND_DETAIL are what the words of :mod:`.failures` need."""

# --- a connection of two processes ----------------------------------------------------------------
(
    W_FD, W_HEAD, W_WATCHED, W_UNIX, W_BUFFER, W_AT, W_END, W_STATE, W_STREAM, W_TARGET, W_TARGET_LEFT, W_SKIP, W_LOW,
    W_READ_AT, W_CLOSED, W_BROKEN, W_WRONG, W_KIND, W_LENGTH, W_HEADERS, W_HEADER_COUNT, W_UNSENT, W_OWNERS,
    W_UNSENT_AT, W_UNSENT_COUNT, W_UNSENT_BYTES, W_SENT_BYTES, W_SPARE, W_STREAMS, W_TURNS, W_LAST_TURN, W_IS_ACTIVE,
    W_NEXT_ACTIVE, WIRE_WORDS,
) = range(0, 8 * 34, 8)  # fmt: skip
"""W_HEAD: bytes before each header that name its stream, 0 where the connection is one group's alone. W_WATCHED: the
events for which it is registered. W_BUFFER: what was read, of which W_AT to W_END is still new. W_STATE: one of the
codes below. W_STREAM: whose frame is being read, or 0. W_TARGET, W_TARGET_LEFT: the rest of the memory that is being
filled. W_SKIP: bytes that nobody wants. W_READ_AT: when something came last. W_CLOSED: 0, 1 at the end of the stream,
else 1 and the error. W_WRONG, W_KIND, W_LENGTH: what was read in place of a frame. W_HEADERS: memory for headers that
are being sent. W_UNSENT: ``struct iovec`` for what is being sent; W_OWNERS: for each the stream whose memory it is, or
0. W_SPARE: copies that live until it is sent, linked by their first words. W_STREAMS: the first of its streams.
W_TURNS, W_LAST_TURN: those that may have something to send."""

HEADER_READ, PAYLOAD, AHEAD, PARKED, UNPARKED, HELD, OFF = range(7)
"""States: a header is read, a payload is, its frame waits for a later run, its frame waits for its turn to be added,
its turn has come, what was read is no frame and is told to the next run, the loop has left it."""
MOST_HEADERS, MOST_UNSENT, MOST_CHUNKS = 120, 250, 64

# --- a stream: what one group has of a connection -------------------------------------------------
(
    WIRE, GROUP, PEER, MAIN, HERE, THERE, NEXT_STREAM, HAS_TURN, NEXT_TURN, KIND, RUN, ROW, LENGTH, TOTAL, PLACE,
    FURTHER, CALL, CALL_1, CALL_2, LANDING, BEGUN, DONE, HEARD_AT, CLOSED, BYE, TEXT, TEXT_BYTES_READ, READY,
    LAST_READY, UNDER_WAY, LAST_UNDER_WAY, SIGNALS, LAST_SIGNAL, TAKES_PART, MISSING_HERE, UNSENT_HERE, SIGNALS_HERE,
    OWES_DONE, OWED_CALL, OWED_CALL_1, OWED_CALL_2, SENT, TOLD, TAKEN, SAID, OWES_WORD, EARLY, LAST_EARLY, KEEPS,
    REPLAYS, LAST_WORDS, LAST_RUN_NUMBER, LAST_CULPRIT, LAST_TEXT, LAST_TEXT_BYTES, GONE, CONNECTION_WORDS,
) = range(0, 8 * 57, 8)  # fmt: skip
"""HERE, THERE: the numbers of the stream in frames that come and that go. KIND to CALL_2: the frame that is being read;
FURTHER: how many of its rows follow the one whose bytes come.
LANDING: the receive whose payload comes. CLOSED: as W_CLOSED, and 1 when the peer has left the group. READY, UNDER_WAY,
SIGNALS: the first of the copies to send, of those whose last segment is being sent, and of the signals to send; -1 if
none. MISSING_HERE, UNSENT_HERE, SIGNALS_HERE: what the current run still expects of this stream. OWES_DONE: the run
of which this process has not said yet that it is done, or 0.
SENT: bytes of data and signals sent, headers counted; TOLD: how many of them the peer has said to have taken. TAKEN,
SAID: the same the other way round. OWES_WORD: whether the peer must be told of the run that has begun. EARLY,
LAST_EARLY: frames that have come before their run. KEEPS: the one that is being filled. REPLAYS: whether frames are
taken from there. LAST_WORDS and on: what is said when the group leaves. GONE: whether the loop has left it."""

E_NEXT, E_WHOLE, E_FRAME, E_PAYLOAD = 0, 8, 16, 96
"""An early frame: the next one, whether it is here whole, its words from KIND to CALL_2, and what follows."""
SAY_ABORT, SAY_BYE, SAY_LEAVE = 1, 2, 4
"""Parts of LAST_WORDS."""

# --- a run ----------------------------------------------------------------------------------------
(
    RUN_GROUP, NEXT_RUN, NUMBER, OWN_CALL, OWN_CALL_1, OWN_CALL_2, TIMEOUT_NS, WAKE, STATUS, LISTENS, RELEASED, ADDS,
    ADDS_BY, ITEM_BYTES, STARTED_AT, ENDED_AT, OVER_AT, PING_AT, HEARD_RUN_AT, MISSING, UNSENT_COPIES, SIGNALS_DUE,
    PARKED_COUNT, TAKES_TURNS, START_COUNT, COPY_COUNT, RECEIVE_COUNT, SLOT_COUNT, VERSION_COUNT, AWAITED_COUNT,
    PART_COUNT, SIGNALS_LEFT, PACING,
    P_CONNECTION,  # the connections that take part
    # columns of sends
    S_ROW, S_SLOT, S_VERSION, S_WAITS, S_COPIES, S_PRIORITY, S_MESSAGE, S_BEGAN, S_GONE,
    # of copies, one for each receiver of a send
    C_SEND, C_CONNECTION, C_PLACE, C_LEFT, C_TOTAL, C_NEXT, C_TURNS, C_END,
    # of receives
    R_ROW, R_SLOT, R_CONNECTION, R_COPIES, R_WAKES, R_WAKES_OF, R_SIGNALS, R_VERSIONS, R_VERSIONS_OF, R_LEFT,
    R_PAYLOAD, R_STATE, R_GOT, R_AHEAD, R_ARRAY, R_VERSION, R_CAME, R_ARRIVED, R_DRY_AT, R_DRY_BYTES,
    # of signals to send
    G_ROW, G_CONNECTION, G_NEXT,
    # of signals that are due
    A_ROW, A_CONNECTION, A_WAKES, A_WAKES_OF, A_SEEN,
    # of chunks
    L_VERSIONS, L_FINAL, L_INPUT, L_OUTPUT, L_BYTES, L_OUTPUT_FREE, L_IN_PLACE,
    # of versions
    V_SLOT, V_BASE, V_ADDS, V_ADDS_OF, V_ARRAY, V_OUT, V_PUT, V_USERS,
    RUN_WORDS,
) = range(0, 8 * 95, 8)  # fmt: skip
"""WAKE: a descriptor of an event, which tells that the run has ended. STATUS: 0, or one of the codes below. LISTENS:
whether Python wants to be told by the pipe ENDED. RELEASED: whether the loop looks at the run no more.
ADDS, ADDS_BY, ITEM_BYTES: how numbers are added. The columns have
their distance in bytes from the beginning of the run. ``R_WAKES`` and other columns that are followed by one that ends
in ``_OF`` say where the lists of each begin, and where the last one ends. R_STATE: 0, 1 once bytes are here, 2 when
the row has arrived. R_VERSION: the version to which a row is added while it comes, or -1. R_DRY_AT, R_DRY_BYTES: when
all bytes of a row that had come were first read while more were to come, and how many that were. PACING: the record of
when transfers may go, or 0."""

RUNNING, ENDED_WELL, ENDED_BADLY = range(3)

# --- when each transfer of a run may go, and how late each arrives --------------------------------
(
    ORIGIN, KEEPS_TIMES, AHEAD_NS, NEXT_START, LATE_COUNT,
    # columns of sends
    T_ORDER, T_START, T_RATE, T_SEGMENT,
    # of copies
    T_DUE,
    # of receives
    T_DELAY, T_LATE, T_LATE_AT,
    PACING_WORDS,
) = range(0, 8 * 14, 8)  # fmt: skip
"""ORIGIN: the moment of the plan's time 0, or 0 for when the run begins. KEEPS_TIMES: whether sends have starts and
rates; else arrivals alone are late. AHEAD_NS: how long before its start the bucket of a send begins to fill, or -1 if
it begins when the send does. T_ORDER: sends by their starts, of which NEXT_START is the next. T_START: when each
starts. T_RATE: bytes/s, or 0 if the network decides. T_SEGMENT: bytes that go at once. T_DUE: when the next segment of
a copy may go. T_DELAY: by how much the arrival of a row is late; T_LATE, T_LATE_AT: a heap of those that are, and until
when, LATE_COUNT of them. All times are nanoseconds."""


def column(run: int, which: int) -> int:
    """The address of a column of a run."""
    return run + get(run + which)

"""The loop that serves all groups of a process, compiled: what :mod:`stretto.runtime.loop` does, by the same rules.

It waits for sockets and for commands of Python, which come over a pipe, and never holds Python's lock. A group runs its
runs one after another; groups run beside each other. Where a group fails, the loop returns to Python, which tells the
peers and calls it again.
"""

from __future__ import annotations

from .kernel_chunks import begin_chunks, finish_chunks
from .kernel_frames import replay, take_frame
from .kernel_layout import (
    A_CONNECTION, ACTIVE, ADDED, AHEAD, AWAITED_COUNT, BEGUN, C_CONNECTION, CALLS, CLOSED, COMMANDS, CONDEMNED,
    CONNECTION_COUNT, CONNECTIONS, COPY_COUNT, CURRENT, DONE, DONE_AT, ENDED, ENDED_AT, ENDED_WELL, EVENTS, FAILED,
    FIRST_RUN, GROUP_ENGINE, GROUPS, HEADER_READ, HEARD_AT, HEARD_RUN_AT, HELD, L_BYTES, LAST_RUN, LISTENS, LOOK_AT,
    MAIN, MESSAGE, MISSING_HERE, MOST_COMMANDS, MOST_EVENTS, NEXT_GROUP, NEXT_RUN, NEXT_STREAM, NUMBER, ORIGIN,
    OVER, OVER_AT, OWED_CALL, OWES_DONE, OWES_WORD, OWN_CALL, PACING, P_CONNECTION, PARKED, PARKED_COUNT,
    PART_COUNT, PING_AT, POLLER, R_CONNECTION, R_SLOT, READY, RECEIVE_COUNT, RELEASED, REPORTED, RUN, RUN_GROUP,
    RUNS, S_WAITS, SAID, SIGNALS, SIGNALS_HERE, SIGNALS_LEFT, SILENT, START_COUNT, STARTED_AT, STATUS, STOPS, TAKEN,
    TAKES_PART, TIMEOUT_NS, TOLD, UNDER_WAY, UNPARKED, UNSENT_HERE, W_HEAD, W_IS_ACTIVE, W_KIND, W_LENGTH,
    W_NEXT_ACTIVE, W_STATE, W_STREAMS, W_UNSENT_COUNT, W_WRONG, WAKE, WIRE, column,
)  # fmt: skip
from .kernel_leaving import drop_group, drop_wires, leave_connections, wake
from .kernel_pacing import keep_pace
from .kernel_reading import go_on, look, read, resume
from .kernel_rows import closing, fail, is_awaited, is_pending, needs
from .kernel_queue import HEADER_BYTES, PING, STREAM_BYTES, has_room, queue_header
from .kernel_sending import (
    EARLY_BYTES, READABLE, SEGMENT_BYTES, activate, activate_wire, ready, register, say_done, write,
)  # fmt: skip
from .machine import EVENT_BYTES, EVENT_DATA, clock_ns, get, give, move, pause, put, take, wait

NEVER = 1 << 62
PATIENCE_NS = 5_000_000
"""As of :mod:`stretto.runtime.incoming`."""
PINGS = 4
"""As of :mod:`stretto.runtime.watch`."""
LEAST_NS = 1_000_000
DONE_NS = 2_000_000
"""How long a process waits with the word that it has finished a run: a frame of the next run says so, too."""
ADD_GROUP, ADD_RUN, DROP_GROUP, DROP_WIRES, STOP = 1, 2, 3, 4, 5
"""Commands: each is two words, this number and an address."""
CALLS_KEPT, CALL_BYTES = 64, 24
NOTHING, READ_ONLY = -1, 1


def serve(engine: int) -> int:
    """Serve the groups until one fails, whose address this returns, or until Python says stop: 0."""
    within_ms = 0
    while True:
        count = wait(get(engine + POLLER), get(engine + EVENTS), MOST_EVENTS, within_ms)
        told = False
        for i in range(max(count, 0)):
            event = get(engine + EVENTS) + EVENT_BYTES * i
            w = get(event + EVENT_DATA)
            if w == 0:
                told = True
                continue
            events = get(event) & 0xFF
            if events & ~READ_ONLY:
                activate_wire(engine, w)
            if events & ~4:
                read(engine, w)
        if told:  # after the sockets: when a group has been dropped, its records may be gone
            obey(engine)
        now = clock_ns()
        if now >= get(engine + LOOK_AT):
            look_after(engine, now)
        send_all(engine)
        failed = advance(engine, now)
        if failed:
            return failed
        if get(engine + STOPS):
            return 0
        within_ms = 0
        if get(engine + ACTIVE) == 0:
            left_ns = max(0, get(engine + LOOK_AT) - clock_ns())
            within_ms = min(left_ns // 1_000_000, 1_000_000_000) if get(engine + LOOK_AT) < NEVER else -1
            if 0 < left_ns < 1_000_000:
                nap(engine, left_ns)


def nap(engine: int, left_ns: int) -> None:
    """Wait for an event for less than a millisecond, which is the least that the poller counts in."""
    room = get(engine + MESSAGE) + 128
    put(room, get(engine + POLLER) | (READABLE << 32))
    put(room + 8, 0)
    put(room + 16, left_ns)
    pause(room)


def obey(engine: int) -> None:
    """Do what Python says."""
    room = get(engine + EVENTS) + EVENT_BYTES * MOST_EVENTS
    count = take(get(engine + COMMANDS), room, 16 * MOST_COMMANDS)
    for i in range(max(count, 0) // 16):
        command, address = get(room + 16 * i), get(room + 16 * i + 8)
        if command == ADD_GROUP:
            put(address + NEXT_GROUP, get(engine + GROUPS))
            put(address + GROUP_ENGINE, engine)
            put(engine + GROUPS, address)
            for k in range(get(address + CONNECTION_COUNT)):
                add_stream(engine, get(get(address + CONNECTIONS) + 8 * k))
            if get(address + ADDED) >= 0:
                wake(engine, get(address + ADDED))
        elif command == ADD_RUN:
            group = get(address + RUN_GROUP)
            put(address + NEXT_RUN, 0)
            if get(group + FIRST_RUN):
                put(get(group + LAST_RUN) + NEXT_RUN, address)
            else:
                put(group + FIRST_RUN, address)
            put(group + LAST_RUN, address)
        elif command == DROP_GROUP:
            drop_group(engine, get(address), address + 16)
            wake(engine, get(address + 8))
        elif command == DROP_WIRES:
            drop_wires(engine, address)
        else:
            put(engine + STOPS, 1)


def add_stream(engine: int, c: int) -> None:
    """Serve a stream, and its connection if this is its first one."""
    w = get(c + WIRE)
    put(c + NEXT_STREAM, get(w + W_STREAMS))
    put(w + W_STREAMS, c)
    look(engine, w)
    register(engine, w)
    activate(engine, c)


def send_all(engine: int) -> None:
    """Send what may be sent now on the connections that have something to send."""
    w = get(engine + ACTIVE)
    put(engine + ACTIVE, 0)
    while w:
        after = get(w + W_NEXT_ACTIVE)
        put(w + W_IS_ACTIVE, 0)
        if write(engine, w):
            activate_wire(engine, w)
        register(engine, w)
        w = after


def advance(engine: int, now: int) -> int:
    """End the runs that are complete, begin the next ones; returns a group that has failed, or 0."""
    group = get(engine + GROUPS)
    while group:
        run = get(group + CURRENT)
        if run and get(run + PARKED_COUNT) and get(group + FAILED) == 0:
            go_on(engine, run, group)
        if run and get(group + FAILED) == 0 and not is_pending(run) and get(run + SIGNALS_LEFT) == 0:
            finish_run(engine, group, run)
            run = 0
        while run == 0 and get(group + FAILED) == 0 and get(group + FIRST_RUN):
            run = get(group + FIRST_RUN)
            put(group + FIRST_RUN, get(run + NEXT_RUN))
            begin_run(engine, group, run)
            if get(group + FAILED) == 0:
                send_all(engine)
                if get(run + PARKED_COUNT):
                    go_on(engine, run, group)
                    send_all(engine)
                if get(group + FAILED) == 0 and not is_pending(run) and get(run + SIGNALS_LEFT) == 0:
                    finish_run(engine, group, run)
                    run = 0
        if get(group + FAILED) > 0 and get(group + REPORTED) == 0:
            put(group + REPORTED, 1)
            leave_connections(engine, group)
            return group
        group = get(group + NEXT_GROUP)
    return 0


def begin_run(engine: int, group: int, run: int) -> None:
    """Begin the next run of a group."""
    now = clock_ns()
    number = get(group + RUNS) + 1
    put(group + RUNS, number)
    put(group + CURRENT, run)
    put(run + NUMBER, number)
    move(get(group + CALLS) + CALL_BYTES * (number % CALLS_KEPT), run + OWN_CALL, CALL_BYTES)
    put(run + STARTED_AT, now)
    if get(run + PACING):
        put(engine + LOOK_AT, 0)
        if get(get(run + PACING) + ORIGIN):
            put(run + STARTED_AT, get(get(run + PACING) + ORIGIN))
    put(run + HEARD_RUN_AT, now)
    put(run + OVER_AT, min(NEVER, now + get(run + TIMEOUT_NS) + get(run + TIMEOUT_NS) // 4))
    put(run + PING_AT, min(NEVER, now + get(run + TIMEOUT_NS) // PINGS))
    put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(run + PING_AT), get(run + OVER_AT)))
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        put(c + HEARD_AT, now)
        put(c + READY, NOTHING)
        put(c + UNDER_WAY, NOTHING)
        put(c + SIGNALS, NOTHING)
        put(c + MISSING_HERE, 0)
        put(c + UNSENT_HERE, 0)
        put(c + SIGNALS_HERE, 0)
        put(c + TAKES_PART, 0)
    count_work(run)
    for k in range(get(group + CONNECTION_COUNT)):
        say_begun(engine, run, get(get(group + CONNECTIONS) + 8 * k))
    if get(group + CONDEMNED):
        fail(group, get(group + CONDEMNED), TOLD, NOTHING, 0, 0)
        return
    begin_chunks(engine, run)
    for index in range(get(run + START_COUNT)):
        if get(column(run, S_WAITS) + 8 * index) == 0:
            ready(engine, run, index)
    # only now: an empty transfer has arrived with its header, which may release transfers that wait for it
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        w = get(c + WIRE)
        if get(w + W_STATE) == HELD and get(w + W_HEAD):
            fail(group, c, get(w + W_WRONG), NOTHING, get(w + W_KIND), get(w + W_LENGTH))
        elif get(w + W_STATE) == HELD:
            put(w + W_STATE, HEADER_READ)
            look(engine, w)
            register(engine, w)
        if get(w + W_HEAD):
            replay(engine, c)
            resume(engine, w)
        elif get(w + W_STATE) == AHEAD and (get(c + RUN) <= number or needs(run, c)):
            take_frame(engine, c)
            look(engine, w)
            register(engine, w)
    # what a peer sent before it left counts
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + CLOSED) and is_awaited(run, c):
            fail(group, c, closing(c), NOTHING, get(c + CLOSED) - 1, 0)


def say_begun(engine: int, run: int, c: int) -> None:
    """Tell a peer of the run if it may wait for that: what the run brings is more than it may send before."""
    if get(get(c + WIRE) + W_HEAD) == 0 or get(c + TAKES_PART) == 0:
        return
    due = get(c + TAKEN) + get(c + SIGNALS_HERE) * (STREAM_BYTES + HEADER_BYTES)
    for receive in range(get(run + RECEIVE_COUNT) if get(c + MISSING_HERE) else 0):
        if get(column(run, R_CONNECTION) + 8 * receive) == c:
            size = get(column(run, L_BYTES) + 8 * get(column(run, R_SLOT) + 8 * receive))
            due += size + (size // SEGMENT_BYTES + 1) * (STREAM_BYTES + HEADER_BYTES)
    if due > get(c + SAID) + EARLY_BYTES:
        put(c + OWES_WORD, get(run + NUMBER))
        activate(engine, c)


def count_work(run: int) -> None:
    """Count what each connection has to do."""
    for part in range(get(run + PART_COUNT)):
        put(get(column(run, P_CONNECTION) + 8 * part) + TAKES_PART, 1)
    for receive in range(get(run + RECEIVE_COUNT)):
        c = get(column(run, R_CONNECTION) + 8 * receive)
        put(c + MISSING_HERE, get(c + MISSING_HERE) + 1)
    for copy in range(get(run + COPY_COUNT)):
        c = get(column(run, C_CONNECTION) + 8 * copy)
        put(c + UNSENT_HERE, get(c + UNSENT_HERE) + 1)
    for awaited in range(get(run + AWAITED_COUNT)):
        c = get(column(run, A_CONNECTION) + 8 * awaited)
        put(c + SIGNALS_HERE, get(c + SIGNALS_HERE) + 1)


def finish_run(engine: int, group: int, run: int) -> None:
    """The run has all that it needs, and has sent all."""
    finish_chunks(engine, run)
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + MAIN) == c and get(c + CLOSED) == 0 and get(c + TAKES_PART):
            put(c + OWES_DONE, get(run + NUMBER))
            move(c + OWED_CALL, run + OWN_CALL, CALL_BYTES)
    put(group + CURRENT, 0)
    put(run + ENDED_AT, clock_ns())
    if get(group + DONE_AT) == NEVER:
        put(group + DONE_AT, get(run + ENDED_AT) + DONE_NS)
    put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(group + DONE_AT)))
    put(run + STATUS, ENDED_WELL)
    wake(engine, get(run + WAKE))
    if get(run + LISTENS):
        tell(engine, run)
    put(run + RELEASED, 1)


def tell(engine: int, run: int) -> None:
    """Tell Python's listener that a run has ended."""
    room = get(engine + MESSAGE) + 96
    put(room, run)
    give(get(engine + ENDED), room, 8)


def look_after(engine: int, now: int) -> None:
    """Do what is due: pings, the end of what takes too long, what is parked although nothing else happens."""
    put(engine + LOOK_AT, NEVER)
    group = get(engine + GROUPS)
    while group:
        if now >= get(group + DONE_AT):
            put(group + DONE_AT, NEVER)
            for k in range(get(group + CONNECTION_COUNT)):
                if not say_done(engine, get(get(group + CONNECTIONS) + 8 * k)):
                    put(group + DONE_AT, now + DONE_NS)
        put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(group + DONE_AT)))
        run = get(group + CURRENT)
        if run and get(group + FAILED) == 0:
            if get(run + PACING):
                keep_pace(engine, run, group, now)
            if now >= get(run + PING_AT):
                ping(engine, group, run)
                end = end_of_silence(engine, group, run, now)
                put(run + PING_AT, min(now + get(run + TIMEOUT_NS) // PINGS, end + LEAST_NS))
            if now >= get(run + OVER_AT):
                put(run + OVER_AT, NEVER)
                if is_pending(run) and get(group + FAILED) == 0:
                    give_up(group, run)
            if get(run + PARKED_COUNT):
                if now - get(run + HEARD_RUN_AT) >= PATIENCE_NS:
                    unpark_one(group)
                put(engine + LOOK_AT, min(get(engine + LOOK_AT), now + PATIENCE_NS))
            put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(run + PING_AT), get(run + OVER_AT)))
        group = get(group + NEXT_GROUP)


def unpark_one(group: int) -> None:
    """Go on reading a parked peer although its turn has not come, since nothing else happens."""
    for k in range(get(group + CONNECTION_COUNT)):
        w = get(get(get(group + CONNECTIONS) + 8 * k) + WIRE)
        if get(w + W_STATE) == PARKED:
            put(w + W_STATE, UNPARKED)
            return


def ping(engine: int, group: int, run: int) -> None:
    """Tell all processes that this one is alive: one that is a run ahead may wait for it."""
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        w = get(c + WIRE)
        if get(c + MAIN) == c and get(c + CLOSED) == 0 and get(w + W_UNSENT_COUNT) == 0 and has_room(w):
            queue_header(c, PING, get(run + NUMBER), 0, 0, run + OWN_CALL, 0, 0)
            activate(engine, c)


def end_of_silence(engine: int, group: int, run: int, now: int) -> int:
    """When the next peer will have been silent for too long; fails if one has been."""
    end = NEVER
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + TAKES_PART) == 0 or get(c + MAIN) != c:
            continue
        if get(c + DONE) < get(run + NUMBER) and now - get(c + HEARD_AT) > get(run + TIMEOUT_NS):
            read(engine, get(c + WIRE))  # what is too little to wake this process
        if get(c + DONE) < get(run + NUMBER):
            if now - get(c + HEARD_AT) > get(run + TIMEOUT_NS):
                fail(group, c, SILENT, NOTHING, 0, 0)
            end = min(end, get(c + HEARD_AT) + get(run + TIMEOUT_NS))
    return end


def give_up(group: int, run: int) -> None:
    """The time for the run is over, and all are alive: fail because of the peer that is farthest behind."""
    culprit, least = 0, NEVER
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if needs(run, c) and get(get(c + MAIN) + BEGUN) < least:
            culprit, least = get(c + MAIN), get(get(c + MAIN) + BEGUN)
    fail(group, culprit, OVER, NOTHING, least if culprit else get(run + NUMBER), 0)

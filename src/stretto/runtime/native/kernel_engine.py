"""The loop that serves all groups of a process, compiled: what :mod:`stretto.runtime.loop` does, by the same rules.

It waits for sockets and for commands of Python, which come over a pipe, and never holds Python's lock. A group runs its
runs one after another; groups run beside each other. Where a group fails, the loop returns to Python, which tells the
peers and calls it again.
"""

from __future__ import annotations

from .kernel_chunks import begin_chunks, drop_chunks, finish_chunks
from .kernel_frames import go_on, look, read, take_frame
from .kernel_layout import (
    A_CONNECTION, ACTIVE, AHEAD, AWAITED_COUNT, BEGUN, C_CONNECTION, CALLS, CLOSED, COMMANDS, CONDEMNED,
    CONNECTION_COUNT, CONNECTIONS, COPY_COUNT, CURRENT, DONE, DONE_AT, ENDED, ENDED_AT, ENDED_WELL, EVENTS, FAILED,
    FIRST_RUN, GROUP, GROUP_ENGINE, GROUPS, HEADER_READ, HEARD_AT, HEARD_RUN_AT, HELD, IS_ACTIVE, LAST_RUN, LISTENS,
    LOOK_AT, MAIN, MESSAGE, MISSING_HERE, MOST_COMMANDS, MOST_EVENTS, NEXT_ACTIVE, NEXT_GROUP, NEXT_RUN, NUMBER, OVER,
    OVER_AT, OWED_CALL, OWES_DONE, OWN_CALL, P_CONNECTION, PARKED, PARKED_COUNT, PART_COUNT, PING_AT, POLLER,
    R_CONNECTION, READY, RECEIVE_COUNT, RELEASED, REPORTED, RUN, RUN_GROUP, RUNS, S_WAITS, SIGNALS, SIGNALS_HERE,
    SIGNALS_LEFT, SILENT, START_COUNT, STARTED_AT, STATE, STATUS, STOPS, TAKES_PART, TIMEOUT_NS, TOLD, UNDER_WAY,
    UNPARKED, UNSENT_COUNT, UNSENT_HERE, WAKE, column,
)  # fmt: skip
from .machine import EVENT_BYTES, EVENT_DATA, clock_ns, get, give, move, put, take, wait
from .kernel_rows import closing, fail, is_awaited, is_pending, needs
from .kernel_sending import PING, activate, has_room, queue_header, ready, register, say_done, write

NEVER = 1 << 62
PATIENCE_NS = 5_000_000
"""As of :mod:`stretto.runtime.incoming`."""
PINGS = 4
"""As of :mod:`stretto.runtime.watch`."""
LEAST_NS = 1_000_000
DONE_NS = 2_000_000
"""How long a process waits with the word that it has finished a run: a frame of the next run says so, too."""
ADD_GROUP, ADD_RUN, DROP_GROUP, STOP = 1, 2, 3, 4
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
            c = get(event + EVENT_DATA)
            if c == 0:
                told = True
                continue
            events = get(event) & 0xFF
            if events & ~READ_ONLY:
                activate(engine, c)
            if events & ~4:
                read(engine, c)
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
            left_ns = get(engine + LOOK_AT) - clock_ns()
            within_ms = max(0, min(left_ns // 1_000_000 + 1, 1_000_000_000)) if get(engine + LOOK_AT) < NEVER else -1


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
                c = get(get(address + CONNECTIONS) + 8 * k)
                look(engine, c)
                register(engine, c)
                activate(engine, c)
        elif command == ADD_RUN:
            group = get(address + RUN_GROUP)
            put(address + NEXT_RUN, 0)
            if get(group + FIRST_RUN):
                put(get(group + LAST_RUN) + NEXT_RUN, address)
            else:
                put(group + FIRST_RUN, address)
            put(group + LAST_RUN, address)
        elif command == DROP_GROUP:
            drop_group(engine, get(address))
            wake(engine, get(address + 8))
        else:
            put(engine + STOPS, 1)


def drop_group(engine: int, group: int) -> None:
    """Forget a group; its connections are Python's again."""
    before = engine + GROUPS
    while get(before) and get(before) != group:
        before = get(before) + NEXT_GROUP
    if get(before) == 0:
        return
    put(before, get(group + NEXT_GROUP))
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        say_done(engine, c)
        write(engine, c)
    leave_connections(engine, group)
    if get(group + CURRENT):
        drop_chunks(engine, get(group + CURRENT))


def leave_connections(engine: int, group: int) -> None:
    """Listen to the connections of a group no more."""
    if get(group + FAILED) == 0:
        put(group + FAILED, NOTHING)
    for k in range(get(group + CONNECTION_COUNT)):
        register(engine, get(get(group + CONNECTIONS) + 8 * k))
    before = engine + ACTIVE
    while get(before):
        c = get(before)
        if get(c + GROUP) == group:
            put(before, get(c + NEXT_ACTIVE))
            put(c + IS_ACTIVE, 0)
        else:
            before = c + NEXT_ACTIVE


def send_all(engine: int) -> None:
    """Send what may be sent now on the connections that have something to send."""
    c = get(engine + ACTIVE)
    put(engine + ACTIVE, 0)
    while c:
        after = get(c + NEXT_ACTIVE)
        put(c + IS_ACTIVE, 0)
        if write(engine, c):
            activate(engine, c)
        register(engine, c)
        c = after


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
        if get(c + STATE) == HELD:
            put(c + STATE, HEADER_READ)
            look(engine, c)
            register(engine, c)
        if get(c + STATE) == AHEAD and (get(c + RUN) <= number or needs(run, c)):
            take_frame(engine, c)
            look(engine, c)
            register(engine, c)
    # what a peer sent before it left counts
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + CLOSED) and is_awaited(run, c):
            fail(group, c, closing(c), NOTHING, get(c + CLOSED) - 1, 0)


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


def wake(engine: int, descriptor: int) -> None:
    """Set an event."""
    room = get(engine + MESSAGE) + 96
    put(room, 1)
    give(descriptor, room, 8)


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
                say_done(engine, get(get(group + CONNECTIONS) + 8 * k))
        put(engine + LOOK_AT, min(get(engine + LOOK_AT), get(group + DONE_AT)))
        run = get(group + CURRENT)
        if run and get(group + FAILED) == 0:
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
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + STATE) == PARKED:
            put(c + STATE, UNPARKED)
            return


def ping(engine: int, group: int, run: int) -> None:
    """Tell all processes that this one is alive: one that is a run ahead may wait for it."""
    for k in range(get(group + CONNECTION_COUNT)):
        c = get(get(group + CONNECTIONS) + 8 * k)
        if get(c + MAIN) == c and get(c + CLOSED) == 0 and get(c + UNSENT_COUNT) == 0 and has_room(c):
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
            read(engine, c)  # what is too little to wake this process
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

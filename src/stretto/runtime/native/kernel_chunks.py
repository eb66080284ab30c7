"""The memory of a node's chunks in compiled code: what :mod:`stretto.runtime.buffers` does, by the same rules.

Arrays are addresses, and 0 is none. Memory for arrivals comes from the engine's pool, and goes back there.
"""

from __future__ import annotations

from .kernel_layout import (
    ADDS, ADDS_BY, KEPT_BYTES, L_BYTES, L_FINAL, L_IN_PLACE, L_INPUT, L_OUTPUT, L_OUTPUT_FREE, L_VERSIONS,
    MOST_POOL_KINDS, POOL, POOL_KINDS, R_ARRAY, R_LEFT, R_PAYLOAD, R_SLOT, R_STATE, R_VERSION, R_VERSIONS,
    R_VERSIONS_OF, RECEIVE_COUNT, SLOT_COUNT, V_ADDS, V_ADDS_OF, V_ARRAY, V_BASE, V_OUT, V_PUT, V_SLOT, V_USERS,
    column,
)  # fmt: skip
from .machine import add, allocate, get, move, put, release

BEFORE = 64
"""Bytes before a block of the pool: the place of its size among the pool's, and the address of the next free block."""
GRAIN_BYTES, LEAST_BYTES, MOST_KEPT = 1 << 16, 1 << 6, 1 << 27
"""As of :mod:`stretto.runtime.pool`."""


def take_block(engine: int, size: int) -> int:
    """Memory of at least ``size`` bytes, with arbitrary content."""
    whole = LEAST_BYTES
    if size >= GRAIN_BYTES:
        whole = -(-size // GRAIN_BYTES) * GRAIN_BYTES
    else:
        while whole < size:
            whole *= 2
    pool = get(engine + POOL)
    count = get(engine + POOL_KINDS)
    kind = 0
    while kind < count and get(pool + 16 * kind) != whole:
        kind += 1
    if kind == count:
        if count == MOST_POOL_KINDS:
            kind = -1  # a block of this size is not kept
        else:
            put(pool + 16 * kind, whole)
            put(pool + 16 * kind + 8, 0)
            put(engine + POOL_KINDS, count + 1)
    if kind >= 0:
        block = get(pool + 16 * kind + 8)
        if block:
            put(pool + 16 * kind + 8, get(block - BEFORE + 8))
            put(engine + KEPT_BYTES, get(engine + KEPT_BYTES) - whole)
            return block
    block = allocate(whole + BEFORE) + BEFORE
    put(block - BEFORE, kind)
    return block


def give_block(engine: int, block: int) -> None:
    """Take back a block of the pool."""
    kind = get(block - BEFORE)
    pool = get(engine + POOL)
    if kind < 0 or get(engine + KEPT_BYTES) + get(pool + 16 * kind) > MOST_KEPT:
        release(block - BEFORE)
        return
    put(block - BEFORE + 8, get(pool + 16 * kind + 8))
    put(pool + 16 * kind + 8, block)
    put(engine + KEPT_BYTES, get(engine + KEPT_BYTES) + get(pool + 16 * kind))


def begin_chunks(engine: int, run: int) -> None:
    """Build the versions that need nothing but what the node holds at first."""
    for slot in range(get(run + SLOT_COUNT)):
        source, output = get(column(run, L_INPUT) + 8 * slot), get(column(run, L_OUTPUT) + 8 * slot)
        size = get(column(run, L_BYTES) + 8 * slot)
        in_place = source != 0 and output != 0 and source < output + max(size, 1) and output < source + max(size, 1)
        put(column(run, L_IN_PLACE) + 8 * slot, 1 if in_place else 0)
        put(column(run, L_OUTPUT_FREE) + 8 * slot, 1 if output != 0 and not in_place else 0)
        first = get(column(run, L_VERSIONS) + 8 * slot)
        if source and get(column(run, L_VERSIONS) + 8 * slot + 8) > first:
            put(column(run, V_ARRAY) + 8 * first, source)
            grow_all(engine, run, slot)


def only_sum(run: int, receive: int) -> int:
    """The version that alone still needs an arrival, if its base exists and arrivals are missing from it; else -1."""
    if get(column(run, R_LEFT) + 8 * receive) != 1:
        return -1
    version = get(column(run, R_VERSIONS_OF) + 8 * get(column(run, R_VERSIONS) + 8 * receive))
    base = get(column(run, V_BASE) + 8 * version)
    adds = column(run, V_ADDS) + 8 * version
    if base < 0 or get(column(run, V_ARRAY) + 8 * base) == 0:
        return -1
    return version if get(column(run, V_PUT) + 8 * version) < get(adds + 8) - get(adds) else -1


def next_on(run: int, receive: int) -> int:
    """The version to which an arrival can be added at once, since it is next in the order; else -1."""
    version = only_sum(run, receive)
    if version < 0:
        return -1
    due = get(column(run, V_ADDS) + 8 * version) + get(column(run, V_PUT) + 8 * version)
    return version if get(column(run, V_ADDS_OF) + 8 * due) == receive else -1


def comes_early(run: int, receive: int) -> bool:
    """Whether an arrival must be stored only because other arrivals have to be added before it."""
    return only_sum(run, receive) >= 0 and next_on(run, receive) < 0


def memory_for(engine: int, run: int, receive: int, copies: int) -> int:
    """Where to receive an arrival: the output if the bytes may stay there, else memory of the pool."""
    slot = get(column(run, R_SLOT) + 8 * receive)
    free = column(run, L_OUTPUT_FREE) + 8 * slot
    if copies and get(free) and get(column(run, R_LEFT) + 8 * receive) == 1:
        put(free, 0)
        return get(column(run, L_OUTPUT) + 8 * slot)
    return take_block(engine, get(column(run, L_BYTES) + 8 * slot))


def add_piece(engine: int, run: int, version: int, low: int, piece: int, count: int) -> None:
    """Add bytes, from ``low`` on, of the arrival that is next on a version."""
    before = place_before(run, version)
    out = place_after(engine, run, version)
    add(get(run + ADDS), get(run + ADDS_BY), before + low, piece, out + low, count)


def finish_row(engine: int, run: int, receive: int) -> None:
    """Note that a whole arrival has been added."""
    version = get(column(run, R_VERSIONS_OF) + 8 * get(column(run, R_VERSIONS) + 8 * receive))
    place_after(engine, run, version)  # an empty arrival has never been added
    put(column(run, R_LEFT) + 8 * receive, 0)
    put(column(run, V_PUT) + 8 * version, get(column(run, V_PUT) + 8 * version) + 1)
    grow_all(engine, run, get(column(run, V_SLOT) + 8 * version))


def arrive(engine: int, run: int, receive: int, payload: int) -> None:
    """Take a whole arrival, which is in memory of :func:`memory_for`."""
    slot = get(column(run, R_SLOT) + 8 * receive)
    if get(column(run, R_LEFT) + 8 * receive) == 0:
        free_array(engine, run, slot, payload)
        return
    put(column(run, R_PAYLOAD) + 8 * receive, payload)
    grow_all(engine, run, slot)


def leave_version(engine: int, run: int, version: int) -> None:
    """Note that one user of a version no longer needs it."""
    users = get(column(run, V_USERS) + 8 * version) - 1
    put(column(run, V_USERS) + 8 * version, users)
    if users == 0:
        array = get(column(run, V_ARRAY) + 8 * version)
        put(column(run, V_ARRAY) + 8 * version, 0)
        if array:
            free_array(engine, run, get(column(run, V_SLOT) + 8 * version), array)


def grow_all(engine: int, run: int, slot: int) -> None:
    """Apply to each version of a chunk the arrivals that are next in its order. A version comes after its base."""
    first, last = get(column(run, L_VERSIONS) + 8 * slot), get(column(run, L_VERSIONS) + 8 * slot + 8)
    for version in range(first, last):
        if get(column(run, V_ARRAY) + 8 * version) == 0:
            grow(engine, run, version)


def grow(engine: int, run: int, version: int) -> None:
    """Apply to a version the arrivals that are next in its order."""
    base, put_at = get(column(run, V_BASE) + 8 * version), column(run, V_PUT) + 8 * version
    begins, ends = get(column(run, V_ADDS) + 8 * version), get(column(run, V_ADDS) + 8 * version + 8)
    count = ends - begins
    if get(put_at) > count or (base < 0 and count == 0):  # it is complete, and perhaps gone
        return
    if base >= 0 and get(column(run, V_ARRAY) + 8 * base) == 0:
        return
    while get(put_at) < count:
        part = get(column(run, V_ADDS_OF) + 8 * (begins + get(put_at)))
        if part < 0:  # another version, with a lower number
            if get(column(run, V_ARRAY) + 8 * ~part) == 0:
                break
            put_version(engine, run, version, ~part)
        else:
            if get(column(run, R_PAYLOAD) + 8 * part) == 0:
                break
            put_row(engine, run, version, part)
        put(put_at, get(put_at) + 1)
    if get(put_at) < count:
        return
    put(put_at, count + 1)  # so that a version whose memory was given back does not grow again
    out = get(column(run, V_OUT) + 8 * version)
    put(column(run, V_ARRAY) + 8 * version, out)
    put(column(run, V_OUT) + 8 * version, 0)
    if base >= 0:
        if get(column(run, V_ARRAY) + 8 * base) == out:
            put(column(run, V_ARRAY) + 8 * base, 0)  # its memory becomes this version's
        leave_version(engine, run, base)


def put_row(engine: int, run: int, version: int, receive: int) -> None:
    """Copy or add a whole arrival to a version."""
    payload = get(column(run, R_PAYLOAD) + 8 * receive)
    left = get(column(run, R_LEFT) + 8 * receive) - 1
    put(column(run, R_LEFT) + 8 * receive, left)
    slot = get(column(run, V_SLOT) + 8 * version)
    size = get(column(run, L_BYTES) + 8 * slot)
    if left == 0:
        put(column(run, R_PAYLOAD) + 8 * receive, 0)
    if get(column(run, V_BASE) + 8 * version) < 0 and get(column(run, V_PUT) + 8 * version) == 0:
        out = payload
        if left:
            out = take_block(engine, size)
            move(out, payload, size)
        put(column(run, V_OUT) + 8 * version, out)
        return
    before = place_before(run, version)
    out = place_after(engine, run, version)
    add(get(run + ADDS), get(run + ADDS_BY), before, payload, out, size)
    if left == 0:
        free_array(engine, run, slot, payload)


def put_version(engine: int, run: int, version: int, part: int) -> None:
    """Add another version of the chunk to a version."""
    size = get(column(run, L_BYTES) + 8 * get(column(run, V_SLOT) + 8 * version))
    before = place_before(run, version)
    out = place_after(engine, run, version)
    add(get(run + ADDS), get(run + ADDS_BY), before, get(column(run, V_ARRAY) + 8 * part), out, size)
    leave_version(engine, run, part)


def place_before(run: int, version: int) -> int:
    """Where the sum of a version is now."""
    base = get(column(run, V_BASE) + 8 * version)
    if base >= 0 and get(column(run, V_PUT) + 8 * version) == 0:
        return get(column(run, V_ARRAY) + 8 * base)
    return get(column(run, V_OUT) + 8 * version)


def place_after(engine: int, run: int, version: int) -> int:
    """Where it continues: memory that it may change."""
    out = get(column(run, V_OUT) + 8 * version)
    if out:
        return out
    base, slot = get(column(run, V_BASE) + 8 * version), get(column(run, V_SLOT) + 8 * version)
    before = place_before(run, version)
    frozen = before == get(column(run, L_INPUT) + 8 * slot) and get(column(run, L_IN_PLACE) + 8 * slot) == 0
    free = column(run, L_OUTPUT_FREE) + 8 * slot
    if get(column(run, V_USERS) + 8 * base) == 1 and not frozen:
        out = before
    elif get(free):
        put(free, 0)
        out = get(column(run, L_OUTPUT) + 8 * slot)
    else:
        out = take_block(engine, get(column(run, L_BYTES) + 8 * slot))
    put(column(run, V_OUT) + 8 * version, out)
    return out


def free_array(engine: int, run: int, slot: int, array: int) -> None:
    """Give memory back to whom it belongs."""
    in_place = get(column(run, L_IN_PLACE) + 8 * slot) != 0
    if array == get(column(run, L_OUTPUT) + 8 * slot):
        put(column(run, L_OUTPUT_FREE) + 8 * slot, 1)
    elif array == get(column(run, L_INPUT) + 8 * slot):
        if in_place:
            put(column(run, L_OUTPUT_FREE) + 8 * slot, 1)
    else:
        give_block(engine, array)


def finish_chunks(engine: int, run: int) -> None:
    """Put the final versions into the outputs, after everything has been sent, and give back all memory."""
    for slot in range(get(run + SLOT_COUNT)):
        final, output = get(column(run, L_FINAL) + 8 * slot), get(column(run, L_OUTPUT) + 8 * slot)
        if final >= 0 and output:
            array = get(column(run, V_ARRAY) + 8 * final)
            if array and array != output:
                move(output, array, get(column(run, L_BYTES) + 8 * slot))
            leave_version(engine, run, final)
    drop_chunks(engine, run)


def is_used(run: int, first: int, last: int, array: int) -> bool:
    """Whether one of some versions has this memory: a sum continues in the memory of its base."""
    for version in range(first, last):
        if get(column(run, V_ARRAY) + 8 * version) == array or get(column(run, V_OUT) + 8 * version) == array:
            return True
    return False


def drop_chunks(engine: int, run: int) -> None:
    """Give back what is still in use: of a run that failed, and of versions that nobody needed."""
    for slot in range(get(run + SLOT_COUNT)):
        first, last = get(column(run, L_VERSIONS) + 8 * slot), get(column(run, L_VERSIONS) + 8 * slot + 8)
        for version in range(first, last):
            for which in (V_ARRAY, V_OUT):
                array = get(column(run, which) + 8 * version)
                if array:
                    put(column(run, which) + 8 * version, 0)
                    if not is_used(run, first, last, array):
                        free_array(engine, run, slot, array)
    for receive in range(get(run + RECEIVE_COUNT)):
        slot = get(column(run, R_SLOT) + 8 * receive)
        payload = get(column(run, R_PAYLOAD) + 8 * receive)
        if payload:
            put(column(run, R_PAYLOAD) + 8 * receive, 0)
            free_array(engine, run, slot, payload)
        if get(column(run, R_STATE) + 8 * receive) == 1:
            put(column(run, R_STATE) + 8 * receive, 0)
            array = get(column(run, R_ARRAY) + 8 * receive)
            if get(column(run, R_VERSION) + 8 * receive) >= 0:
                give_block(engine, array)
            else:
                free_array(engine, run, slot, array)

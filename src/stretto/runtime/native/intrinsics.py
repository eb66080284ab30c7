"""The functions of :mod:`.machine` for code that Numba compiles: loads, stores and calls of the C library."""

# Numba sees numbers where a type checker sees its types
# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .machine import BFLOAT16, CALLED, MSG_NOSIGNAL, SO_RCVLOWAT, SOL_SOCKET

NAMES = (
    "add", "allocate", "clock_ns", "get", "get_byte", "give", "move", "pause", "put", "put_byte", "receive_parts",
    "release", "send", "set_low", "take", "wait", "watch",
)  # fmt: skip
_word, _int = types.int64, types.int32
_call = types.ExternalFunction
_errno = _call("__errno_location", _word())
_readv = _call("readv", _word(_int, _word, _int))
_sendmsg = _call("sendmsg", _word(_int, _word, _int))
_read = _call("read", _word(_int, _word, _word))
_write = _call("write", _word(_int, _word, _word))
_epoll_wait = _call("epoll_wait", _int(_int, _word, _int, _int))
_ppoll = _call("ppoll", _int(_word, _word, _word, _word))
_epoll_ctl = _call("epoll_ctl", _int(_int, _int, _int, _word))
_setsockopt = _call("setsockopt", _int(_int, _int, _int, _word, _int))
_aligned_alloc = _call("aligned_alloc", _word(_word, _word))
_free = _call("free", types.void(_word))
_memmove = _call("memmove", _word(_word, _word, _word))
_clock_gettime = _call("clock_gettime", _int(_int, _word))


def _loader(bits: int, signed: bool) -> Any:
    @intrinsic
    def load(typingctx: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return _word(_word), codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, at: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            builder.store(number, builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(_word, _word), codegen

    return store


_load, _load_int, _load_byte = _loader(64, True), _loader(32, True), _loader(8, False)
_store, _store_byte = _storer(64), _storer(8)


@intrinsic
def _pointer(typingctx: Any, at: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(_word), codegen


@intrinsic
def _scratch(typingctx: Any) -> Any:
    """The address of 16 bytes on the stack."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.IntType(64), size=ir.Constant(ir.IntType(64), 2))
        return builder.ptrtoint(place, ir.IntType(64))

    return _word(), codegen


@intrinsic
def _call_sum(typingctx: Any, function: Any, a: Any, b: Any, out: Any, count: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[_word] * 5), codegen


@numba.njit
def get(at):
    return _load(at)


@numba.njit
def put(at, value):
    _store(at, np.int64(value))


@numba.njit
def get_byte(at):
    return _load_byte(at)


@numba.njit
def put_byte(at, value):
    _store_byte(at, np.int64(value))


@numba.njit
def move(to, source, count):
    _memmove(to, source, count)


@numba.njit
def allocate(count):
    return _aligned_alloc(np.int64(64), count)


@numba.njit
def release(at):
    _free(at)


@numba.njit
def clock_ns():
    at = _scratch()
    _clock_gettime(np.int32(1), at)
    return _load(at) * 1_000_000_000 + _load(at + 8)


@numba.njit
def _checked(result):
    return np.int64(result) if result >= 0 else -_load_int(_errno())


@numba.njit
def receive_parts(fd, parts, count):
    return _checked(_readv(np.int32(fd), parts, np.int32(count)))


@numba.njit
def send(fd, message):
    return _checked(_sendmsg(np.int32(fd), message, np.int32(MSG_NOSIGNAL)))


@numba.njit
def take(fd, to, count):
    return _checked(_read(np.int32(fd), to, count))


@numba.njit
def give(fd, at, count):
    return _checked(_write(np.int32(fd), at, count))


@numba.njit
def wait(poller, events, count, within_ms):
    return _checked(_epoll_wait(np.int32(poller), events, np.int32(count), np.int32(within_ms)))


@numba.njit
def pause(room):
    return _checked(_ppoll(room, np.int64(1), room + 8, np.int64(0)))


@numba.njit
def watch(poller, operation, fd, event):
    return _checked(_epoll_ctl(np.int32(poller), np.int32(operation), np.int32(fd), event))


@numba.njit
def set_low(fd, at):
    return _checked(_setsockopt(np.int32(fd), np.int32(SOL_SOCKET), np.int32(SO_RCVLOWAT), at, np.int32(4)))


def _adder(kind: Any) -> Any:
    size = np.dtype(kind).itemsize

    @numba.njit
    def add_numbers(a, b, out, count):
        n = count // size
        y, z = numba.carray(_pointer(b), n, kind), numba.carray(_pointer(out), n, kind)
        if a == out:  # with two arrays instead of three the compiler can tell that they do not overlap
            for i in range(n):
                z[i] += y[i]
        else:
            x = numba.carray(_pointer(a), n, kind)
            for i in range(n):
                z[i] = x[i] + y[i]

    return add_numbers


_float32, _float64, _int8 = _adder(np.float32), _adder(np.float64), _adder(np.int8)
_int16, _int32, _int64 = _adder(np.int16), _adder(np.int32), _adder(np.int64)


@numba.njit
def _bfloat16(a, b, out, count):
    """Add in 32 bits and round to the nearest, ties to even, as PyTorch does."""
    n = count // 2
    x, y = numba.carray(_pointer(a), n, np.uint16), numba.carray(_pointer(b), n, np.uint16)
    z = numba.carray(_pointer(out), n, np.uint16)
    for i in range(n):
        total = _as_float(np.uint32(x[i]) << np.uint32(16)) + _as_float(np.uint32(y[i]) << np.uint32(16))
        bits = _as_bits(total)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        z[i] = np.uint16(rounded) if total == total else np.uint16(0x7FC0)


@intrinsic
def _as_float(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


@intrinsic
def _as_bits(typingctx: Any, number: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@numba.njit
def add(code, function, a, b, out, count):
    if code == CALLED:
        _call_sum(function, a, b, out, count)
    elif code == BFLOAT16:
        _bfloat16(a, b, out, count)
    elif code == 1:
        _float32(a, b, out, count)
    elif code == 2:
        _float64(a, b, out, count)
    elif code == 3:
        _int8(a, b, out, count)
    elif code == 4:
        _int16(a, b, out, count)
    elif code == 5:
        _int32(a, b, out, count)
    elif code == 6:
        _int64(a, b, out, count)

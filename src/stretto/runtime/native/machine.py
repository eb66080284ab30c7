"""What the compiled loop needs of the machine: words at addresses, system calls, and sums.

Each function is here twice: by ctypes for the interpreter, and as an intrinsic of Numba for compiled code, into which
it is inlined. A system call returns what it returns, or the negative number of its error.
"""

from __future__ import annotations

import ctypes
import platform
import time

import numpy as np

PACKED = platform.machine() in ("x86_64", "AMD64")
EVENT_BYTES = 12 if PACKED else 16
"""Bytes of Linux's ``struct epoll_event``, which is packed on one architecture."""
EVENT_DATA = 4 if PACKED else 8
"""Where it has the address that was registered."""
SOL_SOCKET, SO_RCVLOWAT, MSG_NOSIGNAL = 1, 18, 0x4000
EAGAIN, EINTR = 11, 4
NUMBERS = (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64)
"""Types whose sums are compiled; the code of a sum is its place here, from 1. After them comes bfloat16."""
BFLOAT16 = len(NUMBERS) + 1
CALLED = 100
"""The code of a sum that Python makes."""

_libc = ctypes.CDLL(None, use_errno=True)
_SUM = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def get(at: int) -> int:
    """The word at an address."""
    return ctypes.c_int64.from_address(at).value


def put(at: int, value: int) -> None:
    ctypes.c_int64.from_address(at).value = value


def get_byte(at: int) -> int:
    return ctypes.c_uint8.from_address(at).value


def put_byte(at: int, value: int) -> None:
    ctypes.c_uint8.from_address(at).value = value & 0xFF


def move(to: int, source: int, count: int) -> None:
    """Copy bytes; the two places may overlap."""
    ctypes.memmove(to, source, count)


def allocate(count: int) -> int:
    """The address of new memory, at a multiple of 64; ``count`` is one, too."""
    _libc.aligned_alloc.restype = ctypes.c_void_p
    return _libc.aligned_alloc(ctypes.c_size_t(64), ctypes.c_size_t(count)) or 0


def release(at: int) -> None:
    _libc.free(ctypes.c_void_p(at))


def clock_ns() -> int:
    """The monotonic clock."""
    return time.monotonic_ns()


def receive_parts(fd: int, parts: int, count: int) -> int:
    """Fill ``count`` parts (``struct iovec``) from a socket."""
    return _called(_libc.readv(fd, ctypes.c_void_p(parts), count))


def send(fd: int, message: int) -> int:
    """Send what a ``struct msghdr`` names."""
    _libc.sendmsg.restype = ctypes.c_ssize_t
    return _called(_libc.sendmsg(fd, ctypes.c_void_p(message), MSG_NOSIGNAL))


def take(fd: int, to: int, count: int) -> int:
    return _called(_libc.read(fd, ctypes.c_void_p(to), ctypes.c_size_t(count)))


def give(fd: int, at: int, count: int) -> int:
    return _called(_libc.write(fd, ctypes.c_void_p(at), ctypes.c_size_t(count)))


def wait(poller: int, events: int, count: int, within_ms: int) -> int:
    """Wait for events of an epoll instance."""
    return _called(_libc.epoll_wait(poller, ctypes.c_void_p(events), count, within_ms))


def pause(room: int) -> int:
    """Wait for one ``struct pollfd``, which a ``struct timespec`` follows, and no longer than that says."""
    return _called(_libc.ppoll(ctypes.c_void_p(room), 1, ctypes.c_void_p(room + 8), None))


def watch(poller: int, operation: int, fd: int, event: int) -> int:
    return _called(_libc.epoll_ctl(poller, operation, fd, ctypes.c_void_p(event)))


def set_low(fd: int, at: int) -> int:
    """Set ``SO_RCVLOWAT`` to the 32 bits at an address."""
    return _called(_libc.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, ctypes.c_void_p(at), 4))


def add(code: int, function: int, a: int, b: int, out: int, count: int) -> None:
    """Add ``count`` bytes of numbers; ``out`` may be ``a``."""
    if code == CALLED:
        _SUM(function)(a, b, out, count)
        return
    if code == BFLOAT16:
        x, y, z = (np.ctypeslib.as_array((ctypes.c_uint16 * (count // 2)).from_address(p)) for p in (a, b, out))
        wide = (x.astype(np.uint32) << 16).view(np.float32) + (y.astype(np.uint32) << 16).view(np.float32)
        bits = wide.view(np.uint32)
        z[:] = np.where(np.isnan(wide), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        return
    kind = NUMBERS[code - 1]
    x, y, z = (np.frombuffer(memoryview((ctypes.c_uint8 * count).from_address(p)), kind) for p in (a, b, out))
    np.add(x, y, out=z)


def _called(result: int) -> int:
    return result if result >= 0 else -ctypes.get_errno()


if __name__.rpartition(".")[2].startswith("compiled_"):  # the copy of this module for compiled code
    from . import intrinsics

    for _name in vars(intrinsics)["NAMES"]:
        globals()[_name] = getattr(intrinsics, _name)

"""Ctrl-C ends a command soon, whatever it does, and with one word."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE_S = 1.0
"""Seconds for which a solver or a kernel may go on."""
AGAIN_S = 0.05
"""Seconds after which an interruption is repeated that came in a finalizer, where Python drops it."""
INTERRUPTED = 128 + signal.SIGINT
"""The exit code, as shells have it."""

_HEARD, _INTERRUPTED = threading.Event(), threading.Event()
"""Whether Python has heard of the last signal, and of any."""


def was_interrupted() -> bool:
    """Whether an exception may come of Ctrl-C: what was being imported then may raise any."""
    return _INTERRUPTED.is_set()


@contextmanager
def interruptible() -> Iterator[None]:
    """End this process when it is interrupted in compiled code, which Python's handlers wait for.

    Where Python runs, KeyboardInterrupt is raised as ever, so that what must be cleaned up is. It ends the process
    with one word and code 130.
    """
    _HEARD.clear()
    _INTERRUPTED.clear()
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not own or threading.current_thread() is not threading.main_thread():
        yield  # a caller has set a handler of its own, or runs this beside other things
        return
    told, tell = socket.socketpair()
    tell.setblocking(False)
    before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _hear)
    watcher = threading.Thread(target=_watch, args=(told,), name="stretto-interrupted", daemon=True)
    watcher.start()
    hook, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        yield
    except KeyboardInterrupt:
        _say()
        sys.exit(INTERRUPTED)
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        tell.close()
        watcher.join()
        told.close()


def _hear(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()
    _HEARD.set()
    raise KeyboardInterrupt


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Interrupt again what goes on although it was interrupted: KeyboardInterrupt was raised in a finalizer."""
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _watch(told: socket.socket) -> None:
    """End the process if Python does not hear of a signal soon, until the other end is closed.

    Whoever has set a handler of their own meanwhile, as a server that first ends what it is at, ends by it.
    """
    while signals := told.recv(1):
        if signals[0] != signal.SIGINT or signal.getsignal(signal.SIGINT) is not _hear:
            continue
        if not _HEARD.wait(PATIENCE_S):
            _say()
            os._exit(INTERRUPTED)
        _HEARD.clear()


def _say() -> None:
    sys.stderr.write("\ninterrupted\n" if sys.stderr.isatty() else "interrupted\n")
    sys.stderr.flush()

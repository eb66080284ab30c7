"""The thread that serves the groups of a process without Python's lock, and how Python speaks to it.

Python gives it records (:mod:`.records`) by a pipe, and learns by an event of the kernel that a run has ended. Neither
takes Python's lock away from the thread that calls: where other threads are busy, it takes 5 ms to get that back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...lower import Program
from ...model.arrays import Int64
from ...model.errors import PeerFailed
from ..buffers import Array
from ..mesh import Connection, Mesh
from . import compiling, kernel_engine, machine_code
from . import kernel_layout as at
from .events import HOLDING, LEAVING, Events
from .failures import failure_of
from .listeners import Listeners
from .machine import EVENT_BYTES
from .records import NOTHING_SAID, WORD, Ends, Last, address, words
from .runs import Poll, Run
from .sums import Sums
from .templates import Template, column, fill_in, template_of

NOTHING_BYTES = 64
JOIN_S = 5.0
"""Seconds that the threads of listeners get to end."""
_COMMAND = struct.Struct("qq")
_COMMAND_BYTES = ctypes.c_size_t(_COMMAND.size)


class Engine:
    """The loop of this process."""

    def __init__(self, serve: machine_code.Serve) -> None:
        self.owner, self._serve = os.getpid(), serve
        self._record, self._lock = words(at.ENGINE_WORDS // WORD), threading.RLock()
        self._poller = select.epoll()
        self._commands, self._command = os.pipe()
        self.nothing = np.zeros(NOTHING_BYTES, dtype=np.uint8)
        events = np.zeros(EVENT_BYTES * at.MOST_EVENTS + 16 * at.MOST_COMMANDS, dtype=np.uint8)
        self._keep: list[NDArray[Any]] = [events, words(8), words(32), words(2 * at.MOST_POOL_KINDS)]
        fields: list[tuple[int, int]] = [
            (at.POLLER, self._poller.fileno()), (at.COMMANDS, self._commands), (at.LOOK_AT, kernel_engine.NEVER),
            *zip((at.EVENTS, at.PARTS, at.MESSAGE, at.POOL), [address(a) for a in self._keep], strict=True),
        ]  # fmt: skip
        for which, value in fields:
            self._record[which // WORD] = value
        self._poller.register(self._commands, select.EPOLLIN)
        HOLDING.epoll_ctl(self._poller.fileno(), 3, self._commands, (ctypes.c_uint8 * 16)(1))  # whose data is 0
        self.events = Events()
        self._stopped = False
        self._clock: int | None = None
        self._cpu_s = 0.0
        self.broken: BaseException | None = None
        self._ends: dict[int, Ends] = {}
        self._runs: dict[int, deque[Run]] = {}
        self._templates: dict[int, WeakKeyDictionary[Program, Template]] = {}
        self.sums = Sums(lambda: self._help(self._tell_of_sum, "stretto-failed"))
        self.listeners = Listeners()
        self._helpers: list[threading.Thread] = []
        self._record[at.ENDED // WORD] = self.listeners.tells
        self._thread = threading.Thread(target=self._work, name="stretto", daemon=True)
        self._thread.start()

    # --- for the threads that call -----------------------------------------------------------------

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the loop's thread so far."""
        if self._clock is not None:
            with suppress(OSError):  # the thread has ended
                self._cpu_s = time.clock_gettime(self._clock)
        return self._cpu_s

    def adopt(
        self, mesh: Mesh, shared: Mapping[Connection, int] | None = None,
        numbers: tuple[int, Mapping[int, int]] | None = None,
    ) -> Ends:  # fmt: skip
        """Serve a mesh from now on; see :class:`.Ends`. Where it is shared, frames are taken when this returns."""
        added = -1 if shared is None else self.events.take()
        ends = Ends(mesh, shared, numbers, added)
        place = ends.address
        with self._lock:
            self._ends[place], self._runs[place], self._templates[place] = ends, deque(), WeakKeyDictionary()
        mesh.server = _Served(self, ends)
        self._say(kernel_engine.ADD_GROUP, place)
        if added >= 0:
            self._await(added)
        return ends

    def ask(self, command: int, request: Sequence[int]) -> Int64:
        """Give the loop a command, and wait until it has obeyed; returns the request with an event put in second."""
        asked = np.array([request[0], event := self.events.take(), *request[1:]], dtype=np.int64)
        if not self._stopped:
            self._say(command, address(asked))
            self._await(event)
        return asked

    def defer(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Let another thread do something if this is the loop's, which cannot wait for its answer; whether it is."""
        here = threading.current_thread() is self._thread
        if here:  # Python collects a group in it
            self._help(work, "stretto-left", *arguments)
        return here

    def _await(self, event: int) -> None:
        """Wait for an answer of the loop, and take the event back."""
        poll = Poll(event, select.POLLIN, 0)
        while LEAVING.poll(ctypes.byref(poll), 1, 1000) <= 0 and self._thread.is_alive():
            pass
        self.events.give(event)

    def release(
        self, ends: Ends, failure: PeerFailed | None, last: Last = NOTHING_SAID, gives_back: bool = True
    ) -> Sequence[Callable[[], None]]:
        """Serve a mesh no more; where groups share its connections, its streams say ``last``. Returns the listeners of
        runs that fail, which are to be called without a lock."""
        if os.getpid() != self.owner or self.defer(self._drop, ends, failure, last, gives_back):
            return ()
        place = ends.address
        with self._lock:
            if self._ends.pop(place, None) is None:
                return ()
            runs = self._runs.pop(place)
            del self._templates[place]
        text = np.frombuffer(last.text or b"\0", dtype=np.uint8)
        self.ask(kernel_engine.DROP_GROUP, [place, last.words, last.culprit, len(last.text), address(text)])
        if gives_back:
            ends.give_back()
        failed = [run for run in runs if not run.ended]
        for run in failed:
            why = failure or PeerFailed(ends.mesh.name(ends.mesh.node), "the group was destroyed")
            run.end(PeerFailed(why.peer, why.reason, why.transfer or run.transfer_of(why.peer)))
        return [partial(self.listeners.call, run.place) for run in failed]

    def _drop(self, ends: Ends, failure: PeerFailed | None, *more: Any) -> None:
        """The same, and call the listeners."""
        for call in self.release(ends, failure, *more):
            call()

    def drain(self, ends: Ends) -> None:
        """Return when all runs of a mesh have ended."""
        with self._lock:
            runs = list(self._runs.get(ends.address, ()))
        if runs:
            runs[-1].wait()

    def begin(
        self, mesh: Mesh, program: Program, inputs: Mapping[int, Array], outputs: Mapping[int, Array], *,
        sizes: Mapping[int, int] | NDArray[np.int64] | None, dtype: Any, reduce: Callable[..., Any], timeout_s: float,
        call: bytes, pacing: Int64 | None = None,
    ) -> Run:  # fmt: skip
        """Begin a run after those of the same mesh that were begun before; arguments as of :func:`.execute`.

        Args:
            pacing: a record of :func:`.pacing_of`, if the run keeps starts and rates, or its arrivals are late.
        """
        ends = self.ends_of(mesh)
        run = Run(self, ends, program, self.template(ends, program))
        template, block = run.template, run.block
        chunk_bytes = template.sizes
        if sizes is not None:
            chunk_bytes = np.array([int(sizes[c]) for c in template.chunks.tolist()], dtype=np.int64)
        column(block, at.L_BYTES, len(chunk_bytes))[:] = chunk_bytes
        for which, arrays in ((at.L_INPUT, inputs), (at.L_OUTPUT, outputs)):
            places = column(block, which, len(chunk_bytes))
            for chunk, array in arrays.items():
                i = template.index.get(chunk)
                if i is not None:
                    places[i] = array.ctypes.data if array.size else address(self.nothing)
        run.keep += [inputs, outputs, pacing]
        if pacing is not None:
            block[at.PACING // WORD] = address(pacing)
            if pacing[at.KEEPS_TIMES // WORD]:
                column(block, at.S_WAITS, len(program.sends))[:] += 1  # also for its start
        kind = np.dtype(dtype)
        adds, adds_by = self.sums.of(reduce, kind)
        self.submit(run, adds, adds_by, kind.itemsize, timeout_s, call)
        return run

    def submit(self, run: Run, adds: int, adds_by: int, item_bytes: int, timeout_s: float, call: bytes) -> None:
        """Give a run to the loop."""
        fill_in(run.block, adds, adds_by, item_bytes, timeout_s, call)
        self.start(run)

    def start(self, run: Run) -> None:
        """Give a run to the loop whose words are all there."""
        place = run.ends.address
        with self._lock:
            runs = self._runs.get(place)
            serves = runs is not None and self.broken is None and run.ends.mesh.failure is None
            if runs is not None and serves:
                while runs and runs[0].released:
                    runs.popleft()
                runs.append(run)
                self._say(kernel_engine.ADD_RUN, run.place)
        if not serves:
            run.fail(run.ends.mesh.failure or PeerFailed("this process", "the group was destroyed"))

    def ends_of(self, mesh: Mesh) -> Ends:
        """The records of a mesh, which is served from now on; raises PeerFailed if another thread has ended it."""
        if mesh.failure is not None:
            raise mesh.failure
        server = mesh.server
        return server.ends if isinstance(server, _Served) else self.adopt(mesh)

    def template(self, ends: Ends, program: Program) -> Template:
        """The words of a program over a mesh, made once."""
        with self._lock:
            known = self._templates.get(ends.address)
        if known is None:  # another thread has just ended the mesh
            raise ends.mesh.failure or PeerFailed(ends.mesh.name(ends.mesh.node), "the group was destroyed")
        if program not in known:
            known[program] = template_of(program, ends)
        return known[program]

    def stop(self) -> None:
        """End the threads."""
        self._stopped = True
        self._say(kernel_engine.STOP, 0)
        here = threading.current_thread()
        if here is not self._thread:
            self._thread.join()
        self.listeners.stop(JOIN_S)
        for thread in self._helpers:
            if thread is not here:
                thread.join(JOIN_S)
        self.events.stop()
        for descriptor in (self._commands, self._command):
            os.close(descriptor)
        self._poller.close()

    def _help(self, work: Callable[..., None], name: str, *arguments: Any) -> None:
        self._helpers = [thread for thread in self._helpers if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
        self._helpers.append(thread)
        thread.start()

    def _say(self, command: int, place: int) -> None:
        if os.getpid() != self.owner:  # its pipe leads to the loop of another process, which has other addresses
            raise OSError(errno.ESRCH, "a group serves the process that made it, not one that was forked from that")
        if self._stopped and command != kernel_engine.STOP:  # its pipe's number may be that of another file now
            raise OSError(errno.EPIPE, "the loop of stretto has ended")
        # without giving up Python's lock: the loop never waits for it before it reads
        while HOLDING.write(self._command, _COMMAND.pack(command, place), _COMMAND_BYTES) < 0:
            if ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "the loop of stretto is gone")

    # --- the loop's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            self._run()
        except BaseException as error:
            # It could not be compiled or loaded. What was given to it fails; what is asked for after that, also of the
            # same groups, is run by Python's loop if the runs of all ranks that were begun have ended well.
            with self._lock:
                self.broken = error
                runs = [run for of_group in self._runs.values() for run in of_group if not run.ended]
            for run in runs:
                run.fail(PeerFailed("this process", f"the compiled loop ended ({type(error).__name__}: {error})"))
            raise

    def _run(self) -> None:
        while place := self._serve(address(self._record)):
            with self._lock:
                ends, runs = self._ends.get(place), list(self._runs.get(place, ()))
                if ends is not None:
                    self._help(self._tell, "stretto-failed", ends, runs)

    def _tell(self, ends: Ends, runs: list[Run]) -> None:
        """Tell the peers of a failure, and end the group's runs."""
        mesh, current = ends.mesh, int(ends.group[at.CURRENT // WORD])
        running = next((run for run in runs if run.place == current), None)
        program, block = (None, None) if running is None else (running.program, running.block)
        with mesh.ending:
            ends.note_runs()
            failure, culprit = failure_of(ends, program, block)
        mesh.abort(failure, culprit)  # calls listeners, which may wait for other threads that end the mesh
        if mesh.told is not None:
            mesh.told(failure)
        self._drop(ends, mesh.failure)

    def failed_sum(self, mesh: Mesh) -> PeerFailed | None:
        """Why no run of this process can be trusted: a sum has raised an exception; None if none has."""
        error = self.sums.error
        if error is None:
            return None
        return PeerFailed(mesh.name(mesh.node), f"a sum failed ({type(error).__name__}: {error})")

    def _tell_of_sum(self) -> None:
        """End all groups."""
        with self._lock:
            served = [ends.mesh for ends in self._ends.values()]
        for mesh in served:
            failure = self.failed_sum(mesh)
            assert failure is not None
            mesh.abort(failure, mesh.node)
            if mesh.told is not None:
                mesh.told(failure)


class _Served:
    """A mesh that a loop serves."""

    def __init__(self, engine: Engine, ends: Ends) -> None:
        self.engine, self.ends = engine, ends

    def drain(self) -> None:
        self.engine.drain(self.ends)

    def release(self, failure: PeerFailed | None, gives_back: bool = True) -> Sequence[Callable[[], None]]:
        return self.engine.release(self.ends, failure, gives_back=gives_back)


_ENGINE: Engine | None = None
_USERS = 0
_LOCK = threading.RLock()
"""Reentrant, as that of an engine: Python may collect a group, which lets go of the loop, while the thread has it."""


def running() -> Engine | None:
    """The loop of this process, if it runs."""
    return _ENGINE if _ENGINE is not None and _ENGINE.owner == os.getpid() else None


def can_serve(mesh: Mesh) -> bool:
    """Whether the loop can run a mesh's programs: what protects bytes, or divides them among lanes, is Python's."""
    return all(c.channel is None and c.lead is c for c in mesh.connections)


def for_mesh(mesh: Mesh) -> Engine | None:
    """The loop that shall run a mesh's programs: the one that serves it, or that of this process. Starting one is for
    who knows that it pays (:func:`..execute.prepare`), or for ``STRETTO_KERNELS=compiled``."""
    if not can_serve(mesh):
        return None
    served = mesh.server if isinstance(mesh.server, _Served) else None
    if served is not None and served.ends.shares:
        return served.engine  # even if it is broken: Python's loop cannot speak for one group alone
    if _ENGINE is not None and _ENGINE.broken is not None:
        return None
    if served is not None:
        return served.engine
    return running() or (hold() if os.environ.get("STRETTO_KERNELS") == "compiled" else None)


def hold() -> Engine | None:
    """The loop of this process, started if it does not run; None where there is none. Call :func:`let_go` after use.

    Where it was never compiled there is none yet: a process in the background compiles it for later groups, unless
    ``STRETTO_KERNELS=compiled`` asks to wait for it.
    """
    global _ENGINE, _USERS
    speed = os.environ.get("STRETTO_KERNELS")
    if not sys.platform.startswith("linux") or speed == "python":
        return None
    with _LOCK:
        if running() is None:
            serve = compiling.code(compiles=speed == "compiled")
            if serve is None:
                return None
            _ENGINE, _USERS = Engine(serve), 0
        _USERS += 1
        return _ENGINE


def let_go() -> None:
    """Use the loop no more; it ends when nobody uses it."""
    global _ENGINE, _USERS
    with _LOCK:
        if (engine := running()) is None:
            return
        _USERS -= 1
        if _USERS == 0:
            _ENGINE = None
            engine.stop()

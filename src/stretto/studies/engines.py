"""Engines that run cells: in this process, or in processes of this machine; :mod:`.on_ray` uses a cluster.

An engine takes (cell, seed) pairs and yields (position, outcome) as they finish, in any order.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext

from .cell import Outcome, attempt, lost_cell
from .model import Cell

Task = tuple[Cell, int]
Engine = Callable[[Sequence[Task], Sequence[Cell]], Iterator[tuple[int, Outcome]]]
"""``engine(tasks, warm_up)``: each process runs the cells of ``warm_up`` before its first task."""


def here(tasks: Sequence[Task], warm_up: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
    """Run the tasks in this process, in order."""
    for cell in warm_up:
        attempt(cell, 0)
    for i, (cell, seed) in enumerate(tasks):
        yield i, attempt(cell, seed)


class Processes:
    """Run tasks in a number of processes that stay alive, so that compiled and imported code stays loaded.

    If a process dies (a crash in a solver, no memory), its task is recorded as failed and a new process takes its
    place. The processes end with this one, however it ends.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(self, tasks: Sequence[Task], warm_up: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
        context = multiprocessing.get_context("spawn")
        waiting = deque(range(len(tasks)))
        workers: dict[Connection, tuple[_Worker, int]] = {}

        def start(worker: _Worker) -> None:
            position = waiting.popleft()
            worker.pipe.send(tasks[position])
            workers[worker.pipe] = worker, position

        try:
            for _ in range(min(self.jobs, len(tasks))):
                start(_Worker(context, warm_up))
            while workers:
                ready = wait(list(workers))
                for pipe in [p for p in workers if p in ready]:
                    worker, position = workers.pop(pipe)
                    try:
                        outcome = worker.pipe.recv()
                    except (EOFError, ConnectionError):
                        outcome = lost_cell(tasks[position][0], worker.last_words())
                        if waiting:
                            worker = _Worker(context, warm_up)
                    if waiting:
                        start(worker)
                    else:
                        worker.end()
                    yield position, outcome
        finally:
            for worker, _ in workers.values():
                worker.end()


class _Worker:
    """A process that runs one task after another."""

    def __init__(self, context: SpawnContext, warm_up: Sequence[Cell]) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, tuple(warm_up)), daemon=True)
        self._process.start()
        theirs.close()

    def last_words(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        return f"its process died ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, warm_up: Sequence[Cell]) -> None:
    """The loop of a worker, until it is told to end or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for cell in warm_up:
        attempt(cell, 0)
    with suppress(EOFError):
        while True:
            pipe.send(attempt(*pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

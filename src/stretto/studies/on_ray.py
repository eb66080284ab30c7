"""Running cells on Ray, on this machine or a cluster.

Ray runs a task again if its node or process dies; the process that asked records each result once. Every node needs
the same version of stretto, which is checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..model.errors import InputError
from ..model.extras import require
from .cell import Outcome, attempt, lost_cell, message_of
from .engines import Task
from .model import Cell

RETRIES = 3
"""How often a task is run again after its node or process has died, before it counts as failed."""

_WARM: set[str] = set()


def _run(cell: Cell, seed: int, warm_up: Sequence[Cell]) -> Outcome:
    """Run a task, in a process that Ray reuses."""
    if repr(warm_up) not in _WARM:
        _WARM.add(repr(warm_up))
        for one in warm_up:
            attempt(one, 0)
    return attempt(cell, seed)


class OnRay:
    """Run tasks by Ray.

    Args:
        address: ``ray://HOST:PORT`` or HOST:PORT; by default that of ``RAY_ADDRESS``, else a new Ray on this machine.
        jobs: the most tasks at once; by default the number of CPUs.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        self.address, self.jobs = address or os.environ.get("RAY_ADDRESS") or "local", jobs

    def __call__(self, tasks: Sequence[Task], warm_up: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
        require("ray", "this engine", "ray")
        import ray

        joined = not ray.is_initialized()
        if joined:
            self._join(ray)
        run = ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
        common = ray.put(tuple(warm_up))
        running: dict[Any, int] = {}
        try:
            for position, (cell, seed) in enumerate(tasks):
                # a few more tasks than CPUs, so that no CPU is idle while a result is written
                while len(running) >= (self.jobs or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))):
                    yield self._next(ray, running, tasks)
                running[run.remote(cell, seed, common)] = position
            while running:
                yield self._next(ray, running, tasks)
        finally:
            for task in running:
                ray.cancel(task, force=True)
            if joined:
                ray.shutdown()

    def _join(self, ray: Any) -> None:
        more: dict[str, Any] = {"num_cpus": self.jobs, "include_dashboard": False} if self.address == "local" else {}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **more)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"no Ray answers: {error}", self.address) from None

    @staticmethod
    def _next(ray: Any, running: dict[Any, int], tasks: Sequence[Task]) -> tuple[int, Outcome]:
        """Wait for any running task; returns its outcome."""
        (done,), _ = ray.wait(list(running), num_returns=1)
        position = running.pop(done)
        try:
            outcome: Outcome = ray.get(done)
        except ray.exceptions.RayError as error:
            outcome = lost_cell(tasks[position][0], f"by Ray: {message_of(error)}".splitlines()[0])
        return position, outcome

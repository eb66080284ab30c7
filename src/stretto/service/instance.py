"""One instance of the controller: whether it is the leader, its planner, and who waits for news.

A thread takes the leader's lock when it is free, begins a term, and starts the planner's process; where the lock is
lost, it ends both. Instances that are not the leader look for new versions of plans while somebody waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..model.topology import Topology
from . import networks
from .database import Database, DatabaseGone, NotLeader
from .drawings import Drawings
from .events import Events
from .leadership import lock_of
from .metrics import Metrics
from .networks import Conflict
from .planner import Settings
from .planning_process import PlanningProcess
from .published import newest_versions
from .telemetry.asking import Asking
from .telemetry.intake import Intake, Receipt, links_of
from .telemetry.samples import Link, Sample

LOG = logging.getLogger("stretto.service")

LOOK_S = 0.5
"""Seconds after which the leader's lock is looked at again."""

QUIET = ("idle", "planned", "stored")
"""What the planner tells so often that the log has it only where all is asked for."""

FOLLOW_S = 0.25
"""Seconds after which an instance that is not the leader looks for news, while somebody waits."""


class News:
    """Wakes requests that wait for a job's plan. All methods are called in the event loop.

    Attributes:
        closed: whether nobody is to wait any more, for the instance ends.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.closed = False

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def expect(self, job: str) -> asyncio.Future[None]:
        """A future that ends with the next news of a job; to be taken before the store is read."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, set()).add(future)
        return future

    def forget(self, job: str, future: asyncio.Future[None]) -> None:
        """Nobody waits for it any more."""
        if job in self._waiting:
            self._waiting[job].discard(future)
            if not self._waiting[job]:
                del self._waiting[job]

    def tell(self, jobs: Any) -> None:
        """There is news of these jobs."""
        for job in jobs:
            for future in self._waiting.pop(job, ()):
                if not future.done():
                    future.set_result(None)

    def close(self) -> None:
        """Let all who wait go; they are answered as if their time were over."""
        self.closed = True
        self.tell([*self._waiting])


class Door(Intake):
    """Where samples of a network come in while an operator's version of it lasts, and the leader's term.

    Attributes:
        topology: as the operator gave it, in its version ``base``.
    """

    def __init__(
        self, instance: Instance, network: str, base: int, topology: Topology, latest: Mapping[tuple[Link, str], float]
    ) -> None:
        self.topology, self.base, self.term = topology, base, instance.term

        def keep(samples: Sequence[Sample]) -> None:
            with instance.database.write(self.term) as connection:
                if networks.network(connection, network).base != base:
                    raise Conflict(f"network {network!r} has changed meanwhile; send it again")
                networks.keep_samples(connection, network, samples)
            instance.metrics.samples.labels(network).inc(len(samples))
            instance.events.wake()
            instance.kick()

        super().__init__(links_of(topology), keep, latest)
        self._counted = partial(instance.metrics.refused_samples.labels, network)

    def take(self, samples: Iterable[Sample], own: Collection[str] | None = None) -> Receipt:
        receipt = super().take(samples, own)
        for reason, count in receipt.refused.items():
            self._counted(reason).inc(count)
        return receipt


def _words(event: dict[str, Any]) -> str:
    """What the planner tells, for the log: of several jobs how many there are."""
    counted = {key: len(value) if isinstance(value, dict) else value for key, value in event.items()}
    return "planner: " + ", ".join(f"{key} {value}" for key, value in counted.items())


class Instance:
    """Serves one database.

    Args:
        address: URL at which others reach this instance.
        sources: by name of the network what it is asked about (:mod:`.telemetry.asking`).
    """

    def __init__(
        self, database: Database, settings: Settings, address: str, sources: Mapping[str, Any] | None = None
    ) -> None:
        self.database, self.settings, self.address = database, settings, address
        self.metrics, self.news = Metrics(), News()
        self.drawings = Drawings()
        self.events = Events(database, lambda: bool(self.term))
        self.term = 0  # of this instance while it is the leader, else 0
        self._planning = PlanningProcess(database.url, settings, self._on_event, database.gone_after_s)
        self._lock = lock_of(database)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._lead, name="leadership", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower: asyncio.Task[None] | None = None
        self._doors: dict[str, Door] = {}
        self._doors_lock = threading.Lock()
        self.asking = Asking(sources or {}, self.intake)

    async def begin(self) -> None:
        """Begin to serve; called in the event loop."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._look)
        self._thread.start()
        self.asking.start()
        self._follower = asyncio.create_task(self._follow())

    def close(self) -> None:
        """Let go of who listens or waits, before connections are waited for; called in the event loop."""
        self.events.close()
        self.news.close()

    async def end(self) -> None:
        """End the planner and give the lock back."""
        if self._follower is not None:
            self._follower.cancel()
        self._ends.set()
        await asyncio.to_thread(self.asking.close)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._resign)
        self.database.close()

    def kick(self) -> None:
        """Tell the planner that there is news."""
        self._planning.kick()

    def intake(self, network: str) -> Door:
        """Where samples of a network come in, from whatever source.

        Raises:
            Missing: there is no such network. NotLeader: this instance does not write.
        """
        if not self.term:
            raise NotLeader("this instance does not write")
        with self._doors_lock, self.database.read() as connection:
            current = networks.network(connection, network)
            door = self._doors.get(network)
            if door is None or (door.term, door.base) != (self.term, current.base):
                topology = networks.base_of(connection, current)
                latest = networks.latest_samples(connection, network)
                door = self._doors[network] = Door(self, network, current.base, topology, latest)
            return door

    def _lead(self) -> None:
        while not self._ends.wait(LOOK_S):
            try:
                self.database.probe()
                self._look()
            except Exception:  # a fault here must not leave the cluster without a leader
                LOG.exception("the leader's lock cannot be looked at")

    def _look(self) -> None:
        """Become the leader if there is none; stop being it where the lock or the term is lost."""
        if self.term and self._lock.held():
            return
        if self._planning.running:
            LOG.warning("this instance is the leader no more")
            self._resign()
        if self._lock.take():
            try:
                self.term = self.database.begin_term(self.address, time.time())
            except DatabaseGone:
                self._lock.release()
                return
            LOG.info("this instance is the leader, in term %d", self.term)
            self.metrics.leader.set(1)
            self._planning.start(self.term)

    def _resign(self) -> None:
        self.term = 0
        self.metrics.leader.set(0)
        self._planning.stop()
        self._lock.release()

    def _on_event(self, event: dict[str, Any]) -> None:
        """Take note of what the planner tells; called in a thread."""
        self.events.wake()
        self.metrics.count(event)
        self.metrics.busy.set(0 if event["event"] == "idle" else 1)
        LOG.log(logging.DEBUG if event["event"] in QUIET else logging.INFO, "%s", _words(event))
        if event["event"] in ("published", "proposed", "held"):
            self.tell([*event["jobs"], *event["refused"]])

    def tell(self, jobs: Sequence[str]) -> None:
        """Wake who waits for the plans of these jobs; called in a thread."""
        if jobs and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.news.tell, jobs)

    async def _follow(self) -> None:
        """Look for news in the store while this instance is not the leader and somebody waits."""
        seen: dict[str, int] = {}
        while True:
            await asyncio.sleep(FOLLOW_S)
            if self.term or not self.news.awaited:
                seen = {}
                continue
            with suppress(DatabaseGone):
                newest = await asyncio.to_thread(self._newest_versions)
                self.news.tell([job for job, version in newest.items() if version != seen.get(job)])
                seen = newest

    def _newest_versions(self) -> dict[str, int]:
        with self.database.read() as connection:
            return newest_versions(connection)

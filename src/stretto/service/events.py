"""News for pages, as server-sent events: what is shown (:mod:`.showing`), and then whatever of it changes.

An instance reads what is shown once for all who listen, when the leader has written or planned something, and sends
each of them the objects that differ from what it was sent. So nothing is lost that happens while a page is not there,
and pages at instances that do not lead see the same, half a second later.

    hello       who asks, and with which role; the instance, and where the leader is
    network, links, load, job
                an object that is new or has changed
    gone        the kind and name of an object that is no more
    ready       all that is known has been sent
    trouble     the database cannot be read now; another "ready" says that it can be
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from .database import Database, DatabaseGone
from .showing import Key, Showing

LOG = logging.getLogger("stretto.service")

GAP_S = 0.2
"""Seconds between two readings at least: news that come together are sent together."""

LOOK_S = 0.5
"""Seconds after which an instance that is not the leader, or has no database, looks for news."""

BEAT_S = 15.0
"""Seconds after which something is sent even if nothing has changed, so that both ends see that the other is there."""

MOST_LISTENERS, MOST_OF_CLIENT = 1000, 20
"""Pages that listen to one instance, and those of one client: who opens too many shuts out nobody else."""


def event(kind: str, data: Any) -> str:
    """An event as it is sent."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


class Events:
    """The news of one instance. All methods but :meth:`wake` are called in the event loop.

    Args:
        leads: whether this instance is the leader now.
    """

    def __init__(self, database: Database, leads: Callable[[], bool]) -> None:
        self._database, self._leads, self._showing = database, leads, Showing()
        self._shown: dict[Key, str] = {}
        self._trouble: str | None = None
        self._led = False  # whether this instance was the leader when it read last
        self._listeners: Counter[str] = Counter()  # by client
        self._ends = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: asyncio.Task[None] | None = None
        self._wanted, self._changed, self._reads = asyncio.Event(), asyncio.Event(), asyncio.Lock()

    def full(self, client: str) -> bool:
        """Whether no more pages of a client are served."""
        return self._listeners[client] >= MOST_OF_CLIENT or self._listeners.total() >= MOST_LISTENERS

    def wake(self) -> None:
        """There may be news; called in any thread."""
        if self._loop is not None and self._listeners:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wanted.set)

    def close(self) -> None:
        """End what is sent to all who listen, so that their connections can end."""
        self._ends = True
        self._changed.set()
        if self._reader is not None:
            self._reader.cancel()

    async def listen(self, hello: Callable[[], dict[str, Any] | None], client: str = "") -> AsyncIterator[str]:
        """What one page is sent.

        Args:
            hello: who listens and where; None if he may not any more.
            client: whose page it is.
        """
        self._loop = asyncio.get_running_loop()
        self._listeners[client] += 1
        said, sent = None, {}  # type: dict[str, Any] | None, dict[Key, str]
        try:
            await self._read()
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._follow())
            while not self._ends and (known := hello()) is not None:
                changed = self._changed
                text = "" if known == said else event("hello", known | {"now": time.time()})
                said = known
                text += self._news(sent)
                yield text or ": nothing new\n\n"
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), BEAT_S)
        finally:
            self._listeners[client] -= 1
            self._listeners += Counter()  # clients without pages are forgotten

    def _news(self, sent: dict[Key, str]) -> str:
        """The events that make what was sent what is shown; notes that they are sent."""
        if self._trouble is not None:
            return event("trouble", {"message": self._trouble})
        shown, parts = self._shown, []
        for key in [*sent]:
            if key not in shown:
                del sent[key]
                parts.append(event("gone", {"kind": key[0], "name": key[1]}))
        for key, text in shown.items():
            if sent.get(key) != text:
                sent[key] = text
                parts.append(f"event: {key[0]}\ndata: {text}\n\n")
        return "".join(parts) + event("ready", {"now": time.time()})

    async def _follow(self) -> None:
        """Read again whenever there may be news, while somebody listens."""
        while self._listeners:
            await asyncio.sleep(GAP_S)
            with suppress(TimeoutError):
                quick = self._trouble is not None or not self._leads()
                await asyncio.wait_for(self._wanted.wait(), LOOK_S if quick else BEAT_S)
            await self._read()

    async def _read(self) -> None:
        """Read what is shown, and wake who listens if it has changed."""
        async with self._reads:
            self._wanted.clear()
            shown, trouble = self._shown, None
            try:
                shown = await asyncio.to_thread(self._texts)
            except DatabaseGone as error:
                trouble = str(error)
            except Exception:
                LOG.exception("what pages show cannot be read")
                trouble = "what is shown cannot be read; the controller's log says more"
            now = shown, trouble, self._leads()
            if now != (self._shown, self._trouble, self._led):
                self._shown, self._trouble, self._led = now
                self._changed.set()
                self._changed = asyncio.Event()

    def _texts(self) -> dict[Key, str]:
        with self._database.read() as connection:
            found = self._showing.read(connection, time.time())
        return {key: json.dumps(data, separators=(",", ":")) for key, data in found.items()}

"""How the ranks of a group tell each other things through PyTorch's store, before they connect and beside that."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..choose.library import Library
from ..model.errors import PeerFailed
from ..runtime.channel import Wire
from ..runtime.credentials import random_secret
from ..runtime.incoming import DIED
from ..runtime.mesh import Mesh
from ..runtime.sockets import has_ended
from .stores import part_again

FIRST_LOOK_S, LOOK_S = 0.0005, 0.01
"""Seconds between the first two looks for a missing key in the store, and at most: each is twice as long as the one
before. A blocking look could not be cancelled."""
MEASURING = 2
"""Multiple of the timeout for which a rank waits for what another one measured."""
_FAILED = "stretto/failed"
"""The key under which the first rank that fails before all are connected says why."""


class Meeting:
    """One rank's part of the store of its group.

    Args:
        timeout_s: seconds for which one rank waits for another one.
    """

    def __init__(self, store: Any, library: Library, timeout_s: float) -> None:
        self._store, self._library, self._timeout_s = store, library, timeout_s
        self._left = threading.Event()
        self._meshes: list[Mesh] = []
        self._watched: Mapping[int, Wire] = {}

    @property
    def count(self) -> int:
        """How many ranks there are."""
        return self._library.size

    def meeting(self, number: int) -> Any:
        """The part of the store in which the ranks meet again for the ``number``-th time."""
        return part_again(self._store, number)

    def tell(self, name: str, value: bytes) -> None:
        """Put a value into the store for the ranks of the group."""
        self._store.set(f"stretto/{name}", value)

    def told(self, name: str, rank: int) -> bytes:
        """The value that a rank puts into the store; waits until it is there."""
        with self._first_failure():
            return self._ask(f"stretto/{name}", rank)

    def forget(self, name: str) -> None:
        """Take a value out of the store."""
        self._store.delete_key(f"stretto/{name}")

    @contextlib.contextmanager
    def _first_failure(self) -> Iterator[None]:
        """Let the other ranks know why this one fails; where one failed before, that is the cause, and is raised."""
        try:
            yield
        except PeerFailed as failure:
            if self._store.check([_FAILED]):
                raise self._failure() from None
            self._store.set(_FAILED, f"{failure.peer}\n{failure.reason}")
            raise

    def _look(self) -> None:
        """Raise if it is in vain to wait for others."""
        if self._left.is_set():
            raise PeerFailed(f"rank {self._library.rank}", "it leaves the group")
        if self._store.check([_FAILED]):
            raise self._failure()
        for r, sock in self._watched.items():
            if has_ended(sock):
                raise PeerFailed(f"rank {r}", DIED)

    def _failure(self) -> PeerFailed:
        peer, _, reason = self._store.get(_FAILED).decode().partition("\n")
        return PeerFailed(peer, reason)

    def _share(self, name: str, value: Any) -> list[Any]:
        """Publish this rank's value under a name; returns the values of all ranks, in order."""
        self._store.set(f"stretto/{name}/{self._library.rank}", json.dumps(value))
        return [json.loads(self._ask(f"stretto/{name}/{r}", r)) for r in range(self.count)]

    def _shared_secret(self) -> bytes:
        """The secret that rank 0 puts into the store; whoever reads the store has it."""
        if self._library.rank == 0:
            self._store.set("stretto/secret", random_secret().hex())
        return self._ask("stretto/secret", 0)

    def _ask(self, key: str, rank: int) -> bytes:
        """The value that another rank puts into the store; waits until it is there."""
        # a rank that measures may itself wait for the timeout before it names the rank at fault
        limit_s, pause_s = self._timeout_s * (MEASURING if self._meshes else 1), FIRST_LOOK_S
        deadline = time.monotonic() + limit_s
        while not self._store.check([key]):
            try:
                self._look()
                if time.monotonic() > deadline:
                    # the last words are those of PyTorch's own store, which programs look for
                    raise PeerFailed(f"rank {rank}", f"it did not come: timeout after {1000 * limit_s:.0f}ms")
            except PeerFailed:
                if self._store.check([key]):
                    break  # a rank that needs nothing more may have closed the group since the last look
                raise
            self._left.wait(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return bytes(self._store.get(key))

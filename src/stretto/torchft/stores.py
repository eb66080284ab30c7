"""The connection to the store where quorums meet, kept from one quorum to the next.

PyTorch asks the resolver for the names of both ends of each new connection to a store: at the client, and in the one
thread of the server, which meanwhile serves nobody. Where the resolver loses a request, that takes 5 s.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Any

from torch.distributed import PrefixStore
from torchft import process_group

ANSWER_S = 1.0
"""Seconds for which a server may be silent before it gets a new connection: a router may have forgotten the old one."""


class Stores:
    """The store of the last quorum, and what gives the next one its part of it."""

    def __init__(self) -> None:
        self._address = ""
        self._client: Any = None

    def part(self, address: str, timeout: timedelta) -> Any:
        """The part of a store that an address ``host:port/prefix`` names.

        Args:
            timeout: of what is asked of it.
        Raises:
            RuntimeError: nobody answers there.
        """
        server, _, prefix = address.partition("/")
        if server != self._address or not _answers(self._client):
            self._address, self._client = "", None
            self._client = process_group.create_store_client(f"{server}/", timeout).underlying_store
            self._address = server
        self._client.set_timeout(timeout)
        return PrefixStore(prefix, self._client)


def _answers(client: Any) -> bool:
    """Whether the server of a client is there and answers soon."""
    ended, answers = Event(), []

    def ask() -> None:
        with suppress(RuntimeError):
            answers.append(client.check(["stretto"]))
        ended.set()

    Thread(target=ask, name="stretto-store", daemon=True).start()
    ended.wait(ANSWER_S)
    return bool(answers)

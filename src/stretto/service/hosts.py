"""By which names a controller without tokens may be asked for.

A page of any site can have its own name lead to 127.0.0.1 (DNS rebinding). A browser then takes the controller for that
site, and its page could do whatever an operator may. The header ``Host`` still has that site's name, so a controller
that asks for no token answers only to addresses, to this machine's names, and to names that it was told.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from .calls import Refused, error_answer

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def own_names(*given: str | None) -> frozenset[str]:
    """The names that a controller answers to: this machine's, and those of hosts or URLs that are given."""
    hosts = [urlsplit(name if "//" in name else f"//{name}").hostname for name in given if name]
    return frozenset(name.lower() for name in ("localhost", socket.gethostname(), *hosts) if name)


class KnownHosts:
    """Passes requests for names that are known on to an application, and refuses all others.

    Args:
        names: of :func:`own_names`; an address needs none.
    """

    def __init__(self, application: Application, names: Iterable[str]) -> None:
        self._application, self._names = application, frozenset(names)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"host"), "")
            if not self._known(asked):
                answer = error_answer(Refused(
                    421, "unknown_host", f"{asked[:100]!r} is none of this controller's names; `stretto serve "
                    "--allow-host NAME` adds one, and with tokens any will do",
                ))  # fmt: skip
                await Response(answer.body, answer.status, answer.headers, answer.media)(scope, receive, send)
                return
        await self._application(scope, receive, send)

    def _known(self, asked: str) -> bool:
        """Whether a ``Host`` names an address, which no other site can have, or a known name."""
        try:
            host = (urlsplit(f"//{asked}").hostname or "").removesuffix(".")
            if host in self._names or host.endswith(".localhost"):
                return True
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

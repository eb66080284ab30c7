"""Runs an instance of the controller over HTTP or HTTPS until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from ..model.errors import InputError
from .access import Tokens
from .app import make_app
from .database import GONE_AFTER_S, Database, sqlite_url
from .hosts import own_names
from .instance import Instance
from .limits import Limits
from .planner import Settings

CLOSE_S = 5
"""Seconds that requests under way have to end when the server is told to stop."""

ABORT_S = 0.5
"""Seconds that a client has to close its side of a connection when the server ends; TLS would wait for 30."""

KEEP_ALIVE_S = 75
"""Seconds for which an idle connection stays open."""

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of this machine, so they are no address at which others reach it."""


class OpenToStrangers(InputError):
    """Other machines would reach a controller that asks nobody who he is, or that everybody can listen to."""


class PortTaken(InputError):
    """Another program listens there."""


@dataclass(frozen=True)
class Address:
    """Where the server listens, and with which certificate.

    Attributes:
        public: the URL at which others reach it; None for that of host and port.
        insecure: whether it may listen beyond this machine without TLS or tokens.
        names: of hosts, besides this machine's own, by which it may be asked for where there are no tokens.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    tls_cert: str | None = None
    tls_key: str | None = None
    public: str | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()


def serve(
    url: str | None, folder: str, address: Address, tokens: Tokens, settings: Settings, limits: Limits,
    ready: Callable[[str], None], sources: Mapping[str, Any] | None = None, gone_after_s: float = GONE_AFTER_S,
) -> None:  # fmt: skip
    """Serve until a signal ends it.

    Args:
        url: of the database; None for SQLite in the folder.
        ready: called with the server's URL when it answers.
        sources: by name of the network where its telemetry comes from (:mod:`.telemetry.asking`).
        gone_after_s: seconds after which a database, or a leader, that does not answer counts as gone.
    Raises:
        InputError: the address cannot be used, or would be open to strangers. DatabaseGone: there is no database.
    """
    _check(address, tokens)
    listening = _listen(address)
    host = socket.gethostname() if address.host in EVERYWHERE else address.host
    host = f"[{host}]" if ":" in host else host
    own = f"{'https' if address.tls_cert else 'http'}://{host}:{listening.getsockname()[1]}"
    database = Database(url if url is not None else sqlite_url(_made(folder)), gone_after_s)
    instance = Instance(database, settings, address.public or own, sources)
    names = own_names(own, address.public, *address.names)
    config = uvicorn.Config(
        make_app(instance, tokens, limits, names), log_level="warning", access_log=False, server_header=False,
        ssl_certfile=address.tls_cert, ssl_keyfile=address.tls_key, ssl_version=ssl.PROTOCOL_TLS_SERVER,
        timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=CLOSE_S, lifespan="on",
    )  # fmt: skip
    logging.getLogger("stretto.service").setLevel(logging.INFO)
    _Server(config, lambda: ready(own), instance.close).run(sockets=[listening])


class _Server(uvicorn.Server):  # type: ignore[misc]
    """A server that says when it answers, and when it is about to end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._ending = ready, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        aborting = asyncio.create_task(self._abort_closing())
        try:
            await super().shutdown(sockets)
        finally:
            aborting.cancel()

    async def _abort_closing(self) -> None:
        """Abort connections that are closed on this side alone; one whose request is under way is not closed yet."""
        before: set[Any] = set()
        while True:
            ways = [each.transport for each in self.server_state.connections]
            closing = {way for way in ways if way.is_closing() and not way.get_write_buffer_size()}
            for way in closing & before:
                way.abort()
            before = closing
            await asyncio.sleep(ABORT_S)


def _check(address: Address, tokens: Tokens) -> None:
    if (address.tls_cert is None) != (address.tls_key is None):
        raise InputError("a certificate and its key are given together", "TLS")
    if address.tls_cert is not None and address.tls_key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(address.tls_cert, address.tls_key)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                f"cannot be used: {error.strerror or error}", f"{address.tls_cert}, {address.tls_key}"
            ) from None
    if _is_loopback(address.host) or address.insecure:
        return
    lacking = [what for what, given in (("TLS", address.tls_cert), ("tokens", tokens.needed)) if not given]
    if lacking:
        needs = " and ".join(lacking)
        raise OpenToStrangers(f"{address.host} is reached from other machines, so the controller needs {needs} there")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(address: Address) -> socket.socket:
    """A socket that listens at the address."""
    try:
        family, *_, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        # with its protocol named asyncio turns Nagle's algorithm off, which holds back a body by 40 ms
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
    except OSError as error:
        kind = PortTaken if error.errno == errno.EADDRINUSE else InputError
        raise kind(f"cannot be used: {error.strerror or error}", f"{address.host}:{address.port}") from None
    return listening


def _made(folder: str) -> Path:
    """The folder of the database, which is made if there is none."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", folder) from None
    return Path(folder)

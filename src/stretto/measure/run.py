"""A measurement from beginning to end: by processes that a launcher has started, or by processes started over ssh."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any, Protocol

from .. import __version__
from ..model.errors import InputError, PeerFailed, StrettoError
from ..runtime.channel import Wire
from ..runtime.connect import own_address
from ..runtime.credentials import Credentials, from_environment
from .launch import Launch
from .meeting import Exchange, Hub, admit, go_to, open_door
from .rank import Request, measure_as
from .remote import started

HOST = "STRETTO_HOST"
SOMEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737): the way to it is the way to most hosts."""


class Reader(Protocol):
    """Who is told what has been measured."""

    def take(self, rank: int, kind: str, value: Any) -> None:
        """A report of rank 0: see :func:`.measure_as`."""

    def lost(self, failure: PeerFailed) -> None:
        """A rank has failed."""


def over_ssh(hosts: Sequence[tuple[str, str]], ssh: str, command: str, request: Request, reader: Reader) -> None:
    """Start a rank on each host, and gather what they measure.

    Args:
        hosts: names, and the addresses at which the others reach them, "" where the host itself is to say.
        ssh, command: see :class:`.Remote`.
    Raises:
        InputError: the command cannot be started.
        PeerFailed: a host does not answer, or failed.
    """
    with started([name for name, _ in hosts], ssh, command) as remote:
        orders = [
            {"rank": r, "ranks": len(hosts), "name": name, "host": address, "request": request.to_json()}
            for r, (name, address) in enumerate(hosts)
        ]
        hub = Hub([f"rank {r}" for r in range(len(hosts))], request.silence_s, reader.take)
        try:
            hub.serve(remote.brief(orders))
        except PeerFailed as failure:
            reader.lost(failure)
            raise remote.explained(failure) from None


def as_worker(orders: IO[str], answers: IO[str], environment: Mapping[str, str]) -> None:
    """A rank that :func:`over_ssh` has started: a line of orders comes first, then it shares what it measures.

    Raises:
        InputError: the orders are none, or the versions of the ranks differ.
        PeerFailed: a rank failed.
    """
    try:
        order = json.loads(orders.readline())
        request = Request.from_json({**order["request"], "version": __version__})
        rank, ranks, name = int(order["rank"]), int(order["ranks"]), str(order["name"])
    except (ValueError, KeyError, TypeError):
        raise InputError("orders of another version of stretto, or none", "measure") from None
    reached_at = (environment.get("SSH_CONNECTION", "").split() + [""] * 3)[2]
    host = order.get("host") or environment.get(HOST) or reached_at or own_address(SOMEWHERE)
    measure_as(rank, ranks, name, host, Exchange(rank, orders, answers), request)


def as_launched(launch: Launch, request: Request, reader: Reader) -> None:
    """A rank that a launcher has started. At rank 0 a thread gathers what all share.

    Raises:
        InputError: no port is free, or the versions of the ranks differ.
        PeerFailed: a rank did not come, or failed.
    """
    credentials = from_environment(os.environ, partial(_secret_of_job, launch.job))
    host = os.environ.get(HOST) or own_address(launch.host)
    gathering = None
    if launch.rank == 0:
        gathering = _Gathering(launch, credentials, request, reader)
        sock: Wire = gathering.ours
    else:
        sock = go_to(launch.host, launch.port, launch.rank, credentials, request.timeout_s)
    sock.settimeout(None)
    exchange = Exchange(launch.rank, sock.makefile("r"), sock.makefile("w"))
    try:
        measure_as(launch.rank, launch.ranks, socket.gethostname(), host, exchange, request, credentials)
    except PeerFailed as failure:
        raise (gathering and gathering.failure()) or failure from None
    if gathering is not None and (late := gathering.failure()) is not None:
        raise late


def _secret_of_job(job: str) -> bytes:
    """What ranks of one job have in common where nobody has chosen a secret. Others can find it out, too."""
    return hashlib.sha256(f"stretto measure {job}".encode()).digest()


class _Gathering:
    """The thread of rank 0 that serves as the hub; ``ours`` is the connection of rank 0 itself."""

    def __init__(self, launch: Launch, credentials: Credentials, request: Request, reader: Reader) -> None:
        self.launch, self.credentials, self.request, self.reader = launch, credentials, request, reader
        self.door = open_door(launch.host, launch.port)
        self.ours, self.theirs = socket.socketpair()
        self.failures: list[StrettoError] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def failure(self) -> StrettoError | None:
        """What went wrong, once all is over."""
        self.thread.join(self.request.timeout_s)
        return self.failures[0] if self.failures else None

    def _serve(self) -> None:
        names = [f"rank {r}" for r in range(self.launch.ranks)]
        try:
            with self.door:
                came: dict[int, Wire] = {0: self.theirs}
                came |= admit(self.door, len(names), names, self.credentials, self.request.timeout_s)
            for sock in came.values():
                sock.settimeout(None)
            Hub(names, self.request.silence_s, self.reader.take).serve(
                {r: (s, s.makefile("w")) for r, s in came.items()}
            )
        except StrettoError as failure:
            self.failures.append(failure)
            if isinstance(failure, PeerFailed):
                self.reader.lost(failure)
        finally:
            self.theirs.shutdown(socket.SHUT_RDWR)

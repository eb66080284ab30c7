"""Where ranks share values while they measure: lines of JSON to a *hub*, which answers when all ranks have sent theirs.

The hub is a thread of rank 0, or the process that started all ranks. It tells every rank of the first failure, so that
all name the same culprit. Over TCP, ranks prove to the hub that they know the secret, as the ends of all other
connections do.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from ..model.errors import InputError, PeerFailed
from ..runtime.channel import Channel, Wire
from ..runtime.credentials import Credentials
from ..runtime.door import HANDSHAKE_S, Door
from ..runtime.handshake import shake

PORTS = 8
"""Ports that are tried, from the named one on: rank 0 takes the first that is free."""
LOOK_S = 0.1
"""Seconds between two attempts to reach rank 0."""
LATE = 2.0
"""Multiple of the timeout for which the hub waits for the others once one rank has shared a value: a rank may itself
wait for the timeout before it names the one at fault."""
MOST_LINE = 1 << 26
"""Bytes of a line at most."""


class Source(Protocol):
    """What a hub reads lines from: a socket, or an unbuffered pipe."""

    def fileno(self) -> int: ...


Lines = Mapping[int, tuple[Source, IO[str]]]
"""For each rank what it writes, and where its answers go."""


class Exchange:
    """One rank's end.

    Args:
        reader, writer: lines from the hub, and to it.
    """

    def __init__(self, rank: int, reader: IO[str], writer: IO[str]) -> None:
        self.rank, self._reader, self._writer = rank, reader, writer
        self._first: PeerFailed | None = None

    def share(self, name: str, value: Any, patience_s: float = 0.0) -> list[Any]:
        """Publish this rank's value, and return the values of all ranks, in order.

        Args:
            patience_s: seconds for which the ranks may wait for each other besides the timeout.
        Raises:
            PeerFailed: a rank failed.
        """
        self._say({"name": name, "value": value, "patience_s": patience_s})
        return list(self._hear()["values"])

    def report(self, kind: str, value: Any) -> None:
        """Tell the hub's side something that needs no answer."""
        self._say({"report": kind, "value": value})

    def end(self) -> None:
        """This rank has done all."""
        self._say({"end": True})

    def cause(self, failure: PeerFailed) -> PeerFailed:
        """Tell the hub of a failure; returns the first one of all ranks, which may have caused this one."""
        if self._first is None:
            with contextlib.suppress(PeerFailed):
                self._say({"failed": [failure.peer, failure.reason]})
                while True:
                    self._hear()
        return self._first or failure

    def _say(self, message: Mapping[str, Any]) -> None:
        try:
            self._writer.write(json.dumps(message) + "\n")
            self._writer.flush()
        except (OSError, ValueError):
            raise PeerFailed("the process that gathers the measurements", "it ended") from None

    def _hear(self) -> dict[str, Any]:
        try:
            line = self._reader.readline(MOST_LINE)
        except (OSError, ValueError):
            line = ""
        if not line:
            raise PeerFailed("the process that gathers the measurements", "it ended")
        message = json.loads(line)
        if "failed" in message:
            self._first = PeerFailed(*message["failed"])
            raise self._first
        return dict(message)


@dataclass
class _Line:
    """A rank as the hub sees it: what it writes to, where its answers go, and what it shares next."""

    input: Source
    output: IO[str]
    partial: bytearray = field(default_factory=bytearray)
    value: dict[str, Any] | None = None
    ended: bool = False


class Hub:
    """Gathers the values of all ranks.

    Args:
        names: what messages call each rank.
        on_report: called with the rank, the kind and the value of each report.
    """

    def __init__(
        self, names: Sequence[str], timeout_s: float, on_report: Callable[[int, str, Any], None] | None = None
    ) -> None:
        self.names, self.timeout_s = list(names), timeout_s
        self.on_report = on_report or (lambda rank, kind, value: None)
        self.failure: PeerFailed | None = None

    def serve(self, lines: Lines) -> None:
        """Serve until every rank has ended.

        Raises:
            PeerFailed: the first failure; all ranks have been told.
        """
        ranks = {rank: _Line(reader, writer) for rank, (reader, writer) in lines.items()}
        with selectors.DefaultSelector() as selector:
            for rank, (reader, _) in lines.items():
                selector.register(reader.fileno(), selectors.EVENT_READ, rank)
            while not all(line.ended for line in ranks.values()):
                for key, _ in selector.select(self._patience_s(ranks)):
                    if not self._read(key.data, ranks[key.data]):
                        selector.unregister(key.fileobj)
                        if not ranks[key.data].ended:
                            self._fail(ranks, PeerFailed(self.names[key.data], "it died, or left"))
                self._answer(ranks)

    def _patience_s(self, ranks: Mapping[int, _Line]) -> float | None:
        """Seconds to wait for the next line: none if no rank waits, else until the silent ones count as failed."""
        waiting = [line.value for line in ranks.values() if line.value is not None]
        if not waiting:
            return None
        since = min(value["since"] for value in waiting)
        until = since + LATE * self.timeout_s + max(value["patience_s"] for value in waiting)
        if time.monotonic() > until:
            silent = [self.names[r] for r, line in ranks.items() if line.value is None and not line.ended]
            self._fail(
                ranks, PeerFailed(", ".join(silent), f"nothing came from it for {time.monotonic() - since:.0f} s")
            )
        return float(max(until - time.monotonic(), LOOK_S))

    def _read(self, rank: int, line: _Line) -> bool:
        """Take what a rank has written; whether there may be more."""
        alive = self._read_once(rank, line)
        while alive and isinstance(line.input, Channel) and line.input.pending:
            alive = self._read_once(rank, line)
        return alive

    def _read_once(self, rank: int, line: _Line) -> bool:
        source = line.input
        try:
            more = source.recv(1 << 16) if isinstance(source, Channel) else os.read(source.fileno(), 1 << 16)
        except OSError:
            more = b""
        searched = len(line.partial)
        line.partial += more
        while (at := line.partial.find(b"\n", searched)) >= 0:
            searched = 0
            text = bytes(line.partial[:at])
            del line.partial[: at + 1]
            self._take(rank, line, text)
        if len(line.partial) > MOST_LINE:
            self.failure = self.failure or PeerFailed(self.names[rank], f"it wrote a line of over {MOST_LINE} bytes")
            return False
        return bool(more)

    def _take(self, rank: int, line: _Line, text: bytes) -> None:
        try:
            message = json.loads(text)
            if "report" in message:
                self.on_report(rank, message["report"], message["value"])
            elif "failed" in message:
                peer, reason = message["failed"]
                line.value = None
                self.failure = self.failure or PeerFailed(str(peer), str(reason))
            elif "end" in message:
                line.ended = True
            else:
                line.value = {
                    "name": str(message["name"]), "value": message["value"],
                    "patience_s": float(message["patience_s"]), "since": time.monotonic(),
                }  # fmt: skip
        except (ValueError, TypeError, KeyError):
            shown = text[:60].decode(errors="replace")
            self.failure = self.failure or PeerFailed(self.names[rank], f"it wrote {shown!a} instead of a measurement")

    def _answer(self, ranks: Mapping[int, _Line]) -> None:
        if self.failure is not None:
            self._fail(ranks, self.failure)
        values = [line.value for line in ranks.values()]
        if any(value is None for value in values):
            return
        asked = {value["name"] for value in values if value is not None}
        if len(asked) > 1:
            self._fail(ranks, PeerFailed("the ranks", f"they are at different steps: {', '.join(sorted(asked))}"))
        answer = {"values": [line.value["value"] for _, line in sorted(ranks.items()) if line.value is not None]}
        for line in ranks.values():
            line.value = None
            _write(line, answer)

    def _fail(self, ranks: Mapping[int, _Line], failure: PeerFailed) -> None:
        """Tell every rank of the first failure, and raise it."""
        self.failure = self.failure or failure
        for line in ranks.values():
            _write(line, {"failed": [self.failure.peer, self.failure.reason]})
        raise self.failure


def _write(line: _Line, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError, ValueError):  # a rank that is gone is noticed when it is read from
        line.output.write(json.dumps(message) + "\n")
        line.output.flush()


def open_door(host: str, port: int) -> socket.socket:
    """Listen where the other ranks look for rank 0: at all addresses of this host.

    Raises:
        InputError: none of the ports is free.
    """
    for candidate in range(port, port + PORTS):
        with contextlib.suppress(OSError):
            return socket.create_server(("", candidate), backlog=128)
    raise InputError(f"no port from {port} to {port + PORTS - 1} is free", host)


def admit(
    door: socket.socket, ranks: int, names: Sequence[str], credentials: Credentials, timeout_s: float
) -> dict[int, Wire]:
    """Accept the connection of every rank but 0.

    Raises:
        PeerFailed: a rank did not come in time.
    """
    deadline = time.monotonic() + timeout_s
    came: dict[int, Wire] = {}
    with Door(0, [door], credentials) as entry:
        while len(came) < ranks - 1:
            one = entry.next(deadline)
            if one is None:
                missing = [names[r] for r in range(1, ranks) if r not in came]
                last = f"; turned away: {entry.last_failure}" if entry.last_failure else ""
                raise PeerFailed(", ".join(missing), f"did not come within {timeout_s:g} s{last}")
            (rank, _), wire = one
            if 0 < rank < ranks and rank not in came:
                came[rank] = wire
            else:
                wire.close()
    return came


def go_to(host: str, port: int, rank: int, credentials: Credentials, timeout_s: float) -> Wire:
    """A connection to rank 0.

    Raises:
        PeerFailed: it cannot be reached in time, or does not let this rank in.
    """
    deadline = time.monotonic() + timeout_s
    why: Exception = TimeoutError("timed out")
    while time.monotonic() < deadline:
        for candidate in range(port, port + PORTS):
            try:
                sock = socket.create_connection((host, candidate), max(deadline - time.monotonic(), LOOK_S))
                where = f"{host}:{candidate}"
                return shake(sock, credentials, rank, (0, 0), where, name=host, within_s=HANDSHAKE_S)[1]
            except (OSError, PeerFailed) as error:
                why = why if isinstance(why, PeerFailed) and isinstance(error, ConnectionRefusedError) else error
        time.sleep(LOOK_S)
    reason = why.reason if isinstance(why, PeerFailed) else str(why)
    raise PeerFailed("rank 0", f"cannot be reached at {host}:{port} within {timeout_s:g} s ({reason})")

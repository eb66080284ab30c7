"""gNMI with pygnmi: a client that connects again when it must, never waits for ever, and says what went wrong.

pygnmi waits without limit for an answer and writes its log to stdout; both are seen to here. It is imported when a
client connects: it needs the extra ``stretto[gnmi]``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model.errors import InputError, Unsupported
from ..model.extras import require
from ..topologies.values import entry, shown

TARGET_ENTRIES = ("target", "insecure", "ca", "certificate", "key", "username_variable", "password_variable")


REFUSALS = ("NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION", "ABORTED")
"""Codes of gRPC with which a target answers a call that it does not serve; the connection is as good as before."""


class GnmiFailed(Exception):
    """A target could not be reached, did not answer in time, or refused; says which.

    Attributes:
        missing: it answered that there is nothing at a path.
    """

    def __init__(self, message: str, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(message)


class Target(NamedTuple):
    """Where a gNMI server is, and how to prove who asks. Without ``insecure`` it is asked over TLS.

    Attributes:
        ca: the file of the authority that signed the server's certificate.
        certificate, key: files of the client's own; "" for none.
    """

    host: str
    port: int
    insecure: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"


def target_of(data: Mapping[str, Any], username: str, password: str, where: str) -> Target:
    """The target that an object of a configuration describes (:data:`TARGET_ENTRIES`)."""
    text = entry(data, "target", str, where)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"'target' must be HOST:PORT, such as leaf1:57400, not {shown(text)}", where)
    insecure = entry(data, "insecure", bool, where, False)
    ca, certificate, key = (entry(data, name, str, where, "") for name in ("ca", "certificate", "key"))
    if insecure == bool(ca):
        raise InputError("give 'ca', the file of the authority of its certificate, or else 'insecure': true", where)
    if bool(certificate) != bool(key):
        raise InputError("give 'certificate' and 'key' both, or neither", where)
    return Target(host.strip("[]"), int(port), insecure, ca, certificate, key, username, password)


class Notice(NamedTuple):
    """A value that a target gave: the moment by its clock (seconds since 1970, 0 if it says none), and the path."""

    at_s: float
    path: str
    value: Any


class GnmiClient:
    """A connection to one target; one thread at a time may use it, and any may close it.

    Args:
        timeout_s: seconds in which the target must answer.
    """

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target, self.timeout_s = target, timeout_s
        self._client: Any = None
        self._closed = False

    def get(self, paths: Sequence[str], encoding: str | None = None) -> list[Notice]:
        """The values at paths.

        Args:
            encoding: one that gNMI defines, such as ``json_ietf``; by default one that the target says it has.
        Raises:
            GnmiFailed: see there.
        """
        with self._connected() as client:
            answer = client.get(path=list(paths), encoding=encoding)
        return [
            Notice(notification["timestamp"] / 1e9, _joined(notification["prefix"], update["path"]), update.get("val"))
            for notification in answer.get("notification", [])
            for update in notification.get("update", [])
        ]

    def set(self, delete: Sequence[str], update: Sequence[tuple[str, Any]]) -> None:
        """Delete what is at paths and give others new values, in one transaction (encoded as ``json_ietf``).

        Raises:
            GnmiFailed: see there; the target has then changed nothing, if it keeps to gNMI's specification.
        """
        with self._connected() as client:
            client.set(delete=list(delete), update=list(update), encoding="json_ietf")

    def close(self) -> None:
        """End the connection; a call that waits for its answer fails."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """The client of pygnmi; what goes wrong inside is a :class:`GnmiFailed`, and the next call connects anew."""
        if self._closed:
            raise GnmiFailed(f"the connection to {self.target} was closed")
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._let_go()

        timer = threading.Timer(self.timeout_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            if self._client is None:
                self._client = client = self._new()
                client.connect()
            yield self._client
        except Unsupported:
            raise
        except Exception as error:
            if _code(error) not in REFUSALS:
                self._let_go()
            if late.is_set():
                raise GnmiFailed(f"{self.target} did not answer within {self.timeout_s:g} s") from None
            raise GnmiFailed(f"{self.target}: {_reason(error)}", _code(error) == "NOT_FOUND") from None
        finally:
            timer.cancel()

    def _new(self) -> Any:
        """A client of pygnmi that has not connected."""
        require("gnmi", "gNMI", "pygnmi")
        from pygnmi import client

        client.logger.handlers.clear()  # else it writes to stdout
        client.logger.propagate = False
        client.logger.addHandler(logging.NullHandler())
        target = self.target
        tls: dict[str, Any] = {"insecure": True}
        if target.certificate:
            tls = {"path_root": target.ca, "path_cert": target.certificate, "path_key": target.key}
        elif target.ca:
            tls = {"path_cert": target.ca}  # which pygnmi takes for the authority when there is no key
        host = f"[{target.host}]" if ":" in target.host else target.host
        return client.gNMIclient(
            (host, target.port), username=target.username, password=target.password, gnmi_timeout=self.timeout_s, **tls
        )


def _joined(prefix: str | None, path: str | None) -> str:
    return "/".join(part for part in (prefix, path) if part)


def _code(error: Exception) -> str:
    """The name of the status with which gRPC ended a call, "" if it did not."""
    first = getattr(error, "orig_exc", None)
    return first.code().name if first is not None and hasattr(first, "code") else ""


def _reason(error: Exception) -> str:
    """What an exception of pygnmi or gRPC says, on one line."""
    first = getattr(error, "orig_exc", None)
    details = first.details() if first is not None and hasattr(first, "details") else None
    text = str(details or error) or type(error).__name__
    return " ".join(text.split())[:300]

"""Two ends of a connection prove to each other that they belong to one group, before anything else counts.

1. The end that calls says who it is: its node, the number of the subflow, a random number, how the connection is to be
   protected; and, where somebody chose the secret, its share of a key exchange (:mod:`.cpace`).
2. The end that accepts says the same of itself, or why it refuses. It has proven nothing yet: a stranger gets a random
   number, and a share that tells nothing.
3. The end that calls proves that it knows the secret, by an HMAC-SHA256 over all that both have said.
4. The end that accepts proves the same, or refuses.

The proofs have different labels and cover both nodes and both random numbers, so none can be used again, sent back, or
passed to another rank. They cover how the connection is protected, so nobody can talk both ends into less protection.
The keys of the records (:mod:`.channel`) come from the same HMAC, as does that of TLS without certificates. With
certificates the four steps are said within TLS, and cover the certificates of both ends.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import socket
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn

from ..model.errors import PeerFailed
from .channel import Channel, Forged, Records, Tls, Wire, said
from .cpace import SHARE_BYTES, Exchange
from .credentials import Credentials, Protection, contexts, keyed_context

End = tuple[int, int]
"""The other end of a connection: a node, and the number of the subflow."""

_MAGIC, _REFUSED, _OTHERS = b"stretto4", b"refused4", b"stretto"
_HELLO = struct.Struct("!BBIB32s")  # after the magic: whether the secret was chosen, protection, node, subflow, number
_NUMBER_BYTES = _PROOF_BYTES = 32
_TLS_FIRST = b"\x16\x03"
"""The first bytes of a connection over TLS."""
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"}


_DROPPED = "it closed the connection during the handshake"


class Refusal(IntEnum):
    """Why the end that accepts does not let the other one in."""

    SECRET = 1
    KIND = 2
    PROTECTION = 3
    SHARE = 4
    TLS = 5
    PROTOCOL = 6


_AT_CALLER = {
    Refusal.SECRET: "it refuses this process, which does not know its secret",
    Refusal.KIND: "its secret is from another source; set STRETTO_SECRET at all ranks, or at none",
    Refusal.PROTECTION: "it wants another protection of frames than {} (STRETTO_FRAMES, STRETTO_TLS_*)",
    Refusal.SHARE: "it refuses this process's share of the key",
    Refusal.TLS: "it wants TLS, for which this process has no certificate (STRETTO_TLS_CERT)",
    Refusal.PROTOCOL: "it has another version of stretto",
}


class Dropped(PeerFailed):
    """The other end closed the connection without a word, as who has too many handshakes in progress does."""


def shake(
    sock: socket.socket,
    credentials: Credentials,
    node: int,
    end: End | None,
    where: str,
    *,
    name: str | None = None,
    within_s: float = 10.0,
    admitted: Callable[[], None] | None = None,
) -> tuple[End, Wire]:
    """Prove to each other that both ends know the secret; a failure closes the socket.

    Args:
        end: whom this end called; None at the end that accepts, which takes any node.
        where: the other end, for messages.
        name: the name or address that was called, which the certificate of the peer must have, unless the credentials
            give a name.
        within_s: seconds for the whole handshake.
        admitted: called at the end that accepts when the other one has proven itself, before it is told so.
    Returns:
        The other end, and what to send and receive over from now on: blocking, and without a timeout.
    Raises:
        PeerFailed: the peer speaks another protocol, is another node, does not know the secret, or took too long.
        Dropped: it closed the connection; the caller may try again.
    """
    try:
        talk = _Talk(sock, credentials, where, time.monotonic() + within_s)
        talk.protect(calls=end is not None, name=name)
        other = talk.call(node, end) if end is not None else talk.accept(node, admitted)
        wire = talk.finished()
        sock.settimeout(None)
        return other, wire
    except Forged as error:
        failure = PeerFailed(where, f"the handshake failed: {error}")
    except ConnectionError:
        failure = Dropped(where, _DROPPED)
    except TimeoutError:
        failure = PeerFailed(where, f"the handshake did not end within {within_s:.3g} s")
    except OSError as error:
        gone = error.errno == errno.ENOTCONN  # it closed the connection before this end asked who it is
        failure = Dropped(where, _DROPPED) if gone else PeerFailed(where, _failed(error))
    except BaseException:
        sock.close()
        raise
    sock.close()
    raise failure from None


def _failed(error: OSError) -> str:
    if getattr(error, "reason", None) in _NOT_TLS:
        return "it does not speak TLS, which this process wants"
    whose = "its certificate is refused" if hasattr(error, "verify_message") else "the handshake failed"
    return f"{whose}: {said(error)}"


class _Talk:
    """One end's part in a handshake.

    Attributes:
        wire: what is sent and received over: the socket, or TLS.
        transcript: all that both ends have said, the same at both.
        key: what nobody else knows, once both have said what they are.
    """

    def __init__(self, sock: socket.socket, credentials: Credentials, where: str, deadline: float) -> None:
        self.sock, self.credentials, self.where, self.deadline = sock, credentials, where, deadline
        self.protection = credentials.protection(sock)
        self.wire: Wire = sock
        self.transcript = _MAGIC + struct.pack("!I", len(credentials.context)) + credentials.context
        self.key = b""
        self.calls = False

    def protect(self, calls: bool, name: str | None) -> None:
        """Put TLS around what follows, if the credentials say so."""
        self.calls = calls
        files = self.credentials.certificates
        if self.protection is not Protection.TLS or files is None:
            return
        to_call, to_accept, own = contexts(files)
        tls = Tls(to_call, True, files.name or name) if calls else Tls(to_accept, False, None)
        try:
            tls.shake(self.sock, self._limit)
        except OSError as error:
            if not calls and getattr(error, "reason", None) in _NOT_TLS:
                self._refuse(Refusal.TLS, "it does not speak TLS, which this process wants")
            raise
        if not calls and files.name is not None:
            names = (tls.tls.getpeercert() or {}).get("subjectAltName", ())
            if ("DNS", files.name) not in names:
                raise PeerFailed(self.where, f"its certificate does not have the name {files.name}")
        theirs = tls.tls.getpeercert(binary_form=True) or b""
        self.wire = Channel(self.sock, tls)
        for certificate in (own, theirs) if calls else (theirs, own):
            self.transcript += hashlib.sha256(certificate).digest()

    def call(self, node: int, end: End) -> End:
        """The part of the end that calls."""
        exchange, hello = self._hello(node, end[1], struct.pack("!II", node, end[0]))
        self._send(_MAGIC, hello)
        self._check_magic(self._receive(len(_MAGIC)))
        answer = self._receive(len(hello))
        _, _, other, _, _ = _HELLO.unpack_from(answer)
        if other != end[0]:
            raise PeerFailed(self.where, f"it is node {other}, not node {end[0]}")
        self._agree(exchange, hello + answer, answer[_HELLO.size :])
        self._send(self._code(b"the end that calls"))
        self._check_magic(self._receive(len(_MAGIC)))
        self._check_proof(b"the end that accepts")
        return end

    def accept(self, node: int, admitted: Callable[[], None] | None) -> End:
        """The part of the end that accepts."""
        magic = self._receive(len(_MAGIC))
        if magic != _MAGIC:
            self._refuse(Refusal.PROTOCOL, _of_others(magic))
        theirs = self._receive(_HELLO.size)
        chosen, protection, other, subflow, _ = _HELLO.unpack(theirs)
        if bool(chosen) != self.credentials.chosen:
            self._refuse(Refusal.KIND, "its secret is from another source than this process's")
        if protection != self.protection:
            self._refuse(Refusal.PROTECTION, f"it wants another protection than {self.protection.text}")
        theirs += self._receive(SHARE_BYTES if chosen else 0)
        exchange, hello = self._hello(node, subflow, struct.pack("!II", other, node))
        self._send(_MAGIC, hello)
        proof = self._receive(_PROOF_BYTES)
        try:
            self._agree(exchange, theirs + hello, theirs[_HELLO.size :])
        except PeerFailed as failure:
            self._refuse(Refusal.SHARE, failure.reason)
        if not hmac.compare_digest(proof, self._code(b"the end that calls")):
            self._refuse(Refusal.SECRET, "it does not know the secret")
        if admitted is not None:
            admitted()
        self._send(_MAGIC, self._code(b"the end that accepts"))
        return other, subflow

    def finished(self) -> Wire:
        """What to send and receive over from now on."""
        if self.protection is Protection.ENCRYPTED:
            tls = Tls(keyed_context(self._code(b"TLS"), self.calls), self.calls, None)
            tls.shake(self.sock, self._limit)
            if tls.tls.getpeercert(binary_form=True):  # nobody checks it: somebody in the middle may have made it
                raise PeerFailed(self.where, "it has a certificate instead of the key that the handshake gave")
            return Channel(self.sock, tls)
        if self.protection is not Protection.AUTHENTICATED:
            return self.wire
        keys = [self._code(b"records of the end that calls"), self._code(b"records of the end that accepts")]
        return Channel(self.sock, Records(*keys if self.calls else keys[::-1]))

    def _hello(self, node: int, subflow: int, nodes: bytes) -> tuple[Exchange | None, bytes]:
        """What this end says of itself."""
        chosen = self.credentials.chosen
        exchange = Exchange(self.credentials.secret, nodes) if chosen else None
        hello = _HELLO.pack(chosen, self.protection, node, subflow, os.urandom(_NUMBER_BYTES))
        return exchange, hello + (exchange.share if exchange is not None else b"")

    def _agree(self, exchange: Exchange | None, hellos: bytes, share: bytes) -> None:
        """Take what both ends have said, the caller first, and the other end's share."""
        self.transcript += hellos
        try:
            self.key = self.credentials.secret if exchange is None else exchange.key(share)
        except ValueError as error:
            raise PeerFailed(self.where, str(error)) from None

    def _code(self, label: bytes) -> bytes:
        return hmac.digest(self.key, label + b"\0" + self.transcript, "sha256")

    def _check_proof(self, label: bytes) -> None:
        if not hmac.compare_digest(self._receive(_PROOF_BYTES), self._code(label)):
            raise PeerFailed(self.where, "it does not know the secret")

    def _refuse(self, why: Refusal, reason: str) -> NoReturn:
        self._send(_REFUSED, bytes([why]))
        raise PeerFailed(self.where, reason)

    def _check_magic(self, magic: bytes) -> None:
        """Fail unless the end that accepts goes on."""
        if magic == _REFUSED:
            number = self._receive(1)[0]
            why = _AT_CALLER[Refusal(number)] if number in {*Refusal} else "it refuses this process"
            raise PeerFailed(self.where, why.format(self.protection.text))
        if magic != _MAGIC:
            raise PeerFailed(self.where, _of_others(magic))

    def _send(self, *parts: bytes) -> None:
        self._limit()
        self.wire.sendall(b"".join(parts))

    def _receive(self, count: int) -> bytes:
        content = bytearray(count)
        rest = memoryview(content)
        while len(rest):
            self._limit()
            got = self.wire.recv_into(rest)
            if not got:
                raise ConnectionError
            rest = rest[got:]
        return bytes(content)

    def _limit(self) -> None:
        """Let the next wait end at the deadline."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.sock.settimeout(left_s)


def _of_others(magic: bytes) -> str:
    """What is wrong with the first bytes of a connection."""
    if magic.startswith(_TLS_FIRST):
        return "it speaks TLS, for which this process has no certificate"
    if magic.startswith(_OTHERS):
        return "it has another version of stretto"
    return "it does not speak stretto's protocol"

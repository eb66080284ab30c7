"""Two ends of a new connection prove to each other that they know the secret, before anything else is read.

Each end sends its node and a nonce, then an HMAC-SHA256 over its role, both nodes and both nonces: neither can
replay or reflect what the other sent. This authenticates the peer. It does not encrypt, and later bytes are not signed.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct

from ..model.errors import PeerFailed

_HELLO = struct.Struct("!8sI32s")
_MAGIC = b"stretto1"


def shake(sock: socket.socket, secret: bytes, node: int, peer: int | None, connects: bool, where: str) -> int:
    """Exchange proofs over a blocking socket that has a timeout.

    Args:
        peer: the node that must be at the other end, None to accept any.
        where: the other end, for messages.
    Returns:
        The node at the other end.
    Raises:
        PeerFailed: the peer speaks another protocol, is another node, or does not know the secret.
    """
    own = os.urandom(32)
    try:
        sock.sendall(_HELLO.pack(_MAGIC, node, own))
        magic, other, theirs = _HELLO.unpack(_receive(sock, _HELLO.size))
        if magic != _MAGIC:
            raise PeerFailed(where, "it does not speak stretto's protocol")
        if peer is not None and other != peer:
            raise PeerFailed(where, f"it is node {other}, not node {peer}")
        ends = (node, other, own, theirs) if connects else (other, node, theirs, own)
        sock.sendall(_proof(secret, b"connects" if connects else b"accepts", *ends))
        proof = _receive(sock, 32)
    except OSError as error:
        raise PeerFailed(where, f"the handshake failed: {error}; does it have the same secret?") from None
    if not hmac.compare_digest(proof, _proof(secret, b"accepts" if connects else b"connects", *ends)):
        raise PeerFailed(where, "it does not know the secret")
    return int(other)


def _proof(secret: bytes, role: bytes, a: int, b: int, nonce_a: bytes, nonce_b: bytes) -> bytes:
    return hmac.digest(secret, role + struct.pack("!II", a, b) + nonce_a + nonce_b, "sha256")


def _receive(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        some = sock.recv(count - len(parts))
        if not some:
            raise ConnectionError("it closed the connection")
        parts += some
    return bytes(parts)

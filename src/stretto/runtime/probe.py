"""Measure the network between ranks where none is named: latency and bandwidth of every pair, in bounded time.

Pairs meet in the rounds of a tournament (circle method), so every rank is in one pair at a time and a round shows what
many pairs get at once. The lower rank of a pair sends, the other answers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

ECHOES, TRIALS = 3, 2
SENT_BYTES = 1 << 18
MOST_ROUNDS = 32
"""A world of more ranks than this is measured in part."""


class Measured(NamedTuple):
    """What one pair got: half a round trip, seconds, and bytes/s, each the best of a few trials."""

    latency_s: float
    bandwidth: float


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """The pairs of each round, the lower rank first: everyone meets everyone, at most once a round."""
    n = ranks + ranks % 2
    found = []
    for r in range(n - 1):
        ring = [0, *((i + r) % (n - 1) + 1 for i in range(n - 1))]
        pairs = [(min(a, b), max(a, b)) for a, b in zip(ring[: n // 2], reversed(ring[n // 2 :]), strict=True)]
        found.append([pair for pair in pairs if pair[1] < ranks])
    return found[:MOST_ROUNDS]


def probe(rank: int, ranks: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> dict[int, Measured]:
    """Meet every other rank; what the pairs got in which this rank sent.

    Args:
        sockets: to each rank, used for nothing else until this returns.
        timeout_s: for how long a peer may say nothing.
    Raises:
        OSError: a peer was silent, or is gone.
    """
    found: dict[int, Measured] = {}
    for pairs in rounds(ranks):
        for low, high in pairs:
            if rank in (low, high):
                sock = sockets[high if rank == low else low]
                sock.settimeout(timeout_s)
                if rank == low:
                    found[high] = _measure(sock)
                else:
                    _answer(sock)
    return found


def _measure(sock: socket.socket) -> Measured:
    echoes = [_timed(sock, b"?") for _ in range(ECHOES)]
    sends = [_timed(sock, bytes(SENT_BYTES)) for _ in range(TRIALS)]
    return Measured(min(echoes) / 2, SENT_BYTES / max(min(sends) - min(echoes) / 2, 1e-9))


def _timed(sock: socket.socket, payload: bytes) -> float:
    began = time.perf_counter()
    sock.sendall(payload)
    if not sock.recv(1):
        raise ConnectionError("it closed the connection while it was measured")
    return time.perf_counter() - began


def _answer(sock: socket.socket) -> None:
    for size in (1,) * ECHOES + (SENT_BYTES,) * TRIALS:
        while size:
            got = len(sock.recv(min(size, 1 << 16)))
            if not got:
                raise ConnectionError("it closed the connection while it was measured")
            size -= got
        sock.sendall(b"!")

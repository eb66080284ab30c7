"""Measure the network between ranks when no topology is given: latency and bandwidth of every pair, in bounded time.

Pairs meet in the rounds of a tournament (circle method): every rank is in one pair at a time, and a round shows what
many pairs get at once. The lower rank of a pair sends, the other rank answers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..model.errors import PeerFailed
from .wire import fill, receive

ECHOES, TRIALS = 5, 2
SENT_BYTES = 1 << 18
PIECE_BYTES = 1 << 16
"""Bytes that the answering rank receives at once, into memory that it uses again."""
MOST_ROUNDS = 32
"""The most rounds: among more ranks than this only some pairs are measured."""


class Link(NamedTuple):
    """What two ranks measured: half a round trip in seconds, and bytes/s, each the best of a few trials."""

    latency_s: float
    bandwidth: float


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """The pairs of each round, the lower rank first: everyone meets everyone, at most once a round."""
    n = ranks + ranks % 2
    schedule = []
    for r in range(n - 1):
        ring = [0, *((i + r) % (n - 1) + 1 for i in range(n - 1))]
        pairs = [(min(a, b), max(a, b)) for a, b in zip(ring[: n // 2], reversed(ring[n // 2 :]), strict=True)]
        schedule.append([pair for pair in pairs if pair[1] < ranks])
    return schedule[:MOST_ROUNDS]


def probe(rank: int, ranks: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> dict[int, Link]:
    """Measure with every other rank; returns the results of the pairs in which this rank sent.

    Args:
        sockets: the connection to each rank, used for nothing else until this returns.
        timeout_s: seconds for which a peer may be silent.
    Raises:
        PeerFailed: a peer was silent, or is gone.
    """
    results: dict[int, Link] = {}
    for pairs in rounds(ranks):
        for low, high in pairs:
            if rank in (low, high):
                with _talk(high if rank == low else low, sockets, timeout_s) as sock:
                    if rank == low:
                        results[high] = _measure(sock)
                    else:
                        _answer(sock, (1,) * ECHOES + (SENT_BYTES,) * TRIALS)
    return results


def flow(
    rank: int, flows: Sequence[tuple[int, int]], sockets: Mapping[int, socket.socket], size_bytes: int, timeout_s: float
) -> float | None:
    """Send over several pairs at once, each from its first rank to its second.

    Returns:
        The seconds until the receiver had everything; None at ranks that do not send.
    Raises:
        PeerFailed: as :func:`probe`.
    """
    for source, sink in flows:
        if rank not in (source, sink):
            continue
        with _talk(sink if rank == source else source, sockets, timeout_s) as sock:
            if rank == sink:
                _answer(sock, (1, size_bytes))
                return None
            _timed(sock, b"?")  # the receiver is ready
            return _timed(sock, bytes(size_bytes))
    return None


@contextmanager
def _talk(peer: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> Iterator[socket.socket]:
    """The connection to a peer, which is blamed for whatever breaks it."""
    sockets[peer].settimeout(timeout_s)
    try:
        yield sockets[peer]
    except OSError as error:
        raise PeerFailed(f"rank {peer}", f"it went silent while the network was measured ({error})") from None


def _measure(sock: socket.socket) -> Link:
    echoes = [_timed(sock, b"?") for _ in range(ECHOES)]
    sends = [_timed(sock, bytes(SENT_BYTES)) for _ in range(TRIALS)]
    return Link(min(echoes) / 2, SENT_BYTES / max(min(sends) - min(echoes) / 2, 1e-9))


def _timed(sock: socket.socket, payload: bytes) -> float:
    began = time.perf_counter()
    sock.sendall(payload)
    receive(sock, 1)
    return time.perf_counter() - began


def _answer(sock: socket.socket, sizes: Sequence[int]) -> None:
    piece = memoryview(bytearray(PIECE_BYTES))
    for size in sizes:
        for start in range(0, size, PIECE_BYTES):
            fill(sock, piece[: size - start])
        sock.sendall(b"!")

"""Which congestion control a TCP connection has, and what BBR knows of its rate (Linux)."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable

from .channel import Wire

BBR = "bbr"
LOOK_AGAIN = 0.64
"""Share of its limit below which what BBR knows of a connection's rate is too little: 0.8 of what was measured
(:data:`.pacing.CATCH_UP`)."""
_CC_INFO = 26  # Python's socket module does not name the option


def use_congestion(sockets: Iterable[Wire], name: str) -> None:
    """Let connections over the network use a congestion control, as if they had sent nothing yet; "" for the one that
    they have.

    The kernel ignores a name that a connection has already. BBR then keeps to what it had beside 15 others, or on a
    busy machine, for seconds: it tries a quarter more every eighth round trip. ``reno``, which every kernel has, makes
    it begin anew.
    """
    for sock in sockets:
        if name and sock.family != socket.AF_UNIX:
            for each in ("reno", name) if congestion_of(sock) == name else (name,):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, each.encode())


def congestion_of(sock: Wire) -> str:
    """The congestion control of a connection over the network."""
    return bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)).rstrip(b"\0").decode()


def look_again(sock: Wire, limit: float) -> None:
    """Let BBR look for the rate of a connection anew if it knows of much less than the limit, bytes/s; other congestion
    controls go on.

    BBR forgets in 10 round trips what a connection has carried. One that has sent little for a while then needs seconds
    to double its rate.
    """
    if sock.family != socket.AF_UNIX and congestion_of(sock) == BBR and rate_of_bbr(sock) < LOOK_AGAIN * limit:
        use_congestion([sock], BBR)


def rate_of_bbr(sock: Wire) -> int:
    """Bytes/s that BBR has seen a connection carry lately: the first entry of Linux's ``struct tcp_bbr_info``."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, _CC_INFO, 8), sys.byteorder)

"""Whether the path to a peer still carries packets, as the kernel knows it: a process that computes, or stands still,
acknowledges what it is sent all the same, and a path that is gone does not."""

from __future__ import annotations

import re
import socket
import struct
import sys
import time
from collections.abc import Callable

from .channel import Channel, Wire

LOOKS = 4
"""Looks at a path in the time after which it is dead."""
RETRIES = 2
"""Times that the kernel must have sent something again, or asked for room at the peer, without an answer: what was sent
just now is not overdue, and a peer that has no room answers."""
INFO = struct.Struct("=8B24I")
"""The first 104 bytes of Linux's ``struct tcp_info``."""
_RETRANSMITS, _PROBES, _LAST_ACK_RECV = 2, 3, 8 + 12
DEAD = re.compile(r"^its link with rank (\d+) is dead")
"""How the reason begins for which a rank gives up because of a link."""


def unanswered_s(sock: Wire) -> float:
    """Seconds since the peer has acknowledged anything, if what was sent since is overdue; else 0, as on kernels other
    than Linux, which say it in other ways."""
    raw = sock.raw if isinstance(sock, Channel) else sock
    if raw.family == socket.AF_UNIX or not sys.platform.startswith("linux"):
        return 0.0
    try:
        info = INFO.unpack(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size))
    except (OSError, struct.error):
        return 0.0
    return info[_LAST_ACK_RECV] / 1e3 if max(info[_RETRANSMITS], info[_PROBES]) >= RETRIES else 0.0


def dead(rank: int, silent_s: float) -> str:
    """The reason for which a rank gives up because of its link with another one."""
    return f"its link with rank {rank} is dead: nothing that was sent over it has been acknowledged for {silent_s:g} s"


class Reach:
    """Looks after the path of a line.

    Args:
        sock: of the line, over which something is sent at each look.
        silent_s: seconds without an answer after which the path is dead.
        lost: called once when it is.
    """

    def __init__(self, sock: Wire, silent_s: float, lost: Callable[[], None]) -> None:
        self.sock, self.silent_s = sock, silent_s
        self._lost: Callable[[], None] | None = lost
        self._at = 0.0

    @property
    def every_s(self) -> float:
        """Seconds between two looks."""
        return self.silent_s / LOOKS

    def look(self) -> None:
        """Call ``lost`` if the path is dead."""
        now = time.monotonic()
        if self._lost is not None and now >= self._at:
            self._at = now + self.every_s / 2
            if unanswered_s(self.sock) >= self.silent_s:
                lost, self._lost = self._lost, None
                lost()

    def fails(self) -> bool:
        """Whether the path is dead, or is about to be counted as dead."""
        return unanswered_s(self.sock) >= self.silent_s / 2

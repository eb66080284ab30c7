"""What the kernel says of connections: whether there is room, what is on its way, and who has gone."""

from __future__ import annotations

import fcntl
import select
import selectors
import socket
import sys
import termios
from collections.abc import Iterable

from .channel import Channel, Wire

TCP_CLOSE = 7
"""Linux's state number of a connection that the other end has dropped (the first byte of TCP_INFO)."""
ENDED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""What the kernel says of a connection that the other end has closed; the last one is Linux's."""


def await_room(socks: Iterable[Wire], within_s: float) -> None:
    """Wait until the kernel takes more bytes on one of the sockets."""
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_WRITE)
        if selector.get_map():
            selector.select(max(within_s, 0.0))


def on_the_way(sock: Wire) -> int:
    """The number of bytes that a TCP connection has sent and that are not acknowledged yet."""
    if sock.family == socket.AF_UNIX or sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE:
        return 0
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def has_ended(sock: Wire) -> bool:
    """Whether the other end has closed a connection, or died, even if something that it sent is left to read."""
    raw = sock.raw if isinstance(sock, Channel) else sock
    poll = select.poll()
    try:
        poll.register(raw, ENDED)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # this end is closed
        return True

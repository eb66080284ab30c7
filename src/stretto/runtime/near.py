"""Processes of one machine reach each other by Unix sockets, which take about half of loopback TCP's CPU time.

They are one machine's if they share the kernel that booted and the network namespace: two namespaces of an emulated
network stay apart. Names are abstract (Linux), so no file is left behind.
"""

from __future__ import annotations

import os
import secrets
import socket

MARK = "@"
"""How the host of an abstract Unix address begins."""
SEND_BYTES = 1 << 20
"""Of a Unix socket's buffer; the kernel's default makes four times as many turns."""


def machine() -> str | None:
    """What processes that can meet by Unix sockets have in common; None where there are no abstract names."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/thread-self/ns/net').st_ino}"
    except OSError:
        return None


def listen_near() -> tuple[socket.socket, str]:
    """A listening Unix socket, and the host by which others dial it."""
    name = f"stretto-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()
    return listener, MARK + name


def dial_near(host: str, timeout_s: float) -> socket.socket:
    """Connect to what :func:`listen_near` named."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout_s)
        sock.connect("\0" + host.removeprefix(MARK))
    except BaseException:
        sock.close()
        raise
    return sock

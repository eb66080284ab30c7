"""Ports for servers that begin later, or again."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, COUNT = 10_000, 20_000
"""Below those that Linux gives to sockets that ask for any: another process could be given such a one meanwhile."""
_NUMBERS = itertools.count(37 * os.getpid())


def free_port() -> int:
    """A port of this machine on which nobody listens, another one at each call; test processes begin at others."""
    for number in itertools.islice(_NUMBERS, COUNT):
        port = FIRST + number % COUNT
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise AssertionError("no port is free")

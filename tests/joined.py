"""The two ends of a connection that shook hands, perhaps through somebody in the middle."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stretto.model.errors import PeerFailed
from stretto.runtime.channel import Wire
from stretto.runtime.credentials import Credentials
from stretto.runtime.handshake import shake

Between = Callable[[socket.socket, socket.socket], None]


def both_ends(
    caller: Credentials, host: Credentials, between: Between | None = None
) -> tuple[Wire | PeerFailed, Wire | PeerFailed]:
    """Node 1 calls node 0; what each has afterwards, or why not.

    Args:
        between: passes bytes on between the end that node 1 calls and one that calls node 0.
    """

    def one(sock: socket.socket, credentials: Credentials, calls: bool) -> Wire | PeerFailed:
        try:
            end = (0, 0) if calls else None
            return shake(sock, credentials, int(calls), end, "the other", name="127.0.0.1", within_s=20)[1]
        except PeerFailed as failure:
            return failure

    pool = ThreadPoolExecutor(3)
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_server(("127.0.0.1", 0)) as hole:
        calling = socket.create_connection((door if between is None else hole).getsockname())
        if between is not None:
            pool.submit(between, hole.accept()[0], socket.create_connection(door.getsockname()))
        accepted = pool.submit(one, door.accept()[0], host, False)
        called = pool.submit(one, calling, caller, True)
        pool.shutdown(wait=False)
        return called.result(), accepted.result()

"""Processes of one machine meet by Unix sockets."""

from __future__ import annotations

import socket
import threading

from stretto.runtime.connect import join, listen, listen_near, machine
from stretto.runtime.credentials import Credentials

CREDENTIALS, NAMES = Credentials(bytes(32)), {0: "rank 0", 1: "rank 1"}


def test_ends_on_one_machine_are_joined_by_a_unix_socket():
    assert machine() == machine() is not None
    nears = [listen_near() for _ in range(2)]
    addresses = {v: (name, 0) for v, (_, name) in enumerate(nears)}
    meshes = {}

    def meet(v: int) -> None:
        with listen() as listener, nears[v][0] as near:
            meshes[v] = join(v, listener, addresses, NAMES, CREDENTIALS, timeout_s=20, near=near)

    threads = [threading.Thread(target=meet, args=(v,)) for v in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(meshes[v].peers[1 - v][0].sock.family == socket.AF_UNIX for v in range(2))
    for mesh in meshes.values():
        mesh.close()

"""How the ranks of a group meet and part: by the store, then over sockets, collectives beside messages."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import Any

from ..errors import PeerFailed
from ..library import Library, joined_by_sites
from ..runtime.mesh import Mesh, join, listen
from ..runtime.messages import Messages
from ..runtime.probe import probe

LOOK_S = 0.01
"""How often the store is asked for what is not there yet: a blocking question could not be given up."""


class Links:
    """One rank's connections to the others of its group.

    Args:
        store: PyTorch's, which all ranks of the group share.
        library: says which nodes the ranks are; learns the network where that is measured.
        measures: whether it is.
    """

    def __init__(self, store: Any, library: Library, measures: bool, timeout_s: float) -> None:
        self._store, self._library, self._timeout_s = store, library, timeout_s
        self._measures = measures
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._meshes: list[Mesh] = []
        self._messages: dict[int, Messages] = {}

    def mesh(self) -> Mesh:
        """The connections for collectives; the first time, the network between them is measured if need be."""
        self.connect()
        if self._measures:
            self._measure()
            self._measures = False
        return self._meshes[0]

    def messages(self, peer: int) -> Messages:
        """Those to and from one rank."""
        self.connect()
        return self._messages[peer]

    def connect(self) -> None:
        """Meet all others, the first time: one mesh for collectives, one for messages."""
        with self._lock:
            if self._messages or self._library.size == 1:
                return
            secret = self._secret()
            meshes = [self._meet(purpose, secret) for purpose in ("collectives", "messages")]
            own = self._library.rank
            for r, node in enumerate(self._library.nodes):
                if r != own:
                    self._messages[r] = Messages(meshes[1].connections[node].sock, f"rank {r}")
            self._meshes = meshes
        if self._left.is_set():
            self.leave()

    def close(self) -> None:
        """Say goodbye and close."""
        for messages in self._messages.values():
            messages.close()
        for mesh in self._meshes:
            mesh.close()

    def leave(self) -> None:
        """Give up at once, whatever is under way: who waits here is told, and peers see this rank go."""
        self._left.set()
        for messages in self._messages.values():
            messages.leave()
        for mesh in self._meshes:
            mesh.leave()

    def _meet(self, purpose: str, secret: bytes) -> Mesh:
        library = self._library
        host = os.environ.get("STRETTO_HOST") or _own_address()
        with contextlib.closing(listen(host)) as listener:
            self._store.set(f"stretto/{purpose}/{library.rank}", f"{host} {listener.getsockname()[1]}")
            addresses = {}
            for r, node in enumerate(library.nodes):
                there, port = self._ask(f"stretto/{purpose}/{r}", r).decode().split()
                addresses[node] = there, int(port)
            names = {node: f"rank {r}" for r, node in enumerate(library.nodes)}
            own = library.nodes[library.rank]
            return join(own, listener, addresses, names, secret, timeout_s=self._timeout_s)

    def _measure(self) -> None:
        """Measure the network; by the store all ranks learn all numbers, and so plan alike."""
        library, mesh = self._library, self._meshes[0]
        sockets = {r: mesh.connections[v].sock for r, v in enumerate(library.nodes) if r != library.rank}
        try:
            mine = probe(library.rank, library.size, sockets, self._timeout_s)
        except OSError as error:
            raise PeerFailed("a rank", f"it went silent while the network was measured ({error})") from None
        for sock in sockets.values():
            sock.setblocking(False)
        self._store.set(f"stretto/measured/{library.rank}", json.dumps([[r, *m] for r, m in mine.items()]))
        pairs = {(low, int(high)): (latency_s, bandwidth) for low in range(library.size)
                 for high, latency_s, bandwidth in json.loads(self._ask(f"stretto/measured/{low}", low))}  # fmt: skip
        library.learn(joined_by_sites(library.size, pairs))

    def _secret(self) -> bytes:
        given = os.environ.get("STRETTO_SECRET")
        if given:
            return given.encode()
        if self._library.rank == 0:
            self._store.set("stretto/secret", os.urandom(32).hex())
        return self._ask("stretto/secret", 0)

    def _ask(self, key: str, rank: int) -> bytes:
        """What another rank put into the store, once it has."""
        waited_s = 0.0
        while not self._store.check([key]):
            if waited_s > self._timeout_s:
                raise PeerFailed(f"rank {rank}", f"it did not come within {self._timeout_s:g} s")
            if self._left.wait(LOOK_S):
                raise PeerFailed(f"rank {self._library.rank}", "it leaves the group")
            waited_s += LOOK_S
        return bytes(self._store.get(key))


def _own_address() -> str:
    """The address that leads to the master, or loopback."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"

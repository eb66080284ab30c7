"""How the processes of a mesh connect: where they listen, whom they call, and how two ends authenticate.

Within a machine processes use Unix sockets, which take about half of loopback TCP's CPU time. Two processes are on one
machine if they share the boot of the kernel and the network namespace, so two namespaces of an emulated network stay
apart. Names of Unix sockets are abstract (Linux), so no file is left behind.

In the handshake each end sends its node and a nonce, and the caller also the number of the subflow. Then each sends an
HMAC-SHA256 over its role, both nodes, the subflow and both nonces: neither can replay or reflect what the other sent.
This authenticates the peer. It does not encrypt, and later bytes are not signed.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any

from ..model.errors import PeerFailed
from .mesh import Connection, Mesh
from .wire import receive

Address = tuple[str, int]
End = tuple[int, int]
"""The other end of a connection: a node, and the number of the subflow."""

HANDSHAKE_S = 10.0
MOST_HANDSHAKES = 64
"""The most handshakes that a listener has in progress at once."""
UNIX_MARK = "@"
"""First character of a host that stands for an abstract Unix address."""
_HELLO = struct.Struct("!8sIB32s")
_MAGIC = b"stretto2"
_NONCE_BYTES = _PROOF_BYTES = 32


def join(
    node: int,
    listener: socket.socket,
    addresses: Mapping[int, Address],
    names: Mapping[int, str],
    secret: bytes,
    *,
    timeout_s: float = 60.0,
    near: socket.socket | None = None,
    subflows: Mapping[int, Collection[int]] | None = None,
) -> Mesh:
    """Connect to every node of a lower number, and accept every node of a higher number.

    No processes wait in a circle: node 0 only accepts, and every other node connects before it accepts. A connection
    from someone who does not know the secret is closed and does not count.

    Args:
        near: a listener for processes of the same machine, besides ``listener``.
        subflows: the subflows to some peers that get a connection each, as these peers have it as well; ascending, 0
            among them. Only 0 by default.
    Raises:
        PeerFailed: a peer cannot be reached, is another node than expected, or did not connect in time.
    """
    deadline = time.monotonic() + timeout_s
    ends = [(p, i) for p in sorted(addresses) if p != node for i in (subflows or {}).get(p, (0,))]
    sockets: dict[End, socket.socket] = {}
    try:
        for end in ends:
            if end[0] < node:
                sockets[end] = _call(node, end, addresses[end[0]], names[end[0]], secret, deadline)
        listeners = [listener] if near is None else [listener, near]
        higher = {end: names[end[0]] for end in ends if end[0] > node}
        _accept(node, higher, listeners, secret, deadline, sockets)
    except BaseException:
        for sock in sockets.values():
            sock.close()
        raise
    return Mesh(node, names, [Connection(sockets[end], *end) for end in ends])


def meet(
    node: int,
    names: Mapping[int, str],
    share: Callable[[Any], Sequence[Any]],
    host: str,
    secret: bytes,
    *,
    timeout_s: float = 60.0,
    connections: int = 1,
    callers: Callable[[Mapping[int, Address]], Mapping[int, str]] | None = None,
) -> Mesh:
    """Connect with every other node after telling each other where to: within a machine by Unix sockets, else by TCP.

    Args:
        names: the nodes that meet, in the order of the values of ``share``, and what messages call them.
        share: publishes this node's value, and returns those of all nodes.
        host: the address at which this process listens.
        connections: how many each pair gets.
        callers: given where all nodes listen, it returns the names of further nodes, of higher numbers, that will call
            this one.
    """
    here = machine()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(listen(host)))
        near, near_host = listen_near() if here else (None, "")
        if near is not None:
            stack.enter_context(contextlib.closing(near))
        addresses: dict[int, Address] = {}
        mine = [here, near_host, host, listener.getsockname()[1]]
        for peer, (there, its_near_host, its_host, port) in zip(names, share(mine), strict=True):
            addresses[peer] = (its_near_host, 0) if here and there == here else (its_host, int(port))
        subflows = dict.fromkeys(names, range(connections))
        further = callers(addresses) if callers is not None else {}
        everyone = addresses | dict.fromkeys(further, (host, 0))  # nobody calls those
        called = {**names, **further}
        return join(node, listener, everyone, called, secret, timeout_s=timeout_s, near=near, subflows=subflows)


def _call(node: int, end: End, address: Address, name: str, secret: bytes, deadline: float) -> socket.socket:
    """A connection to a peer that listens at an address."""
    left_s = max(deadline - time.monotonic(), 0.1)
    try:
        sock = dial(address, left_s)
    except OSError as error:
        raise PeerFailed(name, f"cannot be reached at {address[0]}:{address[1]} ({error})") from None
    shake(sock, secret, node, end, name)
    return sock


def _accept(
    node: int,
    names: Mapping[End, str],
    listeners: Sequence[socket.socket],
    secret: bytes,
    deadline: float,
    sockets: dict[End, socket.socket],
) -> None:
    """Accept the connection of each end of ``names``. Each handshake has its own thread, so that a silent peer delays
    no other."""
    results: SimpleQueue[tuple[End, socket.socket] | PeerFailed] = SimpleQueue()
    handshakes: list[threading.Thread] = []

    def greet(sock: socket.socket, where: str) -> None:
        try:
            results.put((shake(sock, secret, node, None, where), sock))
        except PeerFailed as failure:
            results.put(failure)

    last_failure = ""
    for listener in listeners:
        listener.setblocking(False)
    missing = dict(names)
    while missing:
        ready = wait(listeners, 0.05)
        handshakes = [thread for thread in handshakes if thread.is_alive()]
        for listener in listeners:
            if listener in ready and len(handshakes) < MOST_HANDSHAKES:
                with contextlib.suppress(BlockingIOError):
                    sock, address = listener.accept()
                    sock.settimeout(HANDSHAKE_S)
                    where = f"{address[0]}:{address[1]}" if address else "a process of this machine"
                    handshakes.append(threading.Thread(target=greet, args=(sock, where), daemon=True))
                    handshakes[-1].start()
        while not results.empty():
            result = results.get()
            if isinstance(result, PeerFailed):
                last_failure = f"; turned away: {result}"
            elif missing.pop(result[0], None) is not None:
                sockets[result[0]] = result[1]
            else:
                result[1].close()
        if missing and time.monotonic() > deadline:
            raise PeerFailed(", ".join(dict.fromkeys(missing.values())), "did not connect in time" + last_failure)


def shake(sock: socket.socket, secret: bytes, node: int, end: End | None, where: str) -> End:
    """Prove to each other that both ends know the secret, before anything else is read; a failure closes the socket.

    Args:
        sock: a blocking socket that has a timeout.
        end: whom this end called; None at the end that accepts, which takes any node.
        where: the other end, for messages.
    Returns:
        The other end.
    Raises:
        PeerFailed: the peer speaks another protocol, is another node, or does not know the secret.
    """
    try:
        return _exchange_proofs(sock, secret, node, end, where)
    except OSError as error:
        sock.close()
        raise PeerFailed(where, f"the handshake failed: {error}; does it have the same secret?") from None
    except BaseException:
        sock.close()
        raise


def _exchange_proofs(sock: socket.socket, secret: bytes, node: int, end: End | None, where: str) -> End:
    nonce = os.urandom(_NONCE_BYTES)
    sock.sendall(_HELLO.pack(_MAGIC, node, 0 if end is None else end[1], nonce))
    magic, other, subflow, other_nonce = _HELLO.unpack(receive(sock, _HELLO.size))
    if magic != _MAGIC:
        raise PeerFailed(where, "it does not speak stretto's protocol")
    if end is not None and other != end[0]:
        raise PeerFailed(where, f"it is node {other}, not node {end[0]}")
    if end is None:
        said = struct.pack("!IIB", other, node, subflow) + other_nonce + nonce
        roles = (b"accepts", b"connects")
    else:
        said = struct.pack("!IIB", node, other, end[1]) + nonce + other_nonce
        roles = (b"connects", b"accepts")
    ours, theirs = (hmac.digest(secret, role + said, "sha256") for role in roles)
    sock.sendall(ours)
    if not hmac.compare_digest(bytes(receive(sock, _PROOF_BYTES)), theirs):
        raise PeerFailed(where, "it does not know the secret")
    return end or (other, subflow)


def listen(host: str = "127.0.0.1") -> socket.socket:
    """A socket that listens on a free port of ``host``."""
    return socket.create_server((host, 0), backlog=MOST_HANDSHAKES)


def own_address(towards: str) -> str:
    """The local address of the route to a host, or loopback."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def listen_near() -> tuple[socket.socket, str]:
    """A listening Unix socket, and the host name by which :func:`dial` reaches it."""
    name = f"stretto-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()
    return listener, UNIX_MARK + name


def dial(address: Address, timeout_s: float) -> socket.socket:
    """A connection to a socket of :func:`listen` or :func:`listen_near`."""
    if not address[0].startswith(UNIX_MARK):
        return socket.create_connection(address, timeout_s)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout_s)
        sock.connect("\0" + address[0].removeprefix(UNIX_MARK))
    except BaseException:
        sock.close()
        raise
    return sock


def machine() -> str | None:
    """An identifier that processes share if they can meet by Unix sockets; None without abstract names."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/thread-self/ns/net').st_ino}"
    except OSError:
        return None

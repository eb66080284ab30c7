"""How the processes of a mesh connect: where they listen, whom they call, and how two ends authenticate.

Within a machine processes use Unix sockets, which take about half of loopback TCP's CPU time. Two processes are on one
machine if they share the boot of the kernel and the network namespace, so two namespaces of an emulated network stay
apart. Names of Unix sockets are abstract (Linux), so no file is left behind.

Two ends shake hands (:mod:`.handshake`) before anything else is read; a :class:`.Door` lets in those who call.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..model.errors import PeerFailed
from .channel import Wire
from .credentials import Credentials
from .door import Door
from .handshake import Dropped, End, shake
from .mesh import FIRST_LANE, MOST_CONNECTIONS, Connection, Mesh
from .sharing import Offer, RoadOffer

Address = tuple[str, int]

BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, at most: a process accepts none while it calls others."""
CALLS_AT_ONCE = 16
"""Handshakes of a process that calls others, at once."""
AGAIN_S, MOST_AGAIN_S = 0.05, 1.0
"""Seconds until a caller that lost its place calls again: at first, and at most."""
LOOK_S = 0.05
"""Seconds between two looks at whether those who have not connected yet may still come."""
MISSED_S = 0.25
"""Seconds between two looks at whether one of them still listens."""
UNIX_MARK = "@"
"""First character of a host that stands for an abstract Unix address."""


def join(
    node: int,
    listener: socket.socket,
    addresses: Mapping[int, Address],
    names: Mapping[int, str],
    credentials: Credentials,
    *,
    timeout_s: float = 60.0,
    near: socket.socket | None = None,
    subflows: Mapping[int, Collection[int]] | None = None,
    look: Callable[[], None] | None = None,
) -> Mesh:
    """Connect to every node of a lower number, and accept every node of a higher number.

    No processes wait in a circle: node 0 only accepts, and every other node connects before it accepts. A connection
    from someone who does not belong to the group is closed and does not count.

    Args:
        near: a listener for processes of the same machine, besides ``listener``.
        subflows: the subflows to some peers that get a connection each, as these peers have it as well; ascending, 0
            among them. Only 0 by default.
        look: called now and then while this waits for others; raises if that is in vain.
    Raises:
        PeerFailed: a peer cannot be reached, is another node than expected, or did not connect in time.
    """
    deadline = time.monotonic() + timeout_s
    ends = [(p, i) for p in sorted(addresses) if p != node for i in (subflows or {}).get(p, (0,))]
    sockets: dict[End, Wire] = {}
    try:
        _call_all(node, [end for end in ends if end[0] < node], addresses, names, credentials, deadline, sockets)
        listeners = [listener] if near is None else [listener, near]
        higher = {end: names[end[0]] for end in ends if end[0] > node}
        _accept(node, higher, listeners, credentials, deadline, sockets, _Missed(addresses, names, look))
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
    credentials: Credentials,
    *,
    timeout_s: float = 60.0,
    connections: int = 1,
    callers: Callable[[Mapping[int, Address]], Mapping[int, str]] | None = None,
    look: Callable[[], None] | None = None,
    offer: Offer | RoadOffer | None = None,
    without: Collection[int] = (),
) -> Mesh:
    """Connect with every other node after telling each other where to: within a machine by Unix sockets, else by TCP.

    Args:
        names: the nodes that meet, in the order of the values of ``share``, and what messages call them.
        share: publishes this node's value, and returns those of all nodes.
        host: the address at which this process listens.
        connections: how many each pair gets.
        callers: given where all nodes listen, it returns the names of further nodes, of higher numbers, that will call
            this one.
        look: as in :func:`join`.
        offer: the connections that exist; nodes that have one to each other are not connected anew.
        without: nodes to which this one shall not connect, as they do not to this one.
    """
    here = machine()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(listen(host)))
        near, near_host = listen_near() if here else (None, "")
        if near is not None:
            stack.enter_context(contextlib.closing(near))
        addresses: dict[int, Address] = {}
        mine = [here, near_host, host, listener.getsockname()[1], offer.words() if offer is not None else None]
        said = dict(zip(names, share(mine), strict=True))
        for peer, (there, its_near_host, its_host, port, _) in said.items():
            addresses[peer] = (its_near_host, 0) if here and there == here else (its_host, int(port))
        if offer is not None:
            for peer in offer.agree({peer: row[4] for peer, row in said.items()}):
                del addresses[peer]
        addresses = {peer: address for peer, address in addresses.items() if peer == node or peer not in without}
        subflows = dict.fromkeys(names, range(connections))
        further = callers(addresses) if callers is not None else {}
        everyone = addresses | dict.fromkeys(further, (host, 0))  # nobody calls those
        called = {**names, **further}
        more: dict[str, Any] = {"near": near, "subflows": subflows, "look": look}
        return join(node, listener, everyone, called, credentials, timeout_s=timeout_s, **more)


def widen(
    mesh: Mesh,
    wanted: Mapping[int, int],
    share: Callable[[Any], Sequence[Any]],
    host: str,
    credentials: Credentials,
    *,
    timeout_s: float = 60.0,
) -> None:
    """Give some pairs more connections, which send parts of the same transfers. Every node of the mesh calls this.

    Args:
        wanted: for some peers the connections that the pair is to have in all, at most ``MOST_CONNECTIONS``; the same
            at both ends. A pair keeps those that it has.
        share: publishes this node's value, and returns those of all nodes in the order of ``mesh.names``.
    """
    with contextlib.closing(listen(host)) as listener:
        mine = [host, listener.getsockname()[1]]
        addresses = {v: (str(there), int(port)) for v, (there, port) in zip(mesh.names, share(mine), strict=True)}
        lanes: dict[int, range] = {}
        for peer in addresses:
            have = len(mesh.peers[peer][0].lanes) if peer != mesh.node else 1
            count = min(wanted.get(peer, 1), MOST_CONNECTIONS)
            lanes[peer] = range(FIRST_LANE + have - 1, FIRST_LANE + count - 1)
        further = join(mesh.node, listener, addresses, mesh.names, credentials, timeout_s=timeout_s, subflows=lanes)
    mesh.widen(further.connections)


def narrow(mesh: Mesh, peer: int, count: int) -> None:
    """Close the lanes to a peer beyond ``count`` connections. Both ends call this, between runs, when nothing that was
    sent over them is still on the way."""
    lead = mesh.peers[peer][0]
    for c in lead.lanes[count:]:
        c.sock.close()
        mesh.peers[peer].remove(c)
    mesh.connections = [c for c in mesh.connections if c.lead is not lead or c in lead.lanes[:count]]
    del lead.lanes[count:]


def _call_all(
    node: int,
    ends: Sequence[End],
    addresses: Mapping[int, Address],
    names: Mapping[int, str],
    credentials: Credentials,
    deadline: float,
    sockets: dict[End, Wire],
) -> None:
    """Connect to these ends. Over a network a handshake waits for round trips, so several go on at once."""

    def call(end: End) -> Wire:
        return _call(node, end, addresses[end[0]], names[end[0]], credentials, deadline)

    far = [end for end in ends if not addresses[end[0]][0].startswith(UNIX_MARK)]
    if len(far) < 2:
        for end in ends:
            sockets[end] = call(end)
        return
    pool = ThreadPoolExecutor(min(len(far), CALLS_AT_ONCE))
    calls = {end: pool.submit(call, end) for end in far}
    try:
        for end in ends:
            sockets[end] = calls[end].result() if end in calls else call(end)
    except BaseException:
        for end, future in calls.items():
            if end not in sockets and not future.cancel():
                future.add_done_callback(_close_result)
        raise
    finally:
        pool.shutdown(wait=False)


def _close_result(call: Future[Wire]) -> None:
    """Close a connection that came too late."""
    if call.exception() is None:
        call.result().close()


def _call(node: int, end: End, address: Address, name: str, credentials: Credentials, deadline: float) -> Wire:
    """A connection to a peer that listens at an address. Who loses the place at its door calls again."""
    wait_s = AGAIN_S
    while True:
        left_s = max(deadline - time.monotonic(), 0.1)
        late = time.monotonic() + wait_s > deadline
        try:
            sock = dial(address, left_s)
            return shake(sock, credentials, node, end, name, name=address[0], within_s=left_s)[1]
        except Dropped:
            if late:
                raise
        except OSError as error:
            if late or not isinstance(error, BlockingIOError):  # that is a Unix socket at which too many wait
                raise PeerFailed(name, f"cannot be reached at {address[0]}:{address[1]} ({error})") from None
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, MOST_AGAIN_S)


def _accept(
    node: int,
    names: Mapping[End, str],
    listeners: Sequence[socket.socket],
    credentials: Credentials,
    deadline: float,
    sockets: dict[End, Wire],
    missed: _Missed,
) -> None:
    """Accept the connection of each end of ``names``."""
    missing = dict(names)
    if not missing:
        return
    with Door(node, listeners, credentials) as door:
        while missing:
            came = door.next(min(deadline, time.monotonic() + LOOK_S))
            if came is None and time.monotonic() < deadline:
                missed.look(missing, door.last_failure)
                continue
            if came is None:
                last = f"; turned away: {door.last_failure}" if door.last_failure else ""
                raise PeerFailed(", ".join(dict.fromkeys(missing.values())), f"did not connect in time{last}")
            end, wire = came
            if end in names:
                if end in sockets:  # its first connection broke after it was let in
                    sockets[end].close()
                sockets[end] = wire
                missing.pop(end, None)
            else:
                wire.close()


class _Missed:
    """Looks after those who have not called yet: one that does not listen any more has died, or has given up."""

    def __init__(
        self, addresses: Mapping[int, Address], names: Mapping[int, str], further: Callable[[], None] | None
    ) -> None:
        self._addresses, self._names, self._further = addresses, names, further
        self._at, self._turn, self._refused = time.monotonic() + MISSED_S, 0, -1

    def look(self, missing: Collection[End], turned_away: str) -> None:
        """Raise PeerFailed if one of these ends will not call."""
        if self._further is not None:
            self._further()
        if time.monotonic() < self._at:
            return
        peers = sorted({peer for peer, _ in missing if self._listens(peer)})
        if peers:
            self._turn += 1
            peer = peers[self._turn % len(peers)]
            try:
                dial(self._addresses[peer], MISSED_S).close()
            except ConnectionRefusedError:
                if peer != self._refused:  # it may have been let in just now, and need no listener any more
                    self._refused, self._turn, self._at = peer, self._turn - 1, time.monotonic() + MISSED_S
                    return
                last = f"; turned away: {turned_away}" if turned_away else ""
                raise PeerFailed(self._names[peer], f"it died, or gave up, before it connected{last}") from None
            except OSError:
                pass  # it may be slow; the deadline decides
        self._at = time.monotonic() + MISSED_S

    def _listens(self, peer: int) -> bool:
        """Whether a peer has an address at all; a controller has none."""
        host, port = self._addresses[peer]
        return bool(port) or host.startswith(UNIX_MARK)


def listen(host: str = "127.0.0.1") -> socket.socket:
    """A socket that listens on a free port of ``host``."""
    return socket.create_server((host, 0), backlog=BACKLOG)


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
    listener.listen(BACKLOG)
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

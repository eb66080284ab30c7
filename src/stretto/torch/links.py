"""How the ranks of a group connect and disconnect: they find each other in the store, then use sockets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..choose.dead_links import DeadPairs, dead_words
from ..choose.library import Library, joined_by_one_switch
from ..model.errors import InputError, PeerFailed, Unsupported
from ..model.measurements import Lanes
from ..model.plan import Plan
from ..runtime.channel import Wire
from ..runtime.congestion import congestion_of, use_congestion
from ..runtime.connect import Address, join, listen, meet
from ..runtime.credentials import Credentials, from_environment, random_secret
from ..runtime.inbox import Inbox
from ..runtime.mesh import GRACE_S, Mesh
from ..runtime.messages import Messages
from ..runtime.native.engine import Engine, can_serve, for_mesh, hold, let_go
from ..runtime.native.shared import Roads, SharedMesh
from ..runtime.reach import Reach, dead
from ..runtime.sharing import Offer, RoadOffer, Shared
from ..runtime.telling import beside
from .calls import describe
from .lanes import VARIABLE, wanted, widening
from .measuring import Known, measure, measure_lanes
from .meeting import Meeting
from .planes import PlaneController
from .relays import Relays


class Links(Meeting):
    """One rank's connections to the others of its group, which meet in PyTorch's ``store``.

    Where the network is measured (``measures``), the library learns it.

    Args:
        earlier: what this process has measured in earlier groups, which is not measured again.
        shared: the connections of this rank's groups; by default this group shares none.
        members: the numbers in the world of the ranks of the group.
    """

    def __init__(
        self, store: Any, library: Library, host: str, measures: bool, timeout_s: float, earlier: Known | None = None,
        shared: Shared | None = None, members: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__(store, library, timeout_s)
        self._host = host
        self._members = list(members) or list(range(library.size))
        self._measures, self._earlier = measures, earlier or Known()
        self._connections = wanted(os.environ, measures)
        self._widens = self._connections != Lanes()
        if self._widens and library.controller is not None:
            raise InputError("on optical planes a pair has one connection for each plane", VARIABLE)
        self._credentials = from_environment(os.environ, random_secret)
        self._lock = threading.Lock()
        self._shared = shared or Shared(library.rank)
        self._turn = self._shared.turn()
        self._engine: Engine | None = None
        self._holding = threading.Lock()
        self._controller: PlaneController | None = None
        self._messages: dict[int, Messages] = {}
        self._offer = RoadOffer({})
        self._heard: dict[int, Callable[[bytes], None]] = {}
        self._receive_anew(frozenset())
        self.on_failure: Callable[[PeerFailed], None] | None = None
        """Called when the compiled loop finds that a peer has failed, or a link is found dead."""
        self.silent_s: float | None = None
        """Seconds without an answer after which the link to a peer is dead; None where nobody looks."""

    def mesh(self) -> Mesh:
        """The connections for collectives. The first call connects, and measures the network if ``measures``."""
        self.connect()
        if self.measures:
            self._measure()
            self._share_roads()
            self._measures = self._widens = False
        return self._meshes[0]

    def own_mesh(self) -> Mesh:
        """Connections for programs that Python's loop runs. All ranks call this before the same collective."""
        mesh = self.mesh()
        if isinstance(mesh, SharedMesh) and len(self._meshes) == 1:
            own = self._meet("own collectives", replace(self._collective_credentials, context=b"own" + self._secret))
            own.describe = describe
            self._meshes.append(own)
        return self._meshes[-1]

    @property
    def measures(self) -> bool:
        """Whether the network, or how many connections pairs need, is still to be measured."""
        return self._measures or self._widens

    def ready(self) -> None:
        """Connect, and measure the network if ``measures``, unless that has been done."""
        self.mesh()

    def loop(self) -> Engine | None:
        """The compiled loop for the collectives of this group; None until all are connected and measured, and where
        Python runs them."""
        return for_mesh(self._meshes[0]) if self._engine is not None and not self.measures else None

    def control(self, kind: str, plan: Plan, call: bytes) -> None:
        """Let the controller of optical planes, if it is here, take part in the next collective."""
        if self._controller is not None:
            self._controller.run(kind, plan, call)

    def everyone(self) -> dict[int, Messages]:
        """The messages to and from every other rank."""
        self.connect()
        return self._messages

    def to(self, rank: int) -> Messages:
        """The messages to and from a rank."""
        everyone = self.everyone()
        if rank not in everyone:
            raise Unsupported(f"rank {rank} cannot be reached: {dead_words(self.pairs)}")
        return everyone[rank]

    def hear(self, tag: int, listener: Callable[[bytes], None]) -> None:
        """Call this with each note of that tag (:meth:`.Messages.note`), after connections are made anew, too."""
        self._heard[tag] = self.inbox.listeners[tag] = listener

    def here(self) -> list[int]:
        """The ranks on this machine, in order, with this one."""
        self.connect()
        sockets = self._sockets(self._meshes[0]) if self._meshes else {}
        return sorted([self._library.rank, *(r for r, sock in sockets.items() if sock.family == socket.AF_UNIX)])

    @property
    def others(self) -> list[int]:
        """The other ranks to which this one connects."""
        own = self._library.rank
        return [r for r in range(self._library.size) if r != own and frozenset((own, r)) not in self.pairs]

    def renew(self, pairs: DeadPairs, number: int) -> None:
        """Leave all connections, and connect anew at the next call, but for these pairs of ranks.

        Args:
            number: how many times the group has done this, now counted.
        """
        meshes, messages = self._meshes, [*self._messages.values()]
        self._let_go()
        self._meshes, self._messages, self._offer = [], {}, RoadOffer({})
        self._watched = {}
        self._receive_anew(pairs)
        self._measures = self._widens = False
        self._store, self._shared = self.meeting(number), Shared(self._library.rank)
        self._turn = self._shared.turn()
        for leave in (*(m.leave for m in meshes), *(m.leave for m in messages)):
            beside(leave)

    def _receive_anew(self, pairs: DeadPairs) -> None:
        """Let nobody hear what comes over connections made so far.

        Args:
            pairs: of ranks whose links are dead, so that they have no connection from now on.
        """
        self.pairs, self.inbox = pairs, Inbox()
        self.inbox.listeners.update(self._heard)
        self.relays = Relays(self._library.rank, self._library.size, pairs, self.inbox, self.everyone)

    def failing(self) -> list[int]:
        """The ranks whose links are dead, or are about to be counted as dead."""
        reach = {r: m.line.reach.get(m) for r, m in self._messages.items()}
        return [r for r, each in reach.items() if each is not None and each.fails()]

    def _told(self, inbox: Inbox, failure: PeerFailed) -> None:
        """A peer has failed, by the connections with which an inbox belongs."""
        if self.on_failure is not None and inbox is self.inbox:
            self.on_failure(failure)

    def _lose(self, inbox: Inbox, rank: int, silent_s: float) -> None:
        """Give up all connections since the link to a rank is dead."""
        failure = PeerFailed(f"rank {self._library.rank}", dead(rank, silent_s))
        if inbox is not self.inbox:
            return  # the ranks have connected anew meanwhile
        for mesh in self._meshes:
            mesh.condemned = mesh.condemned or (mesh.node, failure.reason)
        if self._engine is not None:
            self._told(inbox, failure)

    def connect(self) -> None:
        """Connect to all other ranks at the first call."""
        with self._lock:
            if self._messages or self._library.size == 1:
                self._shared.end_turn(self._turn)
                return
            self._shared.wait(self._turn)
            try:
                with self._first_failure():
                    self._connect()
            finally:
                self._shared.end_turn(self._turn)
        if self._left.is_set():
            self.leave()

    def _connect(self) -> None:
        shared = self._shared_secret()
        credentials = self._credentials if self._credentials.chosen else replace(self._credentials, secret=shared)
        # groups may have one chosen secret, and what the store shares is each group's own
        self._secret = shared
        self._collective_credentials = replace(credentials, context=b"collectives" + shared)
        mesh = self._meet_for_collectives()
        self._lane_credentials = replace(credentials, context=b"lanes" + shared)
        self._watched = self._sockets(mesh)
        try:
            messages = self._meet_for_messages(replace(credentials, context=b"messages" + shared), shared)
        except BaseException:
            mesh.leave()
            raise
        self._meshes, self._messages = [mesh], messages
        if self.silent_s is not None:
            for r, m in messages.items():
                lost = partial(beside, partial(self._lose, self.inbox, r, self.silent_s))
                m.line.watch(m, Reach(m.line.connection.sock, self.silent_s, lost))
        if self._engine is None and self._library.controller is None and can_serve(mesh):
            self._engine = hold()
        if not self.measures:
            self._share_roads()

    def _meet_for_collectives(self) -> Mesh:
        """Connections to all other ranks: those of an earlier group, or new ones."""
        offer = self._offer = self._shared.offer_roads(self._measures)
        with offer.held():
            mesh = self._meet("collectives", self._collective_credentials, offer)
        mesh.watched = self.silent_s is not None
        if offer.roads is None:
            mesh.describe, mesh.told = describe, partial(self._told, self.inbox)
            return mesh
        self._engine, mesh = hold(), self._over(offer.roads)
        try:  # others may speak only when all take frames of the group
            self._share("hears collectives", True)
        except BaseException:
            mesh.leave()
            raise
        return mesh

    def _over(self, roads: Roads) -> SharedMesh:
        """This group's mesh over connections that groups share."""
        node, members = self._library.nodes[self._library.rank], zip(self._library.nodes, self._members, strict=True)
        ranks = {v: m for v, m in members if v != node}
        mesh = SharedMesh(node, self._names(), roads, ranks, (self._offer.number, self._offer.numbers))
        mesh.describe, mesh.told = describe, partial(self._told, self.inbox)
        return mesh

    def _share_roads(self) -> None:
        """Let later groups use the connections for collectives, if the compiled loops of all ranks serve them."""
        (mesh, *_), engine = self._meshes, self._engine
        if self._shared.alone or isinstance(mesh, SharedMesh):
            return
        serves = engine is not None and engine.broken is None and all(len(to) == 1 for to in mesh.peers.values())
        if self._measures:  # a later group that finds more to measure would need connections that nothing else uses
            near = all(c.sock.family == socket.AF_UNIX for c in mesh.connections)
            serves &= near and self._library.topology.name == joined_by_one_switch(self._library.size).name
        if all(self._share("serves", serves)) and engine is not None:
            sockets = zip(self._library.nodes, self._members, strict=True)
            roads = Roads(engine, {m: mesh.peers[v][0] for v, m in sockets if v in mesh.peers}, self._measures)
            self._meshes[0] = self._over(roads)
            self._shared.keep_roads(hashlib.sha256(b"roads" + self._secret).hexdigest()[:16], roads)

    def _meet_for_messages(self, credentials: Credentials, secret: bytes) -> dict[int, Messages]:
        """Streams to all other ranks; connections to those with which this rank has none yet."""
        offer, nodes, streams = self._shared.offer(), self._library.nodes, {}
        try:
            mesh = self._meet("messages", credentials, offer)
            for node, (connection,) in mesh.peers.items():
                offer.add(node, connection.sock, secret)
            for r in self.others:
                name, line = f"rank {r}", offer.lines.pop(nodes[r])
                numbers = offer.number, offer.numbers[nodes[r]]
                streams[r] = Messages(line, name, self._timeout_s, self.inbox, *numbers)
            offer.keep()
            if offer.reuses:  # who reads a line already must know the new stream before anyone speaks; others wait
                self._share("hears", True)
        except BaseException:
            offer.give_up()
            for stream in streams.values():
                stream.leave()
            raise
        return streams

    def blame(self, failure: PeerFailed) -> None:
        """This rank was told that a peer failed, and may leave because of that: tell the others who is at fault."""
        if self.left:
            return
        reports = [messages.blame(failure) for messages in self._messages.values() if messages.name != failure.peer]
        for mesh in self._meshes:
            culprit = next((node for node, name in mesh.names.items() if name == failure.peer), mesh.node)
            mesh.abort(failure, culprit)
        deadline = time.monotonic() + GRACE_S
        for sent in reports:
            sent.wait(deadline - time.monotonic())

    @property
    def left(self) -> bool:
        """Whether this rank has closed the connections, or given up."""
        return self._left.is_set()

    def close(self) -> None:
        """Say goodbye and close."""
        self._left.set()
        self._shared.end_turn(self._turn)
        if self._controller is not None:
            self._controller.close()
        for messages in list(self._messages.values()):  # the group's thread may still connect
            messages.close()
        for mesh in self._meshes:
            mesh.close()
        self._let_go()

    def leave(self) -> None:
        """Give up: waiting calls fail, and the peers see this rank leave."""
        self._left.set()
        self._shared.end_turn(self._turn)
        if self._controller is not None:
            self._controller.leave()
        for mesh in self._meshes:
            mesh.leave()
        for messages in list(self._messages.values()):  # the group's thread may still connect
            messages.leave()
        self._let_go()

    def drop(self) -> None:
        """Give up at once, whatever is being sent."""
        self._left.set()
        for messages in list(self._messages.values()):  # the group's thread may still connect
            messages.drop()
        self.leave()

    def _names(self) -> dict[int, str]:
        """What messages call each node."""
        return {node: f"rank {r}" for r, node in enumerate(self._library.nodes)}

    def _meet(self, purpose: str, credentials: Credentials, offer: Offer | RoadOffer | None = None) -> Mesh:
        """Connections to all other ranks, or to those to which no line is on offer, by the addresses in the store."""
        library, names = self._library, self._names()

        def controlled(addresses: Mapping[int, Address]) -> dict[int, str]:
            """Start the controller, if there is one; it calls all ranks."""
            if purpose != "collectives" or library.controller is None:
                return {}
            if library.rank == 0:
                self._control(dict(addresses), dict(names), credentials)
            return {library.controller: "controller"}

        share = partial(self._share, purpose)
        node = library.nodes[library.rank]
        without = {library.nodes[r] for r in range(library.size)} - {library.nodes[r] for r in self.others}
        more: dict[str, Any] = {"callers": controlled, "look": self._look, "offer": offer, "without": without}
        return meet(node, names, share, self._host, credentials, timeout_s=self._timeout_s, **more)

    def _let_go(self) -> None:
        """Use the compiled loop no more."""
        with self._holding:
            engine, self._engine = self._engine, None
        if engine is not None:
            let_go()

    def _control(self, addresses: dict[int, Address], names: dict[int, str], credentials: Credentials) -> None:
        """Start the controller of the optical planes at this rank."""
        node = self._library.controller
        assert node is not None

        def connect() -> Mesh:
            with contextlib.closing(listen(self._host)) as listener:
                return join(node, listener, addresses, names, credentials, timeout_s=self._timeout_s)

        self._controller = PlaneController(self._library.topology, connect, self._timeout_s)

    def _sockets(self, mesh: Mesh) -> dict[int, Wire]:
        """The socket to each other rank."""
        return {r: mesh.peers[self._library.nodes[r]][0].sock for r in self.others}

    def _measure(self) -> None:
        """Measure what is not known of the network. All ranks learn all numbers, so they make the same plans."""
        library, mesh, share, timeout_s = self._library, self._meshes[0], self._share, self._timeout_s
        conditions = self._host, self._lane_credentials, timeout_s, share, self._connections
        rest = widening(mesh, library.nodes, *conditions), share, timeout_s, self._earlier
        with self._first_failure():
            if self._measures:
                library.learn(measure(library.rank, library.size, *rest))
            elif self._offer.roads is None:  # else these have as many as they need
                measure_lanes(library.rank, library.size, *rest, library.sites)
        for r, sock in self._sockets(mesh).items():
            if sock.family != socket.AF_UNIX:  # messages have a connection of their own
                use_congestion([self._messages[r].line.connection.sock], congestion_of(sock))
        mesh.serve()

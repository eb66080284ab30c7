"""What one rank does: meet the others, measure with them, and measure again while the network is watched."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..model.errors import InputError, PeerFailed
from ..model.measurements import Survey
from ..runtime.channel import Wire
from ..runtime.connect import meet
from ..runtime.credentials import Credentials, Protection, random_secret
from ..runtime.mesh import Mesh
from ..runtime.probe import Effort
from ..topologies.measured import Link, Shape, links_of, shape_of
from .meeting import Exchange
from .record import document, news_of
from .survey import Party, survey
from .watch import changed, light_of, suspicious

NOISE_S = 300e-6
"""Seconds by which a latency may be wrong, for who is in one site."""


@dataclass(frozen=True)
class Request:
    """What to measure; the same for all ranks.

    Attributes:
        version: of stretto, which must be the same everywhere.
        watch_s: seconds between two cycles of watching; None to end after the first measurement.
        cycles: how many cycles to watch; None for no end.
        load_bytes: the most bytes that a stream of such a cycle sends.
        timeout_s: seconds without news after which a rank counts as failed.
    """

    version: str
    effort: Effort = field(default_factory=Effort)
    watch_s: float | None = None
    cycles: int | None = None
    load_bytes: int = 1 << 20
    timeout_s: float = 60.0

    @property
    def silence_s(self) -> float:
        """Seconds for which a rank may be silent: it may still measure with another one."""
        return self.timeout_s + 2 * self.effort.pair_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Request:
        effort = {**data["effort"], "connections": tuple(data["effort"]["connections"])}
        return cls(**{**data, "effort": Effort(**effort)})


def measure_as(
    rank: int,
    ranks: int,
    name: str,
    host: str,
    exchange: Exchange,
    request: Request,
    credentials: Credentials | None = None,
) -> None:
    """Measure together with the other ranks. Rank 0 reports ``progress``, ``measured``, ``cycle`` and ``changed``.

    Args:
        name, host: what this host is called, and the address at which this process listens.
        credentials: for the connections that are measured; by default, and where their secret is not chosen, rank 0
            makes a random one. What is sent over these connections is noise, so without TLS it is plain.
    Raises:
        InputError: versions differ.
        PeerFailed: a rank failed; every rank names the same one.
    """
    try:
        _Rank(rank, ranks, name, host, exchange, request, credentials).run()
    except PeerFailed as failure:
        raise exchange.cause(failure) from None


class _Rank:
    def __init__(
        self,
        rank: int,
        ranks: int,
        name: str,
        host: str,
        exchange: Exchange,
        request: Request,
        credentials: Credentials | None,
    ) -> None:
        self.rank, self.ranks, self.name, self.host = rank, ranks, name, host
        self.exchange, self.request = exchange, request
        self.credentials = replace(credentials or Credentials(random_secret()), frames=Protection.PLAIN)

    def run(self) -> None:
        hello = {"version": self.request.version, "name": self.name, "secret": random_secret().hex()}
        rows = self.exchange.share("hello", hello)
        versions = [row["version"] for row in rows]
        if len({*versions}) > 1:
            other = next(r for r, version in enumerate(versions) if version != versions[0])
            raise InputError(
                f"{rows[0]['name']} has stretto {versions[0]}, {rows[other]['name']} has {versions[other]}; "
                "install one version everywhere", "measure",
            )  # fmt: skip
        self.names = _distinct([str(row["name"]) for row in rows])
        self.report("names", self.names)
        if not self.credentials.chosen:
            self.credentials = replace(self.credentials, secret=bytes.fromhex(rows[0]["secret"]))
        mesh = self._connect()
        self.party = Party(self.rank, self.ranks, _sockets(mesh), self.exchange.share, self.request.silence_s)
        try:
            self._measure()
            self.exchange.end()
        finally:
            for c in mesh.connections:
                c.sock.close()

    def report(self, kind: str, value: Any) -> None:
        if self.rank == 0:
            self.exchange.report(kind, value)

    def _connect(self) -> Mesh:
        names = {r: f"rank {r}" for r in range(self.ranks)}
        connections = max(self.request.effort.connections)
        return meet(
            self.rank, names, lambda value: self.exchange.share("addresses", value), self.host, self.credentials,
            timeout_s=self.request.timeout_s, connections=connections,
        )  # fmt: skip

    def _survey(self, effort: Effort, sites: Sequence[Sequence[int]] | None = None) -> Survey:
        def progress(done: int, total: int, what: str) -> None:
            self.report("progress", [done, total, what])

        return survey(self.party, effort, NOISE_S, sites, progress)

    def _measure(self) -> None:
        found = self._survey(self.request.effort)
        shape = shape_of(found)
        links = links_of(found, self.names, shape)
        self.report("measured", document(found, self.names, links, time.time()))
        if self.request.watch_s is not None:
            self._watch(found, shape, links)

    def _watch(self, found: Survey, shape: Shape, links: list[Link]) -> None:
        """Measure again and again with a light load; where that shows a change, measure as at first."""
        light = light_of(self.request.effort, self.request.load_bytes)
        sites, wait_s = found.sites, self.request.watch_s or 0.0
        usual = links_of(self._survey(light, sites), self.names, shape)
        cycle = 0
        while self.request.cycles is None or cycle < self.request.cycles:
            cycle += 1
            if self.rank == 0:
                time.sleep(wait_s)
            self.exchange.share("cycle", None, patience_s=wait_s)
            again = self._survey(light, sites)
            now = links_of(again, self.names, shape)
            moved_bytes, different = again.moved_bytes, []
            if suspicious(usual, now):
                found = self._survey(self.request.effort, sites)
                moved_bytes += found.moved_bytes
                different = changed(links, links_of(found, self.names, shape))
                usual = now
            if different:
                new = {(link.src, link.dst): link for link in different}
                links = [new.get((link.src, link.dst), link) for link in links]
                at = time.time()
                self.report("changed", [document(found, self.names, links, at), news_of(different, at)])
            self.report("cycle", {"cycle": cycle, "bytes": moved_bytes, "changed": len(different)})


def _sockets(mesh: Mesh) -> dict[int, list[Wire]]:
    """The sockets to each peer. The network shall not tell the connections of a pair apart by their marks."""
    for c in mesh.connections:
        if c.sock.family != socket.AF_UNIX:
            c.sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
    return {peer: [c.sock for c in connections] for peer, connections in mesh.peers.items()}


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of hosts as names of ranks: several ranks of one host are numbered."""
    return [name if names.count(name) == 1 else f"{name}:{names[:r].count(name)}" for r, name in enumerate(names)]

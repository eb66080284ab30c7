"""Surveys by threads of this process, each in the network namespace of its host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stretto import emulator
from stretto.emulator import Rough
from stretto.measure.ladder import Widening
from stretto.measure.survey import Party, survey
from stretto.model.measurements import Lanes, Survey
from stretto.model.topology import Topology
from stretto.runtime.channel import Wire
from stretto.runtime.connect import meet, narrow, widen
from stretto.runtime.credentials import Credentials, Protection
from stretto.runtime.local import Place
from stretto.runtime.pacing import lane_rate, limit_rate
from stretto.runtime.probe import Effort

CREDENTIALS = Credentials(bytes(32), frames=Protection.PLAIN)


class Board:
    """Values that threads share: each call returns what all threads gave to the same call."""

    def __init__(self, ranks: int) -> None:
        self.values: list[Any] = [None] * ranks
        self.barrier = threading.Barrier(ranks)

    def of(self, rank: int) -> Callable[[str, Any], list[Any]]:
        def share(name: str, value: Any) -> list[Any]:
            self.values[rank] = value
            self.barrier.wait(60)
            found = [*self.values]
            self.barrier.wait(60)
            return found

        return share


def surveyed(
    net: Topology, effort: Effort, noise_s: float = 1e-3, rough: Mapping[tuple[int, int], Rough] | None = None,
    widens: bool = False,
) -> Survey:  # fmt: skip
    """What the accelerators of an emulated network measure; with as many connections as they need if it ``widens``."""
    nodes = net.accelerators.tolist()
    board = Board(len(nodes))

    def measure(rank: int, place: Place) -> Survey:
        emulator.enter(place.argument)  # a namespace is a thread's own
        share = board.of(rank)
        names = {r: f"rank {r}" for r in range(len(nodes))}
        mesh = meet(
            rank,
            names,
            lambda value: share("meet", value),
            place.host,
            CREDENTIALS,
            connections=max(effort.connections),
        )
        sockets = {r: [c.sock for c in ends] for r, ends in mesh.peers.items()}

        def more(name: str, wanted: Mapping[int, int]) -> None:
            widen(mesh, wanted, lambda value: share(name, value), place.host, CREDENTIALS)

        def lanes(r: int) -> list[Wire]:
            return [c.sock for c in mesh.peers[r][0].lanes]

        def keep(r: int, chosen: Lanes) -> None:
            narrow(mesh, r, chosen.connections)
            for sock in lanes(r) if chosen.connections > 1 else ():
                limit_rate(sock, lane_rate(chosen.rate, chosen.connections))

        widening = Widening(more, lanes, keep) if widens else None
        try:
            return survey(Party(rank, len(nodes), sockets, share, 30.0, widening), effort, noise_s)
        finally:
            board.barrier.wait(60)
            mesh.close()

    with emulator.built(net, relayed=True, rough=rough) as places, ThreadPoolExecutor(len(nodes)) as pool:
        found = list(pool.map(measure, range(len(nodes)), [places[v] for v in nodes]))
    assert all(each == found[0] for each in found)
    return found[0]

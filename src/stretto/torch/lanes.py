"""How many connections carry the collectives of a pair of ranks: as the environment says, or as measured."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..measure.ladder import Widening
from ..model.errors import InputError
from ..model.measurements import Lanes
from ..runtime.congestion import use_congestion
from ..runtime.connect import narrow, widen
from ..runtime.credentials import Credentials
from ..runtime.mesh import MOST_CONNECTIONS, Connection, Mesh
from ..runtime.pacing import lane_rate

VARIABLE, MEASURE = "STRETTO_CONNECTIONS", "measure"


def wanted(environment: Mapping[str, str], measures: bool) -> Lanes | None:
    """The connections that each pair of ranks over a network gets; None to measure how many it needs.

    Args:
        measures: whether the network is measured. Where it is named, a pair has one connection by default.
    Raises:
        InputError: the variable is wrong.
    """
    text = environment.get(VARIABLE)
    if not text:
        return None if measures else Lanes()
    if text == MEASURE:
        return None
    number, _, congestion = text.partition(":")
    if not number.isdecimal() or not 1 <= int(number) <= MOST_CONNECTIONS:
        right = f"`{MEASURE}`, or a number from 1 to {MOST_CONNECTIONS}, perhaps with a congestion control: 8:bbr"
        raise InputError(f"{text!r} is not {right}", VARIABLE)
    with socket.socket() as sock:
        try:
            use_congestion([sock], congestion)
        except OSError as error:
            raise InputError(f"this process cannot use congestion control {congestion!r} ({error})", VARIABLE) from None
    return Lanes(int(number), congestion)


def widening(
    mesh: Mesh, nodes: Sequence[int], host: str, credentials: Credentials, timeout_s: float,
    share: Callable[[str, Any], list[Any]], fixed: Lanes | None,
) -> Widening:  # fmt: skip
    """How a rank gives the pairs of its mesh more connections.

    Args:
        nodes: the node of each rank.
        host: the address at which this process listens.
        fixed: what all pairs over a network get; None to measure it.
    """

    def lanes(rank: int) -> list[Connection]:
        return mesh.peers[nodes[rank]][0].lanes

    def more(name: str, counts: Mapping[int, int]) -> None:
        asked = {nodes[r]: count for r, count in counts.items()}
        widen(mesh, asked, partial(share, f"widen {name}"), host, credentials, timeout_s=timeout_s)

    def keep(rank: int, chosen: Lanes) -> None:
        narrow(mesh, nodes[rank], chosen.connections)
        limited = chosen.connections > 1 and chosen.rate > 0
        for c in lanes(rank):
            c.most_rate = lane_rate(chosen.rate, chosen.connections) if limited else math.inf

    return Widening(more, lambda rank: [c.sock for c in lanes(rank)], keep, fixed)

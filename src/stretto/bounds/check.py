"""A second look at certificates: the few lines that a reader would write, sharing nothing with the searches.

A cut needs no search to be believed: add up what must enter it and what can. Neither do lengths.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..collective import Collective
from ..topology import SWITCH, Topology


def check_cut(topology: Topology, collective: Collective, inside: set[int]) -> Fraction:
    """Seconds in which what the nodes inside lack can enter, were nothing else in the way."""
    load = 0
    for piece, size in enumerate(collective.piece_bytes.tolist()):
        holders = {int(collective.ranks[r]) for r in collective.holders[piece]}
        wanted = {int(collective.ranks[r]) for r in collective.wanted[piece]}
        lacking = holders - inside if collective.reduces else not holders & inside
        if wanted & inside and lacking:
            load += size
    width = Fraction(0)
    for a, b, bandwidth in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist(), strict=True):
        if a not in inside and b in inside:
            width += Fraction(bandwidth)
    return Fraction(load) / width


def check_lengths(topology: Topology, collective: Collective, length: list[int]) -> Fraction:
    """Seconds in which links of these lengths carry every piece over its distance."""
    links = list(zip(topology.src.tolist(), topology.dst.tolist(), length, strict=True))
    needed = 0
    for source in range(topology.node_count):
        far = {source: 0}
        for _ in range(topology.node_count):
            for a, b, way in links:
                if a in far and far[a] + way < far.get(b, far[a] + way + 1):
                    far[b] = far[a] + way
        for piece, size in enumerate(collective.piece_bytes.tolist()):
            (holder,), (receiver,) = collective.holders[piece], collective.wanted[piece]
            if collective.ranks[holder] == source:
                needed += size * far[int(collective.ranks[receiver])]
    room = sum(Fraction(w) * way for w, way in zip(topology.bandwidth.tolist(), length, strict=True))
    return Fraction(needed) / room


def check_parts(topology: Topology, collective: Collective, parts: list[set[int]]) -> Fraction:
    """Seconds in which an AllReduce's buffer can enter the parts twice for each but one."""
    width = Fraction(0)
    storing: set[int] = set()
    for inside in parts:
        assert inside & set(collective.ranks.tolist()), "a part without a rank needs nothing"
        here = {v for v in inside if topology.kind[v] != SWITCH}
        assert not here & storing, "parts share a node"
        storing |= here
        for a, b, bandwidth in zip(topology.src, topology.dst, topology.bandwidth.tolist(), strict=True):
            if a not in inside and b in inside:
                width += Fraction(bandwidth)
    assert storing == set(np.flatnonzero(topology.kind != SWITCH).tolist()), "a node that could sum is in no part"
    return 2 * (len(parts) - 1) * collective.size_bytes / width

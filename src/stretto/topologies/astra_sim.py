"""ASTRA-sim's network YAML: building blocks (Ring, FullyConnected, Switch), one a dimension.

As its analytical backend reads it (astra-sim/astra-network-analytical, common/NetworkFunction.cpp
and congestion_aware/basic-topology): ``bandwidth`` counts 2^30 bytes a second a link, ``latency``
nanoseconds a link; a ring goes both ways; a switch is a device of its own, a link from and to each NPU.
"""

from __future__ import annotations

import math

import numpy as np

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from .draft import Draft
from .values import count, parse_yaml, real, shown

GIB = float(2**30)
BLOCKS = ("Ring", "FullyConnected", "Switch")
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
MOST_DIMENSIONS, MOST_LISTS, MOST_LINKS = 16, 100, 1_000_000


def parse(text: str, where: str) -> Topology:
    """The topology of the YAML."""
    data = parse_yaml(text, where, MOST_LISTS)
    if not isinstance(data, dict):
        raise InputError(f"is no network: it has none of {', '.join(_KEYS)}", where)
    missing = [key for key in _KEYS if key not in data]
    if missing:
        raise InputError(f"{missing[0]!r} is missing; a network has {', '.join(_KEYS)}", where)
    lists = {key: data[key] if isinstance(data[key], list) else [data[key]] for key in _KEYS}
    blocks = lists["topology"]
    for key in _KEYS:
        if len(lists[key]) != len(blocks) or not 0 < len(blocks) <= MOST_DIMENSIONS:
            raise InputError(f"{key!r} has {len(lists[key])} entries for {len(blocks)} dimensions", where)
    for block in blocks:
        if block not in BLOCKS:
            raise InputError(f"the topology {shown(block)} is none of {', '.join(BLOCKS)}", where)
    sizes = [count(n, "'npus_count'", where, 1, 100_000) for n in lists["npus_count"]]
    widths = [real(w, "'bandwidth'", where, above=True) * GIB for w in lists["bandwidth"]]
    delays = [real(t, "'latency'", where) / 1e9 for t in lists["latency"]]
    nodes = math.prod(sizes)
    links_wanted = nodes * sum(n if b == "FullyConnected" else 2 for n, b in zip(sizes, blocks))
    if links_wanted > MOST_LINKS:
        raise InputError(f"has {links_wanted} links, more than the {MOST_LINKS} that are built", where)
    draft = Draft([ACCELERATOR] * nodes)
    stride = 1
    for block, size, width, delay in zip(blocks, sizes, widths, delays):
        for first in (v for v in range(nodes) if v // stride % size == 0):
            members = [first + i * stride for i in range(size)]
            for a, b in _pairs(block, members, draft.kinds):
                draft.link(a, b, width, delay)
        stride *= size
    return draft.topology(
        "astra-sim " + " x ".join(f"{b} {n}" for b, n in zip(blocks, sizes)),
        ordered=True,
        notes=["a GB/s of the file counts 2^30 bytes a second, as ASTRA-sim's analytical backend has it"],
        where=where,
    )


def _pairs(block: str, members: list[int], kinds: list[int]) -> list[tuple[int, int]]:
    """The links of one building block among nodes; the node of a switch is appended to the kinds."""
    n = len(members)
    if n == 1:
        return []
    if block == "Switch":
        switch = len(kinds)
        kinds.append(SWITCH)
        return [pair for v in members for pair in ((v, switch), (switch, v))]
    if block == "FullyConnected":
        return [(a, b) for a in members for b in members if a != b]
    after = members[1:] + members[:1]
    return [pair for a, b in zip(members, after) for pair in ((a, b), (b, a))]


def write(topology: Topology, where: str) -> str:
    """The YAML of one ring, full mesh or switch with equal links; InputError for any other network."""
    n = len(topology.accelerators)
    # ASTRA-sim numbers NPUs first, in the order of ranks, then the switch
    others = np.flatnonzero(~topology.is_accelerator).tolist()
    number = {v: i for i, v in enumerate([*topology.accelerators.tolist(), *others])}
    links = {(number[a], number[b]) for a, b in zip(topology.src.tolist(), topology.dst.tolist())}
    for block in BLOCKS:
        kinds = [ACCELERATOR] * n
        pairs = _pairs(block, list(range(n)), kinds)
        if len(kinds) == topology.node_count and links == set(pairs) and not topology.planes:
            break
    else:
        raise InputError(
            f"{topology.name} is no ring, full mesh or star of accelerators, and ASTRA-sim's congestion-aware "
            "analytical network has no other; write json or graphml",
            where,
        )
    if len(set(topology.bandwidth.tolist())) > 1 or len(set(topology.latency_s.tolist())) > 1:
        raise InputError("its links differ, and a dimension of ASTRA-sim's has one bandwidth and latency", where)
    width, delay = float(topology.bandwidth[0]) / GIB, float(topology.latency_s[0]) * 1e9
    return (
        f"topology: [ {block} ]\nnpus_count: [ {n} ]\n"
        f"bandwidth: [ {width!r} ]  # 2^30 bytes/s\nlatency: [ {delay!r} ]  # ns\n"
    )

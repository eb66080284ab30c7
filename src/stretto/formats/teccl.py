"""TE-CCL's schedules (JSON): flows of chunks in epochs, read and timed again.

``7-Flows`` says which source's chunk crosses which link in which epoch; ``6-Demand_Met`` says who got
which chunk, and so which collective it is. An epoch is rounded up to the slowest link and counts a switch
as a stop, so the completion is not the number of epochs times their length: here every transfer starts as
soon as its chunk has arrived and its links are free, in the order of epochs. Nodes keep their numbers.

A switch stores nothing, so all links of a transfer are busy at once. With *queued*, switches become
routers, where bytes wait for the next link: the times published for TE-CCL's schedules hold only then.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.plan import Plan, make_plan
from ..model.topology import ROUTER, Topology
from ..topologies.values import parse_json, read_text, shown
from . import Size

FLOW = re.compile(
    r"Chunk (\d{1,6}) from (\d{1,6}) traveled over (\d{1,6})->(\d{1,6})"
    r"(?: with volume ([0-9.]{1,20}))? in epoch (\d{1,9})(?: via switches ([\d ,>-]{1,200}))?\Z"
)
NAME = re.compile(r"\w+ (\d{1,6})\Z")
DEMAND = re.compile(r"Demand at (\d{1,6}) for chunk (\d{1,6}) from (\d{1,6}) met by epoch \d{1,9}\Z")
MOST_FLOWS = 2_000_000

Flow = tuple[int, int, int, int, int, tuple[int, ...]]
"""Epoch, chunk, its source, sender, receiver, and the switches on the way."""


def read(path: str, topology: Topology, size: Size, queued: bool = False) -> Plan:
    """The plan of a schedule.

    Args:
        queued: switches become routers.
        size: the size of the collective, which the file does not give.
    Raises:
        InputError: the file is no schedule, names a node or link that the topology lacks, or cuts a chunk.
    """
    data = parse_json(read_text(path), path)
    listed = data.get("7-Flows", data.get("6-Flows")) if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise InputError("has no list '7-Flows' or '6-Flows'; is it a schedule of TE-CCL?", path)
    flows = _flows(listed, path)
    collective, number = _collective(_wanted(data, path), topology, size, path)
    if queued:
        kind = np.where(topology.is_switch, ROUTER, topology.kind).astype(np.int8)
        topology = replace(topology, kind=kind, notes=(*topology.notes, "switches are routers: bytes queue in them"))
    rows = (_hops if queued else _transfers)(flows, number, topology, path)
    transfers = _Timed(topology, collective, path)
    for row in rows:
        transfers.add(*row)
    meta = {"planner": "te-ccl", "imported": path, "reported_s": data.get("4-Collective_Finish_Time")}
    return transfers.plan({k: v for k, v in meta.items() if isinstance(v, (str, int, float))})


def _flows(listed: list[Any], where: str) -> list[Flow]:
    if len(listed) > MOST_FLOWS:
        raise InputError(f"has more than {MOST_FLOWS} flows", where)
    flows = []
    for i, text in enumerate(listed):
        found = FLOW.match(text) if isinstance(text, str) else None
        if found is None:
            raise InputError(f"flow {i}: {shown(text)} is not 'Chunk C from S traveled over I->J in epoch K'", where)
        chunk, source, a, b, volume, epoch, via = found.groups()
        if volume is not None and volume.rstrip("0") not in ("1.", "1"):
            raise InputError(f"flow {i} carries {volume} of a chunk; only whole chunks can be read", where)
        switches = tuple(int(w) for w in re.findall(r"\d{1,6}", via or ""))
        flows.append((int(epoch), int(chunk), int(source), int(a), int(b), switches))
    return sorted(flows, key=lambda flow: flow[0])


def _collective(
    wanted: dict[tuple[int, int], set[int]], topology: Topology, size: Size, where: str
) -> tuple[Collective, dict[tuple[int, int], int]]:
    """The collective that the demands amount to, and for each (source, chunk) the chunk of the workload."""
    gpus = sorted({s for s, _ in wanted} | {d for ends in wanted.values() for d in ends})
    parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    n = len(gpus)
    rank = {v: r for r, v in enumerate(gpus)}
    if all(ends == set(gpus) - {s} for (s, _), ends in wanted.items()):
        kind = "allgather"
        for s, c in sorted(wanted):
            parts[rank[s]].append((s, c))
    elif all(len(ends) == 1 for ends in wanted.values()):
        kind = "alltoall"
        for (s, c), (d,) in sorted(wanted.items()):
            parts[rank[s] * n + rank[d]].append((s, c))
    else:
        raise InputError("what it delivers is neither an AllGather nor an AllToAll", where)
    count = {len(chunks) for chunks in parts.values()}
    if len(count) != 1 or len(parts) != (n if kind == "allgather" else n * (n - 1)):
        raise InputError(f"what it delivers has not equally many chunks for all of an {kind}", where)
    each = count.pop()
    collective = make_collective(kind, topology, size.full_bytes, shard_bytes=size.shard_bytes, ranks=gpus, chunks=each)
    return collective, {key: p * each + i for p, chunks in parts.items() for i, key in enumerate(chunks)}


def _wanted(data: dict[str, Any], where: str) -> dict[tuple[int, int], set[int]]:
    """For each (source, chunk) the GPUs that get it. The file nests them for AllGather; for AllToAll it lists paths."""
    wanted: dict[tuple[int, int], set[int]] = defaultdict(set)
    try:
        for to, sources in data.get("6-Demand_Met", {}).items():
            for source, chunks in sources.items():
                for chunk in chunks:
                    d, s, c = (int(NAME.match(text)[1]) for text in (to, source, chunk))  # type: ignore[index]
                    wanted[s, c].add(d)
        for text in data.get("7-chunk paths", {}):
            d, c, s = map(int, DEMAND.match(text).groups())  # type: ignore[union-attr]
            wanted[s, c].add(d)
    except (AttributeError, TypeError):
        raise InputError("'6-Demand_Met' or '7-chunk paths' does not say who gets which chunk of whom", where) from None
    if not wanted:
        raise InputError("has neither '6-Demand_Met' nor '7-chunk paths', which say who gets what", where)
    return wanted


def _transfers(
    flows: list[Flow], number: dict[tuple[int, int], int], topology: Topology, where: str
) -> list[tuple[int, int, list[int], list[int]]]:
    """Chunk, sender, receivers and links of each transfer; flows that branch in a switch are one transfer."""
    link = _links(topology, where)
    rows: dict[tuple[int, ...], tuple[int, int, list[int], list[int]]] = {}
    for i, (epoch, chunk, source, a, b, via) in enumerate(flows):
        joint = bool(via) and max(via) < topology.node_count and all(topology.replicates[w] for w in via)
        key = (epoch, chunk, source, a, via[0]) if joint else (i,)
        _, _, ends, route = rows.setdefault(key, (_chunk(number, source, chunk, where), a, [], []))
        ends.append(b)
        route += [i for i in map(link, zip((a, *via), (*via, b), strict=True)) if i not in route]
    return list(rows.values())


def _hops(
    flows: list[Flow], number: dict[tuple[int, int], int], topology: Topology, where: str
) -> list[tuple[int, int, list[int], list[int]]]:
    """The transfers link by link, each link once for all flows that leave together."""
    link = _links(topology, where)
    rows: dict[tuple[int, ...], tuple[int, int, list[int], list[int]]] = {}
    for epoch, chunk, source, a, b, via in flows:
        for u, v in zip((a, *via), (*via, b), strict=True):
            row = (_chunk(number, source, chunk, where), u, [v], [link((u, v))])
            rows.setdefault((epoch, chunk, source, u, v), row)
    return list(rows.values())


def _chunk(number: dict[tuple[int, int], int], source: int, chunk: int, where: str) -> int:
    if (source, chunk) not in number:
        raise InputError(f"chunk {chunk} from {source} travels but nobody wants it", where)
    return number[source, chunk]


def _links(topology: Topology, where: str) -> Callable[[tuple[int, int]], int]:
    """The link between two nodes, by their numbers."""
    known = {ends: i for i, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))}

    def link(ends: tuple[int, int]) -> int:
        if ends not in known:
            raise InputError(f"a flow crosses {ends[0]}->{ends[1]}, which {topology.name} does not have", where)
        return known[ends]

    return link


class _Timed:
    """Transfers in the order in which they are added, each as early as its chunk and its links allow."""

    def __init__(self, topology: Topology, collective: Collective, where: str) -> None:
        self.topology, self.collective, self.where = topology, collective, where
        self.free = np.zeros(topology.link_count)
        self.arrived: dict[tuple[int, int], tuple[float, float, int]] = {}
        self.written: dict[tuple[int, int], tuple[float, int]] = {}
        for chunk in range(collective.chunk_count):
            for v in collective.chunk_holders[chunk].tolist():
                self.arrived[v, chunk] = (0.0, 0.0, -1)
        self.rows: list[tuple[int, int, list[int], list[int], list[int], float, float]] = []

    def add(self, chunk: int, src: int, ends: list[int], route: list[int]) -> None:
        """Add a transfer.

        Raises:
            InputError: its sender does not have the chunk.
        """
        net = self.topology
        if (src, chunk) not in self.arrived:
            raise InputError(f"node {src} sends chunk {chunk} before it has it", self.where)
        last, first, by = self.arrived[src, chunk]
        later = {src: 0.0}
        for i in route:
            later[int(net.dst[i])] = later[int(net.src[i])] + float(net.latency_s[i])
        offsets = np.array([later[int(net.src[i])] for i in route])
        cut_through = net.is_router[src]
        before = [self.written[v, chunk] for v in ends if (v, chunk) in self.written]
        ready = max([first if cut_through else last, *(when for when, _ in before)])
        start = max(ready, float((self.free[route] - offsets).max()))
        finish = start + float(self.collective.chunk_bytes[chunk]) / float(net.bandwidth[route].min())
        finish = max(finish, last) if cut_through else finish
        self.free[route] = finish + offsets
        for v in ends:
            when = (finish + later[v], start + later[v], len(self.rows))
            self.arrived[v, chunk] = when if net.is_router[v] else min(self.arrived.get((v, chunk), when), when)
            self.written[v, chunk] = (when[0], len(self.rows))
        depends = sorted({by, *(row for _, row in before)} - {-1})
        self.rows.append((chunk, src, ends, route, depends, start, finish))

    def plan(self, meta: dict[str, Any]) -> Plan:
        chunk, src, dst, route, depends, start, finish = zip(*self.rows, strict=True) if self.rows else ((),) * 7
        return make_plan(
            self.topology, Workload((self.collective,)), "timed",
            chunk=chunk, src=src, dst=Ragged.of(dst), route=Ragged.of(route), depends=Ragged.of(depends),
            start_s=start, finish_s=finish, meta=meta, where=self.where,
        )  # fmt: skip

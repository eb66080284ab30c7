"""TE-CCL's schedules (JSON): flows of chunks in epochs, read and timed again.

``7-Flows`` says which source's chunk crosses which link in which epoch; ``6-Demand_Met`` says who got which chunk, and
so which collective it is. An epoch is rounded up to the slowest link and counts a switch as a stop, so here every
transfer starts as soon as its chunk has arrived and its links are free, in the order of epochs.

A switch stores nothing, so all links of a transfer are busy at once. With *queued*, switches become routers, where
bytes wait for the next link: the times published for TE-CCL's schedules hold only then.
"""

from __future__ import annotations

import re
from collections import defaultdict
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
    rows = _transfers(flows, number, topology, queued, path)
    meta = {"planner": "te-ccl", "imported": path, "reported_s": data.get("4-Collective_Finish_Time")}
    return make_plan(
        topology, Workload((collective,)), "timed", where=path, **_timed(rows, topology, collective, path),
        meta={k: v for k, v in meta.items() if isinstance(v, (str, int, float))},
    )  # fmt: skip


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
        kind, pieces = "allgather", n
    elif all(len(ends) == 1 for ends in wanted.values()):
        kind, pieces = "alltoall", n * (n - 1)
    else:
        raise InputError("what it delivers is neither an AllGather nor an AllToAll", where)
    for (s, c), ends in sorted(wanted.items()):
        parts[rank[s] if kind == "allgather" else rank[s] * n + rank[min(ends)]].append((s, c))
    count = {len(chunks) for chunks in parts.values()}
    if len(count) != 1 or len(parts) != pieces:
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


Transfer = tuple[int, int, list[int], list[int]]
"""Chunk, sender, receivers and links."""


def _transfers(
    flows: list[Flow], number: dict[tuple[int, int], int], topology: Topology, queued: bool, where: str
) -> list[Transfer]:
    """The transfers: flows that branch in a switch are one; if ``queued``, flows that leave together are one a link."""
    known = {ends: i for i, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))}
    rows: dict[tuple[int, ...], Transfer] = {}
    for i, (epoch, chunk, source, a, b, via) in enumerate(flows):
        if (source, chunk) not in number:
            raise InputError(f"chunk {chunk} from {source} travels but nobody wants it", where)
        route = []
        for ends in zip((a, *via), (*via, b), strict=True):
            if ends not in known:
                raise InputError(f"a flow crosses {ends[0]}->{ends[1]}, which {topology.name} does not have", where)
            route.append(known[ends])
            if queued:
                rows.setdefault((epoch, chunk, source, *ends), (number[source, chunk], ends[0], [ends[1]], route[-1:]))
        if not queued:
            joint = bool(via) and max(via) < topology.node_count and all(topology.replicates[w] for w in via)
            key = (epoch, chunk, source, a, via[0]) if joint else (i,)
            _, _, receivers, links = rows.setdefault(key, (number[source, chunk], a, [], []))
            receivers.append(b)
            links += [link for link in route if link not in links]
    return list(rows.values())


def _timed(rows: list[Transfer], net: Topology, collective: Collective, where: str) -> dict[str, Any]:
    """The columns of transfers in their order, each as early as its chunk and its links allow."""
    free = np.zeros(net.link_count)
    holders = collective.chunk_holders
    arrived = dict.fromkeys(zip(holders.values.tolist(), holders.owners.tolist(), strict=True), (0.0, 0.0, -1))
    written: dict[tuple[int, int], tuple[float, int]] = {}
    times: list[tuple[list[int], float, float]] = []
    for k, (chunk, src, ends, route) in enumerate(rows):
        if (src, chunk) not in arrived:
            raise InputError(f"node {src} sends chunk {chunk} before it has it", where)
        last, first, by = arrived[src, chunk]
        later = {src: 0.0}
        for i in route:
            later[int(net.dst[i])] = later[int(net.src[i])] + float(net.latency_s[i])
        offsets = np.array([later[int(net.src[i])] for i in route])
        cut_through = net.is_router[src]
        before = [written[v, chunk] for v in ends if (v, chunk) in written]
        ready = max([first if cut_through else last, *(when for when, _ in before)])
        start = max(ready, float((free[route] - offsets).max()))
        finish = start + float(collective.chunk_bytes[chunk]) / float(net.bandwidth[route].min())
        finish = max(finish, last) if cut_through else finish
        free[route] = finish + offsets
        for v in ends:
            when = (finish + later[v], start + later[v], k)
            arrived[v, chunk] = when if net.is_router[v] else min(arrived.get((v, chunk), when), when)
            written[v, chunk] = (when[0], k)
        times.append((sorted({by, *(row for _, row in before)} - {-1}), start, finish))
    chunks, sources, receivers, routes = zip(*rows, strict=True) if rows else ((),) * 4
    depends, starts, finishes = zip(*times, strict=True) if rows else ((),) * 3
    return {"chunk": chunks, "src": sources, "dst": Ragged.of(receivers), "route": Ragged.of(routes),
            "depends": Ragged.of(depends), "start_s": starts, "finish_s": finishes}  # fmt: skip

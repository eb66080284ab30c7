"""The tuner table: which algorithm and protocol NCCL should use, by collective and size.

The form is the CSV that NCCL's example tuner plugin reads (plugins/tuner/example of release 2.30.7). The choice is that
of NCCL's own model (:mod:`stretto.schedule.nccl_cost_model`) for the graphs found, which know the network between
servers. Two habits of the plugin decide what a table must look like: the first row that matches counts, and a
collective that no row matches gets one channel. So the rows of each collective cover all sizes, and the last ones any
communicator.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..schedule.nccl_cost_model import Cluster, Lanes, expected_s
from ..schedule.nccl_releases import Release, release_2_30
from .generations import Generation
from .graphs import HOPPER, TREE, Graph, Graphs
from .paths import ORDER

HEADER = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"

KINDS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
"""Collectives that NCCL asks a tuner about, in its order."""

MOST_BYTES = 2**64 - 1
"""The largest size that the plugin reads."""

LARGEST_POWER = 44
"""Power of two, bytes, above which the choice is by bandwidth alone."""

MOST_CHANNELS = 64
"""MAXCHANNELS of NCCL 2.30."""

OWN_CHANNELS = 0
"""What a row says to leave the number of channels to NCCL, which takes fewer for small sizes; -1 would mean one."""


@dataclass(frozen=True)
class Range:
    """Sizes of one choice, both ends included."""

    kind: str
    least: int
    most: int
    algorithm: str
    protocol: str


@dataclass(frozen=True)
class Row:
    """One line of the table; -1 servers or ranks match any number."""

    range: Range
    servers: int
    ranks: int

    def cells(self) -> tuple[str | int, ...]:
        r = self.range
        return (r.kind, r.least, r.most, r.algorithm, r.protocol, OWN_CHANNELS, self.servers, self.ranks, -1, -1)


def cluster_of(graphs: Graphs, generation: Generation, servers: int, ranks: int) -> Cluster:
    """The cluster as NCCL's model sees it with these graphs."""
    ring, tree = (_lanes(g, generation) for g in (graphs.ring, graphs.tree))
    channels = min(2 * ring.channels, MOST_CHANNELS)
    if generation.sm >= HOPPER and servers > 1 and graphs.ring.intra > 45 and channels < 16:
        channels *= 2
    nvls = None if graphs.nvls is None else _lanes(graphs.nvls, generation)
    return Cluster(ranks, servers, channels, ring, tree, nvls)


def _lanes(graph: Graph, generation: Generation) -> Lanes:
    far = "PXN" if generation.sm >= HOPPER else "PXB"
    return Lanes(
        len(graph.channels), graph.intra * 1e9, graph.inter * 1e9, graph.latency_us,
        nvlink=graph.type_intra == "NVL",
        ll128=graph.type_intra in ("LOC", "NVL") and ORDER.index(graph.type_inter) <= ORDER.index(far),
        alike=len({c.gpus for c in graph.channels}) == 1,
        one_port=graph.pattern == TREE,
    )  # fmt: skip


def choices(cluster: Cluster, sm: int, kind: str) -> list[Range]:
    """The ranges of sizes of one collective, from 0 to the largest size, each with the choice of NCCL's model."""
    release = release_2_30(sm)
    steps = sorted({0, *(2**k for k in range(6, LARGEST_POWER + 1)), 64 * cluster.channels * cluster.ranks})
    found: list[Range] = []
    for least, most in zip(steps, [*(s - 1 for s in steps[1:]), MOST_BYTES], strict=True):
        for r in _envelope(cluster, release, kind, least, most):
            if found and (found[-1].algorithm, found[-1].protocol) == (r.algorithm, r.protocol):
                r = Range(kind, found.pop().least, r.most, r.algorithm, r.protocol)
            found.append(r)
    return found


def _envelope(cluster: Cluster, release: Release, kind: str, least: int, most: int) -> list[Range]:
    """The choices where each time grows in a straight line with the size: exact up to a byte."""
    end = min(most, 2 * least + 64)
    low, high = (expected_s(cluster, size, kind, release) for size in (least, end))
    slope = {way: (high[way] - low[way]) / (end - least) for way in low}
    ranges: list[Range] = []
    at = least
    best = min(low, key=lambda way: (low[way], slope[way]))
    while at <= most:
        crossing, after = float(most) + 1, best
        for way in low:
            if slope[way] < slope[best]:
                x = least + (low[way] - low[best]) / (slope[best] - slope[way])
                if at < x < crossing or (x == crossing and slope[way] < slope[after]):
                    crossing, after = x, way
        last = most if crossing > most else max(at, math.ceil(crossing) - 1)
        ranges.append(Range(kind, at, last, best[0], best[1].lower()))
        at, best = last + 1, after
    return ranges


def rows_of(cluster: Cluster, sm: int, kind: str, servers: int, ranks: int) -> list[Row]:
    """Rows of one collective for a communicator; -1 servers and ranks stand for any.

    Drivers may not allow multicast (NVLS). The plugin then goes on to the next row that matches, so the choices without
    multicast follow.
    """
    ranges = choices(cluster, sm, kind)
    if any(r.algorithm.startswith("nvls") for r in ranges):
        ranges = ranges + choices(replace(cluster, nvls=None), sm, kind)
    return [Row(r, servers, ranks) for r in ranges]


def table_csv(rows: Sequence[Row], comments: Sequence[str]) -> str:
    """The table as the plugin reads it."""
    text = io.StringIO()
    for comment in (*comments, HEADER):
        text.write(f"# {comment}\n")
    csv.writer(text, lineterminator="\n").writerows(row.cells() for row in rows)
    return text.getvalue()

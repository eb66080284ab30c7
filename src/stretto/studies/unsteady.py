"""WANs whose links change: they vary, or they fail and come back. Plans made with that known, and without.

SCALE-CCL (section 1) names both as reasons to plan again. How long they take is measured against what a collective
takes: its lower bound on the steady network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..bounds import bounds
from ..model.arrays import Int64
from ..model.changes import make_changes
from ..model.collective import Workload
from ..model.topology import Topology
from .model import Cell, Row, Table, Unsteady, grouped

VARY = 0.3
"""Share of its mean by which the bandwidth of a WAN link varies."""

DRAWS, LASTS = 10, 5
"""How often bandwidths are drawn anew within the bound of the steady network, and for how many times the bound."""

FAILS_S, LASTS_S = (0.0, 1.0), (0.25, 1.0)
"""When a WAN link fails, and for how long, both directions at once: drawn from these shares of that bound."""

SIZES_MB, DISTANCES_KM, SEEDS = (1, 16, 256), (10, 200), 5

SCHEMES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("scale-ccl", "scale-ccl", {}),
    ("mtegcca", "mtegcca", {}),
    ("shortest path", "shortest-path", {}),
    ("nccl ring", "nccl-ring", {}),
)

FIGURES = {"varying": f"WAN links that vary by ±{100 * VARY:.0f} %", "failing": "WAN links that fail and come back"}


def unsteady(topology: Topology, workload: Workload, kind: str, seed: int) -> Topology:
    """The network with drawn changes of the links between different sites.

    Args:
        kind: "varying" or "failing".
    """
    rng = np.random.default_rng(seed)
    bound_s = bounds(topology, workload)[0].seconds
    wan = wan_links(topology)
    rows: list[tuple[float, int, float]] = []
    for link in wan.tolist():
        a, b, width = int(topology.src[link]), int(topology.dst[link]), float(topology.bandwidth[link])
        if kind == "varying":
            drawn = width * (1 + VARY * rng.uniform(-1, 1, DRAWS * LASTS))
            rows += [(i * bound_s / DRAWS, link, w) for i, w in enumerate(drawn.tolist())]
        elif a < b:
            at_s, lasts_s = bound_s * rng.uniform(*FAILS_S), bound_s * rng.uniform(*LASTS_S)
            both = [e for e in wan.tolist() if {int(topology.src[e]), int(topology.dst[e])} == {a, b}]
            rows += [row for e in both for row in ((at_s, e, 0.0), (at_s + lasts_s, e, width))]
    return replace(topology, changes=make_changes(rows, topology.link_count))


def wan_links(topology: Topology) -> Int64:
    """int64[n], the links between different sites."""
    sites = np.array(topology.sites)
    a, b = sites[topology.src], sites[topology.dst]
    return np.flatnonzero((a != b) & (a != "") & (b != ""))


def cells(topologies: Sequence[str], buffer_bytes: Callable[[int], int]) -> Iterator[Cell]:
    """AllGather with 4 subchunks, planned with the changes known where a planner heeds them, and without.

    Args:
        topologies: their specs or files.
        buffer_bytes: from the paper's size to bytes.
    """
    for kind, topology, megabytes in product(FIGURES, topologies, SIZES_MB):
        size, figures = buffer_bytes(megabytes), (kind,)
        request = partial(Cell, topology=topology, size_bytes=size, figures=figures, chunks=4, seeds=SEEDS)
        for name, planner, options in SCHEMES:
            ask = partial(request, planner=planner, options=options)
            if planner in ("scale-ccl", "mtegcca"):
                yield ask(f"{name}, changes known", unsteady=Unsteady(kind))
            yield ask(f"{name}, blind", unsteady=Unsteady(kind, known=False))


def tables(rows: Sequence[Row]) -> list[Table]:
    """Completion over the bound of the network that changes, and plans made blind against those that knew."""
    found: list[Table] = []
    for kind, title in FIGURES.items():
        own = [row for row in rows if kind in row["figures"]]
        body: list[tuple[str, ...]] = []
        for scheme, of in grouped(own, lambda r: r["scheme"]).items():
            seeds = [row["by_seed"] for row in of]
            ratio = np.concatenate([np.divide(each["completion_s"], each["bound_s"]) for each in seeds])
            over = (f"{np.median(ratio):.3f}", f"{ratio.max():.3f}")
            body.append((scheme, str(len(ratio)), *over, _against(scheme, of, own)))
        columns = ("scheme", "instances", "completion / bound, median", "worst", "blind / known, mean (worst)")
        if body:
            found.append(Table(f"{title}: 4 subchunks, 1 to 256 MB", columns, body))
    return found


def _against(scheme: str, rows: Sequence[Row], others: Sequence[Row]) -> str:
    """How much longer a scheme takes than the same one that knew of the changes, request by request."""
    name = scheme.removesuffix(", blind")
    knew = {(r["where"], r["size_bytes"]): r for r in others if r["scheme"] == f"{name}, changes known"}
    if name == scheme or not knew:
        return ""
    ratios = np.concatenate([
        np.divide(r["by_seed"]["completion_s"], knew[r["where"], r["size_bytes"]]["by_seed"]["completion_s"])
        for r in rows
    ])  # fmt: skip
    return f"{ratios.mean():.3f} ({ratios.max():.3f})"

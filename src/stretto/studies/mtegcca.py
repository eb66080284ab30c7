"""The evaluation of MTEGCCA's paper, figures 3 to 9, on the same physics for every scheme.

Liu, Wang, Ma, Li, Li, Journal on Communications 2026, section 3: AllGather on NDv2 with two
chassis over sizes (3: time, 4: planning time, 5: bandwidth), on several topologies at 1 GB (6, 7,
8), and MTEGCCA's planning time from 2 to 10 chassis (9). MTEGCCA stands there by our rules and as
the paper prints it. Beside the paper's schemes stand NCCL's ring and shortest paths. Schemes that
solve programs begin, in the short form, from MTEGCCA's number of epochs and stop by counted work;
``--full`` gives TE-CCL its own search and time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..model.topology import Topology
from . import Cell, Figure, Study, published
from .model import NET_S, teccl_cells
from .mtegcca_tables import tables

SIZES = tuple(int(s) for s in (1e3, 4e3, 16e3, 64e3, 256e3, 1e6, 4e6, 16e6, 64e6, 256e6, 1e9))
SHORT = {1000, 64_000, 10**6, 10**9}
"""The sizes of the short form on a network of one's own."""

EFFORT = "15"
"""How much TACCL, and TE-CCL from MTEGCCA's epochs, may try: counted work, in about seconds of CPU."""

TACCL_ENDS = {"dgx1", "dgx2:2", "ndv2:2", "ndv2:4", "amd:1"}
"""Networks on which TACCL's programs end by themselves or by counted work, dgx2:2 with 28 s of CPU as the slowest."""

TACCL_S = 15.0
"""Limit of TACCL on other networks, seconds: HiGHS counts nodes of its search, and the first takes minutes there."""

FULL_S = 7200.0
"""Limit of TE-CCL's own search, seconds."""

TOPOLOGIES = ("dgx1", "dgx2:2", "ndv2:2", "ndv2:4", "amd:1", "amd:2")
QUICK = {("fast", t) for t in ("dgx1", "amd:1")} | {("slow", t) for t in ("dgx1", "amd:1", "dgx2:2")}
LEAST_BYTES = {"fast": 256_000, "slow": 16_000, "early-stop": 256_000}
"""The smallest buffer on ndv2:2 for which TE-CCL's modes have few enough epochs for the short form."""


OURS: tuple[tuple[str, dict[str, str]], ...] = (
    ("mtegcca", {}),
    ("mtegcca as printed", {"rules": "paper"}),
    ("mtegcca as printed, latency neglected", {"rules": "paper", "latency": "neglected"}),
)
"""MTEGCCA by our rules, and as the paper prints it with both conventions for latencies in slots."""

SHIPPED_AMD = "amd:2:teccl"
"""AMD with two chassis as TE-CCL's public code builds it, off by one: figures 6 to 8 have its times."""

CHASSIS = tuple(f"ndv2:{n}" for n in range(2, 11))
"""The networks of figure 9."""


def _cells() -> Iterator[Cell]:
    others = [(topology, SIZES[-1]) for topology in (*TOPOLOGIES, SHIPPED_AMD) if topology != "ndv2:2"]
    for topology, size in [*(("ndv2:2", size) for size in SIZES), *others]:
        over_sizes = topology == "ndv2:2"
        figures = (*("345" if over_sizes else ""), *("678" if size == SIZES[-1] else ""))
        yield from _on(topology, size, figures, over_sizes, size == SIZES[-1] and topology in CHASSIS)
    for topology in CHASSIS:
        if topology not in TOPOLOGIES:
            yield from (Cell(name, topology, SIZES[-1], "mtegcca", ("9",), options=options) for name, options in OURS)


def _on(
    topology: str, size: int, figures: tuple[str, ...], over_sizes: bool, in_9: bool, rest: str = ""
) -> Iterator[Cell]:
    """All schemes on one request.

    Args:
        over_sizes: whether the topology has all sizes.
        in_9: whether figure 9 shows MTEGCCA on it.
        rest: why the short form leaves the request out, if it does.
    """
    for name, options in OURS:
        yield Cell(name, topology, size, "mtegcca", (*figures, *("9" if in_9 else "")), options=options, why_full=rest)
    yield Cell("nccl ring", topology, size, "nccl-ring", figures, why_full=rest)
    yield Cell("shortest path", topology, size, "shortest-path", figures, why_full=rest)
    limit_s = NET_S if topology in TACCL_ENDS else TACCL_S
    yield Cell("taccl", topology, size, "taccl", figures, time_limit_s=limit_s, effort=EFFORT, why_full=rest)
    for mode, least in LEAST_BYTES.items():
        alike = "fast" if mode == "early-stop" else mode
        if over_sizes:
            why = rest or ("hundreds of epochs" if size < least else "")
        else:
            why = (
                ""
                if (alike, topology) in QUICK
                else "minutes to hours of solving; from MTEGCCA's epochs up to a minute"
            )
        cell = Cell(f"teccl {mode}", topology, size, "teccl", figures, options={"mode": mode}, why_full=why)
        yield from teccl_cells(cell, EFFORT, FULL_S, "2 h")


def _figures(over: str) -> tuple[Figure, ...]:
    """Figures 3 to 9; the first three are on one network, whose name is given."""
    return (
        Figure("3", f"Figure 3: completion on {over}", "size_bytes", "completion_s"),
        Figure("4", f"Figure 4: planning on {over}", "size_bytes", "planning_cpu_s"),
        Figure("5", f"Figure 5: algorithm bandwidth on {over}", "size_bytes", "algorithm_bandwidth"),
        Figure("6", "Figure 6: completion of 1 GB", "topology", "completion_s"),
        Figure("7", "Figure 7: planning for 1 GB", "topology", "planning_cpu_s"),
        Figure("8", "Figure 8: algorithm bandwidth of 1 GB", "topology", "algorithm_bandwidth"),
        Figure("9", "Figure 9: MTEGCCA's planning over chassis", "topology", "planning_cpu_s"),
    )


def study_on(topology: str, net: Topology) -> Study:
    """The same schemes, sizes and figures on one network, by its spec or file."""
    cells: list[Cell] = []
    for size in SIZES:
        last = size == SIZES[-1]
        rest = "" if size in SHORT else f"the short form has {len(SHORT)} of the {len(SIZES)} sizes"
        cells += _on(topology, size, (*"345", *("678" if last else "")), True, last, rest)
    return replace(STUDY, cells=cells, figures=_figures(net.name))


STUDY = Study(
    name="mtegcca",
    title="AllGather by MTEGCCA, TE-CCL, TACCL, NCCL's ring and shortest paths",
    paper="Liu et al., Journal on Communications 2026, section 3, figures 3 to 9",
    cells=tuple(_cells()),
    figures=_figures("NDv2, 2 chassis"),
    published=published("mtegcca"),
    tables=tables,
    notes=(
        "Published TE-CCL results for ndv2:2 are for 15 ranks: the public code makes GPU 0 a switch (ndv2:2:teccl).",
        "Published DGX2 early-stop results move twice the data of fast and slow.",
        "Published planning times are of another machine, with Gurobi; ours are HiGHS and CP-SAT, CPU seconds here.",
        "MTEGCCA as printed: nearest tree, whole slots, rank order, a latency of ceil(alpha / slot) slots.",
        "Latency neglected: one of up to a tenth of a slot takes no slot, as in figure 2 and in TE-CCL's code.",
        "A scheme's own time (reported) is epochs x epoch or slots x slot; what it takes is what the simulator says.",
    ),
)

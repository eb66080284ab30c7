"""The evaluation of SCALE-CCL's paper on the same physics for every scheme.

Xiong et al., INET4AI 2025, section 5: AllGather among 12 GPUs in datacenters joined by a WAN.
Planning at 150 km over sizes and subchunks (table 1), completion over sizes by WAN delay (figure 9)
and by subchunks (figure 10), and the runs that the paper mentions without showing (connectivity 0.7
and 0.9, 10 to 200 km). Beside them WANs whose links change (:mod:`.unsteady`).
The paper does not give its node counts. Three sites of four GPUs with one router
each are the simplest arrangement that fits its numbers (docs: planners/scale-ccl). In the short form TE-CCL
starts from SCALE-CCL's number of epochs, with up to 8 subchunks, and with one subchunk from MTEGCCA's, in counted
work; the full form gives it its own search and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from ..model.topology import Topology
from . import Cell, Figure, Study, published, scale_ccl_tables, unsteady
from .model import Row, Table, teccl_cells

RANKS = 12
SIZES_MB = (1, 4, 16, 64, 256)
SUBCHUNKS = (1, 2, 4, 8)
DISTANCES_KM = (10, 50, 100, 150, 200)
CONNECTIVITIES = (0.5, 0.7, 0.9)
EFFORT = "8"
"""How much TE-CCL may try from MTEGCCA's epochs: counted work, in about seconds of CPU."""

FULL_S = 1800.0
"""Limit of TE-CCL's own search, seconds."""

QUICK: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("scale-ccl", "scale-ccl", {}),
    ("scale-ccl, paper's rules", "scale-ccl", {"rules": "paper"}),
    ("shortest path", "shortest-path", {}),
    ("nccl ring", "nccl-ring", {}),
)


def topology_of(connectivity: float, km: int) -> str:
    """The spec of the study's arrangement."""
    return f"sites:3,4?connectivity={connectivity}&km={km}"


def buffer_bytes(megabytes: int, ranks: int = RANKS) -> int:
    """The full buffer for the paper's size of one GPU; the paper's MB are 10^9 / 1024 bytes."""
    return ranks * (megabytes * 10**9 // 1024)


def _figures(connectivity: float, km: int, chunks: int) -> tuple[str, ...]:
    """The figures that show a request."""
    shown = [f"every run, {connectivity}"]
    if connectivity == 0.5:
        shown += [f"table 1, {chunks}"] * (km == 150)
        shown += [f"9, {km} km"] * (chunks == 1)
        shown += [f"10, {chunks}"] * (km == 100 and chunks <= 4)
    return tuple(shown)


def _cells() -> list[Cell]:
    cells: list[Cell] = []
    for connectivity, km, chunks, megabytes in product(CONNECTIVITIES, DISTANCES_KM, SUBCHUNKS, SIZES_MB):
        figures = _figures(connectivity, km, chunks)
        cells += _on(topology_of(connectivity, km), buffer_bytes(megabytes), figures, chunks)
    return [*cells, *unsteady.cells([topology_of(0.5, km) for km in unsteady.DISTANCES_KM], buffer_bytes)]


def _on(topology: str, size: int, figures: tuple[str, ...], chunks: int) -> list[Cell]:
    """All schemes on one request."""
    request = partial(Cell, topology=topology, size_bytes=size, figures=figures, chunks=chunks)
    cells = [request(name, planner=planner, options=options) for name, planner, options in QUICK]
    for mode in ("fast", "slow") if len(figures) > 1 else ():
        cell = request(f"teccl {mode}", planner="teccl", options={"mode": mode})
        searches, from_mtegcca = teccl_cells(cell, EFFORT, FULL_S, "half an hour")
        # in the short form from MTEGCCA's epochs, where the counted work suffices
        cells += [searches, from_mtegcca] if chunks == 1 else [searches]
        start = {**cell.options, "epochs": "from-scale-ccl"}
        if mode == "slow" or chunks < 8:  # fast epochs of small parts are many: their program takes half a minute
            cells.append(replace(cell, scheme=f"teccl {mode}, from SCALE-CCL", options=start, effort="normal"))
    return cells


def _subchunks(count: int) -> str:
    return f"{count} subchunk{'s' if count > 1 else ''}"


def _tables(rows: Sequence[Row]) -> list[Table]:
    """The gap to TE-CCL, and networks that change."""
    return [*scale_ccl_tables.tables(rows), *unsteady.tables(rows)]


STUDY = Study(
    name="scale-ccl",
    title="AllGather across datacenters by SCALE-CCL, TE-CCL, shortest paths and NCCL's ring",
    paper="Xiong et al., INET4AI 2025, section 5, table 1 and figures 9 and 10",
    cells=_cells(),
    figures=(
        *(Figure(f"table 1, {n}", f"Table 1: planning, {_subchunks(n)}, 150 km", "size_bytes", "planning_cpu_s")
          for n in SUBCHUNKS),
        *(Figure(f"9, {km} km", f"Figure 9: completion over {km} km, 1 subchunk", "size_bytes", "completion_s")
          for km in DISTANCES_KM),
        *(Figure(f"10, {n}", f"Figure 10: completion with {_subchunks(n)}, 100 km", "size_bytes", "completion_s")
          for n in SUBCHUNKS if n <= 4),
        *(Figure(f"every run, {c}", f"Every run at connectivity {c}", "scheme", "completion_over_bound")
          for c in CONNECTIVITIES),
        *(Figure(kind, f"{title}, 4 subchunks", "size_bytes", "completion_over_bound", ("scheme", "where"))
          for kind, title in unsteady.FIGURES.items()),
    ),
    tables=_tables,
    published=published("scale_ccl", _cells()),
    warm_up=[
        Cell(name, "sites:8,16", 128 * 10**6, planner, (), chunks=4, options=options)
        for name, planner, options in QUICK[:3]
    ],
    notes=(
        "The paper does not give its node counts; its numbers are for an arrangement that is not known.",
        "The paper's MB are 10^9 / 1024 bytes, a buffer is that of all GPUs.",
        "Routers cut through in TE-CCL's program, too. It reports whole epochs; its completion is simulated.",
        "Published planning times are of another machine; ours are CPU seconds of a warm process.",
    ),
)  # fmt: skip


def study_on(topology: str, net: Topology) -> Study:
    """The same schemes, sizes and figures on one network, by its spec or file; links between sites change, where it has
    some."""
    buffer = partial(buffer_bytes, ranks=len(net.accelerators))
    cells: list[Cell] = []
    for chunks, megabytes in product(SUBCHUNKS, SIZES_MB):
        figures = (f"table 1, {chunks}", *(["9"] if chunks == 1 else []), *([f"10, {chunks}"] if chunks <= 4 else []))
        cells += _on(topology, buffer(megabytes), (*figures, "every run"), chunks)
    if len(unsteady.wan_links(net)):
        cells += unsteady.cells([topology], buffer)
    return replace(
        STUDY,
        cells=cells,
        figures=(
            *(Figure(f"table 1, {n}", f"Table 1: planning, {_subchunks(n)}", "size_bytes", "planning_cpu_s")
              for n in SUBCHUNKS),
            Figure("9", "Figure 9: completion, 1 subchunk", "size_bytes", "completion_s"),
            *(Figure(f"10, {n}", f"Figure 10: completion with {_subchunks(n)}", "size_bytes", "completion_s")
              for n in SUBCHUNKS if n <= 4),
            Figure("every run", "Every run", "scheme", "completion_over_bound"),
            *(f for f in STUDY.figures if f.name in unsteady.FIGURES),
        ),
        notes=STUDY.notes[1:],
    )  # fmt: skip

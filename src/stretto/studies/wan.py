"""The evaluation of the WAN paper: which scheme shares one WAN best, by mean completion over seeds.

Wang, Craps, Li, "Optimizing Wide-Area Collective Communication via Flow-Dependency-Aware Rate
Allocation", section IV, over its generator: Abilene under 2 to 8 AllReduces (figure 4), five other
networks (5), against TE-CCL over sizes (6 and 7), rings of 10 to 40 nodes (8, simulated and with real bytes), and
bandwidths that vary, which the paper argues for but does not show. TCP's own sharing and ``wan`` are added
to the paper's schemes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..model.topology import Topology
from . import Cell, Figure, Shared, Study, published, wan_examples
from .emulated import run_emulated
from .model import teccl_cells
from .wan_tables import tables

SEEDS = 5
CHUNK = 5_000_000
"""Average bytes of a chunk (section IV-B)."""

OTHERS = {"zoo:Arpanet": 4, "zoo:Cesnet": 10, "zoo:Gblnet": 8, "zoo:HiberniaIreland": 8, "zoo:Napnet": 6}
"""The networks of figure 5 and the number of ranks on each."""

CONSERVING = {"reading": "work-conserving"}
RESERVING = ("equal-alloc", "data-aware", "weight-alloc", "rate-alloc")
SEARCHED = ("multiring", "non-concurrent")
SCHEMES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((name, name, {}) for name in ("out-of-order", "barrier-aware", *RESERVING, "multiring")),
    *((f"{name}, conserving", name, CONSERVING) for name in RESERVING),
    ("ring (FIFO)", "ring", {}),
    *((name, name, {}) for name in ("non-concurrent", "tcp-fair", "wan")),
)
"""Schemes: the name in figures, the planner, its options."""

AGAINST_TECCL = ("multiring", "rate-alloc", "weight-alloc", "tcp-fair", "wan")
VARIED = tuple(name for name, planner, _ in SCHEMES if planner not in (*SEARCHED, "ring"))

MOST_RANKS = 12
"""The most ranks for which schedules are searched; with more they are greedy."""

EMULATED = (*(name for name, _, _ in SCHEMES[:7]), "tcp-fair")
"""Schemes that run with real bytes: the seven of figure 8, and the TCP of this machine."""

EMULATED_SCALE = 1 / 400
"""Sizes of emulated flows over those of the paper: an emulation moves each byte over every link of its route."""

SEARCH_WORK, FULL_SEARCH_WORK = 0.5, 30.0
"""Work of the solvers of schedules, in units of about a second: in the short form and in the full one."""

TECCL_EFFORT = "2.5"
"""How much TE-CCL may try from MTEGCCA's epochs: about 5 s, as two different collectives have twice the effort."""

FULL_TECCL_S = 600.0
"""Limit of TE-CCL's own search, seconds."""


def _cell(
    scheme: str, topology: str, nodes: int, planner: str, shared: Shared, figures: tuple[str, ...], why_full: str,
    options: Mapping[str, Any] | None = None,
) -> Cell:  # fmt: skip
    size = round(CHUNK * (shared.ranks or nodes) * shared.scale)
    return Cell(scheme, topology, size, planner, figures, "allreduce", options=options or {}, shared=shared,
                seeds=SEEDS, why_full=why_full)  # fmt: skip


def _all(
    topology: str, nodes: int, shared: Shared, figures: tuple[str, ...], why_full: str, names: tuple[str, ...] = ()
) -> Iterator[Cell]:
    """The schemes on one generated workload; searching schemes also with more time."""
    for name, planner, options in SCHEMES:
        if names and name not in names:
            continue
        cell = _cell(name, topology, nodes, planner, shared, figures, why_full, options)
        if planner not in SEARCHED:
            yield cell
        elif nodes > MOST_RANKS:
            greedy = {"inside": "downstream"} if planner == "multiring" else {"solver": "greedy"}
            yield replace(cell, options=options | greedy | {"solver_work": SEARCH_WORK})
        else:
            yield replace(cell, options=options | {"solver_work": SEARCH_WORK})
            yield replace(cell, scheme=f"{name}, {FULL_SEARCH_WORK:.0f} s",
                          options=options | {"solver_work": FULL_SEARCH_WORK},
                          why_full=f"searches for about {FULL_SEARCH_WORK:.0f} s an instance")  # fmt: skip


def _with_other_routes(topology: str, nodes: int, shared: Shared, why_full: str) -> Iterator[Cell]:
    """TE-CCL in both modes, and ``wan`` with routes that SCALE-CCL chooses."""
    for figure, mode in (("6", "fast"), ("7", "slow")):
        cell = _cell(f"teccl {mode}", topology, nodes, "teccl", shared, (figure,), why_full, {"mode": mode})
        yield from reversed(teccl_cells(cell, TECCL_EFFORT, FULL_TECCL_S, "10 minutes an instance"))
    yield _cell("wan, SCALE-CCL's routes", topology, nodes, "scale-ccl+wan", shared, ("6", "7"), why_full)


def _emulated(topology: str, nodes: int, own_links: bool = False) -> Iterator[Cell]:
    """Figure 8 as the paper runs it: four collectives between network namespaces, five repeats."""
    why = "" if nodes <= 10 and not own_links else "a quarter of an hour and more for each network"
    shared = Shared(4, scale=EMULATED_SCALE, own_links=own_links)
    for cell in _all(topology, nodes, shared, ("8e",), why, EMULATED):
        if "solver_work" not in cell.options or cell.options["solver_work"] < FULL_SEARCH_WORK:
            yield replace(cell, emulated=True, run=run_emulated)


def _cells() -> Iterator[Cell]:
    yield from wan_examples.cells(SEEDS)
    for k in range(2, 9):
        why = "" if k in (2, 5, 8) else "the short form has K = 2, 5, 8"
        yield from _all("zoo:Abilene", 11, Shared(k), ("4",), why)
        yield from _all("zoo:Abilene", 11, Shared(k, ranks=4), ("4b",), why)
    for topology, nodes in OTHERS.items():
        yield from _all(topology, nodes, Shared(4), ("5",), "")
    for scale in (0.1, 1.0, 10.0, 100.0):
        shared = Shared(2, scale=scale)
        why = "" if scale in (0.1, 10.0) else "times are proportional to sizes: the short form has 2 of 4"
        yield from _all("zoo:Abilene", 11, shared, ("6", "7"), why, AGAINST_TECCL)
        yield from _with_other_routes("zoo:Abilene", 11, shared, why)
    for n in (10, 20, 30, 40):
        yield from _all(f"ring:{n}", n, Shared(4), ("8",), "" if n <= 20 else "thousands of flows")
    for n in (10, 20, 30, 40):
        yield from _emulated(f"ring:{n}", n)
    for amount in (0.1, 0.2, 0.3, 0.4, 0.5):
        why = "" if amount in (0.1, 0.3, 0.5) else "the short form varies by 10, 30 and 50 %"
        yield from _all("zoo:Abilene", 11, Shared(4, varying=amount), ("varying",), why, VARIED)


def _warm_up() -> Iterator[Cell]:
    """Every scheme, and greedy schedules of thousands of flows: solvers are imported and kernels compiled."""
    yield from _all("zoo:Arpanet", 4, Shared(2), (), "")
    yield from _all("ring:40", 40, Shared(4), (), "", SEARCHED)


STUDY = Study(
    name="wan",
    title="AllReduces that share a WAN: static schemes, TCP's sharing, TE-CCL, and wan",
    paper="Wang, Craps, Li, Optimizing Wide-Area Collective Communication via Flow-Dependency-Aware Rate Allocation, "
    "section IV, figures 4 to 8",
    cells=tuple(_cells()),
    figures=(
        Figure("4", "Figure 4: Abilene, over concurrent collectives", "collectives", "over_baseline"),
        Figure("4b", "As figure 4, 4 nodes drawn for each collective", "collectives", "over_baseline"),
        Figure("5", "Figure 5: five other networks, 4 collectives", "topology", "over_baseline"),
        Figure("6", "Figure 6: against TE-CCL fast, Abilene, 2 collectives", "size_bytes", "completion_s"),
        Figure("7", "Figure 7: against TE-CCL slow, Abilene, 2 collectives", "size_bytes", "completion_s"),
        Figure("8", "Figure 8: rings, 4 collectives, simulated", "topology", "over_baseline"),
        Figure("8e", "Figure 8 with real bytes: rings, 4 collectives, emulated", "topology", "completion_s"),
        Figure("varying", "Bandwidths that vary, Abilene, 4 collectives", "varying", "slowdown"),
    ),
    published=published("wan"),
    baseline="tcp-fair",
    warm_up=[replace(cell, seeds=1) for cell in _warm_up() if not cell.why_full],
    tables=tables,
    notes=(
        "A completion is the mean over collectives (eq. 13), then over 5 seeds; spreads are standard deviations.",
        "The paper gives its figures as bars without numbers: its trends stand beside ours, not its values.",
        "Figure 8 is simulated; with --emulate it is run with real bytes too, as in the paper, sizes divided by 400.",
        "The lower bound holds for these routes, however they are shared; TE-CCL and SCALE-CCL choose their own.",
        "wan / bound is certified for any sharing of the routes, flows put aside or at any rates included.",
        "TE-CCL's own time (reported) is the sum of both phases' epochs.",
        "Reserved shares (the paper's reading) stay their group's, used or not; conserving ones are shared when idle.",
    ),
)


def study_on(topology: str, net: Topology) -> Study:
    """The same schemes, sizes and figures on one network, by its spec or file, whose links keep their bandwidths and
    latencies: only the collectives are drawn."""
    nodes = len(net.accelerators)
    large = f"thousands of flows among {nodes} ranks" if nodes > 20 else ""
    cells: list[Cell] = []
    for k in range(2, 9):
        why = "the short form has K = 2, 4, 8" if k not in (2, 4, 8) else large if k > 2 else ""
        figures = ("4", *(["5", "8"] if k == 4 else []))
        cells += _all(topology, nodes, Shared(k, own_links=True), figures, why)
        if nodes > 4:
            cells += _all(topology, nodes, Shared(k, ranks=4, own_links=True), ("4b",), why)
    for scale in (0.1, 1.0, 10.0, 100.0):
        shared = Shared(2, scale=scale, own_links=True)
        why = "the short form has 2 of 4 sizes" if scale in (1.0, 100.0) else large
        cells += _all(topology, nodes, shared, ("6", "7"), why, AGAINST_TECCL)
        cells += _with_other_routes(topology, nodes, shared, why)
    cells += _emulated(topology, nodes, own_links=True)
    for amount in (0.1, 0.2, 0.3, 0.4, 0.5):
        why = "the short form varies by 10, 30 and 50 %" if amount in (0.2, 0.4) else large
        cells += _all(topology, nodes, Shared(4, varying=amount, own_links=True), ("varying",), why, VARIED)
    titles = {
        "4": "Figure 4: over concurrent collectives",
        "4b": "As figure 4, 4 nodes drawn for each collective",
        "5": "Figure 5: 4 collectives",
        "6": "Figure 6: against TE-CCL fast, 2 collectives",
        "7": "Figure 7: against TE-CCL slow, 2 collectives",
        "8": "Figure 8: 4 collectives, simulated",
        "8e": "Figure 8 with real bytes: 4 collectives, emulated",
        "varying": "Bandwidths that vary, 4 collectives",
    }
    return replace(
        STUDY, cells=cells, figures=[replace(f, title=titles[f.name]) for f in STUDY.figures if f.name in titles]
    )

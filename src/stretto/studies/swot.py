"""The evaluation of SWOT's paper, figures 7 to 11, the what-if and the break-even size.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks",
section 4: algorithms over sizes (7), over ranks (8), the best algorithm of each scheme (9), over
planes (10) and over reconfiguration times (11). A cell of up to 16 ranks is a plan, verified and
simulated. A larger cell only schedules the steps and does not build their hundreds of thousands of
transfers; the full form builds some of these plans too. Volumes are the true ones, except in figure 7c,
where Bruck sends the whole buffer in each step, as the paper's Bruck does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from ..model.topology import Topology
from ..planners.optical.baselines import ideal, one_shot, strawman
from ..planners.optical.bound import lower_bound
from ..planners.optical.instance import FREE, Instance, completion, make_instance
from ..planners.optical.search import find_schedule
from ..planners.optical.swot import ALONE
from ..schedule.algorithms import ALGORITHMS
from ..schedule.pairings import demands
from ..topologies import load_topology
from . import Cell, Figure, Row, Study, published, run_cell
from .cell import request_columns
from .swot_tables import tables

MB = 10**6
SIZES = tuple(125_000 * 2**i for i in range(13))
SWEEP = {2 * MB, 32 * MB, 512 * MB}
SHORT = {125_000, 250_000, 500_000, 2 * MB, 16 * MB, 32 * MB, 512 * MB}
SCHEMES = ("swot", "one-shot", "strawman-icr", "ideal")
ON_BASELINES = "swot, baseline's algorithm"
"""SWOT on the algorithm with which the better of one-shot and strawman ends first, as section 4.2.3 has it."""
PRIMITIVE_SCHEMES = ("swot", ON_BASELINES, *SCHEMES[1:])
"""The schemes of figure 9, where no algorithm is given."""
PLANNED_RANKS = 16

# --- a cell as a schedule -----------------------------------------------------------------------


def one_shot_s(instance: Instance) -> float | None:
    """Completion of one-shot, seconds; None if one-shot is impossible."""
    share = one_shot(instance)
    return None if share is None else completion(instance, share)


TIMES: dict[str, Callable[[Instance], float | None]] = {
    "swot": lambda instance: completion(instance, find_schedule(instance)),
    ON_BASELINES: lambda instance: completion(instance, find_schedule(instance)),
    "one-shot": one_shot_s,
    "strawman-icr": lambda instance: completion(instance, strawman(instance)),
    "ideal": ideal,
}
"""The completion of each scheme, seconds."""

_demands = cache(lambda name, kind, ranks, size: demands(ALGORITHMS[name], kind, ranks, size))


def instance_for(topology: Topology, algorithm: str, kind: str, size_bytes: float, volumes: str = "true") -> Instance:
    """The steps of an algorithm on planes that join nothing at first, with the true or the paper's ``volumes``."""
    part, matching = _demands(algorithm, kind, len(topology.accelerators), round(size_bytes))
    if volumes == "paper" and algorithm == "bruck":
        part = part * 0 + 1.0
    planes = topology.planes
    widths, latencies, turns = zip(*((p.bandwidth, p.latency_s, p.reconfiguration_s) for p in planes), strict=True)
    return make_instance(part * size_bytes, matching, widths, latencies, turns, FREE)


class Comparison(NamedTuple):
    """What the cells of one request share, whatever their schemes."""

    instances: dict[str, Instance]  # the steps of each algorithm that may be used
    completions_s: dict[str, dict[str, float]]  # of the schemes besides SWOT, by scheme and algorithm
    bound_s: float  # for these algorithms


def comparison(cell: Cell) -> Comparison:
    """The algorithms that a cell may use, with ideal, the baselines and the bound."""
    named, _, scheme = cell.planner.partition("+")
    volumes = cell.options.get("volumes", "true")
    return _comparison(cell.topology, named if scheme else "", cell.collective, cell.size_bytes, volumes)


@lru_cache(maxsize=16)  # the schemes of a request follow each other
def _comparison(spec: str, named: str, kind: str, size_bytes: float, volumes: str) -> Comparison:
    topology = load_topology(spec)
    instances = {
        name: instance_for(topology, name, kind, size_bytes, volumes)
        for name in ([named] if named else ALONE)
        if kind in ALGORITHMS[name].kinds and ALGORITHMS[name].serves(kind, len(topology.accelerators)) is None
    }
    timed = {scheme: {name: TIMES[scheme](steps) for name, steps in instances.items()} for scheme in SCHEMES[1:]}
    completions_s = {
        scheme: {name: seconds for name, seconds in times.items() if seconds is not None}
        for scheme, times in timed.items()
    }
    return Comparison(instances, completions_s, min(map(lower_bound, instances.values())))


def best_of_baselines(request: Comparison) -> str:
    """The algorithm with which the better of one-shot and strawman ends first."""
    ends = [end for scheme in ("one-shot", "strawman-icr") for end in request.completions_s[scheme].items()]
    return min(ends, key=lambda end: end[1])[0]


def comparison_columns(cell: Cell, algorithm: str, completion_s: float) -> Row:
    """The completion of a cell compared with ideal and the baselines, each with its own best algorithm."""
    request = comparison(cell)
    ideal_s, strawman_s = (min(request.completions_s[scheme].values()) for scheme in ("ideal", "strawman-icr"))
    one_shot_s = min(request.completions_s["one-shot"].values(), default=None)
    bound_s = min(completion_s, request.bound_s) if cell.contends else ideal_s
    topology = load_topology(cell.topology)
    return {
        "ranks": len(topology.accelerators),
        "planes": len(topology.planes),
        "turn_s": topology.planes[0].reconfiguration_s,
        "algorithm": algorithm,
        "sent_bytes": float(request.instances[algorithm].volume.sum()),  # by each rank
        "ideal_s": ideal_s,
        "strawman_s": strawman_s,
        "one_shot_s": one_shot_s,
        "less_than_strawman": 1 - completion_s / strawman_s,
        "less_than_one_shot": None if one_shot_s is None else 1 - completion_s / one_shot_s,
        "less_than_better": 1 - completion_s / min(strawman_s, one_shot_s or strawman_s),
        "overhead": 1 - ideal_s / completion_s,
        "bound_s": bound_s,
        "completion_over_bound": completion_s / bound_s,
    }


def scheduled_row(cell: Cell, seed: int = 0) -> Row:
    """The row of a cell whose steps are scheduled without building transfers."""
    row = request_columns(cell)
    request = comparison(cell)
    wall, cpu = time.perf_counter(), time.process_time()
    tried = [best_of_baselines(request)] if cell.scheme == ON_BASELINES else list(request.instances)
    times = {name: TIMES[cell.scheme](request.instances[name]) for name in tried}
    spent = {"planning_s": time.perf_counter() - wall, "planning_cpu_s": time.process_time() - cpu}
    possible = {name: seconds for name, seconds in times.items() if seconds is not None}
    if not possible:
        least = min(len(np.unique(steps.matching)) for steps in request.instances.values())
        planes = len(load_topology(cell.topology).planes)
        why = f"{cell.scheme} needs a plane for each of the {least} matchings, and there are {planes}"
        return row | spent | {"cannot": why}
    algorithm = min(possible, key=lambda name: possible[name])
    done = possible[algorithm]
    return row | spent | comparison_columns(cell, algorithm, done) | {
        "completion_s": done, "reported_s": done,
        "algorithm_bandwidth": cell.size_bytes / done, "proven": None, "verified": False,
    }  # fmt: skip


def planned_row(cell: Cell, seed: int = 0) -> Row:
    """The row of a cell that is planned, verified and simulated."""
    row = run_cell(cell, seed)
    return row | comparison_columns(cell, cell.planner.partition("+")[0], row["completion_s"])


# --- the cells ----------------------------------------------------------------------------------


def _cell(
    planner: str, collective: str, setting: str, size: int, figures: Iterable[str], volumes: str = "",
    why_full: str = "",
) -> Cell:  # fmt: skip
    """A cell on ranks and planes as the paper has them, such as "256,8"."""
    ranks = int(setting.partition(",")[0])
    return _cell_on(f"optical:{setting}", ranks, planner, collective, size, figures, volumes, why_full)


def _cell_on(
    topology: str, ranks: int, planner: str, collective: str, size: int, figures: Iterable[str], volumes: str = "",
    why_full: str = "",
) -> Cell:  # fmt: skip
    scheme = planner.rpartition("+")[2]
    few = ranks <= PLANNED_RANKS and "+" in planner and not volumes
    return Cell(
        scheme, topology, size, planner, tuple(figures), collective=collective,
        options={"volumes": volumes} if volumes else {}, contends=scheme != "ideal" and not volumes,
        why_full=why_full, run=planned_row if few else scheduled_row,
    )  # fmt: skip


def _short(size: int, short: AbstractSet[int] = SHORT) -> str:
    return "" if size in short else f"the short form has {len(short)} of the {len(SIZES)} sizes"


ALGORITHMIC = {
    "7a": ("rabenseifner", "reducescatter", ("256,8", "16,4"), "", "ReduceScatter by halving"),
    "7b": ("rabenseifner", "allreduce", ("256,8", "16,4"), "", "AllReduce by halving and doubling"),
    "7c": ("bruck", "alltoall", ("256,8", "16,4"), "paper", "Bruck, the paper's volumes"),
    "7d": ("pairwise", "alltoall", ("9,8", "5,4"), "", "pairwise AllToAll"),
}
"""Figure 7: algorithm, collective, the settings drawn and searched for maxima, volumes, title. Figures 10 and 11 have
the same algorithms and collectives."""


PRIMITIVES = {
    "9a": ("alltoall", "256,8", ""),
    "9a-paper": ("alltoall", "256,8", "paper"),
    "9a-small": ("alltoall", "9,8", ""),
    "9b": ("allreduce", "256,8", ""),
}
"""Figure 9: collective, ranks and planes, volumes."""


def _buffer(algorithm: str, ranks: int, sent: int) -> int:
    """The full buffer for a size of the paper; its pairwise AllToAll does not count the part that a rank keeps."""
    return round(sent / (ranks - 1)) * ranks if algorithm == "pairwise" else sent


def _over_sizes() -> list[Cell]:
    """Figures 7 and 9."""
    cells = []
    for size in SIZES:
        for figure, (algorithm, kind, settings, volumes, _) in ALGORITHMIC.items():
            for setting, name in zip(settings, (figure, f"{figure}-small"), strict=True):
                buffer = _buffer(algorithm, int(setting.partition(",")[0]), size)
                cells += [
                    _cell(f"{algorithm}+{scheme}", kind, setting, buffer, (name,), volumes, _short(size))
                    for scheme in SCHEMES
                ]
        cells += [
            _primitive_cell(scheme, kind, f"optical:{setting}", size, figure, volumes)
            for figure, (kind, setting, volumes) in PRIMITIVES.items()
            for scheme in PRIMITIVE_SCHEMES
        ]
    return cells


def _primitive_cell(scheme: str, kind: str, topology: str, size: int, figure: str, volumes: str = "") -> Cell:
    """A scheme of figure 9; it has no algorithm of its own."""
    planner = "swot" if scheme == ON_BASELINES else scheme
    cell = _cell_on(topology, 0, planner, kind, size, (figure,), volumes, _short(size))
    return replace(cell, scheme=scheme)


def _over_ranks() -> list[Cell]:
    """Figure 8: 32 MB, 4 planes."""
    counts = {"rabenseifner": [2**i for i in range(2, 11)], "pairwise": range(4, 15)}
    short = {4, 5, 10, 14, 16, 64, 256, 512, 1024}
    return [
        _cell(
            f"{algorithm}+{scheme}", kind, f"{ranks},4", _buffer(algorithm, ranks, 32 * MB), (figure,),
            why_full="" if ranks in short else "the short form has fewer numbers of ranks",
        )
        for figure, algorithm, kind in (("8a", "rabenseifner", "allreduce"), ("8b", "pairwise", "alltoall"))
        for ranks in counts[algorithm]
        for scheme in SCHEMES
    ]  # fmt: skip


def _over_switches() -> list[Cell]:
    """Figures 10 and 11, and the what-if over both at 32 MB."""
    cells: dict[tuple[str, str, str, int], tuple[str, ...]] = {}
    for algorithm, kind, *_ in ALGORITHMIC.values():
        for size in SIZES:
            for planes in (2, 4, 8):
                cells[algorithm, kind, f"256,{planes}", size] = ("10",)
            cells[algorithm, kind, "256,4", size] += ("11",)
            for turn in ("20us", "2ms", "20ms"):
                cells[algorithm, kind, f"256,4?reconfiguration={turn}", size] = ("11",)
        for planes in (2, 4, 8):
            for turn in ("", "?reconfiguration=20us", "?reconfiguration=2ms", "?reconfiguration=20ms"):
                key = algorithm, kind, f"256,{planes}{turn}", 32 * MB
                cells[key] = (*cells.get(key, ()), "what-if")
    return [
        _cell(f"{algorithm}+swot", kind, setting, size, figures, why_full=_short(size, SWEEP))
        for (algorithm, kind, setting, size), figures in cells.items()
    ]


def _worked_example() -> list[Cell]:
    """Section 3.1 and figure 5."""
    spec = "optical:8,2?initial=xor1&latency=0us"
    return [
        replace(_cell_on(spec, 8, f"rabenseifner+{scheme}", "allreduce", 40 * MB, ("5",)), run=planned_row)
        for scheme in ("swot", "strawman-icr")
    ]


def _as_plans() -> list[Cell]:
    """Large cells of figures 7 and 10 as plans, in no figure, since the schedules are drawn there."""
    why = "a plan of hundreds of thousands of transfers"
    requests = (
        ("rabenseifner+swot", "reducescatter"),
        ("rabenseifner+swot", "allreduce"),
        ("pairwise+swot", "alltoall"),
    )
    return [
        replace(_cell(planner, kind, "256,8", size, ("as plans",), why_full=why), run=planned_row)
        for (planner, kind), size in product(requests, sorted(SWEEP))
    ]


def break_even(row: Row, low: float, high: float) -> float:
    """The buffer size, bytes, below which no turn of a plane pays for a row's algorithm; by bisection, to 5 %.

    Args:
        low, high: two sizes: turning does not pay at the first, and pays at the second.
    """
    topology, volumes = load_topology(row["topology"]), row["options"].get("volumes", "true")
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        instance = instance_for(topology, row["algorithm"], row["collective"], middle, volumes)
        still = one_shot_s(instance)
        pays = still is None or completion(instance, find_schedule(instance)) < still * (1 - 1e-6)
        low, high = (low, middle) if pays else (middle, high)
    return high


STUDY = Study(
    name="swot",
    title="SWOT, one-shot, strawman-ICR and ideal on optical planes",
    paper="Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks, section 4",
    cells=[*_worked_example(), *_over_sizes(), *_over_ranks(), *_over_switches(), *_as_plans()],
    figures=(
        *(Figure(f"{f}{suffix}", f"{words} {f}: {title}, ranks/planes {settings[i].replace(',', '/')}", "size_bytes",
                 "completion_s")
          for i, (suffix, words) in enumerate((("", "Figure"), ("-small", "As figure")))
          for f, (_, _, settings, _, title) in ALGORITHMIC.items()),
        Figure("8a", "Figure 8a: AllReduce of 32 MB by halving and doubling, 4 planes", "ranks", "completion_s"),
        Figure("8b", "Figure 8b: pairwise AllToAll of 32 MB, 4 planes", "ranks", "completion_s"),
        Figure("9a", "Figure 9a: AllToAll, the best algorithm of each scheme, 256/8", "size_bytes", "completion_s"),
        Figure("9a-paper", "As figure 9a, 256/8, Bruck with the paper's volumes", "size_bytes", "completion_s"),
        Figure("9a-small", "Figure 9a: AllToAll, 9/8", "size_bytes", "completion_s"),
        Figure("9b", "Figure 9b: AllReduce, the best algorithm of each scheme, 256/8", "size_bytes", "completion_s"),
        Figure("10", "Figure 10: less time than strawman-ICR, 256 ranks", "size_bytes", "less_than_strawman",
               ("algorithm", "collective", "planes"), ratio=True),
        Figure("11", "Figure 11: overhead of turning, 256 ranks, 4 planes", "size_bytes", "overhead",
               ("algorithm", "collective", "turn_s"), ratio=True),
    ),
    published=published("swot"),
    notes=(
        "800 Gbps a node over all planes, 20 us a transmission, 200 us a turn, planes free at first.",
        "Verified rows are plans; the others are schedules of the same steps, to which tests hold plans.",
        "The bound is that of the steps: no schedule of the same steps with barriers beats it.",
        "Figure 7c has the paper's volumes for Bruck, about twice the true ones; all others are true.",
        "In figures 7d and 8b a rank sends as much as in the paper; the buffer, with what it keeps, is larger.",
        "Figure 9: each scheme has its best algorithm. The ideal turns in no time and does not contend.",
        "Figure 9, as section 4.2.3 has it: SWOT on the algorithm with which the better baseline ends first.",
    ),
    tables=partial(tables, break_even=break_even),
)  # fmt: skip


def study_on(topology: str, net: Topology) -> Study:
    """The same schemes, sizes and figures on the planes of one network, by its spec or file: figures 8, 10 and 11 have
    its numbers of ranks and planes and its turns alone."""
    ranks = len(net.accelerators)
    cell = partial(_cell_on, topology, ranks)
    cells: list[Cell] = []
    notes = list(STUDY.notes[1:])
    over_ranks = {("rabenseifner", "allreduce"): "8a", ("pairwise", "alltoall"): "8b"}
    for figure, (algorithm, kind, _, volumes, title) in ALGORITHMIC.items():
        reason = ALGORITHMS[algorithm].serves(kind, ranks)
        if reason is not None:
            notes.append(f"Figure {figure}, {title}, is left out: {reason}.")
            continue
        for size, scheme in product(SIZES, SCHEMES):
            spec, buffer, why = f"{algorithm}+{scheme}", _buffer(algorithm, ranks, size), _short(size)
            shown = [over_ranks[algorithm, kind]] if size == 32 * MB and (algorithm, kind) in over_ranks else []
            swept = ["10", "11"] if scheme == "swot" else []
            if volumes:
                cells.append(cell(spec, kind, buffer, (figure,), volumes, why))
                cells += [cell(spec, kind, size, swept, why_full=why)] if swept else []
            else:
                cells.append(cell(spec, kind, buffer, (figure, *shown, *swept), why_full=why))
    for size, scheme in product(SIZES, PRIMITIVE_SCHEMES):
        cells += [
            _primitive_cell(scheme, kind, topology, size, figure)
            for figure, kind in (("9a", "alltoall"), ("9b", "allreduce"))
        ]
    titles = {f: f"Figure {f}: {title}" for f, (*_, title) in ALGORITHMIC.items()}
    titles |= {
        "8a": "Figure 8a: AllReduce of 32 MB by halving and doubling",
        "8b": "Figure 8b: pairwise AllToAll of 32 MB",
        "9a": "Figure 9a: AllToAll, the best algorithm of each scheme",
        "9b": "Figure 9b: AllReduce, the best algorithm of each scheme",
        "10": "Figure 10: less time than strawman-ICR",
        "11": "Figure 11: overhead of turning",
    }
    return replace(
        STUDY,
        cells=cells,
        figures=[replace(f, title=titles[f.name]) for f in STUDY.figures if f.name in titles],
        notes=notes,
        tables=lambda rows: [t for t in tables(rows, break_even) if t.rows],
    )

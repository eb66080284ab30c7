"""The first plan of a shape, at once: the best of a few planners that need hundredths of a second.

The planners are asked in turn, until the steps are spent, so the same request gives the same plan at every rank. Each
is registered with its place in that order (``library``), and with another one where bandwidth decides if it is early
there (``library_wide``). Kernels are interpreted: loading Numba would take longer than all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..kernels import interpreted
from ..model.collective import Workload, make_collective
from ..model.kinds import BY_NAME, KINDS
from ..model.plan import Plan
from ..model.targets import find_target
from ..model.topology import ACCELERATOR, Topology, make_topology
from ..model.variants import costing
from ..planners import Entry, Request, asked_by, run_planner
from ..schedule.best import Answer, ask, best_of
from ..schedule.effort import Budget
from ..schedule.fitting import seen_by_target
from .requests import ALIKE, PlanRequest

QUICK_STEPS = 28_000.0
"""Steps that the planners may take together: about 0.03 s of CPU. Until one has made a plan, the next one is asked
whatever it takes."""

FIRST_STEPS, STEPS_A_TRANSFER = 1_500.0, 16.0
"""Steps that a fixed algorithm takes, interpreted and simulated, and more for each transfer."""

WIDE = 2.0
"""Bandwidth decides if the bytes take this many times as long over the narrowest link as latencies and messages over
the longest one, once for each rank: on a ring, each rank's part is sent twice as often as there are ranks."""

DIRECT_PLANNER = "shortest-path"
"""The planner of data that every sender sends straight to its receiver; it serves every kind of collective."""

DIRECT_ON_PLANES = "pairwise+swot"
"""The same on optical planes, for AllToAll."""

BANDWIDTH, LATENCY_S = 1e9, 10e-6
"""Bytes/s and seconds of the links between ranks that send directly; what they are changes nothing in a plan."""

SMALLEST_PART_BYTES = 1 << 18
"""Parts of a piece are cut in three, so that a rank sends while it receives, if the thirds are at least this large."""

TARGET = find_target("torch")
"""What runs the plans."""


def joined_directly(nodes: Sequence[int]) -> Topology:
    """Every one of these nodes linked to every other, all alike."""
    links = [(a, b, BANDWIDTH, LATENCY_S) for a in nodes for b in nodes if a != b]
    return make_topology(f"{len(nodes)} ranks joined directly", [ACCELERATOR] * (max(nodes) + 1), links)


def load_planners() -> None:
    """Import the planners of first plans, which takes hundredths of a second of CPU."""
    asked_by("library")


def quick_plan(asked: PlanRequest) -> Plan:
    """The first plan of a request."""
    with interpreted():
        answers = list(_answers(asked))
    plan = best_of(answers, within=ALIKE).plan if answers else None
    return direct_plan(asked) if plan is None else plan


def direct_plan(asked: PlanRequest) -> Plan:
    """The plan by which every sender sends straight to its receivers, whatever the network."""
    net = asked.topology if asked.topology.planes else costing(joined_directly(asked.ranks), TARGET.message_s)
    with interpreted():
        planner = DIRECT_ON_PLANES if net.planes else DIRECT_PLANNER
        return run_planner(planner, net, Workload((asked.collective(topology=net),)))


def _answers(asked: PlanRequest) -> Iterator[Answer]:
    """The plans that the steps are enough for."""
    left, made, net = QUICK_STEPS, False, _seen(asked.topology, asked.ranks)
    waiting = deque((entry, 1) for entry in _in_places(asked, net))
    while waiting:  # grows below: by each planner one plan, before any makes one in more chunks
        entry, chunks = waiting.popleft()
        request = Request(net, Workload((asked.collective(chunks, net),)), asked.seed, Budget(QUICK_STEPS))
        if not {*BY_NAME[asked.shape.kind].served_as} & {*entry.collectives}:
            continue
        steps = _steps(entry, request)
        if made and steps > left:
            continue
        answer = _ask(entry.name, request)
        yield answer
        searched = entry.auto is not None and entry.auto.by_ranks  # for symmetry, which costs as much as the plan
        left -= steps if searched or answer.plan is not None else 0.0
        if answer.plan is None:
            continue
        made = True
        if chunks == 1:
            waiting += [(entry, more) for more in _more_cuts(entry, asked, answer.plan)]


def _in_places(asked: PlanRequest, net: Topology) -> list[Entry]:
    """The planners in the order in which they are asked."""
    wide = False
    if net.link_count:
        once_s = float((net.latency_s + net.message_s).max())
        wide = asked.size_bytes / float(net.bandwidth.min()) > WIDE * len(asked.ranks) * once_s
    entries = asked_by("library")
    return sorted(entries, key=lambda entry: entry.library_wide or entry.library or 0) if wide else entries


@lru_cache(maxsize=4)
def _seen(topology: Topology, ranks: tuple[int, ...]) -> Topology:
    """The network as the target uses it, for all planners and shapes, so that what is found of it is found once."""
    return seen_by_target(TARGET, topology, Workload((make_collective(KINDS[0], topology, len(ranks), ranks=ranks),)))


def _steps(entry: Entry, request: Request) -> float:
    """The steps that a planner takes with the simulation of its plan, about."""
    if entry.auto is not None and entry.auto.by_ranks:
        return entry.auto.steps(request)
    return FIRST_STEPS + STEPS_A_TRANSFER * entry.transfers(request)


def _more_cuts(entry: Entry, asked: PlanRequest, plan: Plan) -> list[int]:
    """Into how many more chunks than one a planner is asked to cut a piece, one plan for each."""
    traits = BY_NAME[asked.shape.kind]
    if entry.cuts or not traits.whole:
        return []
    n = len(asked.ranks)
    # a planner that cuts an AllReduce into parts for the ranks itself needs no chunk for each rank
    parts = 1 if traits.reduces_to_all and plan.workload.chunk_count > 1 else n
    thirds = [3 * parts] if asked.size_bytes >= 3 * n * SMALLEST_PART_BYTES else []
    return [chunks for chunks in (parts, *thirds) if chunks > 1]


def _ask(planner: str, request: Request) -> Answer:
    def plan() -> Plan:
        return run_planner(
            planner, request.topology, request.workload, seed=request.seed, effort=str(QUICK_STEPS / 1e6), target=TARGET
        )

    return ask(planner, plan)

"""Plans by symmetry: one rank's data is planned, and the plan of all data is its images.

1. Which ways (:mod:`.ways`, :mod:`.chains`, :mod:`.rates`): data comes from a rank to all others along chains of
   cosets, such as over the rail to all servers and then inside each. A linear program over orbits of links mixes
   chains. Sums are copies with time reversed.
2. When (:mod:`.transfers`, :mod:`.times`): the data is cut into parts. The transfers of one rank's parts are scheduled
   over orbits of links. More parts are tried until they end later.

The work grows with the number of ranks, not with that of pairs of ranks. Where ranks are in several orbits, as beside a
slow NIC, :mod:`.several` plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log2
from typing import Any, NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Int32, Int64, Ragged, offsets_of
from ...model.collective import Promised, Workload
from ...model.errors import Unsupported
from ...model.kinds import KINDS
from ...model.plan import REDUCE, Plan
from ...model.symmetric import SymmetricPlan, dealt, make_symmetric_plan
from ...model.symmetry import Symmetry
from ...model.topology import Topology
from ...schedule.best import PER_HALF, completion_s, preference_s
from ...schedule.cutting import GIVE_UP, messages_cost
from .. import Candidate, Request, register
from . import kernel_exchange
from .all_moves import plan_of_moves
from .case import Case, case_of
from .few_owners import Schedule, few_owners, plan_of
from .in_switches import InSwitches, in_switches, plan_in_switches
from .kernel_exchange import Options
from .moves import best_moves
from .routes import find_routes
from .several import Several, plan_below, plan_several
from .times import Table, Times, schedule
from .transfers import Transfers, copies, exchange, in_parts, sums, sums_then_copies
from .ways import MOST_CHILDREN, Way, mixes_of

MOST_PARTS = 64
"""Parts into which the data that goes by one chain is cut, at most."""

GAIN = 1.001
"""Times by which twice as many parts must end sooner where messages cost nothing."""

PATIENCE = 2
"""Finer cuts in a row that may gain nothing before the search ends."""

MOST_ROWS = 150_000
"""Transfers of the representatives, at most, if the data is cut into several parts."""

RELAYS_GAIN = 1.01
"""Times by which a plan must end sooner for data to be stored at accelerators outside the collective."""

FEWEST_RANKS = 32
"""Ranks from which ``auto`` asks where messages are free. Among fewer the other planners search more ways in as much
time. Where messages cost, it asks among fewer, too, since it can put chunks that go the same way into one message.
"""

MOST_MOVED = 1_200_000
"""Transfers of a plan of messages with several chunks, at most: it is no plan by symmetry, but has all of them."""

BRIEF_FIRST_STEPS = 12_000.0
"""The first of these for a request that allows fewer than :data:`BRIEF_STEPS`."""

FIRST_STEPS, STEPS_A_RANK = 30_000.0, 200.0
"""Steps that planning and simulating take, and more for each rank. AllReduce among 512 GPUs takes 0.13 s of CPU, among
16,384 GPUs 0.7 s if messages are free, else 1.8 s."""

MOVES_STEPS, MOVES_STEPS_A_RANK = 20_000.0, 600.0
"""Steps that the search for messages of several chunks takes, more for each rank, and one more for each delivery of its
plan. With what else is planned it is 0.03 s of CPU for torus:4x4, 0.2 s for h100:16, 0.3 to 0.8 s for tpuv4:4x4x8
(benchmarks/heldout.py -p symmetric -c allgather,alltoall -t "tpuv4:4x4x8?message=1us")."""

FEW_OWNERS_STEPS = 60_000.0
"""Steps that must be left for plans in which few ranks own the chunks to be searched, too. That takes 5 to 20 ms of CPU
compiled, and 50 to 300 ms interpreted; every level of effort has them, the first plan of a running process has not."""

BRIEF_STEPS = 60_000.0
"""Of a request that allows fewer steps than this in all, numbers of parts are compared by transfers that are scheduled
in one way. Every level of effort allows more; the first plan of a running process, whose kernels are interpreted,
fewer (benchmarks/first_plans.py)."""

BRIEF_ROWS = 250
"""Transfers of the representatives of such a request, from which no more parts are tried
(benchmarks/first_plans.py)."""

BRIEF_ROWS_IN_ALL = 350
"""Transfers that are scheduled for such a request in all, beyond which no more parts and ways are tried: 0.02 s of CPU,
interpreted (benchmarks/first_plans.py)."""


def _serves(topology: Topology, workload: Workload) -> str | None:
    case = case_of(topology, workload)
    return case if isinstance(case, str) else None


def _steps(request: Request) -> float:
    """The steps that a plan takes, about."""
    ranks = sum(len(c.ranks) for c in request.workload.collectives)
    if request.budget.most < BRIEF_STEPS:
        return BRIEF_FIRST_STEPS + STEPS_A_RANK * ranks
    moves = MOVES_STEPS + MOVES_STEPS_A_RANK * ranks + request.deliveries
    return FIRST_STEPS + STEPS_A_RANK * ranks + (moves if _may_move(request) else 0.0)


def _is_asked(request: Request) -> bool:
    """Whether ``auto`` asks."""
    few = min(len(c.ranks) for c in request.workload.collectives) < FEWEST_RANKS
    return not few or messages_cost(request.topology)


@register(
    "symmetric",
    collectives=KINDS,
    topologies="where a commutative group maps every rank to every other, or a few orbits of ranks remain",
    paper="our own",
    messages=True,
    cuts=True,
    transfers=lambda request: 0,  # those of the representatives are few
    auto=Candidate(_steps, leads=True, fills_links=True, by_ranks=True, asked=_is_asked),
    serves=_serves,
    library=10,
)
def symmetric(request: Request) -> Plan:
    """One rank's data is planned over orbits of links, and all other data is sent likewise."""
    case = case_of(request.topology, request.workload)
    if isinstance(case, str):
        raise Unsupported(f"symmetric does not serve {request.topology.name}: {case}")
    brief = request.budget.most < BRIEF_STEPS
    if isinstance(case, Several):
        return plan_several(case, brief)
    table = Table(*(find_routes(case.symmetry, case.at, into) for into in (False, True)))
    plan: Plan = _by_chains(case, table, brief, few=request.budget.left >= FEW_OWNERS_STEPS)
    if not brief and _may_move(request):
        plan = _by_moves(case, table, preference_s(plan)) or plan
    if len(request.topology.accelerators) > len(case.at) and len(case.workload.collectives) == 1:
        plan = plan_below(Several(case.symmetry, case.first), completion_s(plan) / RELAYS_GAIN, brief) or plan
    return plan


def _may_move(request: Request) -> bool:
    """Whether messages of several chunks may be worth a search: the plan has all transfers, not only those of
    representatives, so there must not be too many."""
    topology, c = request.topology, request.workload.collectives[0]
    if len(request.workload.collectives) > 1 or c.traits.rooted or request.deliveries > MOST_MOVED:
        return False
    served = c.chunk_count == c.piece_count and bool(topology.store_and_forward[c.ranks].all())
    return served and request.several_chunks and messages_cost(topology)


def _by_moves(case: Case, table: Table, below_s: float) -> Plan | None:
    """The plan of messages with several chunks, if it is preferred by less than ``below_s``."""
    c, traits = case.first, case.first.traits
    if c.size_bytes < len(c.ranks):
        return None
    phases = traits.reduces, traits.reduces_to_all or not traits.reduces
    found = best_moves(case.symmetry, case.digits, table, c.shard_bytes, phases, traits.pieces == "pair", MOST_MOVED)
    return plan_of_moves(found, case, table) if found and found.handled_s(case.symmetry) < below_s else None


def _by_chains(case: Case, table: Table, brief: bool, few: bool) -> SymmetricPlan:
    """The plan by chains of cosets, which no relay takes part in.

    Args:
        brief: whether little is to be tried.
        few: whether chunks may also have fewer owners than there are ranks.
    """
    best = min(_cuts(case, table, brief), key=lambda each: each[1].completion_s, default=None)
    other = _by_switches(case) or (_by_few_owners(case, table) if few else None)
    if other is not None and (best is None or other.preference_s < _preference_s(case, *best)):
        if isinstance(other, InSwitches):
            return plan_in_switches(other, case.symmetry, case.at, case.digits, case.workload)
        return plan_of(other, case.symmetry, case.at, case.digits, case.workload)
    if best is None:
        raise Unsupported(f"symmetric does not serve {case.first.title}: there is less than a byte for each rank")
    return _plan(case, table, *best)


def _by_few_owners(case: Case, table: Table) -> Schedule | None:
    """The best plan whose chunks have fewer owners than there are ranks; None where more of them cost nothing."""
    traits = case.first.traits
    if not (traits.reduces_to_all and messages_cost(case.symmetry.topology)):
        return None
    return few_owners(case.symmetry, case.digits, case.first.size_bytes, table, MOST_CHILDREN)


def _by_switches(case: Case) -> InSwitches | None:
    """The best plan whose sums are made in switches; None where they make none."""
    traits = case.first.traits
    if not (traits.reduces_to_all and case.symmetry.topology.reduces.any()):
        return None
    return in_switches(case.symmetry, case.at, case.digits, case.first.size_bytes)


def _preference_s(case: Case, cut: _Cut, times: Times) -> float:
    """The completion with the surcharge for messages, see :func:`~stretto.schedule.best.preference_s`."""
    return float(times.completion_s * PER_HALF ** log2(cut.transfers.total * case.symmetry.size))


def _cuts(case: Case, table: Table, brief: bool) -> Iterator[tuple[_Cut, Times]]:
    """For each mix of ways the number of parts with which data that goes so ends first.

    Args:
        brief: whether little is to be tried.
    """
    left: float = BRIEF_ROWS_IN_ALL if brief else inf
    for k, ways in enumerate(mixes_of(case, table)):
        best, rows = _best_cut(case, table, ways, brief, k > 0, left)
        left -= rows
        if best is not None:
            yield best


def _best_cut(
    case: Case, table: Table, ways: list[Way], brief: bool, more: bool, left: float
) -> tuple[tuple[_Cut, Times] | None, int]:
    """The number of parts with which data that goes these ways ends first, and how many transfers were scheduled to
    find it; no cut if there is less than a byte a rank.

    Args:
        brief: whether little is to be tried.
        more: whether there are other ways; if little is to be tried, these must be short then.
        left: transfers that may be scheduled.
    """
    costly = messages_cost(case.symmetry.topology)
    best: tuple[_Cut, Times] | None = None
    worse, rows, most = 0, 0, BRIEF_ROWS if brief else MOST_ROWS
    for exponent in range(MOST_PARTS.bit_length()):
        # of many pieces each may go another way
        cut = _cut(case, table, ways, (1 if case.first.traits.pieces == "pair" else len(ways)) << exponent)
        if cut is None:
            break
        if (best is not None or (brief and more)) and cut.transfers.total > min(most, left - rows):
            break
        rows += cut.transfers.total
        times = _times(case, table, cut, roughly=brief)
        if best is None or times.completion_s < best[1].completion_s / _worth(cut, best[0], costly):
            best, worse = (cut, times), 0
            continue
        worse += 1
        if worse == PATIENCE or times.completion_s > GIVE_UP * best[1].completion_s:
            break
    return best, rows


def _times(case: Case, table: Table, cut: _Cut, roughly: bool) -> Times:
    """When the transfers of a cut start."""
    t = cut.transfers
    return schedule(case.symmetry, table.routes(t), t.op, t.depends, cut.part, cut.size_bytes, roughly=roughly)


def _worth(finer: _Cut, coarser: _Cut, costly: bool) -> float:
    """Times by which a finer cut must end sooner."""
    return float((PER_HALF if costly else GAIN) ** log2(finer.transfers.total / coarser.transfers.total))


class _Cut(NamedTuple):
    """The data cut into parts, with the transfers of all parts.

    Attributes:
        workload: with its chunks.
        owner, position: of each representative, see :class:`~stretto.model.symmetric.Orbits`.
        part: int64[transfers], the part of each transfer.
        size_bytes: int64[transfers].
    """

    workload: Workload
    owner: Int32
    position: Int64
    transfers: Transfers
    part: Int64
    size_bytes: Int64


def _cut(case: Case, table: Table, ways: list[Way], parts: int) -> _Cut | None:
    """The data in ``parts`` parts, or a few more; None if a part would have less than a byte for each rank."""
    c, traits = case.first, case.first.traits
    own = case.at[0]
    if traits.pieces == "pair":
        return _cut_pairs(case, table, ways, parts)
    if traits.whole:
        most = max(way.share for way in ways)
        counts = [max(1, round(parts * way.share / most)) for way in ways]
    else:
        counts = _apportioned([way.share for way in ways], parts)
    total, ranks = sum(counts), len(c.ranks)
    if c.size_bytes < ranks * total:
        return None
    each = [(_transfers(case.symmetry, way), 1, count) for way, count in zip(ways, counts, strict=True) if count]
    transfers, part = in_parts(each)
    owner = np.full((total, 1), own, dtype=np.int32)
    if not traits.whole:
        workload = _in_chunks(case.workload, total)
        size = np.full(transfers.total, -(-c.size_bytes // (ranks * total)))
        return _Cut(workload, owner, np.arange(total), transfers, part, size)
    shares = np.repeat([way.share / count for way, count in zip(ways, counts, strict=True)], counts)
    edges = np.rint(np.append(0.0, np.cumsum(shares / shares.sum())) * c.size_bytes).astype(np.int64)
    ranges, owners = np.diff(edges), np.full(total, ranks)
    if ranges.min() < ranks:
        return None
    workload = Workload(tuple(dealt(each, ranges, owners) for each in case.workload.collectives))
    return _Cut(workload, owner, ranks * np.arange(total), transfers, part, -(-ranges // ranks)[part])


def _cut_pairs(case: Case, table: Table, ways: list[Way], parts: int) -> _Cut | None:
    """The same of an exchange, where each pair of ranks has a piece."""
    c, members = case.first, np.flatnonzero(case.members)
    ranks = len(members)
    if c.size_bytes < ranks * parts:
        return None
    each = []
    for number, chosen in enumerate(_ways_of_pairs(case, table, ways, members[1:], parts)):
        for k, way in enumerate(ways):
            rows = np.flatnonzero(chosen == k) + 1
            if len(rows) and way.outward is not None:
                own = exchange(case.symmetry, way.outward, members[rows])
                each.append(own._replace(chunk=number * ranks + rows[own.chunk]))
    transfers, _ = in_parts([(own, 0, 1) for own in each])
    owner = np.empty((parts * ranks, 2), dtype=np.int32)
    owner[:, 0], owner[:, 1] = case.at[0], np.tile(case.at[members], parts)
    size = np.full(transfers.total, -(-c.size_bytes // (ranks * parts)))
    workload = _in_chunks(case.workload, parts)
    return _Cut(workload, owner, np.repeat(np.arange(parts), ranks), transfers, transfers.chunk // ranks, size)


def _ways_of_pairs(case: Case, table: Table, ways: list[Way], goals: Int64, parts: int) -> Int64:
    """int64[parts, goals], by which way each part of the piece for each goal goes, so that orbits of links are busy for
    as long as the shares of the ways say."""
    symmetry, topology = case.symmetry, case.symmetry.topology
    if len(ways) == 1:
        return np.zeros((parts, len(goals)), dtype=np.int64)
    number, orbit, seconds = [], [], []
    for k, way in enumerate(ways):
        assert way.outward is not None, "pieces are copied"
        moved = exchange(symmetry, way.outward, goals)
        route = table.routes(moved)
        number.append(moved.chunk[route.owners] * len(ways) + k)
        orbit.append(symmetry.link_orbits[route.values])
        seconds.append(symmetry.copies[route.values] / topology.bandwidth[route.values])
    entries = np.concatenate(number)
    order = np.argsort(entries, kind="stable")
    options = Options(
        np.arange(len(goals) + 1) * len(ways), np.tile([way.share for way in ways], len(goals)),
        offsets_of(np.bincount(entries, minlength=len(goals) * len(ways))),
        np.concatenate(orbit)[order].astype(np.int64), np.concatenate(seconds)[order],
    )  # fmt: skip
    deal = at_speed(kernel_exchange.deal, float(parts * len(entries)))
    dealt_out = deal(np.full(len(goals), parts), options, np.ones(topology.link_count))
    return np.asarray(dealt_out % len(ways)).reshape(len(goals), parts).T


def _apportioned(shares: list[float], parts: int) -> list[int]:
    """How many of ``parts`` equal parts go each way."""
    exact = np.array(shares) / sum(shares) * parts
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: parts - counts.sum()]] += 1
    return [int(count) for count in counts]


def _transfers(symmetry: Symmetry, way: Way) -> Transfers:
    """One part's transfers."""
    if way.inward is None:
        assert way.outward is not None, "data is summed or copied"
        return copies(symmetry, way.outward)
    return sums(symmetry, way.inward) if way.outward is None else sums_then_copies(symmetry, way.inward, way.outward)


def _in_chunks(workload: Workload, chunks: int) -> Workload:
    """The workload with each piece cut into this many chunks."""
    cut = (Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, chunks) for c in workload.collectives)
    return Workload(tuple(cut))


def _plan(case: Case, table: Table, cut: _Cut, times: Times) -> SymmetricPlan:
    """The plan with its nodes and links."""
    symmetry, transfers = case.symmetry, cut.transfers
    near, far = (case.at[e] for e in (transfers.near, symmetry.product(transfers.near, transfers.step)))
    route = table.routes(transfers)
    links = symmetry.image_of_links(transfers.near[route.owners], route.values)
    summed = transfers.op == REDUCE
    meta: dict[str, Any] = {"parts": int(cut.part.max()) + 1, "group": symmetry.orders.tolist()}
    return make_symmetric_plan(
        symmetry, cut.workload, owner=cut.owner, position=cut.position, meta=meta,
        chunk=transfers.chunk, src=np.where(summed, far, near), op=transfers.op,
        dst=Ragged.single(np.where(summed, near, far)), route=route.with_values(links), depends=transfers.depends,
        start_s=times.start_s, finish_s=times.finish_s,
    )  # fmt: skip

"""Plans that a target can run: what it asks is asked before planning, and met by every plan that is compared.

1. What a target can never run is refused before planning, with the option that would help (:func:`refuse`).
2. Planners see the network as the target uses it (:func:`seen_by_target`): routers and switches neither copy nor sum,
   accelerators outside the ranks are not there, and messages cost what they cost the target. A planner whose plan
   stores data at routers, or at accelerators outside the ranks through which routes may pass, is asked again with
   switches in their place.
3. Where a target counts buffers in equal parts, the chunks of a plan are moved to the edges of such parts, in as few
   parts as cost next to nothing (:func:`in_equal_parts_of`). A planner that chose shares of 0.31 and 0.69 of a piece
   gets 10 and 22 of 32 parts. So no planner knows of parts, and each is compared by what its plan takes in parts.
4. Where data is cut into few chunks, those that are passed on last may be smaller (:func:`tapered`), and a linear
   program finds what sizes are best (:func:`sized`).
5. A plan whose sums overlap, so that ranks cannot add up in one order (:mod:`stretto.lower.orders`), is no plan for a
   target that must end with the same bits everywhere.
6. A plan of too many messages or chunks is made again where messages cost more, so that its planner cuts coarser; and
   where that ends much later, once more in between (:func:`fitting`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..lower.alike import sums_alike
from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.chunks import MOST_PARTS, equal_parts, in_equal_parts
from ..model.collective import Workload
from ..model.errors import InputError, Unsupported
from ..model.messages import messages_of
from ..model.plan import Plan
from ..model.reach import find_unreachable
from ..model.rows import messages_at_nodes, nodes_in
from ..model.symmetric import SymmetricPlan
from ..model.targets import TARGETS, Target
from ..model.topology import GIVEN, ROUTER, SWITCH, Topology
from ..model.variants import costing
from .best import completion_s
from .effort import Budget
from .kept import Kept
from .resizing import tapered, timed_again
from .sizing import sized

NEXT_TO_NOTHING = 1.002
"""Times the completion of a plan that it may take in equal parts, for no finer parts to be tried."""

ATTEMPTS = 4
"""Plans that a planner makes, each coarser than the one before, until one has few enough messages."""

LEAST_COST = 0.01
"""Share of the time of a mean chunk on a link that a message costs at least where a plan is to have fewer messages."""

AT_ONCE = 1.02
"""Times the completion of a plan that one may take whose program runs at once, for it to be preferred."""

MARGIN = 1.2
"""Times as much as needed that a message costs then."""


UNMOVED = 4.0
"""Times as much as before that a message costs at least where a plan has no fewer messages or chunks than the one
before it: parts are as many as the root of this cost. Without it mscclpp's Broadcast of 1 KB on zoo:Cesnet has plans of
one chunk alone, which take 2.26 times as long as one for no target instead of 1.02 (benchmarks/targets.py)."""


class TooFine(Unsupported):
    """A plan has more messages or chunks than a target takes.

    Attributes:
        times: how many times as many.
        plan: the plan, if the target can run it all the same.
    """

    def __init__(self, reason: str, times: float, plan: Plan | None = None) -> None:
        super().__init__(reason)
        self.times, self.plan = times, plan


def refuse(target: Target, topology: Topology, workload: Workload) -> None:
    """Refuse what a target cannot run whatever the plan.

    Raises:
        Unsupported: the target does not run this kind, or several collectives at once, or optical planes.
        InputError: pieces are too small, or ranks are joined only by what does not run the plan.
    """
    for c in workload.collectives:
        if c.kind not in target.kinds:
            others = [t.name for t in TARGETS.values() if c.kind in t.kinds]
            hint = f"; these run it: {', '.join(others)}" if others else ""
            raise Unsupported(f"{target.name} does not run {c.kind}; it runs {', '.join(target.kinds)}{hint}")
    if len(workload.collectives) > target.collectives:
        raise Unsupported(
            f"a plan for {target.name} has at most {target.collectives} collective; plan each of the "
            f"{len(workload.collectives)} by itself"
        )
    if topology.planes and not target.planes:
        others = [t.name for t in TARGETS.values() if t.planes]
        raise Unsupported(f"{target.name} does not turn optical planes; these do: {', '.join(others)}")
    seen = seen_by_target(target, topology, workload)
    for c in workload.collectives:
        if target.equal_parts and (least := c.size_bytes // c.traits.pieces_in_buffer(len(c.ranks))) < (
            need := target.alignment_bytes
        ):
            raise InputError(
                f"{c.title} has pieces of {least} bytes, and {target.name} cuts them into parts of {need} bytes or "
                "more; raise the size",
                "size",
            )
        pair = find_unreachable(seen, c)
        if pair is not None and find_unreachable(topology, c) is None:
            a, b = (topology.names[v] for v in pair)
            raise InputError(
                f"{a} reaches {b} only over accelerators outside the collective, where {target.name} runs nothing; "
                "make them ranks, or give links that avoid them",
                "ranks",
            )


def seen_by_target(target: Target, topology: Topology, workload: Workload, kept: Kept | None = None) -> Topology:
    """The network as a target uses it; the same one where that is no other, or where another target uses it so."""
    key = ("seen", topology, workload, target.relays, target.multicast, target.sums, target.message_s)
    return (kept or Kept()).of(key, lambda: _seen_by_target(target, topology, workload))


def _seen_by_target(target: Target, topology: Topology, workload: Workload) -> Topology:
    """The network as a target uses it."""
    nodes = np.arange(topology.node_count)
    ranks = np.unique(np.concatenate([c.ranks for c in workload.collectives]))
    if not target.relays:
        routers = topology.kind == ROUTER
        if (routers & ~topology.transit).any():
            topology = replace(topology, transit=topology.transit | routers)
        outside = topology.store_and_forward & ~np.isin(nodes, ranks)
        absent = outside[topology.src] | outside[topology.dst]
        if absent.any():
            topology = topology.with_links(~absent)
    none = np.zeros(topology.node_count, dtype=np.bool_)
    if topology.replicates.any() and not target.multicast:
        topology = replace(topology, replicates=none)
    if topology.reduces.any() and not target.sums:
        topology = replace(topology, reduces=none)
    return costing(topology, target.message_s) if target.message_s else topology


def fitting(
    make: Callable[[Topology], Plan],
    topology: Topology,
    workload: Workload,
    target: Target,
    budget: Budget,
    kept: Kept | None = None,
) -> Plan:
    """A planner's plan, as a target can run it.

    Args:
        make: the planner's plan on a network.
        topology: as the target uses it.
        budget: counted work of fitting alone.
        kept: plans of earlier requests.
    Raises:
        Unsupported: the plan needs what the target does not have.
    """
    ranks = np.concatenate([c.ranks for c in workload.collectives])
    base, tried, kept = topology, _Tried(), kept or Kept()
    own = base
    while True:
        plan = make(own)
        if not target.relays and not np.isin(nodes_in(plan), ranks).all() and _only_passed(own, ranks).any():
            base = kept.of(("switches", base), partial(_with_switches_outside, base, ranks))
            own = _costlier(base, tried.cost_s) if tried.cost_s else base
            plan = make(own)
        versions = kept.of((topology, plan), partial(_versions_on, topology, plan, budget))
        try:
            tried.fits(_best_fitted(versions, target, budget))
        except TooFine as reason:
            tried.too_fine(versions[0], reason)
        if tried.enough:
            return tried.plan
        own = _costlier(base, tried.next_cost_s())


@dataclass
class _Tried:
    """The plans of a planner so far, each made where messages cost more or less, until one has few enough of them."""

    attempts: int = 0
    cost_s: float = 0.0  # what messages cost where the last plan was made, at least
    low_s: float = 0.0  # the same of the last plan that was too fine
    times: float = np.inf  # how many times too many messages or chunks that plan has
    more: float = 1.0  # times as much as there that messages cost next
    finest_s: float = np.inf  # when the first plan ends
    fitted: Plan | None = None  # of those that fit the one that ends first
    high_s: float = 0.0  # what messages cost where the last plan that fits was made
    runnable: Plan | None = None  # the first plan that the target can run although it is too fine
    refusal: TooFine | None = None
    may_cut_coarser: bool = True

    def fits(self, plan: Plan) -> None:
        """Note a plan that the target takes."""
        self.attempts += 1
        self.high_s = self.cost_s
        if self.fitted is None or completion_s(plan) < completion_s(self.fitted):
            self.fitted = plan

    def too_fine(self, plan: Plan, refusal: TooFine) -> None:
        """Note a plan of too many messages or chunks, on the network as the target uses it."""
        if not self.attempts:
            self.finest_s = completion_s(plan)
        self.attempts += 1
        self.runnable, self.refusal = self.runnable or refusal.plan, refusal
        # parts are as many as the root of what messages cost, unless that was too little to decide
        more = MARGIN * refusal.times**2
        self.more = max(more, UNMOVED) if refusal.times >= self.times else more
        self.low_s, self.times = self.cost_s or _least_cost_s(plan), refusal.times
        self.may_cut_coarser = _cuts(plan)

    @property
    def enough(self) -> bool:
        """Whether no plan is made again."""
        if self.attempts >= ATTEMPTS or not self.may_cut_coarser:
            return True
        if self.fitted is None:
            return False
        return self.runnable is not None or completion_s(self.fitted) <= AT_ONCE * self.finest_s

    def next_cost_s(self) -> float:
        """What messages cost where the next plan is made: more; or once a plan fits that ends much later than the first
        one, between the costs of those that are too fine and of those that fit."""
        self.cost_s = self.low_s * self.more if self.fitted is None else float(np.sqrt(self.low_s * self.high_s))
        return self.cost_s

    @property
    def plan(self) -> Plan:
        """The plan to take; raises why there is none."""
        if self.fitted is None:
            if self.runnable is None:
                assert self.refusal is not None, "a plan was tried"
                raise self.refusal
            return self.runnable
        finer = self.runnable is not None and completion_s(self.fitted) > AT_ONCE * completion_s(self.runnable)
        return self.runnable if finer and self.runnable is not None else self.fitted


def _cuts(plan: Plan) -> bool:
    """Whether a piece is cut, so that it may be cut coarser."""
    return any(c.chunk_count > c.piece_count for c in plan.workload.collectives)


def _least_cost_s(plan: Plan) -> float:
    """What messages cost in a plan, seconds: of the mean link, or where they are free a share of a chunk's time."""
    topology = plan.topology
    mean_bytes = sum(c.size_bytes for c in plan.workload.collectives) / plan.workload.chunk_count
    return float(max(topology.message_s.mean(), LEAST_COST * mean_bytes / np.median(topology.bandwidth)))


def _costlier(topology: Topology, least_s: float) -> Topology:
    """The network with the cost of a message raised to ``least_s`` where it is lower."""
    return replace(topology, message_s=np.maximum(topology.message_s, least_s), message_basis=GIVEN)


def fitted(plan: Plan, target: Target, budget: Budget) -> Plan:
    """A plan, in equal parts where the target needs them; TooFine, or Unsupported, says why there is no such plan."""
    if plan.sharing not in target.sharing:
        raise Unsupported(
            f"{target.name} does not share links by {plan.sharing}; leave out what decides rates or weights"
        )
    ranks = np.concatenate([c.ranks for c in plan.workload.collectives])
    if not target.relays and not np.isin(nodes_in(plan), ranks).all():
        raise Unsupported(f"the plan stores data outside the ranks, where {target.name} runs nothing")
    if target.same_bits and not sums_alike(plan):
        raise Unsupported(f"ranks add up in different orders, and for {target.name} all must end with the same bits")
    if target.equal_parts:
        plan = in_equal_parts_of(plan, target, budget)
    most = int(messages_at_nodes(plan)[ranks].max(initial=0))
    for limit, runs in ((target.messages, None), (target.messages_at_once, plan)):
        if most > limit:
            raise TooFine(f"{target.name} takes {limit:,} messages of a rank, and this is {most:,}", most / limit, runs)
    return plan


def in_equal_parts_of(plan: Plan, target: Target, budget: Budget) -> Plan:
    """A plan whose chunks cover equal parts of pieces, timed again; the plan itself where they do.

    Twice as many parts, and at last as many as there may be, are tried as long as the plan ends later than before by
    more than next to nothing.

    Raises:
        TooFine: a piece has more chunks than there may be parts.
    """
    (c,) = plan.workload.collectives
    smallest = c.size_bytes // c.traits.pieces_in_buffer(len(c.ranks))
    most = min(target.buffer_parts // c.traits.pieces_in_buffer(len(c.ranks)), smallest // target.alignment_bytes)
    chunks = int(np.bincount(c.chunk_piece).max())
    parts = equal_parts(c, target.alignment_bytes, most)
    # a message of more parts than a step carries becomes several, but where it has fewest parts
    if parts is not None and (parts.number == chunks or _most_in_message(plan, parts.covered) <= target.step_parts):
        return plan
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
        (c,) = plan.workload.collectives
    largest = _most_in_message(plan, c.chunk_bytes / c.piece_bytes[c.chunk_piece])
    most = min(most, MOST_PARTS, max(chunks, int(target.step_parts / largest)))
    if chunks > most:
        raise TooFine(f"{target.name} takes {most:,} parts of a piece, and this is cut into {chunks:,}", chunks / most)
    before_s = completion_s(plan)
    plans: list[Plan] = []
    count = min(1 << (chunks - 1).bit_length(), most)
    while True:
        cut = in_equal_parts(c, count)
        assert cut is not None, "there are enough parts"
        timed = timed_again(plan, plan.topology, Workload((cut,)), budget)
        in_message = _most_in_message(timed, np.rint(cut.chunk_bytes / cut.piece_bytes[cut.chunk_piece] * count))
        if in_message > target.step_parts and count > chunks:
            # edges have moved to those of parts, and a message covers more of these than by its bytes
            most = count = max(chunks, min(count - 1, int(count * target.step_parts / in_message)))
            continue
        plans.append(timed)
        if completion_s(plans[-1]) <= NEXT_TO_NOTHING * before_s or count == most:
            break
        count = min(2 * count, most)
    return min(plans, key=completion_s)


def _most_in_message(plan: Plan, weight: Int64 | Float64) -> float:
    """The largest total of a message, of weights that its chunks have; or the largest weight, if that is more."""
    messages = messages_of(plan)
    alone = float(weight.max())
    if messages is None or not plan.transfer_count:
        return alone
    return max(alone, float(np.bincount(messages.of, weight[plan.chunk]).max()))


def _only_passed(topology: Topology, ranks: Int32) -> Bool:
    """bool[nodes], what stores for planners and may be passed through: routers, and accelerators that are no ranks."""
    outside = ~np.isin(np.arange(topology.node_count), ranks)
    return np.asarray(topology.is_router | (topology.is_accelerator & topology.transit & outside))


def _with_switches_outside(topology: Topology, ranks: Int32) -> Topology:
    """The network with a switch in the place of each node that is only to be passed through."""
    return replace(topology, kind=np.where(_only_passed(topology, ranks), SWITCH, topology.kind).astype(np.int8))


def _versions_on(topology: Topology, plan: Plan, budget: Budget) -> list[Plan]:
    """A planner's plan on the network as it is, first with chunks of other sizes where it ends sooner so."""
    given = _on(topology, plan, budget)
    changed = sized(tapered(given, budget), budget)
    return [changed] if changed is given else [changed, given]


def _best_fitted(versions: list[Plan], target: Target, budget: Budget) -> Plan:
    """The version that ends first as the target can run it; TooFine, or Unsupported, says why it runs none."""
    found: list[Plan] = []
    refusals: list[Unsupported] = []
    for plan in versions:
        try:
            found.append(fitted(plan, target, budget))
        except Unsupported as refusal:
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    return min(found, key=completion_s)


def _on(topology: Topology, plan: Plan, budget: Budget) -> Plan:
    """A plan that was made with switches outside the ranks, or where messages cost more, on the network as it is."""
    if plan.topology is topology:
        return plan
    if np.array_equal(plan.topology.message_s, topology.message_s):
        return replace(plan.expand() if isinstance(plan, SymmetricPlan) else plan, topology=topology)
    return timed_again(plan.expand() if isinstance(plan, SymmetricPlan) else plan, topology, plan.workload, budget)

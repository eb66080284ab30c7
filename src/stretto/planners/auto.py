"""Asks several planners for the same request, and keeps the plan that ends first.

Each planner says where it is registered whether ``auto`` asks it, in which place, and how many steps of work it takes
(:class:`~stretto.planners.registry.Candidate`). The order also depends on the collective, the topology and the size.
``auto`` stops once a plan is near the lower bound, or once the effort is spent. No clock is read: the same request and
effort give the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from ..bounds import bounds, mean_bound
from ..model.errors import InputError, Unsupported
from ..model.kinds import EVERY_KIND
from ..model.memory import TRANSFER_BYTES
from ..model.plan import Plan
from ..model.units import format_size
from ..schedule.best import Answer, ask, completion_s
from ..schedule.effort import EFFORTS
from ..schedule.insertion import moved_up
from ..simulate import simulate
from .registry import Candidate, Entry, Request, asked_by, register
from .run import plan_by, refusal_of

NEAR = 1.005
"""A plan that takes at most this many times the lower bound is good enough."""

NEAR_ALLREDUCE = 1.05
"""The same for an AllReduce among more than :data:`FEW_RANKS` ranks where bandwidth decides: what is left to ask are
searches for short ways and patterns that fill fewer links."""

FEW_RANKS = 16
"""Ranks up to which searches still improve such an AllReduce."""

MANY_ACCELERATORS = 64
"""On larger networks where bandwidth decides only candidates good for "size" are asked once there is a plan."""

BANDWIDTH_DECIDES = 0.8
"""Share of the lower bound that is not latency, from which on candidates good for "bandwidth" are asked first."""

BANDWIDTH_COUNTS = 0.5
"""Share from which on a search leaves work for planners that fill links."""

BYTES_DECIDE = 0.5
"""Share of a message's time on a link that its bytes take, from which on what messages cost does not decide."""

LATENCY_IS_LOST = 0.98
"""Share from which on a search for short ways finds nothing better than the planners that fill links."""

PLANNING_SHARE = 0.9
"""Share of the effort that candidates may spend; the rest is for the bound and for the choice."""

SPLIT_SHARE = 0.5
"""Share of what is left for planners that fill links, where a search may still find better."""

RELAYS_SHARE = 0.75
"""The same where accelerators outside the collective can add and fork, which a search does not use."""

PHASES = 1.2
"""A search first sums, then copies. Where the links of some node are busy for more than this many times the bound in
these two phases, the search has no chance, and planners that fill links get all of the effort."""

OVER_BUDGET = 150.0
"""Times the effort from which a planner is asked only if no other has made a plan."""

TRANSFERS_A_STEP = 2.0
"""Transfers of data that is not copied, for each step of the effort, up to which ``auto`` plans: "normal" allows 2
million. 1.6 million, of AllToAll on torus:20x20, take 12 s of CPU and 0.7 GB (benchmarks/large.py)."""

NO_EFFORT = "the effort was spent"
"""Why a candidate was not asked that may serve the request."""


@register(
    "auto",
    collectives=EVERY_KIND,
    topologies="any that a candidate serves",
    paper="our own",
    messages=True,
    changes=True,
    transfers=lambda request: 0,  # each candidate is asked for its own
    cuts=True,
)
def auto(request: Request) -> Plan:
    """The best of several planners.

    Returns:
        The plan. Its ``meta`` says as ``chosen`` which planner made it, and as ``tried`` what each candidate answered
        that may serve the request.
    Raises:
        InputError, Unsupported: no candidate serves the request.
    """
    _refuse_too_large(request)
    case = _Case.of(request)
    budget = request.budget.share(PLANNING_SHARE)
    unable = {name: refusal_of(name, request) for name, _ in case.candidates()}
    candidates = [(name, candidate) for name, candidate in case.candidates() if unable[name] is None]
    # the first is asked in any case, so let it be one that ends
    candidates.sort(key=lambda asked: asked[1].steps(request) > OVER_BUDGET * budget.steps)
    best: tuple[Answer, Candidate] | None = None
    answers: list[Answer] = []
    for number, (name, candidate) in enumerate(candidates):
        if best is not None:
            if best[0].score_s <= case.near_s:
                break
            if case.is_hopeless(candidate, best[1]):
                continue
            if budget.exhausted or candidate.steps(request) > budget.left:
                answers.append(Answer(name, refusal=Unsupported(NO_EFFORT)))
                continue
        request.tell(number, len(candidates), name)
        later = [other for _, other in candidates[number + 1 :] if other.steps(request) <= SPLIT_SHARE * budget.left]
        share = budget.share(case.share(candidate, later))
        answer = ask(name, partial(plan_by, name, replace(request, budget=share, progress=None)), case.score_s)
        if answer.plan is not None:
            share.charge(max(0.0, candidate.steps(request) - share.spent))
        answers.append(answer)
        if answer.plan is not None and (best is None or answer.preference_s < best[0].preference_s):
            best = answer, candidate
    if best is None or best[0].plan is None:
        refused = [Answer(name, refusal=refusal) for name, refusal in unable.items() if refusal is not None]
        raise _refusal(request, [*refused, *answers])
    plan = best[0].plan if case.several else moved_up(best[0].plan, request.budget)
    return replace(plan, meta={**plan.meta, "chosen": best[0].name, "tried": [_said(answer) for answer in answers]})


def _refuse_too_large(request: Request) -> None:
    """Refuse data that is not copied if its transfers are far too many for the effort.

    Raises:
        Unsupported: they are.
    """
    alone = not any(c.traits.copies or c.reduces for c in request.workload.collectives)
    most = TRANSFERS_A_STEP * max(request.budget.steps, EFFORTS["quick"])
    if alone and request.transfers > most:
        memory = format_size(request.transfers * TRANSFER_BYTES)
        raise Unsupported(
            f"auto does not serve {request.workload.title} on {request.topology.name} at this effort: it needs "
            f"{request.transfers:,} transfers, about {memory} of memory, and the effort is for {most:,.0f}"
        )


def _said(answer: Answer) -> dict[str, object]:
    """An answer as the meta of a plan holds it."""
    if answer.refusal is not None:
        return {"planner": answer.name, "refused": str(answer.refusal)}
    return {"planner": answer.name, "completion_s": answer.score_s}


def _refusal(request: Request, answers: list[Answer]) -> Exception:
    """Why no candidate serves: the last wrong input, else all reasons."""
    for answer in reversed(answers):
        if isinstance(answer.refusal, InputError):
            return answer.refusal
    reasons = "; ".join(str(answer.refusal) for answer in answers)
    return Unsupported(f"auto does not serve {request.topology.name}: {reasons}")


@dataclass(frozen=True)
class _Case:
    """What the order of candidates and their shares of the effort depend on."""

    request: Request
    bound_s: float  # the lower bound
    bandwidth: float  # the share of the bound that is not latency, and not what messages of a part for each rank cost
    wide: bool  # whether bandwidth decides
    relays: bool  # whether accelerators outside the collective can add and fork for it

    @classmethod
    def of(cls, request: Request) -> _Case:
        limits = bounds(request.topology, request.workload)
        bound_s = limits[0].seconds
        latency_s = next((b.seconds for b in limits if b.kind == "latency path"), 0.0)
        bandwidth = (1 - latency_s / bound_s if latency_s else 1.0) * _share_of_bytes(request)
        wide = not request.topology.planes and bandwidth >= BANDWIDTH_DECIDES
        return cls(request, bound_s, bandwidth, wide, _has_relays(request))

    @cached_property
    def bytes_decide(self) -> bool:
        """Whether messages of a part for each rank cost less than their bytes."""
        return _share_of_bytes(self.request) >= BYTES_DECIDE

    @property
    def several(self) -> bool:
        """Whether there are several collectives, whose mean completion counts."""
        return len(self.request.workload.collectives) > 1

    def score_s(self, plan: Plan) -> float:
        """What plans are compared by, seconds: their completion, or the mean completion of several collectives."""
        return simulate(plan).mean_completion_s if self.several else completion_s(plan)

    @cached_property
    def near_s(self) -> float:
        """A plan with that score is good enough, seconds."""
        if self.several:
            return NEAR * mean_bound(self.request.topology, self.request.workload).seconds
        many = all(c.traits.reduces_to_all and len(c.ranks) > FEW_RANKS for c in self.request.workload.collectives)
        return self.bound_s * (NEAR_ALLREDUCE if self.wide and many else NEAR)

    def candidates(self) -> list[tuple[str, Candidate]]:
        """Names and candidates, in the order in which they are asked."""
        accelerators = len(self.request.topology.accelerators)
        net = self.request.topology
        # few planners heed changes, so one of these is asked on every network
        named = [
            (e.name, candidate) for e, candidate in _entries() if candidate.suits(net) or (net.changes and e.changes)
        ]
        count = len(self.request.workload.collectives)
        named = [(name, candidate) for name, candidate in named if candidate.collectives_from <= count]
        if self.wide:
            named.sort(key=lambda pair: "bandwidth" not in pair[1].good_for)
        named.sort(key=lambda pair: pair[1].early_up_to is not None and accelerators > pair[1].early_up_to)
        if self.relays and self.bytes_decide:
            named.sort(key=lambda pair: pair[1].early_up_to is None and "relays" not in pair[1].good_for)
        return named

    def is_hopeless(self, candidate: Candidate, best: Candidate) -> bool:
        """Whether a candidate would hardly improve on the plan of another one."""
        many = len(self.request.topology.accelerators) > MANY_ACCELERATORS
        if self.wide and many and "size" not in candidate.good_for:
            return True
        alone = not any(c.traits.copies or c.reduces for c in self.request.workload.collectives)
        # where each chunk has one sender and one receiver, planners that fill links leave a search nothing to find
        return self.wide and alone and "latency" in candidate.good_for and "bandwidth" in best.good_for

    def share(self, candidate: Candidate, later: list[Candidate]) -> float:
        """The share of what is left that a candidate may spend; ``later`` others are asked if there is enough left."""
        fills_later = any(other.counts and "bandwidth" in other.good_for for other in later)
        if candidate.counts and fills_later and (self.bandwidth >= BANDWIDTH_COUNTS or not self.bytes_decide):
            return SPLIT_SHARE
        if not candidate.counts or "bandwidth" not in candidate.good_for or self.bandwidth >= LATENCY_IS_LOST:
            return 1.0
        if self.relays:
            return RELAYS_SHARE
        return SPLIT_SHARE if self.wide and self._phases_s() <= PHASES * self.bound_s else 1.0

    def _phases_s(self) -> float:
        """Seconds for which the links into some node and then those out of some node are busy, if all is summed before
        it is copied; 0 where not all collectives are AllReduces."""
        topology, collectives = self.request.topology, self.request.workload.collectives
        if any(not c.traits.reduces_to_all for c in collectives):
            return 0.0
        into, out = (np.bincount(v, topology.bandwidth, topology.node_count) for v in (topology.dst, topology.src))
        return max(
            c.size_bytes * (1 - 1 / len(c.ranks)) * (1 / float(into[c.ranks].min()) + 1 / float(out[c.ranks].min()))
            for c in collectives
        )


def _entries() -> list[tuple[Entry, Candidate]]:
    """The planners that ``auto`` asks, by place."""
    return [(entry, entry.auto) for entry in asked_by("auto") if entry.auto is not None]


def _share_of_bytes(request: Request) -> float:
    """The share of its time on a link, the median one, that the bytes of a message take which has a part for a rank."""
    net, collectives = request.topology, request.workload.collectives
    if not net.message_s.any():
        return 1.0
    part_bytes = max(c.size_bytes / len(c.ranks) for c in collectives)
    return float(np.median(1 / (1 + net.message_s * net.bandwidth / max(part_bytes, 1.0))))


def _has_relays(request: Request) -> bool:
    """Whether there are accelerators outside each collective, and a candidate that makes use of them."""
    kinds = {kind for entry, candidate in _entries() if "relays" in candidate.good_for for kind in entry.collectives}
    accelerators = len(request.topology.accelerators)
    return all(c.kind in kinds and len(c.ranks) < accelerators for c in request.workload.collectives)

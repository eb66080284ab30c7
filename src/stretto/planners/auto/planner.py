"""Asks several planners for the same request, and keeps the plan that ends first.

Each planner says where it is registered whether ``auto`` asks it, and how many steps of work it takes
(:class:`~stretto.planners.registry.Candidate`); from that follows in which order they are asked (:mod:`.turns`).
``auto`` stops once a plan is near the lower bound, or once the effort is spent. Where bytes may come late, such a plan
suffices only if no chain of its transfers meets more latency than it must. No clock is read: the same request and
effort give the same plan. How the order was chosen: docs/contributors/planners/auto.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from ...model.collective import Workload
from ...model.errors import InputError, StrettoError, Unsupported
from ...model.kinds import EVERY_KIND
from ...model.memory import TRANSFER_BYTES
from ...model.plan import Plan
from ...model.symmetric import SymmetricPlan
from ...model.units import format_size
from ...schedule.best import Answer, ask, best_of
from ...schedule.collecting import COLLECT_STEPS, collected
from ...schedule.dispatch import by_urgency
from ...schedule.effort import EFFORTS, Budget
from ...schedule.rerouting import rerouted
from ...schedule.sizing import sized
from ...schedule.trees import divide
from ..registry import Request, asked_by, register
from ..run import plan_by, refusal_of
from .turns import EARLY_SHARE, NEAR, Case, Turn

PLANNING_SHARE = 0.9
"""Share of the effort that candidates may spend; the rest is for the bound and for the choice."""

REROUTED, REROUTED_WITHIN, REROUTED_SHARE, MOST_REROUTED_STEPS = 4, 2.0, 0.35, 1e6
"""Of which plans the chunks are routed anew. ``REROUTED``: the best one of each of the best planners.
``REROUTED_WITHIN``: those that are preferred by at most this multiple of the best. ``REROUTED_SHARE``: of the effort
that is left, for each plan. ``MOST_REROUTED_STEPS``: for each plan where the effort has no limit."""

SIZED, SIZED_WITHIN, SIZED_SHARE, WORTH_UNLIKE = 4, 1.1, 0.4, 0.98
"""Of which plans chunks get other sizes. ``SIZED``: the best ones. ``SIZED_WITHIN``: those that count at most this
multiple of the best. ``SIZED_SHARE``: of the effort, which they get even if less is left.
``WORTH_UNLIKE``: not every target takes chunks of unlike sizes. So where the chunks of a plan for no target are alike,
it gets unlike ones only if it then takes at most this multiple of the best plan whose chunks are alike."""

TRANSFERS_A_STEP = 2.0
"""Transfers of data that is not copied, for each step of the effort, up to which ``auto`` plans: "normal" allows 2
million. By ``paths`` 1.6 million, of AllToAll on torus:20x20, take 12 s of CPU and 0.7 GB (benchmarks/large.py)."""

MANY_DELIVERIES = 2_000_000
"""Deliveries beyond which planners whose work does not grow with pairs of ranks are asked alone, if they serve the
request: AllReduce among 1,000 ranks. Any other planner takes minutes there."""

NO_EFFORT, TOO_LATE = "the effort was spent", "its plan would end later"
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
    compares=True,
)
def auto(request: Request) -> Plan:
    """The best of several planners.

    Returns:
        The plan. Its ``meta`` says as ``chosen`` which planner made it, and as ``tried`` what each candidate answered
        that may serve the request.
    Raises:
        InputError, Unsupported: no candidate serves the request.
    """
    budget = request.budget.share(PLANNING_SHARE)
    if request.deliveries > MANY_DELIVERIES:
        plan = _of_many(request)
        if plan is not None:
            return plan
    _refuse_too_large(request)
    case = Case.of(request, budget)
    candidates = case.turns()
    unable = {turn.name: refusal_of(turn.name, request) for turn in candidates}
    turns = [turn for turn in candidates if unable[turn.name] is None]
    best: Answer | None = None
    answers, led = list[Answer](), False
    for number, turn in enumerate(turns):
        if best is not None and best.likely_s <= case.near_s and not best.exposed_s:
            break
        due = best is None or (turn.leads and not led and turn.steps <= min(turn.most, case.worth(best)))
        fits = not budget.exhausted and turn.steps <= budget.left
        further = 0.0 if best is None or turn.leads or fits else case.further(best)
        if not (fits or due or turn.steps <= further):
            answers.append(Answer(turn.name, refusal=Unsupported(NO_EFFORT)))
            continue
        if best is not None and case.hopeless(turn, best):
            answers.append(Answer(turn.name, refusal=Unsupported(TOO_LATE)))
            continue
        request.tell(number, len(turns), turn.name)
        part = turn.part(budget.left, turns[number + 1 :])
        share = budget.within(part)
        if due and best is not None:  # what is there is far from the bound, and much of the effort may be spent
            share = budget.at_least(max(turn.again, part))
        elif further:  # others lose nothing by it
            share = budget.at_least(further).apart()
        if led:  # then no work is done that cannot be divided and takes longer than all the effort
            share.beyond = 1.0
        own = replace(case.told(best), budget=share, progress=None)
        answer = _ask(turn.name, own, turn.steps, case)
        led = led or (answer.plan is not None and turn.suffices and answer.likely_s <= turn.far_s)
        answers.append(answer)
        if answer.plan is not None and (best is None or answer.preference_s < best.preference_s):
            best = answer
    if best is None or best.plan is None:
        raise _refusal(request, [*filter(None, unable.values()), *(a.refusal for a in answers if a.refusal)])
    if not case.several and best.likely_s > case.near_s:
        answers = _with_finer_parts(case, turns, answers, best.preference_s)
    if not case.several and request.several_chunks:
        answers = [*answers, *_in_messages(answers, case)]
        if min(answer.likely_s for answer in answers) > case.near_s:
            answers = [*answers, *_on_other_ways(answers, case)]
    if not case.several and min(answer.likely_s for answer in answers) > case.near_s:
        answers = [*answers, *_with_other_sizes(answers, case)]
    best = min(answers, key=lambda answer: answer.handled_s)
    plan = best.plan
    assert plan is not None, "one answered"
    tried: dict[str, Answer] = {}
    for answer in answers:
        if answer.name not in tried or answer.preference_s < tried[answer.name].preference_s:
            tried[answer.name] = answer
    return plan.noted({**plan.meta, "chosen": best.name, "tried": [_said(answer) for answer in tried.values()]})


def _ask(name: str, request: Request, steps: float, case: Case) -> Answer:
    """Ask a planner, which takes ``steps`` of the request's effort, or what it has counted if that is more."""
    answer = case.ask(name, partial(plan_by, name, request))
    if answer.plan is None:
        return answer
    request.budget.charge(max(0.0, steps - request.budget.spent))
    return _by_urgency(answer, case, request.budget)


def _by_urgency(answer: Answer, case: Case, budget: Budget) -> Answer:
    """The answer, or that with times by which links serve what is urgent first, whichever is preferred."""
    if answer.plan is None or case.several:  # these times are for the last arrival, not for the mean of several
        return answer
    served = by_urgency(answer.plan, budget)
    if served is answer.plan:
        return answer
    return min(answer, case.ask(answer.name, partial(case.fitted, served)), key=lambda each: each.preference_s)


def _in_messages(answers: Sequence[Answer], case: Case) -> Iterator[Answer]:
    """The answers with what waits for a route in one message, the best one first, others while the effort lasts."""
    budget = case.request.budget
    for place, answer in enumerate(sorted(answers, key=lambda answer: answer.preference_s)):
        plan = answer.plan
        if plan is None:
            continue
        steps = COLLECT_STEPS * plan.transfer_count
        fits = steps <= budget.left
        several = collected(plan) if fits or place == 0 else None
        if several is not None:
            budget.charge(steps if fits else 0.0)  # the best one takes nothing from those that route chunks anew
            yield _by_urgency(case.ask(answer.name, partial(case.fitted, several)), case, budget)


def _on_other_ways(answers: Sequence[Answer], case: Case) -> Iterator[Answer]:
    """The best answers of some planners with their chunks routed anew, the best first."""
    budget, best = case.request.budget, dict[str, Answer]()
    for answer in sorted(answers, key=lambda answer: answer.preference_s):
        best.setdefault(answer.name, answer)
    enough_s = REROUTED_WITHIN * min(answer.preference_s for answer in answers)
    for answer in [*best.values()][:REROUTED]:
        if answer.plan is not None and answer.preference_s <= enough_s:
            steps = min(REROUTED_SHARE * budget.left, MOST_REROUTED_STEPS)
            found, took = rerouted(answer.plan, steps, case.near_s)
            budget.charge(took)
            if found is not None:
                yield case.ask(answer.name, partial(case.fitted, found))


def _with_other_sizes(answers: Sequence[Answer], case: Case) -> Iterator[Answer]:
    """The best answers with chunks of the best sizes."""
    budget, found = case.request.budget, sorted(answers, key=lambda answer: answer.handled_s)
    budget, first = budget.at_least(max(budget.left, SIZED_SHARE * budget.steps)), found[0]
    alike_s = min((each.handled_s for each in found if _is_alike(each.plan)), default=inf)
    for answer in [each for each in found if not isinstance(each.plan, SymmetricPlan)][:SIZED]:
        if answer.plan is None or answer.handled_s > SIZED_WITHIN * first.handled_s:
            break
        plan = sized(answer.plan, budget)
        if plan is not answer.plan:
            changed = case.ask(answer.name, partial(case.fitted, plan))
            becomes_unlike = case.request.target is None and _is_alike(answer.plan) and not _is_alike(plan)
            if not becomes_unlike or changed.handled_s <= WORTH_UNLIKE * alike_s:
                yield changed


def _is_alike(plan: Plan | None) -> bool:
    """Whether all chunks of a plan of one collective are alike, so that any target can take them."""
    return plan is not None and plan.workload.collectives[0].evenly_cut


def _with_finer_parts(case: Case, turns: Sequence[Turn], answers: Sequence[Answer], best_s: float) -> list[Answer]:
    """The answers, of planners that leave pieces whole with finer parts where these lead to the best plan."""
    finer: list[Answer] = []
    for turn, answer in zip(turns, answers, strict=True):
        finer.append(answer if turn.cuts else _cut_finer(answer, case, turn.steps, best_s))
        best_s = min(best_s, finer[-1].preference_s)
    return finer


def _cut_finer(answer: Answer, case: Case, steps: float, best_s: float) -> Answer:
    """The best answer of a planner whose pieces are cut in two, in four and so on.

    In twice as many parts a pipeline fills in half the time. So what all finer parts gain together is about what the
    last ones have gained. They are tried as long as this leads to less than the best plan takes, by more than ``NEAR``,
    and while the planner takes little for them.

    Args:
        answer: the planner's own for the request of the case.
        steps: of work that the planner takes for the request, about.
        best_s: seconds, what the best plan of all planners is preferred by.
    """
    request = case.request
    (whole,) = request.workload.collectives
    last = best = answer
    has_cut = answer.plan is not None and whole.traits.rooted and answer.plan.workload.chunk_count > whole.chunk_count
    hoped_s, parts = inf if has_cut else 0.0, 2  # nothing is hoped for where the planner has cut the one piece itself
    while last.plan is not None and NEAR * hoped_s < best_s:
        cut, _ = divide(whole, parts)
        most = min(EARLY_SHARE * request.budget.steps, request.budget.left)
        if cut.chunk_count < parts * whole.chunk_count or parts * steps > most:
            break
        share = request.budget.within(request.budget.left)
        finer = replace(request, workload=Workload((cut,)), budget=share, progress=None)
        before_s, last = last.score_s, _ask(answer.name, finer, parts * steps, case)
        best = min(best, last, key=lambda each: each.preference_s)
        best_s = min(best_s, best.preference_s)
        hoped_s, parts = 2 * last.score_s - before_s if last.score_s < before_s else inf, 2 * parts
    return best


def _of_many(request: Request) -> Plan | None:
    """The plan for many ranks, by planners whose work does not grow with pairs of ranks; None if they do not serve."""
    names = [e.name for e in asked_by("auto") if e.auto is not None and e.auto.by_ranks]
    answers = [ask(name, partial(plan_by, name, request)) for name in names]
    best = best_of(answers)
    if best.plan is None:
        return None
    return best.plan.noted({**best.plan.meta, "chosen": best.name, "tried": [_said(answer) for answer in answers]})


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


def _refusal(request: Request, refusals: list[StrettoError]) -> StrettoError:
    """Why no candidate serves: the last wrong input, else the reason that most of them give."""
    for refusal in reversed(refusals):
        if isinstance(refusal, InputError):
            return refusal
    reasons = Counter(str(refusal).partition(": ")[2] or str(refusal) for refusal in refusals)
    return Unsupported(f"auto does not serve {request.topology.name}: {reasons.most_common(1)[0][0]}")

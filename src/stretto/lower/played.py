"""Plans in which switches that sum receive, add up and send, as processes can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from ..model.plan import OPTIONAL_COLUMNS, REDUCE, Plan, make_plan
from ..simulate import delays_of


@dataclass(frozen=True)
class Played:
    """A plan in which switches that sum receive, add up and send.

    Attributes:
        plan: the plan with its transfers in single steps. Switches end and begin transfers here, so it does not verify.
        first, last: int64[transfers], for each transfer of the original plan the step in which its first source sends,
            and the one that its receivers get.
    """

    plan: Plan
    first: Int64
    last: Int64


def played(plan: Plan) -> Played:
    """The plan with steps in place of each transfer from several sources: to each sum, and from the last one on."""
    every = np.arange(plan.transfer_count)
    if plan.other_src is None:
        return Played(plan, every, every)
    hop_s = delays_of(plan).hop_s
    steps: list[_Step] = []
    first, last = np.empty_like(every), np.empty_like(every)
    for k in every.tolist():
        first[k] = len(steps)
        steps += _steps(plan, k, len(steps), last, hop_s[plan.route.offsets[k] : plan.route.offsets[k + 1]])
        last[k] = len(steps) - 1
    row = np.array([step.row for step in steps], dtype=np.int64)
    later_s = np.array([step.later_s for step in steps])
    columns = {
        name: column[row] + (later_s if name in ("start_s", "finish_s") else 0)
        for name in OPTIONAL_COLUMNS
        if (column := getattr(plan, name)) is not None
    }
    turns = replace(plan.turns, before=np.append(first, len(steps))[plan.turns.before].astype(np.int32))
    single = make_plan(
        plan.topology, plan.workload, plan.sharing, chunk=plan.chunk[row], src=[step.src for step in steps],
        op=[step.op for step in steps], dst=Ragged.of([step.dst for step in steps]),
        route=Ragged.of([step.route for step in steps]), depends=Ragged.of([step.after for step in steps]),
        turns=turns, barriers=plan.barriers, meta=plan.meta, **columns,
    )  # fmt: skip
    return Played(single, first, last)


class _Step(NamedTuple):
    """One step of a transfer, ``row``; it begins ``later_s`` after the transfer."""

    row: int
    src: int
    dst: list[int]
    op: int
    route: list[int]
    after: list[int]
    later_s: float


def _steps(plan: Plan, k: int, base: int, last: Int64, hop_s: Float64) -> list[_Step]:
    """The steps of transfer ``k``: from each source to where it meets others, from there on, and to the receivers.

    Args:
        base: the number of the first step. last: int64[transfers], the last steps of the transfers before.
    """
    sources, route = plan.sources[k].tolist(), plan.route[k].tolist()
    depends, receivers, op = plan.depends[k].tolist(), plan.dst[k].tolist(), int(plan.op[k])
    if len(sources) == 1:
        return [_Step(k, sources[0], receivers, op, route, [int(last[d]) for d in depends], 0.0)]
    here = {s: [d for d in depends if s in plan.dst[d]] for s in sources}
    elsewhere = set(depends).difference(*here.values())
    steps: list[_Step] = []
    # for each node what has come there: where it began, over which hops, after what
    came: dict[int, list[tuple[int, list[int], list[int]]]] = {
        s: [(s, [], sorted(int(last[d]) for d in elsewhere.union(here[s])))] for s in sources
    }
    apart = len(sources)

    def add_up(v: int) -> list[int]:
        """End at ``v`` what has come there; the numbers of these steps."""
        first = base + len(steps)
        for begin, hops, after in came[v]:
            steps.append(_Step(k, begin, [v], REDUCE, [route[i] for i in hops], after, float(hop_s[hops[0]])))
        return [*range(first, base + len(steps))]

    v, i = sources[0], 0
    while apart > 1:
        a, v = int(plan.topology.src[route[i]]), int(plan.topology.dst[route[i]])
        begin, hops, after = came[a][0] if len(came[a]) == 1 else (a, [], add_up(a))
        del came[a]
        apart -= v in came
        came.setdefault(v, []).append((begin, [*hops, i], after))
        i += 1
    steps.append(_Step(k, v, receivers, op, route[i:], add_up(v), float(hop_s[i])))
    return steps

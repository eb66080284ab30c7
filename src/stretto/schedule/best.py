"""The one place that compares plans, by the one score: when the simulator says that the last rank has all it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..model.errors import InputError, Unsupported
from ..model.plan import Plan
from ..simulate import simulate
from .dispatch import completion


def completion_s(plan: Plan) -> float:
    """When the last transfer of a plan has arrived, seconds, as the simulator says.

    A timed plan over links whose transfers have one receiver each says so itself, which is quicker to read.
    """
    if not plan.transfer_count:
        return 0.0
    if plan.sharing == "timed" and not plan.topology.planes and (plan.dst.lengths == 1).all():
        return completion(plan)
    return simulate(plan).completion_s


def best(plans: Iterable[Plan]) -> Plan:
    """The plan that ends first; of several that end together the first of them."""
    return min(plans, key=completion_s)


@dataclass(frozen=True)
class Tried:
    """What one candidate gave.

    Attributes:
        name: the candidate.
        plan: its plan; None if it refused.
        completion_s: when that ends, seconds; infinite if it refused.
        refused: why it refused.
    """

    name: str
    plan: Plan | None = None
    completion_s: float = math.inf
    refused: InputError | Unsupported | None = None


def each_of(candidates: Iterable[tuple[str, Callable[[], Plan]]]) -> Iterator[Tried]:
    """Ask candidates one after another, as far as the caller reads on."""
    for name, make in candidates:
        try:
            plan = make()
        except (InputError, Unsupported) as refusal:
            yield Tried(name, refused=refusal)
        else:
            yield Tried(name, plan, completion_s(plan))


def best_of(tried: Iterable[Tried]) -> Tried:
    """The candidate whose plan ends first; one that refused if all did."""
    return min(tried, key=lambda t: t.completion_s)

"""Where messages cost: forests for several numbers of parts, and plans of more and of fewer parts than the best one.

A forest is made for a number of parts (:mod:`.latency`): few large parts take long through deep trees, and many small
parts need more messages on each link. Estimates tell which numbers of parts are promising; plans decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from ...model.collective import Collective
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.best import best, completion_s
from ...schedule.effort import Budget
from .. import Request
from .filling import TRANSFER_COUNTS
from .forest import Forest
from .latency import Choice, Pool, promising_part_count
from .lowering import pipeline
from .refinement import FILL_SHARE

WITHIN, MOST_COMPARED, COMPARISON_SHARE = 1.1, 8, 0.2
"""Which choices are compared by plans. ``WITHIN``: those whose estimated end is at most this many times the best
estimate. ``MOST_COMPARED``: the largest number of such plans. ``COMPARISON_SHARE``: share of the remaining effort after
which no further choice is planned."""

CHOICES_SHARE = 0.4
"""Share of the effort up to which forests for further numbers of parts are made."""

HOPEFUL = 1.25
"""Times what another planner's plan takes up to which forests are sought that take less than the first one. Most
estimates are too high."""


def choices_by_parts(
    topology: Topology, c: Collective, packed: list[Forest], most: int, each: int, budget: Budget, others_s: float = inf
) -> list[Choice]:
    """Forests for some numbers of parts, the most promising first.

    Args:
        most: how many trees there may be: of an AllReduce in all, of other collectives of each root.
        each: trees that are grown in each way.
        budget: with costs for "rates", "pricing" and "transfer".
        others_s: what the best plan of others takes, seconds.
    """
    quickest = min(packed, key=lambda forest: forest.seconds_per_byte(topology))
    # half of the effort, since powers of two are rounded up; among many ranks more, so that pipelines fill
    affordable = max(budget.left / 2, FILL_SHARE * len(c.ranks) * budget.steps) / budget.costs["transfer"]
    most_each = min(TRANSFER_COUNTS[-1] / quickest.transfer_count(topology), affordable / quickest.links)
    finest = max(min(len(quickest.share) * most_each, float(c.size_bytes)), 1.0)  # a part has a byte at least
    middle = promising_part_count(topology, c, quickest, finest)
    pool = Pool.grown(topology, c, packed, c.size_bytes / middle, most, each)
    choices = pool.by_filling(middle, budget)
    middle_s = min(choice.end_s for choice in choices)
    if middle_s > HOPEFUL * others_s:  # so that a plan is there, though not the best of trees
        return choices
    for times in (0.5, 2.0):
        parts, last_s = middle, middle_s
        while 1.0 <= (parts := parts * times) <= finest and budget.spent < CHOICES_SHARE * budget.steps:
            further = pool.by_filling(parts, budget)
            choices += further
            end_s = min(choice.end_s for choice in further)
            if end_s > last_s:
                break
            last_s = end_s
    first, *others = sorted(choices, key=lambda choice: choice.end_s)
    # estimates are poor where trees carry less than a part, where routes share links, for trees chosen by windows, and
    # for packed trees, so plans of all these are always compared
    whole = pool.of_whole_parts(first.forest, first.parts)
    shared = min(choices, key=lambda choice: choice.shared_s)
    by_windows = pool.by_windows(first.parts, first.end_s, budget)
    unlike = [whole, *by_windows, *packed]
    return [
        first,
        *([shared._replace(end_s=first.end_s)] if shared is not first else []),
        *(first._replace(forest=forest) for forest in unlike if forest is not None),
        *(choice for choice in others if choice is not shared),
    ]


def best_by_parts(request: Request, choices: list[Choice], budget: Budget) -> Plan:
    """The plan that ends first: of the promising choices, and of the best one's forest in more and in fewer parts.

    Args:
        choices: the most promising first.
        budget: with costs for "cut" and "transfer".
    """

    def planned(forest: Forest, parts: float, ways: Mapping[str, int] | None = None) -> Plan:
        each = max(1.0, parts / len(forest.share))
        return pipeline(request.topology, request.workload, [forest], each, budget, ways=ways)

    plans: list[Plan] = []
    enough = budget.spent + COMPARISON_SHARE * budget.left
    promising = [choice for choice in choices if choice.end_s <= WITHIN * choices[0].end_s][:MOST_COMPARED]
    for number, choice in enumerate(promising):
        if not plans or budget.spent < enough:
            request.tell(number, len(promising) + 2, f"a plan of {choice.parts:g} parts")
            plans.append(planned(choice.forest, choice.parts))
    chosen = promising[plans.index(best(plans))]
    least, most = len(chosen.forest.share), request.workload.collectives[0].size_bytes
    for number, times in enumerate((0.5, 2.0), start=len(promising)):
        parts, last = chosen.parts * times, best(plans)
        request.tell(number, len(promising) + 2, f"plans of {'fewer' if times < 1 else 'more'} parts")
        while least <= parts <= most and budget.allows(transfer=times * len(last.route.values)):
            plan = planned(chosen.forest, parts, last.meta["ways"])
            plans.append(plan)
            if completion_s(plan) > completion_s(last):
                break
            parts, last = parts * times, plan
    return best(plans)

"""How finely data is cut where messages cost: from few parts to many, until finer parts make a plan later.

Finer parts fill pipelines sooner and bring more messages, so completion over the number of parts falls and then rises.
Plans of few messages are soon made, so the search begins with these.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..model.collective import Workload
from ..model.plan import Plan
from ..model.topology import Topology
from .best import best, completion_s

GIVE_UP = 1.1
"""Parts are cut in two until a plan is this many times as late as the best one."""


BYTES_DECIDE = 0.5
"""Share of a message's time on a link that its bytes take, from which on what messages cost does not decide."""


def share_of_bytes(topology: Topology, workload: Workload) -> float:
    """The share of its time on a link, of those where messages cost the median one, that the bytes of a message take
    which has a part for a rank."""
    if not messages_cost(topology):
        return 1.0
    part_bytes = max(c.size_bytes / len(c.ranks) for c in workload.collectives)
    costs = topology.message_s > 0  # messages are made at accelerators: between switches they cost nothing
    message_bytes = topology.message_s[costs] * topology.bandwidth[costs]
    return float(np.median(1 / (1 + message_bytes / max(part_bytes, 1.0))))


def messages_cost(topology: Topology) -> bool:
    """Whether messages cost more than their bytes somewhere, so that finer parts may be worse."""
    return bool(topology.message_s.any())


def each_alone_s(topology: Topology, workload: Workload) -> float:
    """Seconds that a plan whose messages have one chunk each takes at least, for what messages cost alone.

    Each rank gets a message of every other rank's data, or if pieces are summed sends one for every other rank's, over
    the links that lead to it, or from it. In an AllReduce, with a root, and where some have no data for others,
    messages may be few: this is 0.
    """
    most_s = 0.0
    for c in workload.collectives:
        if c.traits.general and not (c.traits.rooted or c.traits.reduces_to_all):
            end = topology.src if c.reduces else topology.dst
            with np.errstate(divide="ignore"):
                rate = np.bincount(end, 1 / topology.message_s, topology.node_count)  # messages a second
            most_s = max(most_s, float(((len(c.ranks) - 1) / rate[c.ranks]).max()))
    return most_s


def is_too_fine(plans: list[Plan]) -> bool:
    """Whether finer parts need not be tried: the plan of the finest ones ends later than ``GIVE_UP`` times the best."""
    return completion_s(plans[-1]) > GIVE_UP * completion_s(best(plans))


def powers_up_to(most: float, fewest: float = 1.0) -> list[float]:
    """Numbers of parts from ``fewest`` on, each twice the one before, below ``most``."""
    return [fewest * 2.0**k for k in range(math.ceil(math.log2(most / fewest)))] if most > fewest else []


def cut_as_pays(topology: Topology, cut: Callable[[int], Plan | None], finest: int, coarsest: int = 1) -> Plan | None:
    """The plan with the finest parts, or where messages cost the best of those with 1, 2, 4, ... times the coarsest.

    Args:
        cut: the plan with a number of parts; None if there is no such plan.
    """
    counts = [*map(int, powers_up_to(finest, coarsest)), finest] if messages_cost(topology) else [finest]
    plans: list[Plan] = []
    for count in counts:
        plan = cut(count)
        if plan is not None:
            plans.append(plan)
            if is_too_fine(plans):
                break
    return best(plans) if plans else None

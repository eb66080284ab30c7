"""The plan's network on this machine, and the plan on it: real bytes, beside what the simulator says.

Bandwidths and sizes are divided by declared factors, see :mod:`.scaling`. Delays are netem's; on a kernel without it
the executor adds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.plan import Plan
from ..runtime.local import Outcome, run_local
from ..simulate import simulate
from .namespaces import PREFIX, built, clean, enter, network, refusal
from .scaling import WIDEST, Scaling, fitting, fitting_scale, scaled
from .shaping import has_netem, reserved

__all__ = [
    "PREFIX",
    "WIDEST",
    "Emulated",
    "Scaling",
    "built",
    "clean",
    "emulate",
    "enter",
    "fitting",
    "fitting_scale",
    "has_netem",
    "network",
    "refusal",
    "scaled",
]


@dataclass(frozen=True)
class Emulated:
    """A plan that was run on its own network.

    Attributes:
        plan: with the sizes and times of the network as it was built.
        scaling: how these follow from the given plan's.
        pace: 1 where starts and rates were kept, None where the network decided.
        simulated_s: the simulator's completion on the network as it was built.
        delays_by: ``netem``, ``the executor`` or ``nothing``, where the network has none.
        shares_by: ``htb classes`` where links are divided by weight in the network, else ``no one``.
        arrivals: for each transfer and receiver the simulated and the measured second of arrival.
        departures: for each transfer the simulated and the measured second in which it began.
    """

    plan: Plan
    outcome: Outcome
    scaling: Scaling
    pace: float | None
    simulated_s: float
    delays_by: str
    shares_by: str
    arrivals: list[tuple[int, int, float, float]]
    departures: list[tuple[float, float]]


def emulate(given: Plan, scaling: Scaling, timeout_s: float = 60.0) -> Emulated:
    """Run a plan that verifies, real bytes on its own network, beside the simulator.

    Times are kept where the plan sets them or a rate (``timed``, ``rates``, ``weights``); elsewhere the network
    decides.
    """
    plan = scaled(given, scaling)
    pace = 1.0 if plan.sharing in ("timed", "rates", "weights") else None
    delayed = bool(plan.topology.latency_s.any())
    by_network = not delayed or has_netem()
    delays = {} if by_network else {k: _delay(plan, k) for k in range(plan.transfer_count)}
    with network(plan) as places:
        outcome = run_local(plan, places=places, pace=pace, timeout_s=timeout_s, delays=delays)
    timeline = simulate(plan)
    arrivals = [
        (k, v, float(timeline.finish_s[k] + _delay(plan, k)), outcome.traces[v].arrived_s[k])
        for k in range(plan.transfer_count)
        for v in plan.dst[k].tolist()
    ]
    by = "nothing" if not delayed else "netem" if by_network else "the executor"
    shares_by = "htb classes" if reserved(plan) else "no one"
    departures = [
        (float(timeline.start_s[k]), outcome.traces[int(plan.src[k])].sent_s[k]) for k in range(plan.transfer_count)
    ]
    return Emulated(plan, outcome, scaling, pace, timeline.completion_s, by, shares_by, arrivals, departures)


def _delay(plan: Plan, k: int) -> float:
    """Latency on the way of a transfer to its farthest receiver, seconds."""
    topology, reached = plan.topology, {int(plan.src[k]): 0.0}
    left = plan.route[k].tolist()
    while left:
        link = next(i for i in left if int(topology.src[i]) in reached)
        reached[int(topology.dst[link])] = reached[int(topology.src[link])] + float(topology.latency_s[link])
        left.remove(link)
    return max(reached[v] for v in plan.dst[k].tolist())

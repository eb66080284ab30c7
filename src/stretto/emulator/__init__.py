"""Build a plan's network on this machine and run the plan on it with real bytes, beside what the simulator says.

Bandwidths and sizes are divided by declared factors, see :mod:`.scaling`. The kernel's netem adds delays; on a kernel
without netem the executor adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..model.plan import Plan
from ..runtime.cost import as_run
from ..runtime.local import Outcome, played, run_local
from ..runtime.switches import TimedSwitch
from ..simulate import simulate
from ..simulate.rates import delays_of
from .fabric import FabricSwitch
from .namespaces import PREFIX, built, clean, enter, network, refusal
from .scaling import WIDEST, Scaling, fitting, fitting_scale, scaled
from .shaping import Rough, has_netem, reserved

__all__ = [
    "PREFIX", "WIDEST", "Emulated", "Rough", "Scaling", "built", "clean", "emulate", "enter", "fitting",
    "fitting_scale", "has_netem", "network", "refusal", "scaled",
]  # fmt: skip


@dataclass(frozen=True)
class Emulated:
    """A plan that was run on its own network.

    Attributes:
        plan, scaling: the plan as the network was built for it, and the divisors that made it from the given plan.
        pace: 1 if starts and rates were kept, None if the network decided.
        simulated_s: the simulator's completion on the network that was built, seconds. A message costs there what the
            plan's links ask for or what it costs the processes, whichever is more.
        delays_by: ``netem``, ``the executor``, or ``nothing`` if the network has no delays.
        shares_by: ``htb classes`` if the network divides links by weight, else ``no one``.
        arrivals: for each transfer and receiver the simulated and the measured arrival, seconds.
        departures: for each transfer the simulated and the measured start, seconds.
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


def emulate(original: Plan, scaling: Scaling, timeout_s: float = 60.0, seed: int = 0) -> Emulated:
    """Run a plan that verifies with real bytes on its own network, and compare with the simulator.

    Starts and rates are kept if the plan gives them (``timed``, ``rates``, ``weights``). ``seed`` is that of the random
    test data.
    """
    plan = scaled(original, scaling)
    steps = played(plan)
    pace = 1.0 if plan.sharing in ("timed", "rates", "weights") else None
    delayed = bool(plan.topology.latency_s.any()) or any(plane.latency_s for plane in plan.topology.planes)
    by_network = not delayed or has_netem()
    late_s = [] if by_network else _delays(steps.plan)
    with network(steps.plan) as places:
        nodes = [plane.nodes.tolist() for plane in plan.topology.planes]
        switch = partial(FabricSwitch, places[plan.topology.node_count].argument, nodes) if nodes else TimedSwitch
        outcome = run_local(
            plan, seed=seed, places=places, pace=pace, timeout_s=timeout_s, delays=dict(enumerate(late_s)),
            switch=switch,
        )  # fmt: skip
    timeline = simulate(as_run(plan))
    receivers = zip(plan.dst.owners.tolist(), plan.dst.values.tolist(), timeline.arrival_s.tolist(), strict=True)
    arrivals = [(k, v, arrival_s, outcome.traces[v].arrived_s[int(steps.last[k])]) for k, v, arrival_s in receivers]
    delays_by = "nothing" if not delayed else "netem" if by_network else "the executor"
    shares_by = "htb classes" if reserved(steps.plan) else "no one"
    departures = [
        (float(timeline.start_s[k]), outcome.traces[int(plan.src[k])].sent_s[int(steps.first[k])])
        for k in range(plan.transfer_count)
    ]
    return Emulated(plan, outcome, scaling, pace, timeline.completion_s, delays_by, shares_by, arrivals, departures)


def _delays(plan: Plan) -> list[float]:
    """For each transfer the seconds between the last byte that leaves its source and the last that arrives."""
    late_s = plan.dst.reduced(np.maximum, delays_of(plan).receiver_s)
    if plan.plane is not None and plan.topology.planes:
        circuits_s = np.array([plane.latency_s for plane in plan.topology.planes])
        late_s = np.where(plan.plane < 0, late_s, circuits_s[plan.plane])
    return [float(each) for each in late_s]

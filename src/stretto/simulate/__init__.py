"""The simulator: how long a plan takes. It is the only implementation of the physics (docs: physics).

It knows links, nodes and dependencies, and nothing of planners: what a planner claims counts when this reproduces it.

- ``kernel_physics.py``: links, switches and nodes: latency along a route, what a switch does, when a node sends on.
- ``ready_order.py``, ``kernel_ready_order.py``: ``timed`` and ``ready-order`` plans, in which links serve transfers in
  the order in which these become ready.
- ``rates.py``, ``kernel_rates.py``: plans that share links by ``rates``, ``weights``, ``fair`` or ``priorities`` (WAN
  paper, eqs. 8, 9, 11); :class:`SharedLinks` runs one plan many times.
- ``patterns.py``: one pattern of messages over many sets of routes.
- ``changing.py``, ``kernel_changing.py``: ``timed`` and ``ready-order`` plans on links whose bandwidth changes.
- ``planes.py``: optical planes: circuits as links, turns and barriers as events.
- ``completion.py``: when the ranks of each collective have all that they want.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.arrays import Ragged
from ..model.changes import Changes
from ..model.errors import Unsupported
from ..model.messages import messages_of
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan, SymmetricTimeline
from ..model.timeline import Timeline
from . import changing, rates, ready_order
from .changing import in_order
from .completion import completions_s
from .patterns import Pattern
from .rates import BY_RATES, Delays, SharedLinks, delays_of

__all__ = ["Delays", "Pattern", "SharedLinks", "delays_of", "in_order", "simulate"]


def simulate(
    plan: Plan, changes: Changes | None = None, *, barriers: bool = True, follows: Ragged | None = None
) -> Timeline:
    """Run a plan.

    ``timed``: a transfer starts at its ``start_s``, or when it is ready and its links have room if that is later, and
    takes the time that the plan gives it. ``ready-order``: links serve transfers in the order in which these become
    ready (then by index), one at a time, at the speed of the slowest link of the route. An optical plane turns when all
    that it carried has arrived (in a timed plan not before the turn's ``start_s``).

    ``rates`` and ``weights`` reserve: a transfer has its ``rate``, or its group's share by weight of every link (WAN
    paper, eq. 11), whoever else is active. ``fair`` and ``priorities`` are work-conserving: weighted max-min among the
    active transfers, or the highest ``weight`` first and max-min among equals.

    Of a plan by symmetry the representatives are run, on links that carry all images. A message of several chunks is
    run as one transfer of all their bytes: all of them begin, end and arrive with it.

    Args:
        changes: how bandwidths change in fact; by default as the plan's topology says. Transfers of a timed plan keep
            their shares of their routes, and each is late if the network is slower than planned; with it what depends
            on it. Reserved ``rates`` shrink together where a link cannot carry what is reserved on it, and do not grow.
        barriers: False relaxes a plan with barriers: its transfers wait for their dependencies, links and planes only,
            not for their step or ``start_s``.
        follows: for each transfer of a ready-order plan those that must have left their senders before it starts: the
            order of a thread that sends one message after the other. They come earlier in the plan.
    Raises:
        Unsupported: a plan of the last four uses optical planes; ``follows`` of a plan that is not in ready order.
        Infeasible: a transfer never ends, since a link fails and does not come back.
    """
    if (messages := messages_of(plan)) is not None:
        after = None if follows is None else messages.lists(follows)
        course = simulate(messages.merged, changes, barriers=barriers, follows=after)
        return messages.timeline(course, completions_s(plan, messages.arrivals(course.arrival_s)))
    if follows is not None:
        if plan.sharing != "ready-order" or changes is not None or plan.topology.changes:
            raise Unsupported("threads send in turn in ready-order plans alone, on links that do not change")
        return ready_order.run(plan, barriers, follows=follows)
    if isinstance(plan, SymmetricPlan):
        if changes is None:
            return SymmetricTimeline(plan, ready_order.run(plan.part, barriers, plan.symmetry))
        plan = plan.expand()
    planned = plan.topology.changes
    if changes is not None:
        plan = replace(plan, topology=replace(plan.topology, changes=changes))
    if plan.sharing in BY_RATES:
        if plan.plane is not None and (plan.plane >= 0).any():
            raise Unsupported(f"optical planes do not share by {plan.sharing!r}")
        return rates.run(plan)
    if planned or plan.topology.changes:
        return changing.run(plan, planned, barriers)
    return ready_order.run(plan, barriers)

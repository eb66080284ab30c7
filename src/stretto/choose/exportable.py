"""Plans for a target that its exporter can write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..formats import exporters
from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.rows import messages_at_nodes
from ..model.targets import Target
from ..schedule.kept import Kept
from ..simulate import simulate

COARSER = 3
"""Plans of half as many messages that are made at most where an exporter refuses a plan for its target."""


def exportable(make: Callable[[Target, Kept], Plan], target: Target, kept: Kept | None = None) -> Plan:
    """The plan for a target: if its exporter refuses it, the plan of half as many messages at the busiest rank.

    Args:
        make: the plan for a target, of planners whose plans are kept. It is asked again for one of fewer messages.
        kept: plans of earlier calls for the same work.
    """
    exporter, goal, kept = exporters().get(target.name), target, kept or Kept()
    for attempt in range(COARSER + 1):
        made = make(goal, kept)
        try:
            if exporter is not None and exporter.check is not None:
                exporter.check(simulate(made))
        except Unsupported:
            if attempt == COARSER:
                raise
            goal = replace(goal, messages=int(messages_at_nodes(made).max()) // 2)
        else:
            break
    return made

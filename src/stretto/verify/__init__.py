"""The verifier: is a plan correct? It shares no code with the simulator or any planner.

Each file checks one thing:

- ``promises.py``: collectives promise what their kind means, and chunks cover their pieces.
- ``routes.py``: routes are paths or trees that pass and branch only where nodes let them.
- ``messages.py``: what may be one message of several chunks.
- ``planes.py``: circuits, turns and barriers of optical planes.
- ``capacity.py``: no transfer is too fast and no link carries too much (WAN paper, eqs. 8 and 9, lemma 3).
- ``changing.py``: speed and load of a timed plan on links whose bandwidth changes.
- ``contents.py``: what is sent is there, writes are ordered, and every rank ends with exactly what it was promised.
- ``timed.py``: starts respect dependencies; it asks ``planes.py`` and ``capacity.py`` about the times of a timed plan.
- ``symmetric.py``: plans by symmetry: the group, its orbits, and then the checks above on the representatives.
- ``rounding.py``: how far rounding may move those times.

``findings.py`` has the codes of violations; ``kernel_referee.py`` and ``kernel_contents.py`` the loops over
transfers. The cost is near-linear in transfers, hops and dependencies.
"""

from __future__ import annotations

from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from . import capacity, contents, messages, planes, promises, routes, symmetric, timed
from .findings import CODES, Finding, Verdict

__all__ = ["CODES", "Finding", "Verdict", "verify"]

CHECKS = (
    promises.broken_promise,
    routes.broken_route,
    messages.broken_message,
    planes.wrong_circuit,
    messages.by_messages(capacity.too_fast),
    contents.wrong_contents,
    messages.by_messages(timed.wrong_time),
    capacity.crowded_reservations,
)
"""Each takes a plan and returns the first violation, or None."""


def verify(plan: Plan) -> Verdict:
    """Check a plan against the physics and its collectives' promises.

    Only a ``timed`` plan has times to check. A plan that shares by ``rates`` is correct if no link can carry too much
    in any timing; a plan with any other sharing, in every timing that respects its dependencies, since the network
    divides the bandwidth. A plan by symmetry is checked on its representatives.
    """
    if isinstance(plan, SymmetricPlan):
        return Verdict(symmetric.wrong_plan(plan))
    for check in CHECKS:
        finding = check(plan)
        if finding is not None:
            return Verdict(finding)
    return Verdict()

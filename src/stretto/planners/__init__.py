"""Planners and refiners: one file each, or one folder where it takes more.

- :mod:`.registry`: what a planner is, who asks it (``auto``, ``tune``, the library), and all that there are.
- :mod:`.run`: runs a spec such as ``ring+rate-alloc``.
- :mod:`.auto`: asks several planners and keeps the best plan.

Every other module and folder here is a planner. A folder imports the first two, the floors
below, and no other planner's folder.
"""

from ..model.progress import Progress
from .registry import (
    Candidate,
    Entry,
    Option,
    Request,
    asked_by,
    find,
    over_links,
    per_delivery,
    refiner,
    register,
    registered,
)
from .run import default_effort, plan_by, run_planner

__all__ = [
    "Candidate", "Entry", "Option", "Progress", "Request", "asked_by", "default_effort", "find", "over_links",
    "per_delivery", "plan_by", "refiner", "register", "registered", "run_planner",
]  # fmt: skip

"""Planners and refiners: one file each, or one folder where it takes more.

``registry`` says what a planner is and finds them all, ``run`` runs a spec such as ``ring+rate-alloc``. Every other
module and folder here is a planner. A folder imports these two, the floors below, and no other planner's folder.
"""

from .registry import (
    Candidate,
    Entry,
    Option,
    Progress,
    Request,
    asked_by,
    find,
    over_links,
    per_delivery,
    refiner,
    register,
    registered,
)  # fmt: skip
from .run import plan_by, run_planner

__all__ = [
    "Candidate", "Entry", "Option", "Progress", "Request", "asked_by", "find", "over_links", "per_delivery", "plan_by",
    "refiner", "register", "registered", "run_planner",
]  # fmt: skip

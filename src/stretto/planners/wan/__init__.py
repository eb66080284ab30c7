"""Refiners of the WAN paper: how flows over fixed routes share links, and the baselines."""

from . import multiring as multiring
from . import nonconcurrent as nonconcurrent
from . import planner as planner
from . import rate_alloc as rate_alloc
from . import static as static
from . import weight_alloc as weight_alloc

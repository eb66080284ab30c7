"""Fixed algorithms (recursive doubling, Rabenseifner, Bruck, pairwise, ...) and rings, as planners."""

from . import planner as planner
from . import ring as ring

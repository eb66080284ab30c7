"""Fixed algorithms and rings, as planners.

- ``planner``: recursive doubling, Rabenseifner, Bruck, pairwise, ... (:mod:`stretto.schedule.algorithms`) over shortest
  routes, or over planes.
- ``hierarchical``: inside servers and across them, where messages cost.
- ``ring``: rings over links, with a search for the order of the ranks.
"""

from . import hierarchical as hierarchical
from . import planner as planner
from . import ring as ring

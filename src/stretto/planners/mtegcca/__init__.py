"""`mtegcca` and its exact model `milp-allgather`: multicast trees on a time-expanded graph.

Liu, Wang, Ma, Li, Li, "Multicast time-expanded graph-based collective communication scheduling algorithm", Journal on
Communications 2026.

- ``planner``: steps 1 to 4 of section 2, by our rules or the paper's, and sums; ``growth``: rules, rounds at changing
  prices, and trees as a plan. The search itself is :mod:`stretto.schedule.multicast`, since other planners spread
  chunks by it, too.
- ``expanded``: the graph of section 2.1 built explicitly (algorithm 1), and steps 3 and 4 on it.
- ``exact``: the integer program of section 1.2, equations (1) to (14); ``slots``: capacities by slot, equation (7).
"""

from . import exact as exact
from . import planner as planner

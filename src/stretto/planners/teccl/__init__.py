"""`teccl`: collectives as a multi-commodity flow in epochs.

Liu, Arzani, Kakarla et al., "Rethinking machine learning collective communication as a multi-commodity flow problem",
SIGCOMM 2024, on open solvers.

- ``planner``: the options; the modes of section 3, the search for the fewest epochs, A* rounds, and sums by inversion.
- ``problem``: a request in epochs, the solves that it has taken, and the public code's search for a horizon.
- ``epochs``: delays, windows and capacities of links in epochs, and who holds what when the first epoch begins.
- ``horizon``: a lower bound on the epochs, and another planner's plan in epochs.
- ``copies``: the mixed-integer program of section 3, where nodes copy chunks.
- ``flows``: the linear program of section 4.1, where nothing is copied, and its solution as paths.
- ``flow_plan``: a plan from that program: fewest epochs, then paths, then parts of chunks.
"""

from . import planner as planner

"""`taccl`: collectives guided by a communication sketch.

Shah, Chidambaram et al., "TACCL: Guiding collective algorithm synthesis using communication sketches", NSDI 2023, on
open solvers.

- ``planner``: the options, and the three stages one after the other; sums by inversion.
- ``sketch``: sketches (section 3), the included ones in ``sketches/``.
- ``hops``: the links and ways through switches that a sketch leaves.
- ``symmetry``: decisions that a sketch's rotations make equal.
- ``routing``: stage 1 (section 4.1), which hops each chunk takes, by a relaxed integer program.
- ``schedule``: stages 2 and 3 (4.2, 4.3), the order on each link, then joined messages and exact times.
"""

from . import planner as planner

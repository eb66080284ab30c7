"""Refiners for collectives over fixed routes: the schemes of the WAN paper, their baselines, and ``wan``, which is
ours.

Wang, Craps, Li, "Optimizing Wide-Area Collective Communication via Flow-Dependency-Aware Rate Allocation".

- ``flows.py``: flows and flow groups (section III-A).
- ``baselines.py``: the baselines (section IV-C), and TCP's fair sharing.
- ``rate_alloc.py``: ``rate-alloc`` (RateAlloc), a convex program, eqs. (8) to (10).
- ``weight_alloc.py``: ``weight-alloc`` (WeightAlloc), eq. (11) and algorithm 1.
- ``nonconcurrent.py``: ``non-concurrent``, one flow on a link at a time, eqs. (4) to (7).
- ``multiring.py``: ``multiring``, eq. (12).
- ``lists.py``, ``kernel_lists.py``: greedy schedules (section III-E).
- ``planner.py``: ``wan``; ``search.py`` searches priorities.
- ``bound.py``, ``kernel_windows.py``: a bound from chains and loads.
- ``proof.py``, ``kernel_narrowing.py``, ``slots.py``: a tighter bound, by narrowing the windows of flows and by linear
  programs.
"""

from . import baselines as baselines
from . import multiring as multiring
from . import nonconcurrent as nonconcurrent
from . import planner as planner
from . import rate_alloc as rate_alloc
from . import weight_alloc as weight_alloc

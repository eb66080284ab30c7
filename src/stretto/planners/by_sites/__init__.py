"""by-sites: plans between sites as if each were one accelerator, and the ways of that plan inside them.

- :mod:`.contraction`: a network in which every site is one accelerator, and collectives on it.
- :mod:`.parts`: the plan between sites in smaller parts, and when each of its transfers goes.
- :mod:`.expansion`: the plan between sites as a plan of all ranks.
- :mod:`.planner`: the planner.
"""

from __future__ import annotations

from .planner import by_sites

__all__ = ["by_sites"]

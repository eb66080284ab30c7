"""`nccl`, `nccl-ring` and `nccl-tree`: what NCCL 2.20 would do.

- ``planner``: the three planners. ``nccl_ring`` sends round rings, ``nccl_tree`` along double binary trees (NCCL's
  src/graph/trees.cc), and ``nccl`` chooses between them.
- ``rings``: the search for rings (NCCL's src/graph/search.cc and rings.cc).
"""

from . import planner as planner

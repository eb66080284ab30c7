"""`nccl`, `nccl-ring` and `nccl-tree`: what NCCL would do."""

from . import planner as planner
from . import ring as ring
from . import tree as tree

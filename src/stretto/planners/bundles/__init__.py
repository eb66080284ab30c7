"""Trees from one root whose messages carry bundles: what is for a node and for all below it.

- ``planner``: the options, trees in one part and in several, and their plans.
- ``ways``: which node may send to which, and over which links.
- ``kernel_trees``: how trees grow, and when each node has its data by a tree.
- ``kernel_changes``: how trees are made better.
"""

from .planner import bundles

__all__ = ["bundles"]

"""Trees in rounds of messages of several chunks, where messages cost.

- ``planner.py``: how many rounds, and the planner itself.
- ``program.py``: the linear program of trees and lengths of rounds.
- ``generation.py``: trees are added to it at the prices of its solutions.
- ``lowering.py``: trees in rounds become a plan.
- ``kernel_growth.py``: trees of least price.
"""

from .planner import rounds

__all__ = ["rounds"]

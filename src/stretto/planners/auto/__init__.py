"""The default planner: the best of several planners.

- ``planner.py``: asks them, and improves what they answer.
- ``turns.py``: in which order they are asked, how far each may go, and what their plans are compared by.
"""

from .planner import auto

__all__ = ["auto"]

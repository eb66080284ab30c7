"""The face of the package: what ``import stretto as st`` offers.

Everything here is a thin call into the rooms below.

    objects       Plan and Topology: those of the model, with methods that need rooms above the model
    requests      topology, compose, collective, workload
    planning      plan, replan, load, verify, simulate, bound
    comparison    compare, Comparison
    ordering      order, Order: the numbering of machines for libraries with fixed rings and trees
    front         front, Front: plans that trade time for money

The functions take plans and topologies of the model, too. Sizes are text (``"64MB"``, ``"1MiB"``) or a number of bytes,
as nccl-tests count them: ``size`` is the full buffer, ``shard`` one rank's share of it. Times are text (``"5us"``) or
seconds, rates text (``"25GB/s"``) or bytes per second.
"""

from typing import TYPE_CHECKING, Any

from .comparison import Comparison, compare
from .front import Front, front
from .objects import Plan, Topology, draw, of_model
from .planning import bound, load, plan, replan, simulate, verify
from .requests import collective, compose, request_topology, topology, workload

if TYPE_CHECKING:
    from .ordering import Order, order

__all__ = [
    "Comparison", "Front", "Order", "Plan", "Topology", "bound", "collective", "compare", "compose", "draw", "front",
    "load", "of_model", "order", "plan", "replan", "request_topology", "simulate", "topology", "verify", "workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The names of :mod:`.ordering`, which loads a room that nothing else here needs."""
    if name not in ("Order", "order"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import ordering

    return getattr(ordering, name)

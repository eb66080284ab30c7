"""The order of machines: which machine should get which number, for libraries whose rings and trees are fixed.

NCCL, gloo and MPI decide by rank numbers alone who sends to whom. So the numbering of the machines decides which links
carry their traffic. This room searches for the numbering that ends a step soonest.

- ``traffic.py``: what a library sends, as a function of rank numbers; ``step.py``: parallel groups.
- ``libraries.py``, ``libraries_*.py``, ``open_mpi_choice.py``, ``open_mpi_han.py``: which algorithms each library has,
  and when it takes them; ``patterns.py``, ``exchanges.py``, ``mpi_algorithms.py``: what these send, step by step.
- ``network.py``: machines, and the routes that the network takes; ``messages.py``, ``judge.py``: all messages of an
  order, as plans that the simulator runs; ``problem.py``: the same as arrays.
- ``search.py``: the search; ``starts.py``, ``kernel_local.py``: local search; ``kernel_cost.py``, ``exchangeable.py``:
  branch and bound; ``inside.py``: GPUs in a machine; ``bounds.py``: what no order can beat.
- ``answer.py``: :func:`order` and what it answers; ``files.py``: orders as launchers read them.
"""

from .answer import Order, order

__all__ = ["Order", "order"]

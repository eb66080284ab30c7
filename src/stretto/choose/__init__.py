"""Which planner to use, and what to do when the network changes.

``auto``, which asks several planners for one request, is a planner: ``planners/auto``.

- :mod:`.tuning`: a table of the best planner for each range of sizes, and its file.
- :mod:`.library`: plans for running processes (PyTorch's backend), chosen once for each kind and size class.
- :mod:`.front`: plans that trade time for money, where links have prices.
- :mod:`.replan`: a new plan for the rest of a workload, when the network has changed.
"""

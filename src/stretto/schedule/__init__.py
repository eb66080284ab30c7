"""What several planners share.

- ``effort``: counted work; ``best``: the one place that compares plans.
- ``trees``: cuts chunks, lowers trees to transfers; ``shortest_trees``: trees of shortest paths; ``multicast``: trees
  grown on a time-expanded graph (``kernel_multicast``, ``kernel_candidates``, ``kernel_calendars``).
- ``pipes``: ways between nodes that store, and what each node still wants; ``clusters``: groups of nodes that faster
  pipes join.
- ``resizing``: plans timed again for chunks of other sizes; ``sizing``: the sizes with which a plan ends soonest.
- ``inversion``: sums as copies with time reversed; ``backwards``: data that comes in as data that goes out.
- ``routes``: shortest routes through switches and routers.
- ``dispatch``: list schedules of transfers that wait for each other (``kernel_dispatch``); ``asap``: ordered sends,
  each as early as possible; ``moments``: exact moments of timed plans (``kernel_moments``).
- ``algorithms``: fixed algorithms as steps; ``two_trees``: double binary trees; ``grid_steps``: algorithms on grids.
"""

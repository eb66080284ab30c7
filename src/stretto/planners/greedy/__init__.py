"""`greedy`: chunks matched to links event by event, and searched; AllReduce also by exchange.

- ``planner``: the registered planner, its stages and its options.
- ``search``: matchings by random keys (Bean, ORSA Journal on Computing 1994); the matching itself is
  ``stretto.kernels.matching`` (nearest relative: TACOS, Won et al., MICRO 2024).
- ``growth``: trees grown chunk by chunk, where chunks must pass through nodes that do not want them.
- ``translations``, ``kernel_translations``: networks that look the same from every node, planned for one node.
- ``tree_swap``: AllReduce in which what is summed over a deep tree spreads over a shallow one.
- ``orders``, ``kernel_orders``: the order in which chunks, or sums on circles, are delivered, improved move by move.
- ``exchange``: AllReduce in which partial sums meet, instead of all going to a root and back.
- ``costs``: what each kind of counted work takes in steps.
"""

from . import planner as planner

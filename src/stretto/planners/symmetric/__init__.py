"""Plans by symmetry: one representative's data, and its images.

- ``case.py``: a request with the symmetry of its network.
- ``routes.py``: routes through switches from one rank to all others.
- ``chains.py``: chains of cosets, the ways of data from one rank to all others.
- ``ways.py``: by which chains the data goes, and the share of each.
- ``rates.py``: how much goes by which chain, a linear program over orbits of links.
- ``transfers.py``: the transfers of representative chunks along a chain.
- ``times.py``: when they start, a list schedule over orbits of links.
- ``few_owners.py``: AllReduce where messages cost: chunks for a subgroup (``subgroups.py``), by the best of many
  designs (``designs.py``), of which trees and meetings are as messages and latency ask for (``postal.py``).
- ``in_switches.py``: AllReduce where switches sum, in blocks of ranks that come together there (``switch_blocks.py``).
- ``several.py``: plans for several orbits of ranks, as where one NIC is slow.
- ``packing.py``: which trees these have, a linear program whose columns are grown (``kernel_trees.py``).
- ``exchanges.py``: the ways of an AllToAll there, and which piece goes by which (``kernel_exchange.py``).
- ``cuts.py``: into how many parts the data of several orbits is cut.
- ``lanes.py``: when their transfers start.
- ``planner.py``: the planner ``symmetric``.
"""

from . import planner as planner

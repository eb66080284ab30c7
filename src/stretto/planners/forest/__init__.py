"""`forest`: trees that together fill the network, for sizes at which bandwidth decides (ForestColl, 2024).

A *forest* is a collective's answer to "along which trees?": rows of trees, each with its share of the data. A row has
an in-tree for sums, an out-tree for copies, or both, of one root (the rank where data starts, or where it is summed);
the edges of these trees are routes through switches. The flow:

1. ``candidates`` makes the first forests of a collective: ``rates`` gives whole numbers of trees, ``split`` leaves a
   network of ranks alone, ``pack`` packs batches of equal trees into it, and edges get their routes back.
2. ``division`` keeps the largest trees; ``latency`` adds forests where latency counts beside bandwidth; ``filling``
   estimates which of all these end soonest.
3. ``refinement`` compares forests by coarse plans and cuts the best one finer, while that gains and the effort allows;
   where trees are deep it adds a ``priced`` forest. Where messages cost ``parts`` chooses, of forests for numbers of
   parts. Each plan is made by ``lowering``.

======================== ===============================================================================================
planner                  the planner: choices of forests, and what they cost in counted work
refinement               the search over forests and numbers of parts
lowering                 chunks cut along trees, lowered and ordered
forest                   Forest: rows of trees and their shares
candidates               Packing; forests at the rate of the bottleneck; for AllReduce two trees of each root
rates                    TreeCounts: rates of the bottleneck cut (ForestColl) as whole numbers of trees
split                    RankNetwork: switches split off (Mader 1978; ForestColl)
pack                     RankEdges; Edmonds' packing (1973) by max-flows (Bérczi and Frank 2010; ForestColl)
relays                   trees through nodes that store and are not ranks
meeting                  UndirectedEdges; undirected trees whose sums meet in the middle (Tutte, Nash-Williams 1961)
division                 a linear program divides data among a few trees
latency                  Pool: packed and priced trees, and the shares with which they end first
parts                    forests for numbers of parts, where messages cost
windows                  LinkUses: a linear program for shares where latency counts
priced                   trees grown one after another by price (Plotkin, Shmoys and Tardos 1995)
kernel_growth            trees of little price, also over relays (Takahashi and Matsuyama 1980)
kernel_branchings        out-trees made shallower by other parents
kernel_packing           out-trees grown edge by edge, with a max-flow for each edge tried
kernel_spanning          spanning trees packed by matroid union (Roskind and Tarjan 1985), and made shallower
======================== ===============================================================================================
"""

from . import planner as planner

"""What stretto can give to people who run NCCL: files that it reads, for one cluster.

- ``generations``: facts on GPUs, as NCCL counts them.
- ``server``: a server as NCCL's topology file describes it (``NCCL_TOPO_FILE``); ``paths`` names the paths in it.
- ``graphs``: rings, trees and multicast heads (``NCCL_GRAPH_FILE``); ``fabric`` says what the network leaves them.
- ``tuner``: algorithm and protocol by size, as NCCL's example tuner plugin reads them.
- ``pack``: all of it in one folder, with a page on how to use it; ``readme`` writes the page.

Facts are those of NCCL 2.30.7.
"""

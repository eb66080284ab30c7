"""The order of machines: which machine should get which number, for libraries whose rings and trees are fixed.

NCCL, gloo and MPI decide by rank numbers alone who sends to whom. So the numbering of the machines decides which links
carry their traffic. This room searches for the numbering that ends a step soonest.

- ``traffic.py``: what a library sends, as a function of rank numbers.
- ``libraries.py``: the algorithms of each library, in that form.
"""

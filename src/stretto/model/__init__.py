"""The nouns. This room imports nothing else of stretto.

- ``topology``: nodes, directed links and optical planes; ``reach``: which nodes can reach which.
- ``kinds``: kinds of collectives as data; ``collective``: a collective and its chunks; ``demand``: an uneven AllToAll;
  ``workloads``: workloads as papers generate them.
- ``plan``: transfers, dependencies and turns of planes; ``timeline``: when each transfer happened.
- ``telemetry``: measured links and what is down; ``stop``: the net that ends planning early.
- ``arrays``: array types and ragged lists; ``units``: sizes, rates and times as text; ``errors``: what can go wrong;
  ``memory``: what fits into this machine.
"""

"""The nouns. This room imports nothing else of stretto.

- ``topology``: nodes, directed links and optical planes; ``reach``: which nodes can reach which.
- ``kinds``: kinds of collectives as data; ``collective``: a collective and its chunks; ``chunks``: how pieces are cut;
  ``demand``: an uneven AllToAll; ``workloads``: workloads as papers generate them.
- ``plan``: transfers, dependencies and turns of planes; ``timeline``: when each transfer happened.
- ``messages``: messages that carry several chunks; ``message_form``: which transfers may be one.
- ``symmetry``: a group of permutations of a network; ``orbits``: its orbits of chunks and the representative of each;
  ``symmetric``: plans that hold the transfers of representatives alone.
- ``measurements``: what hosts measure of their network; ``telemetry``: measured links and what is down;
  ``stop``: the net that ends planning early.
- ``arrays``: array types and ragged lists; ``units``: sizes, rates and times as text; ``errors``: what can go wrong;
  ``memory``: what fits into this machine.
"""

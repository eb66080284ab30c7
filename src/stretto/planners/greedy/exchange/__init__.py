"""AllReduce by exchange: partial sums meet, instead of all going to a root and back; our own, for when latency counts.

Kinds of exchange, each with a function that gives a plan or None:

- ``circles``: where messages cost, ranks get larger and larger sums on circles, then groups do (``arcs``).
- ``hubs``: contributions come to a few hubs, or to every rank, over trees that share messages.
- ``products``: on products of rings and lines contributions walk, n / 2 hops on a ring of n.
- ``clusters``: alike servers swap sums among counterparts; ``turns`` says which part crosses when.
- ``crossings``: sums of parts of a cluster cross before its whole sum is there.

What they share:

- ``trees``: an exchange of messages and copies, the paths that it may take, and how its trees grow
  (``kernel_growth``).
- ``blocks``: exchanges as transfers, one part of the buffer each.
"""

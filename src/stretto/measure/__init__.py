"""Measure the network between real hosts, together with all of them.

- ``run``: a measurement from beginning to end; ``rank``: what each process of it does.
- ``launch``: what torchrun, mpirun and srun tell a process; ``remote``: starting a process on each host over ssh.
- ``meeting``: how ranks find each other, share values, and learn who failed.
- ``survey``: what they measure, in which order; ``watch``: measuring again, with a light load.
- ``record``: the files that are kept up to date.

What the connections themselves do is in :mod:`stretto.runtime.probe` and :mod:`stretto.runtime.streams`; the network
that the measurements show is made by :mod:`stretto.topologies.measured`.
"""

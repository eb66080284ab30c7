"""`scale-ccl`: collectives across datacenters by an event-driven synthesizer.

Xiong, Zhang, Medagliani, Ferrero, Liu, Lian, Di Cicco, Musumeci, Zhao, Ibrahimi, Tornatore, "SCALE-CCL: A Scalable
Collective Communication Library for Wide-Area Distributed Training", INET4AI 2025.

- ``planner``: the planner and its options.
- ``kernel_published``: the published algorithm (``rules=paper``); Algorithm 1 is ``schedule_subchunk``.
- ``kernel_eager``: our own rules in the same loop (``rules=eager``, the default).
- ``kernel_choice``: which chunk an idle pipe takes by them; ``kernel_ways``: f(link, buffer, progress) over the whole
  way to a goal.
- ``kernel_states``, ``kernel_transmission``: what both loops share: nodes, queues, transmissions and their events.
"""

from . import planner as planner

"""Collectives on optical planes: SWOT and its baselines, matchings for AllToAll, planes divided by dimension.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks" (SWOT). A schedule
says how many bytes of each step each plane carries; the planes that carry some of a step *serve* it.

What a request is made into, and its answer into a plan:

- ``swot``: the refiners ``swot``, ``swot-milp``, ``strawman-icr``, ``one-shot`` and ``ideal``.
- ``circuits``: plans in steps as instances, and schedules as plans with turns.
- ``instance``: the model of section 3.2 (P1 to P3): steps, matchings, planes, and the times of a schedule.
- ``baselines``: strawman-ICR, one-shot and ideal (section 4.1). ``bound``: what no schedule of the same steps can beat.

Who decides which planes serve which steps, for ``swot`` in its fast mode (``search``):

- ``beam``: a beam over the states of the planes. ``repeats``: long instances that repeat themselves, by short ones.
- ``polish``: the best shares where servings are given, by a linear program; ``search`` climbs by it, and what the exact
  methods find goes through it, too.

And in its exact mode (``certificate``), with a proof; each is asked where the one before gives none:

- ``counts``: planes that are alike and free at first, and no matching twice: the numbers of planes decide.
- ``flow_program``: planes that are alike: an integer program that counts them.
- ``named_planes``: the paper's program, equations (1) to (11), for short instances and planes that differ; also the
  refiner ``swot-milp``.

Without barriers between steps:

- ``birkhoff``: AllToAll of any demand, by ``matchings`` (the demand as a sum of few matchings) and ``placement`` (which
  plane holds which matching when).
- ``by_dimension``: planes divided by the dimensions of a grid; SWOT's search schedules each dimension.
"""

from . import birkhoff as birkhoff
from . import by_dimension as by_dimension
from . import swot as swot

"""Collectives on optical planes: SWOT and its baselines, matchings for AllToAll, planes divided by dimension.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks" (SWOT). A schedule
says how many bytes of each step each plane carries; the planes that carry some of a step *serve* it.

- ``swot``: the refiners ``swot``, ``swot-milp``, ``strawman-icr``, ``one-shot`` and ``ideal``.
- ``circuits``: plans in steps as instances, and schedules as plans with turns.
- ``instance``: the model of section 3.2 (P1 to P3). ``baselines``: section 4.1. ``bound``: what no schedule can beat.
- ``search``: the fast mode of ``swot``: ``beam`` finds which planes serve which steps, ``repeats`` draws out schedules
  of short instances, and ``polish`` finds the best shares by a linear program.
- ``certificate``: the exact mode, with a proof: ``counts`` where the numbers of planes decide, ``flow_program`` where
  planes are alike, ``named_planes`` (the paper's program, equations (1) to (11)) for short instances and planes that
  differ. Each is asked where the one before gives no proof.
- ``birkhoff``: AllToAll of any demand without barriers, by ``matchings`` (the demand as a sum of few matchings) and
  ``placement`` (which plane holds which matching when).
- ``by_dimension``: planes divided by the dimensions of a grid; SWOT's search schedules each dimension.
"""

from . import birkhoff as birkhoff
from . import by_dimension as by_dimension
from . import swot as swot

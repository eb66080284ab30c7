"""SWOT and its baselines: which plane carries how much of which step, and when it turns.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks",
section 3. The refiners take a plan in steps (``rabenseifner+swot``); the model and the methods are
in :mod:`stretto.optics`, the way from and to plans in :mod:`.circuits`.
"""

from __future__ import annotations

from ..collective import KINDS
from ..errors import Unsupported
from ..optics.fast import fast
from ..optics.model import Float64, Instance, completion, ideal, one_shot, strawman
from ..plan import Plan
from . import Progress, refiner
from .circuits import instance_of, refusal, scheduled

PAPER = "SWOT"


def _refined(plan: Plan, instance: Instance, share: Float64, bound_s: float = 0.0) -> Plan:
    facts = {"completion_s": completion(instance, share), "bound_s": max(bound_s, ideal(instance))}
    return scheduled(plan, share, {"schedule": facts})


@refiner("strawman-icr", collectives=KINDS, topologies="optical planes", paper=PAPER, serves=refusal)
def strawman_icr(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None
) -> Plan:
    """All planes carry every step, and turn together between steps."""
    instance = instance_of(plan)
    return _refined(plan, instance, strawman(instance))


@refiner("one-shot", collectives=KINDS, topologies="optical planes", paper=PAPER, serves=refusal)
def one_shot_planes(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None
) -> Plan:
    """Each plane holds one matching for the whole collective."""
    instance = instance_of(plan)
    share = one_shot(instance)
    if share is None:
        kinds = len(set(instance.matching.tolist()))
        raise Unsupported(f"one-shot needs a plane for each of the {kinds} matchings, and there are {instance.planes}")
    return _refined(plan, instance, share)


@refiner("swot", collectives=KINDS, topologies="optical planes", paper=PAPER, serves=refusal)
def swot(plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None) -> Plan:
    """Uneven shares, turns hidden behind transmission, bypassed matchings."""
    instance = instance_of(plan)
    return _refined(plan, instance, fast(instance))

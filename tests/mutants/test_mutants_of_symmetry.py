"""Random damages of right plans by symmetry: what the verifier accepts, it accepts expanded, too.

``python benchmarks/symmetry.py --damages 10000`` tries that many, and prints what came of them.
"""

from __future__ import annotations

import numpy as np
import pytest

import damaged_claims
import damaged_parts
from damaged_parts import Damage, Rng, Useless
from stretto.model.errors import StrettoError
from stretto.model.symmetric import SymmetricPlan
from stretto.verify import verify
from symmetric_plans import examples


def several(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Two or three damages, which might make up for each other."""
    for _ in range(int(rng.integers(2, 4))):
        plan = DAMAGES[int(rng.integers(len(DAMAGES)))](plan, rng)
    return plan


DAMAGES: list[Damage] = [*damaged_parts.DAMAGES, *damaged_claims.DAMAGES, several]


def expanded_verdict(plan: SymmetricPlan) -> str:
    """What the plain verifier finds in the expanded plan: a code, "ok", or "form" if there is none."""
    try:
        plain = plan.expand()
    except (StrettoError, LookupError, ValueError, AssertionError, ZeroDivisionError):
        return "form"
    try:
        finding = verify(plain).finding
    except Exception:  # it has no promises, or nodes that are not there
        return "form"
    return finding.code if finding else "ok"


def damaged(plans: list[SymmetricPlan], rng: Rng) -> tuple[str, SymmetricPlan]:
    while True:
        damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
        try:
            return damage.__name__, damage(plans[int(rng.integers(len(plans)))], rng)
        except Useless:
            pass
        except (StrettoError, LookupError, ValueError, KeyError, ZeroDivisionError):  # no plan has that form
            pass


@pytest.fixture(scope="module")
def plans() -> list[SymmetricPlan]:
    return list(examples(1).values())


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_passes(plans, seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        name, plan = damaged(plans, rng)
        ours, theirs = verify(plan), expanded_verdict(plan)
        assert not ours.ok or theirs == "ok", (name, theirs)

"""Random damages of right plans by symmetry: what the verifier accepts, it accepts expanded, too.

``PYTHONPATH=tests python tests/mutants/test_mutants_of_symmetry.py 10000`` tries that many, and prints what came of
them.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

import damaged_claims
import damaged_parts
from damaged_parts import Damage, Rng, Useless
from stretto.model.errors import StrettoError
from stretto.model.symmetric import SymmetricPlan
from stretto.simulate import simulate
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


def main(trials: int) -> None:
    plans = [plan for seed in range(6) for plan in examples(seed).values()]
    assert all(verify(plan).ok and verify(plan.expand()).ok for plan in plans)
    rng, outcomes, only = np.random.default_rng(20), Counter[tuple[str, str]](), Counter[str]()
    apart = 0.0
    for trial in range(trials):
        name, plan = damaged(plans, rng)
        finding, theirs = verify(plan).finding, expanded_verdict(plan)
        ours = "accepted" if finding is None else "refused"
        outcomes[ours, "accepted" if theirs == "ok" else "refused"] += 1
        if finding is None and theirs != "ok":
            print(f"damage {trial}, {name}: accepted, but expanded {theirs}")
        if finding is not None and theirs == "ok":
            only[f"{finding.code} ({name})"] += 1
        if finding is None and theirs == "ok":
            apart = max(apart, abs(simulate(plan).completion_s / simulate(plan.expand()).completion_s - 1))
    print(f"{trials} damages of {len(plans)} plans")
    for (ours, theirs), number in sorted(outcomes.items()):
        print(f"{number:6} {ours} by symmetry, {theirs} expanded")
    print(f"completions of accepted plans differ by at most {apart:.1e}")
    for what, number in only.most_common():
        print(f"{number:6} refused by symmetry alone: {what}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)

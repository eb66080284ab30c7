"""Plans by symmetry and the plans that their images make: the verifier and the simulator give the same for both."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.simulate import simulate
from stretto.verify import verify
from symmetric_plans import examples

EXAMPLES = examples(0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_right_and_as_long_as_its_images(name):
    plan = EXAMPLES[name]
    plain = plan.expand()
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    ours, theirs = simulate(plan), simulate(plain)
    for column in ("completions_s", "start_s", "finish_s", "arrival_s", "hop_offset_s"):
        assert np.allclose(getattr(ours, column), getattr(theirs, column), rtol=1e-9, atol=0), column

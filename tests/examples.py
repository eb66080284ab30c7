"""How many examples tests draw: some, or as many as STRETTO_EXAMPLES asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

USUAL = 20
"""Examples of a test that says nothing else."""

ASKED = int(os.environ.get("STRETTO_EXAMPLES", USUAL))


def examples(few: int) -> int:
    """Examples for a test that usually draws ``few``, since each takes long: more in proportion to STRETTO_EXAMPLES.

    At least two: the first one that hypothesis draws is the simplest of all.
    """
    return max(2, few * ASKED // USUAL)


def one_in(step: int, *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """One in ``step`` of the combinations of values of several axes; more in proportion to STRETTO_EXAMPLES.

    They are those whose places on the axes have a sum that ``step`` divides, as one symbol of a Latin square. The step
    is at most as long as the second longest axis, so each value is among them.
    """
    values = [list(axis) for axis in axes]
    longest = sorted(map(len, values))[-2]
    step = min(max(1, step * USUAL // max(1, ASKED)), longest)
    cells = product(*map(enumerate, values))
    return [tuple(value for _, value in cell) for cell in cells if sum(place for place, _ in cell) % step == 0]

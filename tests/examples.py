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
    """Examples for a test that usually draws ``few``, since each takes long: more in proportion to STRETTO_EXAMPLES."""
    return max(1, few * ASKED // USUAL)


def one_in(step: int, *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """One in ``step`` of the combinations of values of all axes; more in proportion to STRETTO_EXAMPLES.

    They are those whose places on the axes have a sum that ``step`` divides, as one symbol of a Latin square: each
    value is among them, with different others.
    """
    step = max(1, step * USUAL // ASKED)
    cells = product(*map(enumerate, axes))
    return [tuple(value for _, value in cell) for cell in cells if sum(place for place, _ in cell) % step == 0]

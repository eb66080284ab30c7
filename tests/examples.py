"""How many examples tests draw: some tens, or as many as STRETTO_EXAMPLES asks for."""

from __future__ import annotations

import os

USUAL = 40
"""Examples of a test that says nothing else."""

ASKED = int(os.environ.get("STRETTO_EXAMPLES", USUAL))


def examples(few: int) -> int:
    """Examples for a test that usually draws ``few``, since each takes long: more in proportion to STRETTO_EXAMPLES."""
    return max(1, few * ASKED // USUAL)

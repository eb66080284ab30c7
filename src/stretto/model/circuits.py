"""What an optical circuit switch is asked to do: the circuits that a turn breaks, makes and keeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import Bool, Int32

Circuit = list[int]
"""Two ports of a plane: the one that sends, then the one that receives."""


class Change(NamedTuple):
    """The circuits of a turn. Ports of circuits that are kept are left alone."""

    breaks: list[Circuit]
    makes: list[Circuit]
    keeps: list[Circuit]


def circuits_of(matching: Int32, which: Bool | None = None) -> list[Circuit]:
    """The circuits of a matching, by the port that sends; only those of the ports ``which``, if it is given."""
    joined = matching >= 0 if which is None else which & (matching >= 0)
    return [[a, int(matching[a])] for a in np.flatnonzero(joined).tolist()]


def change(now: Int32, then: Int32) -> Change:
    """What leads from one matching of a plane to another."""
    differs = now != then
    return Change(circuits_of(now, differs), circuits_of(then, differs), circuits_of(then, ~differs))

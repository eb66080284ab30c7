"""Collectives on optical planes: SWOT and its baselines, matchings for AllToAll, planes by dimension."""

from . import birkhoff as birkhoff
from . import by_dimension as by_dimension
from . import swot as swot

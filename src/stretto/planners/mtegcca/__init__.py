"""`mtegcca` and its exact model `milp-allgather`: multicast trees on a time-expanded graph."""

from . import exact as exact
from . import planner as planner

"""`teccl`: collectives as a multi-commodity flow in epochs."""

from . import planner as planner

"""`greedy`: chunks matched to links event by event, and searched; AllReduce also by exchange."""

from . import planner as planner

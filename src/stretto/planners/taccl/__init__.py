"""`taccl`: collectives guided by a communication sketch."""

from . import planner as planner

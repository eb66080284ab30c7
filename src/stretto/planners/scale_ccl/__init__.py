"""`scale-ccl`: collectives across datacenters by an event-driven synthesizer."""

from . import planner as planner

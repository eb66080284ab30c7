"""`forest`: trees that together fill the network, for sizes at which bandwidth decides."""

from . import planner as planner

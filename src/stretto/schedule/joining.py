"""Optical planes that join all ranks: where some do, planners use those alone, and the plan is of the whole network.

A plane whose switch has lost a port joins fewer nodes than the others. Planners for planes need every rank of the
collective on each plane. In a collective of all ranks the one with the fewest ports sets the pace, so where planes are
alike little is lost by leaving the plane out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Int32
from ..model.collective import Workload
from ..model.plan import Plan
from ..model.topology import Topology


def joining_planes(topology: Topology, workload: Workload) -> Int32 | None:
    """int32, the planes that join all ranks; None where all do, or none (as where each plane is a line of a grid)."""
    if not topology.planes:
        return None
    ranks = np.unique(np.concatenate([c.ranks for c in workload.collectives]))
    joins = np.array([np.isin(ranks, plane.nodes).all() for plane in topology.planes])
    return None if joins.all() or not joins.any() else np.flatnonzero(joins).astype(np.int32)


def on_planes(topology: Topology, planes: Int32) -> Topology:
    """The network with these planes alone."""
    return replace(topology, planes=tuple(topology.planes[p] for p in planes.tolist()))


def on_all_planes(plan: Plan, topology: Topology, planes: Int32) -> Plan:
    """A plan of :func:`on_planes` as one of the whole network, of which the other planes are not used."""
    assert plan.plane is not None
    number = np.append(planes, np.int32(-1))  # a transfer over links has plane -1
    turns = replace(plan.turns, plane=planes[plan.turns.plane])
    whole = replace(plan.topology, planes=topology.planes)
    return replace(plan, topology=whole, plane=number[plan.plane], turns=turns)

"""A fabric without ports that failed: the network that is left, a plan for it, and who turns its planes.

A node whose port failed keeps its ports on other planes. A plane on which a rank of a collective has no port is left
out of its plan (:mod:`stretto.schedule.joining`); collectives of other ranks keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32
from ...model.circuits import Change, Circuit
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...model.topology import Topology
from ...planners import run_planner
from ...runtime.switches import Switch
from .driver import PortFailed


class Remaining(NamedTuple):
    """What is left of a network.

    Attributes:
        topology: a plane that has lost a port joins nothing at first.
        planes: for each of its planes the number in the whole network; one that joins fewer than two nodes is gone.
        ports: for each of its planes int32[ports], the numbers of its ports on the whole plane.
    """

    topology: Topology
    planes: tuple[int, ...]
    ports: tuple[Int32, ...]


def dead_ports(failures: Iterable[PortFailed]) -> dict[int, set[int]]:
    """By plane the ports of which an end has failed: a node that only receives on a plane is of no use to a step."""
    dead: dict[int, set[int]] = {}
    for failure in failures:
        dead.setdefault(failure.plane, set()).update(end.port for end in failure.ends)
    return dead


def without(topology: Topology, dead: Mapping[int, Collection[int]]) -> Remaining:
    """The network without some ports of its planes.

    Args:
        dead: by the number of a plane its ports that are gone.
    Raises:
        Infeasible: no plane and no link is left.
    """
    planes, numbers, ports = [], [], []
    for p, plane in enumerate(topology.planes):
        alive = np.setdiff1d(np.arange(len(plane.nodes)), list(dead.get(p, ()))).astype(np.int32)
        if len(alive) < 2:
            continue
        nothing = np.full(len(alive), -1, dtype=np.int32)
        planes.append(replace(plane, nodes=plane.nodes[alive], matching=nothing) if p in dead else plane)
        numbers.append(p)
        ports.append(alive)
    if not planes and not topology.link_count:
        gone = ", ".join(f"port {q} of plane {p}" for p in sorted(dead) for q in sorted(dead[p]))
        raise Infeasible(f"without {gone} nothing joins the nodes of {topology.name}")
    left = replace(topology, name=f"{topology.name} without failed ports", planes=tuple(planes))
    return Remaining(left, tuple(numbers), tuple(ports))


def plan_without(
    topology: Topology, dead: Mapping[int, Collection[int]], workload: Workload, planner: str = "swot"
) -> tuple[Plan, Remaining]:
    """A plan for collectives on what is left, and the planes and ports that it means.

    Raises:
        Infeasible: see :func:`without`. Unsupported: no plane that is left joins all ranks.
    """
    remaining = without(topology, dead)
    return run_planner(planner, remaining.topology, workload), remaining


class RemainingSwitch:
    """The switch of what is left: planes and ports by their numbers there (:class:`~stretto.runtime.switches.Switch`).

    Args:
        switch: of the whole network.
    """

    def __init__(self, switch: Switch, remaining: Remaining) -> None:
        self._switch, self._remaining = switch, remaining

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        ports = self._remaining.ports[plane]

        def whole(circuits: list[Circuit]) -> list[Circuit]:
            return [[int(ports[a]), int(ports[b])] for a, b in circuits]

        self._switch.turn(self._remaining.planes[plane], Change(*map(whole, turn)), seconds)

    def close(self) -> None:
        self._switch.close()

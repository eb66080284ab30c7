"""Tells a controller of ports that failed: the network that it plans on loses them, so its jobs get new plans."""

from __future__ import annotations

from ...model.errors import InputError
from ...model.topology import Topology
from ...topologies.files import topology_from_json
from ..client import Controller, ControllerRefused
from .driver import PortFailed
from .failing import without

TIMES = 10
"""How often it is tried where telemetry, or another plane's failure, changes the network at the same moment."""


def tell_controller(controller: Controller, name: str, topology: Topology, failure: PortFailed) -> int:
    """Take failed ports out of a controller's network, as an operator gave it; its version then.

    Args:
        controller: asked with the token of an operator.
        topology: the network whose plane and ports the failure names. The controller's may have lost ports already,
            so ports are found by their nodes.
    Raises:
        InputError: the controller's network has other planes. Infeasible: nothing would be left.
        ControllerRefused: it refuses; with the code ``conflict`` if the network has changed ``TIMES`` times meanwhile.
    """
    for left in reversed(range(TIMES)):
        try:
            return _take_out(controller, name, topology, failure)
        except ControllerRefused as refused:
            if refused.code != "conflict" or not left:
                raise
    raise AssertionError("the last try has returned or raised")


def _take_out(controller: Controller, name: str, topology: Topology, failure: PortFailed) -> int:
    """The same in one try."""
    said = controller.network(name)
    # what telemetry says of links lies over what the operator gave, and must not become that: it may pass
    given = said if said["base"] == said["version"] else controller.network(name, said["base"])
    current = topology_from_json(given["topology"], f"network {name}")
    if len(current.planes) != len(topology.planes):
        raise InputError(f"has {len(current.planes)} planes, and the fabric {len(topology.planes)}", f"network {name}")
    gone = {topology.names[topology.planes[failure.plane].nodes[end.port]] for end in failure.ends}
    nodes = current.planes[failure.plane].nodes.tolist()
    ports = {port for port, node in enumerate(nodes) if current.names[node] in gone}
    if not ports:
        return int(said["version"])
    left = without(current, {failure.plane: ports}).topology.to_json()
    return int(controller.put_network(name, left, expected=said["version"])["version"])

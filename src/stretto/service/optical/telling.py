"""Tells a controller of ports that failed: the network that it plans on loses them, so its jobs get new plans."""

from __future__ import annotations

from ...model.errors import InputError
from ...model.topology import Topology
from ...topologies.files import topology_from_json
from ..client import Controller
from .driver import PortFailed
from .failing import without


def tell_controller(controller: Controller, name: str, topology: Topology, failure: PortFailed) -> int:
    """Take failed ports out of a controller's network; its version then.

    Args:
        controller: asked with the token of an operator.
        topology: the network whose plane and ports the failure names. The controller's may have lost ports already,
            so ports are found by their nodes.
    Raises:
        InputError: the controller's network has other planes. Infeasible: nothing would be left.
    """
    said = controller.network(name)
    current = topology_from_json(said["topology"], f"network {name}")
    if len(current.planes) != len(topology.planes):
        raise InputError(f"has {len(current.planes)} planes, and the fabric {len(topology.planes)}", f"network {name}")
    gone = {topology.names[topology.planes[failure.plane].nodes[end.port]] for end in failure.ends}
    nodes = current.planes[failure.plane].nodes.tolist()
    ports = {port for port, node in enumerate(nodes) if current.names[node] in gone}
    if not ports:
        return int(said["version"])
    return int(controller.put_network(name, without(current, {failure.plane: ports}).topology.to_json())["version"])

"""The job that a process group is at a controller, and the network that the controller knows for it.

Rank 0 asks when the group is made, and tells the others through the store. Where the controller knows no network yet,
the group plans for what ``STRETTO_TOPOLOGY`` names or what it measures, and later tells the controller
(:mod:`.agent`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..choose.library import Library, effort_from_environment, from_environment
from ..model.errors import InputError, StrettoError
from ..model.topology import Topology
from ..service.client import URL_VARIABLE, Controller, ControllerRefused
from ..topologies.files import topology_from_json

JOB_VARIABLE, NETWORK_VARIABLE = "STRETTO_JOB", "STRETTO_NETWORK"
_KEY = "stretto/controller"


@dataclass(frozen=True)
class Job:
    """A job at a controller.

    Attributes:
        network: its name at the controller.
        whole: whether the group has all ranks of the world.
    """

    name: str
    network: str
    whole: bool

    def controller(self) -> Controller:
        """A client that serves one thread."""
        found = Controller.from_environment()
        assert found is not None, "the environment names it"
        return found


def library_of_group(
    store: Any, ranks: Sequence[int], rank: int, world: int, message_s: float
) -> tuple[Library, Job | None]:
    """The library of a group: for the network of its job at the controller that the environment names, if there is
    one; else for what the environment names, or for a network that is still to be measured.

    Args:
        store: of the group alone.
        ranks, rank, message_s: as of :class:`Library`.
        world: the number of ranks in the world.
    Raises:
        InputError: the environment names something that cannot be.
    """
    name = os.environ.get(JOB_VARIABLE)
    if not os.environ.get(URL_VARIABLE) or not name or len(ranks) < 2:
        return from_environment(ranks, rank, world, message_s), None
    if rank == 0:
        store.set(_KEY, json.dumps(_asked(name, world)))
    said = json.loads(store.get(_KEY))
    if "error" in said:
        raise InputError(said["error"], URL_VARIABLE)
    job = Job(name, said["network"], len(ranks) == world) if said["network"] else None
    if said["topology"] is None:
        return from_environment(ranks, rank, world, message_s), job
    topology = topology_from_json(said["topology"], f"network {said['network']}")
    library = Library(topology, ranks, rank, None, message_s, effort_from_environment())
    library.nodes = [said["nodes"][r] for r in ranks]
    return library, job


def _asked(name: str, world: int) -> dict[str, Any]:
    """What rank 0 tells the others: the name of the network, None if the controller cannot serve the group; the
    topology, None if the controller has none; and the node of each rank of the world."""
    network = os.environ.get(NETWORK_VARIABLE) or name
    none = {"network": network, "topology": None}
    try:
        controller = Controller.from_environment()
        assert controller is not None, "the environment names it"
    except StrettoError as error:
        return {"error": str(error)}
    try:
        document = _found(controller.job, name)
        network = none["network"] = network if document is None else str(document["network"])
        known = _found(controller.network, network)
        if known is None:
            return none
        topology = topology_from_json(known["topology"], f"network {network}")
        nodes = nodes_of_ranks(topology, {} if document is None else document["job"])
    except (StrettoError, ValueError, LookupError, TypeError) as error:
        _say(f"{_words(error)}; job {name!r} begins without its controller")
        return none
    finally:
        controller.close()
    reason = f"optical planes of network {network!r} are turned by plans of groups alone" if topology.planes else ""
    if len(nodes) != world:
        reason = f"job {name!r} has {len(nodes)} ranks on network {network!r}, and the world has {world}"
    if not reason:
        return {"network": network, "topology": known["topology"], "nodes": nodes}
    if network == name and not topology.planes:  # an earlier start of this job made it
        return none
    _say(f"{reason}; this job makes its plans without the controller")
    return {**none, "network": None}


def nodes_of_ranks(topology: Topology, document: Mapping[str, Any]) -> list[int]:
    """The node of each rank of a job, by the object of the job: all accelerators where it names no ranks.

    Raises:
        ValueError: a rank is no node.
    """
    ranks = document.get("ranks")
    if ranks is None:
        return [int(v) for v in topology.accelerators]
    return [r if isinstance(r, int) else topology.names.index(r) for r in ranks]


def _found(ask: Any, name: str) -> Any:
    """What a controller says, None where it knows no such thing."""
    try:
        return ask(name)
    except ControllerRefused as refused:
        if refused.status != 404:
            raise
        return None


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, StrettoError) else f"the controller's answer makes no sense: {error!r}"


def _say(text: str) -> None:
    print(f"stretto, rank 0: {text}", file=sys.stderr, flush=True)

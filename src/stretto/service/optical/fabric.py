"""The optical switches of a network: each plane has a driver, and a turn ends when its circuits are tuned.

A :class:`Fabric` is a switch for :class:`stretto.runtime.circuits.Circuits`, which lets a plane turn only when all that
it carried has arrived, and lets senders of a circuit wait until the turn has ended. Its configuration is JSON::

    {"switches": [{"plane": 0, "driver": "sonic", "target": "ocs0:8080", "ca": "ca.pem",
                   "ports": {"gpu0": ["1A", "1B"], "gpu1": ["2A", "2B"]}},
                  {"plane": 1, "driver": "simulated", "turn_s": 0.001}]}
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...formats.sonic_patches import Ends, ends_of_port
from ...model.circuits import Change
from ...model.errors import InputError, none_of
from ...model.topology import Topology
from ...runtime.switches import SwitchFailed, TimedSwitch
from ...topologies.values import check_keys, count, entry, objects, real, shown
from ..gnmi import TARGET_ENTRIES, target_of
from ..telemetry.sources import secret_of
from .driver import A_SIDE, B_SIDE, FAILED, TUNED, Driver, End, PortFailed, Status
from .simulated import SimulatedDriver
from .sonic import SonicDriver

WITHIN_S = 10.0
"""Seconds in which circuits must be tuned, unless the configuration says otherwise."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05
"""A switch is asked how far it is after 1 ms, and then after twice as long each time, up to 50 ms."""

ENTRIES = ("plane", "driver", "ports", "within_s", "turn_s", "namespace", *TARGET_ENTRIES)
DRIVERS = ("sonic", "simulated")


@dataclass(frozen=True)
class Driven:
    """A plane and who drives it.

    Attributes:
        ports: for each port of the plane the names of its side A and its side B.
        within_s: seconds in which circuits must be tuned.
    """

    driver: Driver
    ports: list[Ends]
    within_s: float = WITHIN_S


class Fabric:
    """Turns the planes of a network (:class:`stretto.runtime.switches.Switch`).

    Args:
        planes: by the number of the plane.
        failed: is told of ports that failed, before the turn fails.
    """

    def __init__(self, planes: Mapping[int, Driven], failed: Callable[[PortFailed], object] | None = None) -> None:
        self.planes, self.failed = dict(planes), failed
        self._closed = threading.Event()

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        """Turn a plane; returns when the switch says that all circuits made are tuned.

        Raises:
            PortFailed: an end of a circuit that the plane needs has failed.
            SwitchFailed: the switch cannot be reached, or has not tuned them in time.
        """
        driven = self.planes.get(plane)
        if driven is None:
            raise SwitchFailed("nobody drives it; the configuration names no switch for it")
        driven.driver.connect(turn.makes, instead_of=turn.breaks)
        deadline, pause = time.monotonic() + driven.within_s, FIRST_PAUSE_S
        while not self._tuned(plane, driven, turn, driven.driver.status()):
            if time.monotonic() > deadline:
                raise SwitchFailed(f"its circuits are not tuned after {driven.within_s:g} s")
            if self._closed.wait(pause):
                raise SwitchFailed("it was closed while it turned")
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _tuned(self, plane: int, driven: Driven, turn: Change, status: Status) -> bool:
        """Whether the circuits of a turn carry light."""
        needed = [(a, b) for a, b in (*turn.makes, *turn.keeps)]
        ends = {end for a, b in needed for end in (End(a, A_SIDE), End(b, B_SIDE))}
        if dead := sorted(ends & status.failed):
            failure = PortFailed(plane, dead, [driven.ports[end.port]["AB".index(end.side)] for end in dead])
            if self.failed is not None:
                self.failed(failure)
            raise failure
        for a, b in needed:
            if status.circuits.get((a, b)) == FAILED:
                raise SwitchFailed(f"the circuit from {driven.ports[a][0]} to {driven.ports[b][1]} failed")
        return all(status.circuits.get((a, b)) == TUNED for a, b in turn.makes)

    def close(self) -> None:
        """End turns that are under way, and let the switches go; circuits stay as they are."""
        self._closed.set()
        for driven in self.planes.values():
            driven.driver.close()


def fabric_of(document: Any, topology: Topology, where: str, only: int | None = None) -> Fabric:
    """The fabric that a configuration describes.

    Args:
        only: the number of the plane that is driven here; all by default.
    Raises:
        InputError: it is wrong, or does not fit the planes of the network; names the place.
    """
    check_keys(document, ("switches",), where)
    planes: dict[int, Driven] = {}
    for i, data in enumerate(objects(document, "switches", where)):
        place = f"{where}, switch {i}"
        check_keys(data, ENTRIES, place)
        if not topology.planes:
            raise InputError(f"{topology.name} has no optical planes", place)
        plane = count(data.get("plane"), "'plane'", place, 0, len(topology.planes) - 1)
        if plane in planes:
            raise InputError(f"plane {plane} has a switch already", place)
        planes[plane] = _driven(data, topology, plane, place)
    return Fabric(planes if only is None else {p: d for p, d in planes.items() if p == only})


def _driven(data: dict[str, Any], topology: Topology, plane: int, where: str) -> Driven:
    ports = _ports(data, topology, plane, where)
    within_s = real(data.get("within_s", WITHIN_S), "'within_s'", where, above=True)
    kind = entry(data, "driver", str, where)
    if kind not in DRIVERS:
        raise InputError(f"driver {none_of(kind, DRIVERS)}", where)
    if kind == "sonic":
        username, password = (secret_of(data, f"{name}_variable", where) for name in ("username", "password"))
        target = target_of(data, username, password, where)
        return Driven(SonicDriver(target, ports, entry(data, "namespace", str, where, "localhost")), ports, within_s)
    turn_s = real(data.get("turn_s", topology.planes[plane].reconfiguration_s), "'turn_s'", where)
    return Driven(SimulatedDriver(TimedSwitch(), plane, turn_s), ports, within_s)


def _ports(data: dict[str, Any], topology: Topology, plane: int, where: str) -> list[Ends]:
    """For each port of a plane the names of its ends: as given by its node, else 1A and 1B for the first, and so on."""
    given = entry(data, "ports", dict, where, {})
    nodes = [topology.names[v] for v in topology.planes[plane].nodes.tolist()]
    if not given:
        return [ends_of_port(port) for port in range(len(nodes))]
    for node in given:
        if node not in nodes:
            raise InputError(f"{shown(node)} has no port on plane {plane}", f"{where}, 'ports'")
    ports = []
    for node in nodes:
        ends = given.get(node)
        if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, str) and e for e in ends):
            raise InputError(f'{shown(node)} needs the names of two ends, such as ["1A", "1B"]', f"{where}, 'ports'")
        ports.append((ends[0], ends[1]))
    names = [name for ends in ports for name in ends]
    if len(set(names)) < len(names):
        raise InputError("an end is named twice", f"{where}, 'ports'")
    return ports

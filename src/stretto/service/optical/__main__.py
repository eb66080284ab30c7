"""The program that turns one plane for ``stretto run --switch`` and ``STRETTO_SWITCH``.

    STRETTO_SWITCH="python -m stretto.service.optical optical:8,2 fabric.json"

It is started with the number of its plane as the last word, reads a turn a line, and answers ``up`` or what went wrong
(:class:`stretto.runtime.switches.CommandSwitch`). Where STRETTO_CONTROLLER and STRETTO_NETWORK name a controller and
its network, ports that fail are told to it, with the token of STRETTO_CONTROLLER_TOKEN, which must be an operator's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TextIO

from ...model.circuits import Change
from ...model.errors import StrettoError
from ...model.topology import Topology
from ...runtime.switches import SwitchFailed
from ...topologies import load_topology
from ...topologies.values import parse_json, read_text
from ..client import Controller
from .driver import PortFailed
from .fabric import Fabric, fabric_of
from .telling import tell_controller

NETWORK_VARIABLE = "STRETTO_NETWORK"
"""The environment variable with the name of the network at the controller."""

USAGE = "usage: python -m stretto.service.optical TOPOLOGY FABRIC.json PLANE"


def serve(fabric: Fabric, plane: int, lines: Iterable[str], answers: TextIO) -> None:
    """Turn a plane as lines ask for it, one answer a line."""
    for line in lines:
        asked = json.loads(line)
        try:
            fabric.turn(plane, Change(asked["break"], asked["make"], asked["keep"]), 0.0)
            answer = "up"
        except (SwitchFailed, StrettoError) as error:
            answer = " ".join(str(error).split())
        print(answer, file=answers, flush=True)


def _tell(controller: Controller, network: str, topology: Topology, failure: PortFailed) -> None:
    """Tell the controller; if that fails, the run still ends by the name of the port."""
    try:
        tell_controller(controller, network, topology, failure)
    except StrettoError as error:
        print(f"controller: {error}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    if len(words) != 3 or not words[2].isdecimal():
        print(USAGE, file=sys.stderr)
        return 2
    try:
        plane = int(words[2])
        topology = load_topology(words[0])
        fabric = fabric_of(parse_json(read_text(words[1]), words[1]), topology, words[1], only=plane)
    except StrettoError as error:
        print(" ".join(str(error).split()), flush=True)  # the answer to the first turn, which names it
        return 2
    controller, network = Controller.from_environment(), os.environ.get(NETWORK_VARIABLE)
    if controller is not None and network:
        fabric.failed = partial(_tell, controller, network, topology)
    try:
        serve(fabric, plane, sys.stdin, sys.stdout)
    finally:
        fabric.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

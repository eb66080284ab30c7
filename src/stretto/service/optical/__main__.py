"""The program that turns one plane for ``stretto run --switch`` and ``STRETTO_SWITCH``.

    STRETTO_SWITCH="python -m stretto.service.optical optical:8,2 fabric.json"

It is started with the number of its plane as the last word, reads a turn a line, and answers ``up`` or what went wrong
(:class:`stretto.runtime.switches.CommandSwitch`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from ...model.circuits import Change
from ...model.errors import StrettoError
from ...runtime.switches import SwitchFailed
from ...topologies import load_topology
from ...topologies.values import parse_json, read_text
from .fabric import Fabric, fabric_of

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


def main(words: Sequence[str]) -> int:
    if len(words) != 3 or not words[2].isdecimal():
        print(USAGE, file=sys.stderr)
        return 2
    try:
        plane = int(words[2])
        fabric = fabric_of(parse_json(read_text(words[1]), words[1]), load_topology(words[0]), words[1], only=plane)
    except StrettoError as error:
        print(" ".join(str(error).split()), flush=True)  # the answer to the first turn, which names it
        return 2
    try:
        serve(fabric, plane, sys.stdin, sys.stdout)
    finally:
        fabric.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

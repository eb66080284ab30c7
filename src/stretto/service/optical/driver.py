"""What the controller asks of an optical circuit switch: connect, disconnect, and say how far it is.

A driver drives the ports of one plane. A circuit is simplex: it joins the input (side A) of the port that sends with
the output (side B) of the port that receives, so a port is two ends, which can fail by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ...model.circuits import Circuit
from ...runtime.switches import SwitchFailed

TUNING, TUNED, FAILED = STATES = ("tuning", "tuned", "failed")
"""How far a circuit is: the switch works on it, it carries light, or it never will."""

A_SIDE, B_SIDE = SIDES = ("A", "B")


class End(NamedTuple):
    """One end of a port: side A, where what its node sends comes in, or side B, where what it receives goes out."""

    port: int
    side: str


class Status(NamedTuple):
    """What a switch says of one plane.

    Attributes:
        circuits: the state of each circuit that it was asked for, by the ports that send and receive.
        failed: ends that have failed, whether a circuit needs them or not.
    """

    circuits: Mapping[tuple[int, int], str]
    failed: frozenset[End]


class Driver(Protocol):
    """Drives one plane. One thread at a time calls it; :meth:`close` may come from another."""

    def connect(self, circuits: Sequence[Circuit], instead_of: Iterable[Circuit] = ()) -> None:
        """Ask for circuits, and end those that they replace, in one transaction. :meth:`status` says how far they are.

        Raises:
            SwitchFailed: the switch cannot be reached or refuses; then it has changed nothing.
        """

    def disconnect(self, circuits: Iterable[Circuit]) -> None:
        """End circuits; raises :class:`SwitchFailed`."""

    def status(self) -> Status:
        """How far the circuits are; raises :class:`SwitchFailed`."""

    def close(self) -> None:
        """Let the switch go, and end a call that is under way. Circuits stay as they are."""


class PortFailed(SwitchFailed):
    """Ends of ports have failed; a plan that needs them cannot be carried out.

    Attributes:
        plane: the plane, by its number in the network.
        ends: what failed.
    """

    def __init__(self, plane: int, ends: Iterable[End], names: Iterable[str]) -> None:
        self.plane, self.ends = plane, frozenset(ends)
        super().__init__(f"{', '.join(names)} of plane {plane} failed")

"""A lower bound and what makes it so."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.units import format_time


@dataclass(frozen=True)
class Bound:
    """A lower bound on the completion of a workload.

    Attributes:
        seconds: no plan completes before.
        kind: "latency path", "node ingress", "node egress", "cut", "flow", "parts", "messages" or "storing".
        witness: what makes it so, in words.
        nodes: the nodes inside the cut, or along the path.
        links: the links that enter the cut, the path's, or those that a flow fills.
    """

    seconds: float
    kind: str
    witness: str
    nodes: tuple[int, ...]
    links: tuple[int, ...]

    def __repr__(self) -> str:
        return f"<Bound {format_time(self.seconds)}, {self.kind}: {self.witness}>"

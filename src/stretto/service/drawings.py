"""Drawings of networks for the page (:mod:`stretto.report.live`), which are kept, as networks seldom change."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..report.live import LABEL, live_drawing
from ..topologies.files import topology_from_json

__all__ = ["LABEL", "Drawings"]

MOST_DRAWINGS = 8
"""Drawings that are kept in memory."""


class Drawings:
    """The drawings that were asked for last, by network, version and size of labels."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, float], dict[str, Any]] = OrderedDict()

    def of(self, name: str, version: int, document: dict[str, Any], label: float) -> dict[str, Any]:
        """The drawing of a version of a network."""
        key = name, version, label
        drawing = self._kept.pop(key, None) or _drawing(name, document, label)
        self._kept[key] = drawing
        while len(self._kept) > MOST_DRAWINGS:
            self._kept.popitem(last=False)
        return drawing


def _drawing(name: str, document: dict[str, Any], label: float) -> dict[str, Any]:
    topology = topology_from_json(document, f"network {name}")
    ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    values = zip(topology.bandwidth.tolist(), topology.latency_s.tolist(), strict=True)
    return {
        "title": topology.name, "nodes": list(topology.names), "ranks": len(topology.accelerators),
        "links": [[*of, *given] for of, given in zip(ends, values, strict=True)], **live_drawing(topology, label),
    }  # fmt: skip

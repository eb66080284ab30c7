"""Telemetry: measured bandwidths and latencies of a network since its plan was made, and what is down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .changes import Changes
from .errors import InputError
from .topology import Topology


@dataclass(frozen=True)
class Telemetry:
    """News of a network. Links and nodes that are not named are as they were.

    Attributes:
        at_s: the moment of the news, seconds from the start of the plan.
        bandwidth, latency_s: measurements, by link.
        links_down, nodes_down: links and nodes that carry nothing now.
        held: the chunks that each node holds at that moment besides those it held at first; None for those that have
            arrived by then in the plan's simulation.
        carried: what links carried, bytes/s, by link. It says nothing about what they could have, so no plan heeds it.
    """

    at_s: float = 0.0
    bandwidth: dict[int, float] = field(default_factory=dict)
    latency_s: dict[int, float] = field(default_factory=dict)
    links_down: frozenset[int] = frozenset()
    nodes_down: frozenset[int] = frozenset()
    held: dict[int, tuple[int, ...]] | None = None
    carried: dict[int, float] = field(default_factory=dict)

    def then(self, later: Telemetry) -> Telemetry:
        """These news followed by later ones. What is measured later was not down."""
        measured = later.bandwidth.keys() | later.latency_s.keys()
        return Telemetry(
            later.at_s,
            self.bandwidth | later.bandwidth,
            self.latency_s | later.latency_s,
            (self.links_down - measured) | later.links_down,
            self.nodes_down | later.nodes_down,
            self.held if later.held is None else later.held,
            self.carried | later.carried,
        )


def updated(topology: Topology, news: Telemetry) -> Topology:
    """The network after the news, from that moment on: nodes keep their numbers, links that carry nothing are removed.

    Steps that are still to come stay. A measured link has the measured bandwidth until its next step.
    """
    bandwidth, latency_s = topology.bandwidth.copy(), topology.latency_s.copy()
    for column, measured in ((bandwidth, news.bandwidth), (latency_s, news.latency_s)):
        column[list(measured)] = list(measured.values())
    up = np.ones(topology.link_count, dtype=np.bool_)
    up[sorted(news.links_down)] = False
    for node in news.nodes_down:
        up &= (topology.src != node) & (topology.dst != node)
    if not up.any():
        raise InputError("no link is left", "telemetry")
    ahead = topology.changes.since(news.at_s)
    measured = np.isin(ahead.link, list(news.bandwidth)) & (ahead.at_s == 0)
    changes = Changes(ahead.link[~measured], ahead.at_s[~measured], ahead.bandwidth[~measured])
    return replace(topology, bandwidth=bandwidth, latency_s=latency_s, changes=changes).with_links(up)

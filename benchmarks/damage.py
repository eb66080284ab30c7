"""GPU clusters that are almost symmetric, for benchmarks/clusters.py.

A network is h100:SERVERS with what words joined by ``+`` say, such as ``dead+slow-elsewhere``:

- ``slow``, ``dead``: the NIC of the first GPU has half its bandwidth, or none.
- ``slow-beside``, ``slow-elsewhere``: so has the NIC of the second GPU, or of the first one of the second server.
- ``kinds``: all NICs of the first half of the servers have half their bandwidth.
- ``idle``: the GPUs of the last server are no ranks.
- ``some``: only the first four GPUs of each server are ranks.
- ``spine``: a switch joins the rails, by links that together have half of the bandwidth of a rail's NICs.
- ``slow-trunk``: the link from the first rail to that switch has half its bandwidth.
"""

from __future__ import annotations

import numpy as np

from stretto.model.topology import SWITCH, Topology, make_topology
from stretto.topologies import load_topology

SPINE_LATENCY_S = 1e-6


def network(servers: int, message: str, damage: str) -> Topology:
    """The network that the words of ``damage`` say."""
    t = load_topology(f"h100:{servers}?message={message}")
    words = damage.split("+") if damage else []
    gpus, nic = t.accelerators, t.bandwidth == t.bandwidth.min()
    halved = {"slow": gpus[:1], "slow-beside": gpus[1:2], "slow-elsewhere": gpus[8:9], "kinds": gpus[: 4 * servers]}
    width, keep = t.bandwidth.copy(), np.ones(t.link_count, dtype=bool)
    for word in words:
        hit = halved.get(word, gpus[:1])
        own = nic & (np.isin(t.src, hit) | np.isin(t.dst, hit))
        width[own] /= 2 if word in halved else 1
        keep &= ~own if word == "dead" else True
    links = [*zip(t.src[keep], t.dst[keep], width[keep], t.latency_s[keep], strict=True)]
    costs, kinds = [*t.message_s[keep]], [*t.kind]
    if "spine" in words:
        trunk = float(t.bandwidth[nic].min()) * servers / 2
        for number, rail in enumerate(np.unique(t.dst[nic & t.is_switch[t.dst]]).tolist()):
            own = trunk / (2 if "slow-trunk" in words and number == 0 else 1)
            links += [(rail, len(kinds), own, SPINE_LATENCY_S), (len(kinds), rail, own, SPINE_LATENCY_S)]
            costs += [0.0, 0.0]
        kinds.append(SWITCH)
    return make_topology(f"h100:{servers}{', ' * bool(damage)}{damage}", kinds, links, message_s=costs)


def ranks_of(net: Topology, damage: str) -> list[int] | None:
    """The GPUs that take part; None if all do."""
    words = damage.split("+")
    count = len(net.accelerators) - 8 * ("idle" in words)
    chosen = [v for k, v in enumerate(net.accelerators[:count].tolist()) if k % 8 < 4 or "some" not in words]
    return None if len(chosen) == len(net.accelerators) else chosen

"""The settings of tc(8): the bandwidth of each link, reserved shares of it, and the delay of packets.

A link is a token bucket. If a plan reserves shares by weight, a link is a tree of htb classes instead, one for each
subflow that sends over it. Transfers of several groups on one subflow have one class, and the executor's pacing divides
it among them.
"""

from __future__ import annotations

import math
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..lower import MOST_SUBFLOWS, subflows
from ..model.plan import Plan
from ..model.topology import Topology
from ..runtime.mesh import mark

LEAST_PACKET, MOST_PACKET = 1500, 9000
"""Bytes of a packet: those of Ethernet, and of its jumbo frames, which cost the kernel a sixth of the work."""
PACKET_S = 0.005
"""Seconds that a packet takes at most on the slowest link, if it is larger than ``LEAST_PACKET``: a
packet goes over the next link of its route only when it has come whole."""
TRAIN_S, MOST_TRAIN = 0.001, 65536
"""Seconds that a train of packets, which the kernel passes on as one, takes at most on the slowest link, unless one
packet takes longer; and the kernel's own limit of a train, bytes. With trains of 64 KiB, transfers of 300 KB over links
of 10 MB/s seem to come at 13 MB/s: a train comes whole, when its link has had time for all of it."""
FRAME_BYTES, SEGMENT_HEADERS = 14, 52
"""Bytes of a frame around its packet, which tc counts, and of IP and TCP inside it. Plans count payload alone."""
LEAST_BURST, BURST_S = 16384, 0.004
"""Size of a token bucket: the larger of this number of bytes and these seconds of its rate. A busy machine runs the
timers that fill it late, and tokens that do not fit are lost (with 16 KiB a link of 100 MB/s carried 30)."""
QUEUE_S = 0.05
LEAST_QUEUE = 1 << 17
"""The least queue of a class, bytes: two packets of the largest size that the kernel makes."""

Shares = Mapping[int, Mapping[tuple[int, int, int], float]]
"""For each link the fractions of it that are reserved for the packets of a source, a destination and a subflow."""


@cache
def has_netem() -> bool:
    """Whether the kernel can delay packets; if not, :mod:`stretto.runtime.incoming` delays arrivals."""
    return _kernel_takes("tc qdisc add dev lo root netem delay 1ms")


@cache
def has_htb() -> bool:
    """Whether the kernel can divide a link into classes by the source and destination of packets."""
    match = "tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.1/32 flowid 1:1"
    return _kernel_takes(f"tc qdisc add dev lo root handle 1: htb default 1 && {match}")


def _kernel_takes(commands: str) -> bool:
    line = ["unshare", "--net", "sh", "-c", f"ip link set lo up && {commands}"]
    return subprocess.run(line, capture_output=True).returncode == 0


@dataclass(frozen=True)
class Rough:
    """What a cable does to packets besides its bandwidth and latency; a process does it (:mod:`.relay`).

    Attributes:
        loss: the share of packets that are lost, at random, in each direction.
        cap: bytes/s of payload that one flow (a connection's packets in one direction) gets at most.
        packet_bytes: the most bytes of a packet of the network; 0 for those of :func:`packet_bytes`.
        seed: of what is lost.
    """

    loss: float = 0.0
    cap: float = math.inf
    packet_bytes: int = 0
    seed: int = 0


def packet_bytes(topology: Topology, most: int = 0) -> int:
    """The size of full packets, at most ``most`` if that is not 0."""
    if most:
        return min(most, packet_bytes(topology))
    slowest = float(min(topology.bandwidth.min(initial=np.inf), *(p.bandwidth for p in topology.planes), np.inf))
    return round(min(max(slowest * PACKET_S, LEAST_PACKET), MOST_PACKET))


def train_bytes(topology: Topology, most: int = 0) -> int:
    """The largest train of packets (``gso_max_size``); ``most`` as in :func:`packet_bytes`."""
    slowest = float(topology.bandwidth.min(initial=np.inf))
    return max(packet_bytes(topology, most), round(min(slowest * TRAIN_S, MOST_TRAIN)))


def wire_share(topology: Topology, most: int = 0) -> float:
    """Bytes on the wire for each byte of payload in a full packet; ``most`` as in :func:`packet_bytes`."""
    packet = packet_bytes(topology, most)
    return (packet + FRAME_BYTES) / (packet - SEGMENT_HEADERS)


def cables(topology: Topology) -> list[tuple[int, int]]:
    """The pairs of nodes that links join, the lower node first."""
    return sorted({(min(a, b), max(a, b)) for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True)})


def reserved(plan: Plan) -> Shares:
    """The reserved shares of a plan that shares by weights; empty for other plans. The groups of a link have shares by
    weight, used or not (the WAN paper, eq. 9), and a subflow has the shares of the groups for which it sends."""
    if plan.sharing != "weights" or plan.weight is None or not has_htb():
        return {}
    groups = np.arange(plan.transfer_count) if plan.group is None else plan.group
    weights: dict[int, dict[int, float]] = defaultdict(dict)
    senders: dict[int, dict[tuple[int, int, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    for k, subflow in enumerate(subflows(plan).tolist()):
        group, weight = int(groups[k]), float(plan.weight[k])
        for link in plan.route[k].tolist():
            weights[link][group] = max(weight, weights[link].get(group, 0.0))
            for v in plan.dst[k].tolist():
                senders[link][int(plan.src[k]), v, subflow].add(group)
    return {
        link: {
            packets: sum(weights[link][g] for g in members) / sum(weights[link].values())
            for packets, members in groups_of.items()
        }
        for link, groups_of in senders.items()
    }


def shapes(
    topology: Topology, v: int, delayed: bool, shares: Shares, address: Callable[[int], str], most: int = 0
) -> list[str]:
    """The tc commands of each link out of a node, with its delay if the kernel can. ``most``: see :func:`packet_bytes`.

    The reverse of a link that has no opposite link carries only acknowledgements, at the rate of the link.
    """
    link = {pair: i for i, pair in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))}
    lines: list[str] = []
    for a, b in cables(topology):
        if v in (a, b):
            to = b if v == a else a
            i = link.get((v, to), link.get((to, v), 0))
            rate = topology.bandwidth[i] * wire_share(topology, most)
            link_shares = shares.get(link.get((v, to), -1))
            microseconds = round(topology.latency_s[i] * 1e6) if delayed else 0
            if link_shares:
                lines += _classes(f"to{to}", rate, link_shares, microseconds, address)
            else:
                lines += bucket(f"to{to}", rate, microseconds)
    return lines


def bucket(device: str, rate: float, microseconds: int) -> Iterator[str]:
    """The tc commands of a link that is one token bucket."""
    add, late_ms = f"qdisc add dev {device}", QUEUE_S * 1e3
    yield f"{add} root handle 1: tbf rate {_bits(rate)}bit burst {_burst(rate)} latency {late_ms:g}ms"
    if microseconds:
        yield f"{add} parent 1:1 handle 10: {_late(microseconds)}"


def _classes(
    device: str,
    rate: float,
    shares: Mapping[tuple[int, int, int], float],
    microseconds: int,
    address: Callable[[int], str],
) -> Iterator[str]:
    """The tc commands of a link with a class for each subflow; other packets get what the classes leave."""
    add, burst = f"add dev {device}", f"burst {_burst(rate)} cburst {_burst(rate)}"
    yield f"qdisc {add} root handle 1: htb default 2"
    yield f"class {add} parent 1: classid 1:1 htb rate {_bits(rate)}bit {burst}"
    yield f"class {add} parent 1:1 classid 1:2 htb rate 8000bit ceil {_bits(rate)}bit {burst}"
    for minor, ((source, sink, subflow), share) in enumerate(sorted(shares.items()), start=3):
        width = rate * share
        yield f"class {add} parent 1:1 classid 1:{minor:x} htb rate {_bits(width)}bit {burst}"
        queue = _late(microseconds) if microseconds else f"bfifo limit {max(LEAST_QUEUE, round(width * QUEUE_S))}"
        yield f"qdisc {add} parent 1:{minor:x} {queue}"
        packets = f"match ip src {address(source)}/32 match ip dst {address(sink)}/32"
        packets += f" match ip tos {mark(subflow):#x} {mark(MOST_SUBFLOWS - 1):#x}"
        yield f"filter {add} parent 1: protocol ip prio 1 u32 {packets} flowid 1:{minor:x}"


def _late(microseconds: int) -> str:
    return f"netem delay {microseconds}us limit 100000"


def _burst(rate: float) -> int:
    return max(LEAST_BURST, round(rate * BURST_S))


def _bits(rate: float) -> int:
    return max(8000, round(rate * 8))

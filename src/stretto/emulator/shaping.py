"""What tc(8) is told: how fast each link is, who owns a share of it, and how late packets arrive.

A link is a token bucket. Where a plan reserves shares by weight it is a tree of htb classes instead, one for each pair
of nodes that sends over it: what transfers of several groups between the same two nodes have of it they have together,
and the executor's pacing divides it among them.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np

from ..model.plan import Plan
from ..model.topology import Topology

HEADERS = 1514 / 1448
"""Bytes on the wire for each byte of payload in a full segment: links shape the first, plans count the second."""
LEAST_BURST, BURST_S = 16384, 0.004
"""What a bucket holds, bytes and seconds of its rate: the kernel fills it as late as a busy machine runs its timers,
and what does not fit is lost to the link (16 KiB let a link of 100 MB/s carry 30)."""
QUEUE_S = 0.05
LEAST_QUEUE = 1 << 17
"""Bytes that wait for a class at least: two packets as large as the kernel makes them."""

Shares = Mapping[int, Mapping[tuple[int, int], float]]
"""For a link the fraction of it that belongs to what one node sends to another."""


@cache
def has_netem() -> bool:
    """Whether the kernel can delay packets; where it cannot, :mod:`stretto.runtime.incoming` delays arrivals."""
    line = ["unshare", "--net", "sh", "-c", "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"]
    return subprocess.run(line, capture_output=True).returncode == 0


@cache
def has_htb() -> bool:
    """Whether the kernel can divide a link into classes, and tell packets apart by their ends."""
    match = "tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.1/32 flowid 1:1"
    line = f"ip link set lo up && tc qdisc add dev lo root handle 1: htb default 1 && {match}"
    return subprocess.run(["unshare", "--net", "sh", "-c", line], capture_output=True).returncode == 0


def cables(topology: Topology) -> list[tuple[int, int]]:
    """The pairs of nodes that a link joins, the lower first."""
    return sorted({(min(a, b), max(a, b)) for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True)})


def reserved(plan: Plan) -> Shares:
    """The shares of a plan that shares by weights, none for another: on each link the groups have it by weight, used
    or not (the WAN paper, eq. 9), and a pair of nodes has what the groups that it sends for have."""
    if plan.sharing != "weights" or plan.weight is None or not has_htb():
        return {}
    groups = np.arange(plan.transfer_count) if plan.group is None else plan.group
    asks: dict[int, dict[int, float]] = defaultdict(dict)
    senders: dict[int, dict[tuple[int, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    for k in range(plan.transfer_count):
        group, weight = int(groups[k]), float(plan.weight[k])
        for link in plan.route[k].tolist():
            asks[link][group] = max(weight, asks[link].get(group, 0.0))
            for v in plan.dst[k].tolist():
                senders[link][int(plan.src[k]), v].add(group)
    return {
        link: {pair: sum(asks[link][g] for g in own) / sum(asks[link].values()) for pair, own in pairs.items()}
        for link, pairs in senders.items()
    }


def shapes(topology: Topology, v: int, delayed: bool, shares: Shares, address: Callable[[int], str]) -> list[str]:
    """What is set up at each link out of a node, its delay behind the rest where the kernel can.

    What only acknowledges has the rate of the other direction.
    """
    ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    link = {pair: i for i, pair in enumerate(ends)}
    lines: list[str] = []
    for a, b in cables(topology):
        if v in (a, b):
            to = b if v == a else a
            i = link.get((v, to), link.get((to, v), 0))
            rate = topology.bandwidth[i] * HEADERS
            own = shares.get(link.get((v, to), -1))
            microseconds = round(topology.latency_s[i] * 1e6) if delayed else 0
            if own:
                lines += _classes(f"to{to}", rate, own, microseconds, address)
            else:
                lines.append(f"qdisc add dev to{to} root handle 1: tbf rate {_bits(rate)}bit burst {_burst(rate)} "
                             f"latency {QUEUE_S * 1e3:g}ms")  # fmt: skip
                if microseconds:
                    lines.append(f"qdisc add dev to{to} parent 1:1 handle 10: {_late(microseconds)}")
    return lines


def _classes(
    device: str, rate: float, own: Mapping[tuple[int, int], float], microseconds: int, address: Callable[[int], str]
) -> Iterator[str]:
    """A link whose pairs of nodes have classes; what belongs to none of them takes what these leave."""
    add, burst = f"add dev {device}", f"burst {_burst(rate)} cburst {_burst(rate)}"
    yield f"qdisc {add} root handle 1: htb default 2"
    yield f"class {add} parent 1: classid 1:1 htb rate {_bits(rate)}bit {burst}"
    yield f"class {add} parent 1:1 classid 1:2 htb rate 8000bit ceil {_bits(rate)}bit {burst}"
    for minor, ((source, sink), share) in enumerate(sorted(own.items()), start=3):
        width = rate * share
        yield f"class {add} parent 1:1 classid 1:{minor:x} htb rate {_bits(width)}bit {burst}"
        queue = _late(microseconds) if microseconds else f"bfifo limit {max(LEAST_QUEUE, round(width * QUEUE_S))}"
        yield f"qdisc {add} parent 1:{minor:x} {queue}"
        ends = f"match ip src {address(source)}/32 match ip dst {address(sink)}/32"
        yield f"filter {add} parent 1: protocol ip prio 1 u32 {ends} flowid 1:{minor:x}"


def _late(microseconds: int) -> str:
    return f"netem delay {microseconds}us limit 100000"


def _burst(rate: float) -> int:
    return max(LEAST_BURST, round(rate * BURST_S))


def _bits(rate: float) -> int:
    return max(8000, round(rate * 8))

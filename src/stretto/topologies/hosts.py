"""Clusters of hosts behind network switches, from files that know no GPUs: schedulers' and InfiniBand's.

What is in a host the options say: ``gpus`` on one NVSwitch of ``inside`` each. With one GPU a host is one accelerator.
Ports are dealt out to GPUs in order; where there are fewer ports than GPUs, a port is a network card that some share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import format_bandwidth, format_time, parse_bandwidth
from . import Setting, check_size, choice, decimal, listed, whole
from .draft import Draft
from .servers import GB
from .values import shown

NIC_BANDWIDTH = 50 * GB
ONE_ACCELERATOR = "each host is one accelerator; ?gpus=8 gives it eight"
"""400 Gbit/s, of a port where neither the file nor an option says it."""
INSIDE_BANDWIDTH, INSIDE_LATENCY_S, NETWORK_LATENCY_S = 450 * GB, 0.35e-6, 1.3e-6
"""Of an H100's NVLinks, of a hop over an NVSwitch and of a hop over the network, as in the catalogue's ``h100``."""


def _count(text: str, where: str) -> int:
    return whole(text, where, least=1)


GPUS = Setting("gpus", _count, None, "GPUs in each host, on one NVSwitch; 1 by default")
INSIDE = Setting("inside", parse_bandwidth, None, "of a GPU to that NVSwitch; 450GB/s by default")
HOSTS = Setting("hosts", listed(lambda text, where: text), None, "which hosts to take, as in hosts=dgx*,a100-*")
NIC = Setting("nic", parse_bandwidth, None, "of a port of a host; 400Gbit/s by default")
NICS = Setting("nics", _count, None, "ports of each host; as many as GPUs by default")
_RATIO = decimal("a number of at least 1", lambda value: 1 <= value <= 1e6)
OVERSUBSCRIPTION = Setting(
    "oversubscription", _RATIO, None, "bandwidth of what is below a switch by that of its uplinks; 1 by default"
)
BLOCKS = Setting(
    "blocks", choice({"network": "network", "nvlink": "nvlink"}), None,
    "what joins the hosts of a block or accelerator domain: a network switch (default), or NVLinks",
)  # fmt: skip
INSIDE_HOSTS = (GPUS, INSIDE, HOSTS)
OF_SCHEDULERS = (NIC, NICS, OVERSUBSCRIPTION, BLOCKS)
SETTINGS = (*INSIDE_HOSTS, *OF_SCHEDULERS)


@dataclass
class Port:
    """A port of a host: the switch that it leads to, bytes/s, and the name of its device."""

    switch: str
    width: float
    device: str = ""


@dataclass
class Cluster:
    """Hosts and switches while a file is read; switches are known by what the file calls them.

    Attributes:
        cables: bytes/s of the cables between two switches, each way.
        domains: for each host the NVLink domain that its GPUs are in; by default the host is one of its own.
    """

    name: str
    where: str
    hosts: dict[str, list[Port]] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    cables: dict[tuple[str, str], float] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def choose(self, patterns: list[str] | None) -> None:
        """Keeps hosts whose name fits a pattern; InputError if none does."""
        if patterns is None:
            return
        kept = {h: ports for h, ports in self.hosts.items() if any(fnmatchcase(h, p) for p in patterns)}
        if not kept:
            some = ", ".join(list(self.hosts)[:3])
            raise InputError(f"none of its {len(self.hosts)} hosts ({some}, ...) fits {','.join(patterns)}", self.where)
        self.notes += [f"hosts left out: {len(self.hosts) - len(kept)}"] * (len(kept) < len(self.hosts))
        self.hosts = kept

    def topology(self, settings: dict[str, Any]) -> Topology:
        """The topology; GPUs come first, host by host."""
        gpus = settings[GPUS.name] or 1
        ports = sum(len(p) for p in self.hosts.values())
        nodes = len(self.hosts) * (gpus + 1) + len(self.switches) + ports
        check_size(nodes, 2 * (len(self.hosts) * 2 * gpus + ports + len(self.cables)), self.where)
        draft = Draft()
        of: dict[str, list[int]] = {}
        for host in self.hosts:
            names = [host] if gpus == 1 else [f"{host}.gpu{g}" for g in range(gpus)]
            of[host] = [draft.node(ACCELERATOR, name, host) for name in names]
        number = {key: draft.node(SWITCH, label) for key, label in zip(self.switches, self._labels(), strict=True)}
        self._add_nvlinks(draft, of, settings[INSIDE.name] or INSIDE_BANDWIDTH)
        for host, mine in self.hosts.items():
            _add_ports(draft, host, of[host], mine, number)
        for (a, b), width in self.cables.items():
            draft.join(number[a], number[b], width, NETWORK_LATENCY_S)
        notes = [f"a hop over the network taken as {format_time(NETWORK_LATENCY_S)}"]
        if gpus == 1 and not self.domains:
            notes.append(ONE_ACCELERATOR)
        replicates = [
            kind == SWITCH and ".nic" not in name for kind, name in zip(draft.kinds, draft.names, strict=True)
        ]
        return draft.topology(
            self.name, ordered=True, replicates=replicates, notes=[*notes, *self.notes], where=self.where
        )

    def _add_nvlinks(self, draft: Draft, of: dict[str, list[int]], width: float) -> None:
        """Joins the GPUs of each NVLink domain by a switch."""
        domains: dict[str, list[str]] = {}
        for host in self.hosts:
            domains.setdefault(self.domains.get(host, host), []).append(host)
        for domain, hosts in domains.items():
            gpus = [gpu for host in hosts for gpu in of[host]]
            if len(gpus) > 1:
                site = hosts[0] if len(hosts) == 1 else ""
                switch = draft.node(SWITCH, f"{domain}.nvswitch", site)
                for gpu in gpus:
                    draft.join(gpu, switch, width, INSIDE_LATENCY_S)
        if any(len(of[host]) > 1 for host in self.hosts) or self.domains:
            self.notes.append(f"a GPU's NVLinks taken as {format_bandwidth(width)} to an NVSwitch")

    def _labels(self) -> list[str]:
        """The names of switches: without what identifies them in the file where that is not needed."""
        hosts, seen = set(self.hosts), Counter(self.switches.values())
        return [
            label if label and seen[label] == 1 and label not in hosts else f"{label} {key}".strip()
            for key, label in self.switches.items()
        ]


def _add_ports(draft: Draft, host: str, gpus: list[int], ports: list[Port], number: dict[str, int]) -> None:
    """Joins a host's GPUs to the network, each by its ports, or several by one network card."""
    for h, port in enumerate(ports):
        if len(ports) >= len(gpus):
            near = gpus[h * len(gpus) // len(ports)]
        else:
            near = draft.node(SWITCH, f"{host}.nic{h} {port.device}".strip(), host)
            for g, gpu in enumerate(gpus):
                if g * len(ports) // len(gpus) == h:
                    draft.join(gpu, near, port.width, INSIDE_LATENCY_S)
        draft.join(near, number[port.switch], port.width, NETWORK_LATENCY_S)


def tree(
    cluster: Cluster, leaves: dict[str, list[str]], parents: dict[str, list[str]], settings: dict[str, Any],
    uplink: Callable[[str], float | None] = lambda switch: None,
) -> None:  # fmt: skip
    """Ports and cables of a tree of switches that says no bandwidths.

    A host's ports are dealt out among its leaf switches. Above, a switch has the bandwidth of all that is below it,
    divided by ``oversubscription``, in equal parts to each switch above.

    Args:
        leaves: the leaf switches of each host; parents: the switches above each switch.
        uplink: bytes/s from a switch to those above where the file says it, else None.
    Raises:
        InputError: a switch is above itself.
    """
    width = settings[NIC.name] or NIC_BANDWIDTH
    count = settings[NICS.name] or settings[GPUS.name] or 1
    below: dict[str, float] = dict.fromkeys(cluster.switches, 0.0)
    for host in cluster.hosts:
        mine = leaves[host]
        ports = max(count, len(mine)) if settings[NICS.name] is None else count
        cluster.hosts[host] = [Port(mine[p % len(mine)], width) for p in range(ports)]
        for port in cluster.hosts[host]:
            below[port.switch] += width
    ratio = settings[OVERSUBSCRIPTION.name] or 1.0
    for switch in _bottom_up(list(cluster.switches), parents, cluster.where):
        above = parents.get(switch, [])
        given = uplink(switch)
        total = below[switch] / ratio if given is None else given
        for parent in above:
            if total > 0:
                cluster.cables[switch, parent] = total / len(above)
                below[parent] += total / len(above)
    cluster.notes += [
        f"a port of a host taken as {format_bandwidth(width)}",
        f"uplinks taken as {1 / ratio:.4g} of what is below a switch",
    ]


def _bottom_up(switches: list[str], parents: dict[str, list[str]], where: str) -> list[str]:
    """Switches in an order in which each comes after all that are below it."""
    waiting = Counter(parent for switch in switches for parent in parents.get(switch, []))
    order = [switch for switch in switches if not waiting[switch]]
    for switch in order:
        for parent in parents.get(switch, []):
            waiting[parent] -= 1
            if not waiting[parent]:
                order.append(parent)
    if len(order) < len(switches):
        lost = next(switch for switch in switches if waiting[switch] > 0)
        raise InputError(f"the switch {shown(lost)} is above itself", where)
    return order

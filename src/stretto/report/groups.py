"""The structure of a cluster for a drawing: servers, those that are alike, and the layers of switches above them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from ..model.arrays import Int64
from ..model.topology import Topology

MOST_GROUPS = 8
"""Servers that are drawn without collapsing those that are alike."""

MOST_PODS, MOST_ALIKE = 3, 3
"""Pods that are drawn of those that are alike, and servers of each kind, where there are more than ``MOST_GROUPS``."""

MOST_WIDTHS = 32
"""Bandwidths by which servers are looked for, the highest ones."""

MOST_KINDS = 6
"""Pods that are drawn in all where there are more than ``MOST_GROUPS`` to draw."""

MOST_IN_LAYER = 16
"""Switches of a layer that are drawn."""


@dataclass(frozen=True)
class Block:
    """A server that is drawn, or the place of several that are not.

    Attributes:
        nodes: the nodes of the server; none where ``more`` servers are left out.
        more: how many servers the block stands for besides one that is drawn.
        what: the words for these.
        below: nodes of the first layer to which those that are left out are joined.
    """

    name: str
    nodes: tuple[int, ...] = ()
    more: int = 0
    what: str = ""
    below: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A row of switches: those that are drawn, and how many more there are."""

    nodes: tuple[int, ...]
    more: int = 0


@dataclass(frozen=True)
class Structure:
    """Pods of blocks, from left to right, and layers above them, the lowest first."""

    pods: tuple[tuple[Block, ...], ...]
    layers: tuple[Layer, ...]


def structure_of(topology: Topology) -> Structure | None:
    """The servers and layers of a cluster; None where there are not two groups of nodes."""
    group = groups_of(topology)
    names = list(dict.fromkeys(g for g in group if g))
    if len(names) < 2:
        return None
    number = {name: k for k, name in enumerate(names)}
    of_node = np.array([number.get(g, -1) for g in group], dtype=np.int64)
    level = _levels(topology, of_node)
    members = [np.flatnonzero(of_node == k).tolist() for k in range(len(names))]
    kind = _kinds_of_groups(topology, of_node, level, len(names))
    leaves = _neighbours(topology, of_node, len(names))
    pods = _pods(names, members, kind, leaves)
    drawn = {v for pod in pods for block in pod for v in block.nodes}
    return Structure(pods, _layers(topology, level, drawn))


def groups_of(topology: Topology) -> list[str]:
    """The server of each node: its site, else what its name says (``s0.gpu1`` is in ``s0``), else nodes that faster
    links join than those between them, else accelerators at the same switches; "" for nodes outside.

    A way out or in of one server alone, as a cap has it, belongs to that server."""
    if any(topology.sites):
        return _with_own_ways(topology, list(topology.sites))
    prefix = [name.rpartition(".")[0] for name in topology.names]
    if all(prefix[v] for v in topology.accelerators):
        return prefix
    if not topology.is_switch.any():
        return [""] * topology.node_count
    each = [name if own else "" for name, own in zip(topology.names, topology.is_accelerator.tolist(), strict=True)]
    capped = _with_own_ways(topology, each)
    if capped != each:
        return capped
    return _by_fastest(topology) or _by_switches(topology)


def _with_own_ways(topology: Topology, group: list[str]) -> list[str]:
    """The groups, and in them each node outside of all that links join to one of them alone, and one way only."""
    ways: list[set[tuple[str, str]]] = [set() for _ in group]
    for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        if group[a]:
            ways[b].add((group[a], "out"))
        if group[b]:
            ways[a].add((group[b], "in"))
    return [own or (next(iter(found))[0] if len(found) == 1 else "") for own, found in zip(group, ways, strict=True)]


def _by_fastest(topology: Topology) -> list[str]:
    """Accelerators that links of some bandwidth or more join, directly or over switches, two or more each: for the
    highest bandwidth with which that is so; nothing if there is none."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, widths = topology.node_count, np.unique(topology.bandwidth)[::-1]
    for width in widths[:MOST_WIDTHS]:
        fast = topology.bandwidth >= width
        ends = topology.src[fast], topology.dst[fast]
        label = connected_components(coo_array((np.ones(len(ends[0])), ends), shape=(n, n)), directed=False)[1]
        counts = Counter(label[topology.accelerators].tolist())
        if len(counts) > 1 and min(counts.values()) > 1:
            order = {old: new for new, old in enumerate(counts)}
            return [f"server {order[k]}" if k in order else "" for k in label.tolist()]
    return []


def _by_switches(topology: Topology) -> list[str]:
    """Accelerators by the switches that they are joined to."""
    at: dict[int, set[int]] = {}
    for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        if topology.is_accelerator[a] and not topology.is_accelerator[b]:
            at.setdefault(a, set()).add(b)
    keys = {v: frozenset(found) for v, found in at.items()}
    order = {key: k for k, key in enumerate(dict.fromkeys(keys.values()))}
    return [f"group {order[keys[v]]}" if v in keys else "" for v in range(topology.node_count)]


def _levels(topology: Topology, of_node: Int64) -> Int64:
    """int64[nodes], 0 in servers, 1 for nodes next to servers, 2 for those next to these, and so on."""
    level = np.where(of_node >= 0, 0, -1)
    now = 0
    while True:
        beside = np.concatenate((
            topology.dst[level[topology.src] == now], topology.src[level[topology.dst] == now]
        ))  # fmt: skip
        beside = beside[level[beside] < 0]
        if not len(beside):
            return np.where(level < 0, now + 1, level)
        now += 1
        level[beside] = now


def _kinds_of_groups(topology: Topology, of_node: Int64, level: Int64, count: int) -> list[Hashable]:
    """For each group what it is made of: equal values for groups that look alike."""
    parts: list[Counter[Hashable]] = [Counter() for _ in range(count)]
    for v, g in enumerate(of_node.tolist()):
        if g >= 0:
            parts[g][int(topology.kind[v]), bool(topology.reduces[v])] += 1
    columns = (topology.src, topology.dst, topology.bandwidth, topology.latency_s)
    for a, b, width, latency in zip(*(c.tolist() for c in columns), strict=True):
        ends = int(of_node[a]), int(of_node[b])
        for here, there, node, far, way in ((*ends, a, b, "out"), (*ends[::-1], b, a, "in")):
            if here >= 0:
                inside = here == there
                parts[here][
                    way, inside, int(topology.kind[node]), 0 if inside else int(level[far]), width, latency
                ] += 1
    return [frozenset(part.items()) for part in parts]


def _neighbours(topology: Topology, of_node: Int64, count: int) -> list[tuple[int, ...]]:
    """For each group the nodes outside of all groups that it is joined to."""
    found: list[set[int]] = [set() for _ in range(count)]
    for ends in ((topology.src, topology.dst), (topology.dst, topology.src)):
        across = (of_node[ends[0]] >= 0) & (of_node[ends[1]] < 0)
        for g, v in zip(of_node[ends[0][across]].tolist(), ends[1][across].tolist(), strict=True):
            found[g].add(v)
    return [tuple(sorted(nodes)) for nodes in found]


def _pods(
    names: list[str], members: list[list[int]], kind: list[Hashable], leaves: list[tuple[int, ...]]
) -> tuple[tuple[Block, ...], ...]:
    """Blocks by the switches that servers are joined to; of many that are alike only some."""
    everything = len(names) <= MOST_GROUPS
    pods: dict[tuple[int, ...], list[int]] = {}
    for g, at in enumerate(leaves):
        pods.setdefault(at, []).append(g)
    shown: list[tuple[Block, ...]] = []
    pod_kinds: dict[Hashable, list[list[int]]] = {}
    for at, groups in pods.items():
        pod_kinds.setdefault((frozenset(Counter(kind[g] for g in groups).items()), len(at)), []).append(groups)
    for alike in pod_kinds.values():
        most = len(alike) if everything or len(alike) <= MOST_PODS else MOST_PODS - 1
        each = MOST_ALIKE if len(pods) == 1 else 2
        for groups in alike[:most]:
            shown.append(_blocks(groups, names, members, kind, leaves, len(groups) if everything else each))
        if len(alike) > most:
            left = alike[most:]
            servers = sum(map(len, left))
            what = (
                f"{len(left)} more like this: {servers} servers" if len(left[0]) > 1 else f"{len(left)} more like these"
            )
            shown.append((Block("", more=servers, what=what),))
    return _limited(shown)


def _limited(pods: list[tuple[Block, ...]]) -> tuple[tuple[Block, ...], ...]:
    """The first pods, and one block for all others where there are too many kinds of them."""
    most = MOST_KINDS if len(pods) > MOST_GROUPS else len(pods)
    if len(pods) <= most:
        return tuple(pods)
    servers = sum(max(block.more, bool(block.nodes)) for pod in pods[most:] for block in pod)
    return (*pods[:most], (Block("", more=servers, what=f"{servers} more servers of other kinds"),))


def _blocks(
    groups: list[int], names: list[str], members: list[list[int]], kind: list[Hashable],
    leaves: list[tuple[int, ...]], each: int,
) -> tuple[Block, ...]:  # fmt: skip
    """The blocks of a pod: of each kind of server the first ones, and one for the others."""
    kinds: dict[Hashable, list[int]] = {}
    for g in groups:
        kinds.setdefault(kind[g], []).append(g)
    found = []
    for alike in kinds.values():
        most = len(alike) if len(alike) <= each + 1 else each
        found += [Block(names[g], tuple(members[g])) for g in alike[:most]]
        if len(alike) > most:
            left = len(alike) - most
            found.append(Block("", more=left, what=f"{left} more like these", below=leaves[alike[most]]))
    return tuple(found)


def _layers(topology: Topology, level: Int64, drawn: Iterable[int]) -> tuple[Layer, ...]:
    """The rows of nodes outside of servers: those that what is drawn is joined to come first."""
    below, layers = set(drawn), []
    ends = np.concatenate((topology.src, topology.dst)), np.concatenate((topology.dst, topology.src))
    for k in range(1, int(level.max()) + 1):
        nodes = np.flatnonzero(level == k).tolist()
        joined = set(ends[1][np.isin(ends[0], list(below))].tolist())
        near = [v for v in nodes if v in joined] or nodes
        kept = tuple(near[:MOST_IN_LAYER])
        layers.append(Layer(kept, len(nodes) - len(kept)))
        below = set(kept)
    return tuple(layers)

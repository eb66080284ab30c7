"""SLURM's ``topology.conf`` and ``topology.yaml``: trees of switches (topology/tree) and blocks (topology/block).

As the manual pages topology.conf(5) and topology.yaml(5) of SLURM 26.11 have them. They say who is next to whom and no
bandwidth: those are options (see :mod:`hosts`). ``LinkSpeed`` has no unit there, so it counts only with ``linkspeed``,
which says what 1 is. Blocks are joined by one switch above them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..model.errors import InputError, none_of
from ..model.topology import Topology
from ..model.units import parse_bandwidth
from . import MOST_NODES, Setting
from .hostlist import expand
from .hosts import BLOCKS, HOSTS, Cluster, tree
from .values import entry, objects, one_line, parse_yaml, real, shown

LINKSPEED = Setting("linkspeed", parse_bandwidth, None, "what a LinkSpeed of 1 is; without it LinkSpeed is left out")
TOPOLOGY = Setting(
    "topology", lambda text, where: text, None, "which topology of a topology.yaml; the default one if left out"
)
SETTINGS = (LINKSPEED, TOPOLOGY)

_KEYS = ("switchname", "blockname", "ringname")
_CORE = "(core)"

Row = dict[str, str]
Switch = tuple[str, str, str, str | None, str]
"""Name, switches below, hosts below, LinkSpeed, place."""


def begins_conf(words: list[str]) -> bool:
    """Whether the first words of a file's lines are keys of a topology.conf."""
    return any(word.partition("=")[0].lower() in _KEYS for word in words)


def begins_yaml(text: str) -> bool:
    """Whether a YAML is a list of topologies, each with a name."""
    start = text[:100_000]
    return bool(re.search(r"(?m)^[ \t]*-\s+[\"']?topology[\"']?\s*:", start)) and "npus_count" not in start


def parse_conf(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of a topology.conf."""
    rows = [(f"{where}, line {line}", row) for line, row in _rows(text, where)]
    named = [key for key in _KEYS if any(key in row for _, row in rows)]
    if named != ["switchname"] and named != ["blockname"]:
        what = "topology/ring is not read" if "ringname" in named else "switches and blocks are of two plugins"
        raise InputError(f"has {' and '.join(named)}: {what}; give topology/tree or topology/block", where)
    _check_options(settings, where, "topology")
    if named == ["blockname"]:
        blocks = [(row["blockname"], row.get("nodes", ""), place) for place, row in rows if "blockname" in row]
        return _blocks(blocks, where, settings)
    switches = [
        (row["switchname"], row.get("switches", ""), row.get("nodes", ""), row.get("linkspeed"), place)
        for place, row in rows
        if "switchname" in row
    ]
    return _tree(switches, where, settings)


def _rows(text: str, where: str) -> Iterator[tuple[int, Row]]:
    """The entries of each line, their keys in small letters; a line may go on after a backslash."""
    known = (*_KEYS, "switches", "nodes", "linkspeed", "blocksizes")
    begun, first = "", 0
    for line, whole in enumerate(text.splitlines(), start=1):
        part = whole.partition("#")[0].strip()
        first = first or line
        if part.endswith("\\"):
            begun += part[:-1] + " "
            continue
        words, at = "=".join(map(str.strip, (begun + part).split("="))).split(), first
        begun, first = "", 0
        row: Row = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key.lower() not in known or key.lower() in row:
                wrong = f"{shown(key)} stands twice" if key.lower() in row else none_of(key, known)
                raise InputError(wrong, f"{where}, line {at}")
            row[key.lower()] = value.strip('"')
        if row:
            yield at, row


def parse_yaml_list(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of a topology.yaml: the one that ``topology`` names, else the cluster's default, else the first."""
    data = parse_yaml(text, where)
    if not isinstance(data, list) or not all(isinstance(unit, dict) and "topology" in unit for unit in data):
        raise InputError("must be a list of topologies, each with a name under 'topology'", where)
    names = [str(unit["topology"]) for unit in data]
    wanted = settings[TOPOLOGY.name]
    if wanted is not None and wanted not in names:
        raise InputError(f"has no topology {shown(wanted)}; there are {', '.join(names)[:200]}", where)
    default = next(
        (n for n, u in zip(names, data, strict=True) if u.get("cluster_default") is True), names[0] if names else ""
    )
    if not names:
        raise InputError("is an empty list", where)
    unit = data[names.index(default if wanted is None else wanted)]
    place = f"{where}, topology {shown(unit['topology'])}"
    if "block" in unit:
        found = objects(entry(unit, "block", dict, place), "blocks", place)
        named = [(_word(b, "block", place), _word(b, "nodes", place), place) for b in found]
        return _blocks(named, where, settings)
    if "tree" in unit:
        found = objects(entry(unit, "tree", dict, place), "switches", place)
        rows: list[Switch] = [
            (_word(s, "switch", place), _word(s, "children", place), _word(s, "nodes", place), None, place)
            for s in found
        ]
        return _tree(rows, where, settings)
    kinds = ", ".join(one_line(str(key))[:60] for key in unit if key not in ("topology", "cluster_default"))
    raise InputError(f"is {kinds or 'empty'}: only tree and block say how hosts are joined", place)


def _word(data: dict[str, Any], key: str, where: str) -> str:
    """An entry as text; a name may be a bare number in YAML."""
    value = data.get(key, "")
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise InputError(f"{key!r} must be text, not {shown(value)}", where)
    return str(value)


def _check_options(settings: dict[str, Any], where: str, name: str) -> None:
    if settings[name] is not None:
        raise InputError(f"the option {name} is for a topology.yaml", where)


def _tree(rows: list[Switch], where: str, settings: dict[str, Any]) -> Topology:
    """The topology of switches."""
    cluster = Cluster("slurm tree", where)
    parents: dict[str, list[str]] = {}
    leaves: dict[str, list[str]] = {}
    speeds: dict[str, float] = {}
    for name, _, _, speed, place in rows:
        if not one_line(name) or name in cluster.switches:
            raise InputError(f"the switch {shown(name)} {'stands twice' if name else 'has no name'}", place)
        cluster.switches[name] = one_line(name)
        if speed is not None:
            speeds[name] = real(speed, "LinkSpeed", place)
    total = 0
    for name, below, hosts, _, place in rows:
        for child in expand(below, place) if below else []:
            if child not in cluster.switches:
                raise InputError(f"the switch {shown(child)} below {shown(name)} is not defined", place)
            parents.setdefault(child, []).append(name)
        for host in expand(hosts, place) if hosts else []:
            leaves.setdefault(host, []).append(name)
            total += 1
            if total > MOST_NODES:
                raise InputError(f"has more than {MOST_NODES} hosts", place)
    unit = settings[LINKSPEED.name]
    if speeds and unit is None:
        cluster.notes.append(
            f"LinkSpeed of {len(speeds)} switches left out: SLURM gives it no unit; say what 1 is, ?linkspeed=1Gbit/s"
        )
    return _finished(cluster, leaves, parents, settings, lambda s: speeds[s] * unit if unit and speeds.get(s) else None)


def _blocks(rows: list[tuple[str, str, str]], where: str, settings: dict[str, Any]) -> Topology:
    """The topology of blocks: name, hosts, place."""
    groups: dict[str, list[str]] = {}
    for name, hosts, place in rows:
        if not one_line(name) or name in groups:
            raise InputError(f"the block {shown(name)} {'stands twice' if name else 'has no name'}", place)
        groups[name] = expand(hosts, place) if hosts else []
    if sum(map(len, groups.values())) > MOST_NODES:
        raise InputError(f"has more than {MOST_NODES} hosts", where)
    return grouped(Cluster("slurm blocks", where), groups, settings)


def grouped(cluster: Cluster, groups: dict[str, list[str]], settings: dict[str, Any]) -> Topology:
    """The topology of groups of hosts: each has a leaf switch, or NVLinks, and one switch joins all."""
    homes = [(host, group) for group, hosts in groups.items() for host in hosts]
    if settings[BLOCKS.name] == "nvlink":
        cluster.domains = dict(homes)
        leaves = {host: [_CORE] for host, _ in homes}
        parents: dict[str, list[str]] = {}
    else:
        cluster.switches = {group: one_line(group) for group, hosts in groups.items() if hosts}
        leaves = {host: [group] for host, group in homes}
        parents = {group: [_CORE] for group in cluster.switches}
        cluster.notes.append("a block is taken as a network switch; ?blocks=nvlink takes it as GPUs on NVLinks")
    cluster.switches[_CORE] = "core"
    return _finished(cluster, leaves, parents, settings)


def _finished(
    cluster: Cluster, leaves: dict[str, list[str]], parents: dict[str, list[str]], settings: dict[str, Any],
    uplink: Any = lambda switch: None,
) -> Topology:  # fmt: skip
    if not leaves:
        raise InputError("has no hosts", cluster.where)
    cluster.hosts = {host: [] for host in leaves}
    cluster.choose(settings[HOSTS.name])
    tree(cluster, leaves, parents, settings, uplink)
    return cluster.topology(settings)

"""NVIDIA topograph's topologies: its graph engine's JSON, and the labels that it gives Kubernetes nodes.

Its SLURM engines write SLURM's files, which :mod:`slurm` reads. As docs/engines/graph.md and
docs/reference/node-labels.md of NVIDIA/topograph have them: ``network_layers`` and ``fabric.topograph.run/tier-N`` name
the switches above an instance, the closest first (tier 0); ``accelerator.topograph.run/domain``, or
``nvidia.com/gpu.clique``, its NVLink domain. Labels are read from what ``kubectl get nodes -o json`` prints.
"""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from .hosts import BLOCKS, HOSTS, Cluster, tree
from .slurm import grouped
from .values import count, one_line, shown

TIER = "fabric.topograph.run/tier-"
DOMAINS = ("accelerator.topograph.run/domain", "nvidia.com/gpu.clique")
MOST_TIERS = 32

Instance = tuple[str, list[str], str]


def fits(keys: dict[str, Any]) -> bool:
    """Whether a JSON object is a list of instances with layers, or of Kubernetes nodes."""
    instances = keys.get("instances")
    if isinstance(instances, list):
        return any(isinstance(one, dict) and "network_layers" in one for one in instances)
    return _is_nodes(keys)


def _is_nodes(keys: dict[str, Any]) -> bool:
    items = keys.get("items")
    return isinstance(items, list) and any(isinstance(one, dict) and one.get("kind") == "Node" for one in items)


def parse(data: dict[str, Any], where: str, settings: dict[str, Any]) -> Topology:
    """The topology of the instances."""
    found = _of_nodes(data, where) if _is_nodes(data) else _of_instances(data, where)
    seen: set[str] = set()
    for name, _, _ in found:
        if not name or name in seen:
            raise InputError(f"the instance {shown(name)} {'stands twice' if name else 'has no name'}", where)
        seen.add(name)
    cluster = Cluster("topograph", where)
    layered = [one for one in found if one[1]]
    domains = {name: domain for name, _, domain in found if domain}
    if not layered:
        if not domains:
            raise InputError("none of its nodes has a switch above it or an accelerator domain", where)
        groups: dict[str, list[str]] = {}
        for name, domain in domains.items():
            groups.setdefault(domain, []).append(name)
        return grouped(cluster, groups, settings)
    parents: dict[str, list[str]] = {}
    for _, layers, _ in layered:
        for switch, above in zip(layers, [*layers[1:], None], strict=True):
            cluster.switches[switch] = one_line(switch)
            if above is not None and above not in parents.setdefault(switch, []):
                parents[switch].append(above)
    cluster.hosts = {name: [] for name, _, _ in layered}
    if len(layered) < len(found):
        cluster.notes.append(f"nodes without a switch above left out: {len(found) - len(layered)}")
    if settings[BLOCKS.name] == "nvlink":
        cluster.domains = {name: domain for name, domain in domains.items() if name in cluster.hosts}
    elif domains:
        cluster.notes.append(
            f"accelerator domains left out: {len(set(domains.values()))}; ?blocks=nvlink joins their GPUs"
        )
    cluster.choose(settings[HOSTS.name])
    tree(cluster, {name: layers[:1] for name, layers, _ in layered}, parents, settings)
    return cluster.topology(settings)


def _of_instances(data: dict[str, Any], where: str) -> list[Instance]:
    found = []
    for i, one in enumerate(data["instances"]):
        place = f"{where}, instance {i}"
        layers = one.get("network_layers") if isinstance(one, dict) else None
        if not isinstance(layers, list) or not all(isinstance(layer, str) and layer for layer in layers):
            raise InputError("'network_layers' must be a list of names of switches", place)
        _check_layers(layers, place)
        found.append((_text(one, "id", place), layers, _domain(one.get("labels"), place)))
    return found


def _of_nodes(data: dict[str, Any], where: str) -> list[Instance]:
    found = []
    for i, one in enumerate(data["items"]):
        place = f"{where}, item {i}"
        about = one.get("metadata") if isinstance(one, dict) else None
        if not isinstance(about, dict):
            raise InputError("has no 'metadata'", place)
        labels = about.get("labels") or {}
        if not isinstance(labels, dict):
            raise InputError("'labels' must be an object", place)
        tiers = {
            count(key.removeprefix(TIER), "a tier", place, 0, MOST_TIERS): value
            for key, value in labels.items()
            if key.startswith(TIER)
        }
        layers = [_text(tiers, tier, place) for tier in sorted(tiers)]
        _check_layers(layers, place)
        found.append((_text(about, "name", place), layers, _domain(labels, place)))
    return found


def _check_layers(layers: list[str], where: str) -> None:
    if len(set(layers)) != len(layers) or len(layers) > MOST_TIERS:
        raise InputError(f"names a switch twice, or more than {MOST_TIERS}", where)


def _domain(labels: Any, where: str) -> str:
    known = labels if isinstance(labels, dict) else {}
    return next((_text(known, key, where) for key in DOMAINS if key in known), "")


def _text(data: dict[Any, Any], key: Any, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not one_line(value):
        raise InputError(f"{key!r} must be a name, not {shown(value)}", where)
    return one_line(value)

"""Clusters from servers: N servers of any kind under a fabric, or clusters joined over a WAN.

A server is any topology with accelerators: a family, a file, the output of ``nvidia-smi topo -m``. Its ports are its
NICs, or its accelerators (:mod:`.ports`). A fabric (:mod:`.fabrics`) joins the ports. Where the fabric is itself a
topology, such as ``torus:4x4``, ``zoo:Abilene`` or a file of SLURM, each of its accelerators is the place of a server.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ..model.arrays import Float64
from ..model.errors import InputError, nearest
from ..model.topology import GIVEN, ROUTER, UNKNOWN, Topology, make_topology
from ..model.units import format_bandwidth
from . import FABRIC_MESSAGE_S, catalogue, check_size, load_topology, parse_settings
from .draft import circle
from .fabrics import FABRICS, HOP_S, RAILS, Fabric, Ground, add_routers
from .hosts import ONE_ACCELERATOR
from .ports import Nics, Port, hops_from_accelerators, parse_nics, ports
from .wan import check_connected

_NUMBERED = re.compile(r"(gpu|GPU|node)\d+")
"""Names of accelerators that say nothing but their number."""

Server = str | os.PathLike[str] | Topology
"""A spec, the path of a file, or a topology."""


def compose(
    servers: Server | Sequence[Server], count: int | Sequence[int] | None = None, fabric: Server = "rails", *,
    nics: str | None = None, **options: Any,
) -> Topology:  # fmt: skip
    """A cluster of servers under a fabric.

    Args:
        servers: a server, or several different ones.
        count: how many of each; a number for all, or one for each of ``servers``. By default one, or as many as a
            topology that is the fabric has places.
        fabric: ``rails``, ``leafspine``, ``fattree``, ``dragonfly``, ``site`` or ``wan``, also with ``?options``; or a
            topology with an accelerator for each server.
        nics: of each server, such as ``8x400Gbit/s``, ``8`` or ``400Gbit/s``; by default what the server has.
        options: of the fabric, as text or numbers: ``spines=4, oversubscription=2``.
    Raises:
        InputError: a server, the fabric or an option is wrong; names it.
    """
    given = list(servers) if isinstance(servers, Sequence) and not isinstance(servers, str) else [servers]
    for server in given:
        if not isinstance(server, (str, os.PathLike, Topology)):
            raise InputError("a server is a spec, a path or a topology", repr(server))
    counts = list(count) if isinstance(count, Sequence) else [1 if count is None else count] * len(given)
    if not given or len(counts) != len(given) or not all(isinstance(n, int) and n >= 1 for n in counts):
        raise InputError(f"there are {len(given)} kinds of servers; give a count of at least 1 for each", str(counts))
    check_size(sum(counts), 0, "servers")
    fill = count is None and len(given) == 1
    wanted = parse_nics(nics)
    templates = [(_load(server), _nics(server, wanted), _name(server)) for server in given]
    if isinstance(fabric, Topology):
        return _over_places(templates, counts, fill, fabric, fabric.name)
    text = os.fspath(fabric)
    if options:
        text += ("&" if "?" in text else "?") + "&".join(f"{key}={value}" for key, value in options.items())
    name, _, query = text.partition("?")
    known = next((f for f in FABRICS if f.name == name), None)
    if known is None:
        return _over_places(templates, counts, fill, _place_network(text), text)
    return _under(templates, counts, known, parse_settings(known.settings, query, text), text)


def _load(server: Server) -> Topology:
    topology = server if isinstance(server, Topology) else load_topology(os.fspath(server))
    if topology.planes or topology.changes:
        what = "optical planes" if topology.planes else "bandwidths that change with time"
        raise InputError(f"has {what}; clusters are composed of servers without", topology.name)
    return topology


def _name(server: Server) -> str:
    return server.name if isinstance(server, Topology) else os.fspath(server)


def _nics(server: Server, wanted: Nics) -> Nics:
    """The NICs that are wanted, or else those that the catalogue knows of the family."""
    if isinstance(server, Topology) or wanted.bandwidth is not None:
        return wanted
    body, _, query = os.fspath(server).partition("?")
    family = next((f for f in catalogue() if f.name == body.partition(":")[0] and f.nics), None)
    if family is None:
        return wanted
    rate = parse_settings(family.settings, query, os.fspath(server)).get("rails")
    return Nics(wanted.count, rate or parse_nics(family.nics).bandwidth)


def _place_network(text: str) -> Topology:
    if text.partition(":")[0] in {f.name for f in catalogue()} or os.path.exists(text.partition("?")[0]):
        return load_topology(text)
    names = [f.name for f in FABRICS]
    listed = f"there are {', '.join(names)}, and any topology, such as torus:4x4"
    raise InputError(f"is no fabric; {nearest(text.partition('?')[0], names, listed)}", text)


Template = tuple[Topology, Nics, str]
"""A server, what is said of its NICs, and what to call it in errors."""


def _under(
    templates: Sequence[Template], counts: Sequence[int], fabric: Fabric, settings: dict[str, Any], text: str
) -> Topology:
    """Servers under a fabric of the list."""
    if fabric.borders:
        found = [_border(*template, settings["router_bandwidth"]) for template in templates]
    else:
        found = [ports(*template) for template in templates]
    check_size(0, sum(len(own) * count for (_, own), count in zip(found, counts, strict=True)), text)
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    label = "cluster" if fabric.borders else "server"
    many = len(kinds)
    centres = circle(many, radius=1.0) if fabric.borders else [(float(k), 0.0) for k in range(many)]
    labels = [f"{label}{k}" for k in range(many)]
    draft, rest, at = _assembled([net for net, _ in found], kinds, labels, centres)
    joined = [[Port(at[k] + p.node, p.bandwidth) for p in found[kind][1]] for k, kind in enumerate(kinds)]
    if fabric.borders:
        joined = [
            own if draft.kinds[own[0].node] == ROUTER
            else add_routers(draft, own, settings["routers"], HOP_S, labels[k])
            for k, own in enumerate(joined)
        ]  # fmt: skip
    fabric.build(draft, joined, settings, text)
    nets = [net for net, _ in found]
    if not fabric.borders:
        nets = [_with_rate_noted(*server, template) for server, template in zip(found, templates, strict=True)]
    return _finished(draft, rest, nets, f"{_counted(templates, counts)}, {text}", text)


def _with_rate_noted(server: Topology, own: Sequence[Port], template: Template) -> Topology:
    """The server with a note of what its NICs carry, where nobody said it."""
    _, rate, name = template
    if rate.bandwidth is not None:
        return server
    width = format_bandwidth(max(port.bandwidth for port in own))
    note = f"{name}: a NIC is taken to carry what its PCIe link does, {width}; --nics 8x400Gbit/s says otherwise"
    return replace(server, notes=(*server.notes, note))


def _over_places(
    templates: Sequence[Template], counts: Sequence[int], fill: bool, places: Topology, text: str
) -> Topology:
    """Servers or clusters, each at one accelerator of a topology.

    Where links lead from there to switches only, and carry what the server's ports do, the accelerator is a host, and
    its links are dealt out to the ports. Elsewhere it becomes the router of the server or cluster.

    Args:
        fill: whether there are as many servers as places, whatever the counts say.
    """
    at_places = places.accelerators.tolist()
    counts = [len(at_places)] if fill else counts
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    if len(at_places) != len(kinds):
        raise InputError(f"has {len(at_places)} places for {len(kinds)} servers or clusters", text)
    found = [_border(*template, None) for template in templates]
    label = "cluster" if any(len(set(net.sites)) > 1 for net, _ in found) else "server"
    labels = [f"{label}{k}" if _NUMBERED.fullmatch(name) else name
              for k, name in enumerate(places.names[v] for v in at_places)]  # fmt: skip
    xy = places.xy[places.accelerators]
    centres = circle(len(kinds), radius=1.0) if np.isnan(xy).any() else [(float(x), float(y)) for x, y in xy]
    draft, rest, at = _assembled([net for net, _ in found], kinds, labels, centres)
    near = _neighbours(places)
    number: dict[int, list[Port]] = {}
    for k, (kind, v) in enumerate(zip(kinds, at_places, strict=True)):
        own = [Port(at[k] + p.node, p.bandwidth) for p in found[kind][1]]
        if templates[kind][1].bandwidth is None:
            own = _shared(own, near[v])
        if not (places.is_switch[list(near[v])].all() and _fit(own, near[v])):
            own = [Port(add_routers(draft, own, 1, HOP_S, labels[k])[0].node, math.inf)]
        number[v] = own
    for v in np.flatnonzero(~places.is_accelerator).tolist():
        number[v] = [Port(draft.node(int(places.kind[v]), f"fabric.{places.names[v]}"), math.inf)]
        draft.flags[number[v][0].node] = bool(places.replicates[v]), bool(places.transit[v]), bool(places.reduces[v])
    _add_place_links(draft, places, number, near)
    known = replace(places, notes=tuple(note for note in places.notes if note != ONE_ACCELERATOR))
    nets = [net for net, _ in found] + [known]
    return _finished(draft, rest, nets, f"{_counted(templates, counts)}, {text}", text)


def _neighbours(places: Topology) -> dict[int, dict[int, float]]:
    """For each node its neighbours, in the order of the links, with the bandwidth of the slower direction."""
    near: dict[int, dict[int, float]] = {v: {} for v in range(places.node_count)}
    for a, b, width in zip(places.src.tolist(), places.dst.tolist(), places.bandwidth.tolist(), strict=True):
        near[a][b] = min(near[a].get(b, math.inf), width)
        near[b][a] = min(near[b].get(a, math.inf), width)
    return near


def _dealt(own: Sequence[Port], near: dict[int, float], other: int) -> list[Port]:
    """Those of a server's ports that lead to a neighbour: port i to neighbour i, and round again for what is left."""
    index, many = list(near).index(other), len(near)
    return [own[t % len(own)] for t in range(max(many, len(own))) if t % many == index]


def _shared(own: Sequence[Port], near: dict[int, float]) -> list[Port]:
    """Ports whose rate nobody said, with their part of a host's links, if that is less than what PCIe carries."""
    part = min((width / max(len(_dealt(own, near, v)), 1) for v, width in near.items()), default=math.inf)
    return [replace(port, bandwidth=min(port.bandwidth, part)) for port in own]


def _fit(own: Sequence[Port], near: dict[int, float]) -> bool:
    """Whether each link of a host carries what the ports on it do."""
    return all(sum(port.bandwidth for port in _dealt(own, near, v)) <= width * 1.001 for v, width in near.items())


def _add_place_links(
    draft: Ground, places: Topology, number: dict[int, list[Port]], near: dict[int, dict[int, float]]
) -> None:
    """Add the links of a topology: those of a host lead to its ports, others to the nodes of the draft."""
    told = places.knows_messages
    for link, (a, b) in enumerate(zip(places.src.tolist(), places.dst.tolist(), strict=True)):
        ends = [_dealt(number[v], near[v], other) if len(number[v]) > 1 else number[v] for v, other in ((a, b), (b, a))]
        for x, y in product(*ends):
            width = min(float(places.bandwidth[link]), x.bandwidth, y.bandwidth)
            draft.link(x.node, y.node, width, float(places.latency_s[link]))
            draft.usd_per_byte[x.node, y.node] = float(places.usd_per_byte[link])
            if told:
                draft.message_s[x.node, y.node] = float(places.message_s[link])


def _counted(templates: Sequence[Template], counts: Sequence[int]) -> str:
    return " + ".join(f"{count} x {topology.name}" for (topology, _, _), count in zip(templates, counts, strict=True))


def _border(topology: Topology, nics: Nics, name: str, bandwidth: float | None) -> tuple[Topology, list[Port]]:
    """Where routers are joined to a cluster: its own routers, else its topmost switches, else the ports of a server."""
    routers = np.flatnonzero(topology.is_router)
    outside = topology.is_switch & (np.array(topology.sites) == "")
    if not len(routers) and not (outside.any() and len(set(topology.sites)) > 1):
        return ports(topology, nics, name)
    if not len(routers):
        hops = hops_from_accelerators(topology)
        routers = np.flatnonzero(outside & (hops == hops[outside].max()))
    widest = np.zeros(topology.node_count)
    np.maximum.at(widest, topology.dst, topology.bandwidth)
    return topology, [Port(int(v), bandwidth or float(widest[v])) for v in routers]


def _assembled(
    nets: Sequence[Topology], kinds: Sequence[int], labels: Sequence[str], centres: Sequence[tuple[float, float]],
    named: bool = True,
) -> tuple[Ground, dict[str, Any], list[int]]:  # fmt: skip
    """All servers side by side.

    Args:
        kinds: for each server which of ``nets`` it is.
        labels: what each server is called.
        centres: for each server where it is drawn, as far apart as its neighbours on a grid of step 1.
        named: whether nodes have the names of the server's nodes; otherwise they are numbered.
    Returns:
        A draft with their nodes; the columns of their links and flags; the first node of each server.
    """
    laid = [_laid_out(net) for net in nets]
    step = max((float(np.ptp(xy, axis=0).max()) for xy in laid), default=0.0) + 1.0
    step *= 1.0 / max(_nearest(centres), 1e-9)
    draft, at, columns = Ground(), [], []
    check_size(sum(nets[k].node_count for k in kinds), sum(nets[k].link_count for k in kinds), labels[0])
    for k, kind in enumerate(kinds):
        net, (x, y) = nets[kind], centres[k]
        at.append(len(draft.kinds))
        draft.kinds += net.kind.tolist()
        draft.names += [f"{labels[k]}.{name}" for name in net.names] if named else [""] * net.node_count
        inner = len({site for site in net.sites if site}) > 1
        draft.sites += [labels[k] + (f".{site}" if inner and site else "") for site in net.sites]
        draft.xy += [(float(a) + x * step, float(b) + y * step) for a, b in laid[kind]]
        columns.append((net.src + at[-1], net.dst + at[-1], net.bandwidth, net.latency_s))
    middle = [x * step for x, _ in centres]
    draft.left, draft.right = min(middle), max(middle)
    if draft.left == draft.right:
        draft.left, draft.right = min(x for x, _ in draft.xy), max(x for x, _ in draft.xy)
    draft.top = max(y for _, y in draft.xy)
    links = np.concatenate([np.column_stack(c) for c in columns])
    rest: dict[str, Any] = {
        name: np.concatenate([getattr(nets[k], name) for k in kinds])
        for name in ("replicates", "transit", "reduces", "message_s", "usd_per_byte")
    }
    return draft, rest | {"links": links}, at


def _finished(draft: Ground, rest: dict[str, Any], nets: Sequence[Topology], name: str, where: str) -> Topology:
    """The topology of a draft whose links come after those of the servers."""
    more = np.array([(a, b, *way) for (a, b), way in draft.links.items()]).reshape(-1, 4)
    check_size(len(draft.kinds), len(rest["links"]) + len(more), where)
    kinds = np.array(draft.kinds, dtype=np.int8)
    fresh = len(kinds) - len(rest["transit"])
    first = len(kinds) - fresh
    own = [draft.flags.get(v, (True, True, False)) for v in range(first, len(kinds))]
    flags: dict[str, Any] = {
        flag: np.concatenate([rest[flag], np.array([row[k] for row in own], dtype=np.bool_)])
        for k, flag in enumerate(("replicates", "transit", "reduces"))
    }
    told = bool(draft.message_s) or any(net.knows_messages for net in nets)
    passed = flags["transit"].tolist()
    own_s = [draft.message_s.get((a, b), 0.0 if passed[a] and passed[b] else FABRIC_MESSAGE_S) for a, b in draft.links]
    prices = [draft.usd_per_byte.get(ends, 0.0) for ends in draft.links]
    built = make_topology(
        name, draft.kinds, np.concatenate([rest["links"], more]), names=draft.names or None, sites=draft.sites,
        xy=draft.xy, message_s=np.concatenate([rest["message_s"], own_s]) if told else None,
        message_basis=GIVEN if told else UNKNOWN, usd_per_byte=np.concatenate([rest["usd_per_byte"], prices]),
        notes=list(dict.fromkeys(note for net in nets for note in net.notes)), where=where, **flags,
    )  # fmt: skip
    check_connected(built, where)
    return built


def _nearest(points: Sequence[tuple[float, float]]) -> float:
    """The least distance between two neighbours in a list of points."""
    if len(points) < 2:
        return 1.0
    table = np.array(points)
    apart = np.sqrt(((table[:, None] - table[None]) ** 2).sum(axis=2)) if len(table) <= 500 else None
    if apart is None:
        return float(np.sqrt(((table[1:] - table[:-1]) ** 2).sum(axis=1)).min())
    return float(apart[~np.eye(len(table), dtype=bool)].min())


def _laid_out(net: Topology) -> Float64:
    """float64[nodes, 2], where a server's nodes are drawn: as it says, or in rows by hops from the accelerators."""
    xy = net.xy if not np.isnan(net.xy).any() and not net.geographic else _in_rows(net)
    middle: Float64 = (xy.max(axis=0) + xy.min(axis=0)) / 2
    return xy - middle


def _in_rows(net: Topology) -> Float64:
    hops = hops_from_accelerators(net)
    xy = np.zeros((net.node_count, 2))
    xy[net.accelerators, 0] = np.arange(len(net.accelerators))
    for level in range(1, int(hops.max()) + 1):
        for k, v in enumerate(np.flatnonzero(hops == level).tolist()):
            below = net.src[(net.dst == v) & (hops[net.src] < level)]
            hub = len(below) > 2 and bool((hops[below] == 0).all())
            xy[v] = (float(xy[below, 0].mean()), -0.8 if hub else 0.8 * level)
            xy[v, 0] += 0.01 * k * (not math.isclose(hops[v], 1))
    return xy


def in_rails(
    server: Topology, count: int, found: Sequence[Port], settings: dict[str, Any], name: str, named: bool
) -> Topology:
    """Equal servers of the catalogue, joined by rails.

    Args:
        found: the ports of a server.
        settings: of the fabric ``rails``.
        named: whether nodes have names; otherwise they are numbered by kind.
    """
    places = [(float(k), 0.0) for k in range(count)]
    draft, rest, at = _assembled([server], [0] * count, [f"server{k}" for k in range(count)], places, named)
    if count > 1:
        joined = [[replace(port, node=first + port.node) for port in found] for first in at]
        RAILS.build(draft, joined, settings, name)
    if not named:
        draft.names = []
    elif count == 1:
        draft.names = list(server.names)
    return _finished(draft, rest, [server], name, name)

"""Topologies by name or from a file.

A *spec*, ``family:arguments?option=value&...``, names a built-in topology: ``ndv2:4``,
``torus:4x4?bandwidth=50GB/s``, ``zoo:Abilene``. The path of a file is read as a file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.errors import InputError, nearest, none_of
from ..model.topology import ASSUMED, Topology, printable
from ..model.units import parse_time
from ..model.variants import with_messages

MOST_NODES = 100_000
MOST_LINKS = 5_000_000
ENDINGS = (".json", ".graphml", ".xml", ".gml", ".yml", ".yaml", ".csv", ".tsv", ".txt", ".conf")
"""The usual endings of topology files, which are known by their content (docs/reference/topology-files.md)."""


FABRIC_MESSAGE_S = 1e-6
"""What a message is assumed to cost on a fast link: GPUs start a copy or a channel's step in about this time."""

SOCKET_MESSAGE_S = 50e-6
"""The same on a link that processes use through sockets: what stretto's own need (benchmarks/executor.py)."""

SOCKET_BANDWIDTH, SOCKET_LATENCY_S = 2.5e9, 100e-6
"""Below this bandwidth, bytes/s, or from this latency on, a link counts as one for sockets: up to 20 Gbit/s Ethernet,
and networks between sites."""


@dataclass(frozen=True)
class Setting:
    """An option of a family: how to parse it, and its default."""

    name: str
    parse: Callable[[str, str], Any]
    default: Any
    help: str


@dataclass(frozen=True)
class Family:
    """A family of built-in topologies; ``build(arguments, settings, spec)`` makes one."""

    name: str  # before the colon
    pattern: str  # how a spec is written
    summary: str
    example: str
    build: Callable[[list[str], dict[str, Any], str], Topology]
    settings: tuple[Setting, ...] = ()
    nics: str = ""  # of one server, such as 8x400Gbit/s, where it has NICs


def whole(text: str, where: str, least: int = 0) -> int:
    """A whole number of a spec, at least ``least`` and of at most nine digits."""
    if not text.isascii() or not text.isdigit() or int(text[:99]) < least:
        raise InputError(f"{text!r} is not a whole number of at least {least}", where)
    if len(text) > 9:
        raise InputError(f"{text if len(text) < 30 else f'a number of {len(text)} digits'} is too large", where)
    return int(text)


def decimal(what: str, accepts: Callable[[float], bool]) -> Callable[[str, str], float]:
    """A parser of a setting that is a number; ``what`` tells the user which numbers are accepted."""

    def parse(text: str, where: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not accepts(value):
            raise InputError(f"{text!r} is not {what}", where)
        return value

    return parse


def listed(parse: Callable[[str, str], Any]) -> Callable[[str, str], list[Any]]:
    """A parser of a setting that is a list, whose parts ``parse`` takes."""
    return lambda text, where: [parse(part, where) for part in text.split(",")]


def choice(values: Mapping[str, Any]) -> Callable[[str, str], Any]:
    """A parser of a setting that is one of several words; each word stands for a value."""

    def parse(text: str, where: str) -> Any:
        if text.lower() not in values:
            raise InputError(none_of(text, values), where)
        return values[text.lower()]

    return parse


_SWITCHES = choice({"cut-through": False, "store": True})
SWITCHES = Setting("switches", _SWITCHES, False, "cut-through, or store: each sends on what has come whole")


MESSAGE = Setting(
    "message", parse_time, None, "how long each message keeps a link busy besides its bytes; 0 for not at all"
)

SHARP = Setting(
    "sharp", choice({"true": "all", "sites": "sites", "false": ""}), None,
    "true: switches sum (NVLink SHARP, InfiniBand SHARP); sites: only those inside a server or site do",
)  # fmt: skip

CAN_SUM = "NVSwitches can sum (NVLink SHARP); ?sharp=sites lets them"
"""Note of a server whose switches can sum, unless the spec says whether they do."""

ANYWHERE = (MESSAGE, SHARP)
"""Settings of every family and file."""


def catalogue() -> tuple[Family, ...]:
    """All families, in the order in which they are listed."""
    from . import cloud, machines, optical, regular, servers, sites, zoo

    modules = (servers, machines, regular, optical, sites, cloud, zoo)
    families = [family for module in modules for family in module.FAMILIES]
    return tuple(replace(family, settings=(*family.settings, *ANYWHERE)) for family in families)


def names_family(text: str) -> bool:
    """Whether a text begins as the spec of a topology does, with the name of a family."""
    return os.path.sep not in text and re.split("[:?]", text)[0] in {family.name for family in catalogue()}


def load_topology(spec: str) -> Topology:
    """The topology that a spec or a file describes.

    Args:
        spec: ``family:arguments?options``, or the path of a file with one of :data:`ENDINGS`, also with ``?options``.
    Raises:
        InputError: no such family or file, or something in it is wrong; names it and the remedy.
    """
    if spec != printable(spec):
        raise InputError("a spec or path must be one line of printable text", ascii(spec))
    body, _, query = spec.partition("?")
    families = {f.name: f for f in catalogue()}
    name, *arguments = body.split(":")
    if name not in families or os.path.sep in body:
        if os.path.exists(body) or body.lower().endswith(ENDINGS):
            from . import importers

            settings = parse_settings((*importers.SETTINGS, *ANYWHERE), query, spec)
            return _set_up(importers.read_topology(body, settings), settings, spec)
        hint = nearest(name, families, "`stretto topologies` lists them")
        raise InputError(f"there is no such file or family of topologies; {hint}", spec)
    family = families[name]
    settings = parse_settings(family.settings, query, spec)
    return _set_up(family.build(arguments, settings, spec), settings, spec)


def compose(
    servers: Any,
    count: int | Sequence[int] | None = None,
    fabric: Any = "rails",
    *,
    nics: str | None = None,
    **options: Any,
) -> Topology:
    """A cluster of servers under a fabric, see :func:`.composition.compose`."""
    from . import composition

    return composition.compose(servers, count, fabric, nics=nics, **options)


def _set_up(topology: Topology, settings: dict[str, Any], spec: str) -> Topology:
    """The topology with the cost of a message, and with switches that sum, if its spec says so."""
    message_s, sharp = settings[MESSAGE.name], settings[SHARP.name]
    if message_s is not None:
        topology = with_messages(topology, message_s)
    if sharp is None:
        return topology
    inside = np.array([site != "" for site in topology.sites]) | (sharp == "all")
    reduces = topology.is_switch & topology.transit & topology.replicates & inside & (sharp != "")
    if sharp and not reduces.any():
        which = "there is no switch" if sharp == "all" else "there is no switch inside a site"
        raise InputError(f"{which} that could sum: only one that replicates can", f"{spec}, option {SHARP.name}")
    return replace(topology, reduces=reduces, notes=tuple(note for note in topology.notes if note != CAN_SUM))


def assume_messages(topology: Topology) -> Topology:
    """The topology with a modest cost of messages if nothing is known of it, so that plans can be run.

    This is for requests of people. The papers' networks, studies and benchmarks keep what they are given.
    """
    if topology.knows_messages or not topology.link_count:
        return topology
    sockets = (topology.bandwidth < SOCKET_BANDWIDTH) | (topology.latency_s >= SOCKET_LATENCY_S)
    fabric_s = with_messages(topology, FABRIC_MESSAGE_S).message_s
    return replace(topology, message_s=np.where(sockets, SOCKET_MESSAGE_S, fabric_s), message_basis=ASSUMED)


def parse_settings(known: tuple[Setting, ...], query: str, spec: str) -> dict[str, Any]:
    """The value of every setting, from a query such as ``bandwidth=1GB/s&latency=1us``."""
    by_name = {s.name: s for s in known}
    given: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, equals, text = part.partition("=")
        if name not in by_name:
            raise InputError(f"there is no option {name!r} here; {nearest(name, by_name)}", spec)
        if not equals or name in given:
            raise InputError(f"write the option {name} once, as {name}=VALUE", spec)
        given[name] = by_name[name].parse(text, f"{spec}, option {name}")
    return {s.name: s.default for s in known} | given


def numbers(arguments: list[str], spec: str, pattern: str, least: int, most: int = 1) -> list[int]:
    """The whole numbers of a spec's argument, such as ``4`` or ``4x4x2`` or ``3,4``."""
    parts = arguments[0].replace(",", "x").split("x") if len(arguments) == 1 else []
    if not 0 < len(parts) <= most:
        raise InputError(f"write it as {pattern}", spec)
    return [whole(p, f"{spec} ({pattern})", least) for p in parts]


def check_size(nodes: int, links: int, spec: str) -> None:
    """Refuse a network that is too large for memory."""
    if nodes > MOST_NODES or links > MOST_LINKS:
        limits = f"{MOST_NODES} nodes and {MOST_LINKS} links"
        raise InputError(f"{nodes} nodes and {links} links are more than the {limits} that are built", spec)

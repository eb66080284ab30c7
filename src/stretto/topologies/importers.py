"""Which importer reads a topology file: the content tells it, in one place. The ending helps only where it does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from ..model.errors import InputError
from ..model.topology import Topology
from ..model.units import parse_time
from ..model.variants import storing
from . import (
    SWITCHES,
    Setting,
    astra_sim,
    choice,
    gml,
    graphml,
    hosts,
    hwloc,
    infiniband,
    matrix,
    nccl_xml,
    nvidia_smi,
    pairs,
    slurm,
    sndlib,
    taccl,
    tacos,
    teccl,
    topograph,
    values,
)
from .files import topology_from_json
from .tables import Table, known_columns, misspelt, read_table
from .values import TooManyRows, named, shown, tag
from .wan import SETTINGS as OF_LINKS
from .wan import Graph, check_connected, to_topology


def _time_or_file(text: str, where: str) -> float | str:
    """A latency, or the path of a file with latencies."""
    return text if os.path.isfile(text) or text.lower().endswith((".csv", ".tsv")) else parse_time(text, where)


SETTINGS = (
    OF_LINKS[0],
    replace(OF_LINKS[1], parse=_time_or_file),
    SWITCHES,
    Setting("unit", pairs.parse_unit, None, "of bandwidths in a CSV that names none, as in unit=Gbit/s"),
    Setting("directed", choice({"true": True, "false": False}), None, "whether a row of a CSV is one direction only"),
    Setting("nodes", lambda text, where: text, None, "a CSV of nodes: node, site, uplink, downlink"),
    *nvidia_smi.SETTINGS,
    *hosts.SETTINGS,
    *slurm.SETTINGS,
)
"""Options of all files; those from the fourth on are for the formats that name them."""
COMMON = 3


class Content:
    """A file's text, parsed as far as it is asked for.

    Attributes:
        syntax: ``json``, ``xml`` or ``text``, by the first character.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.ending = os.path.splitext(where)[1].lower()
        start = text.lstrip()[:1]
        # YAML may begin with a brace too
        is_json = start in ("{", "[") and self.ending not in (".yml", ".yaml")
        self.syntax = "json" if is_json else "xml" if start == "<" else "text"

    @cached_property
    def json(self) -> Any:
        return values.parse_json(self.text, self.where)

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The entries of a JSON object, none if it is something else."""
        return self.json if self.syntax == "json" and isinstance(self.json, dict) else {}

    @cached_property
    def xml(self) -> Any:
        return values.parse_xml(self.text, self.where)

    @cached_property
    def root(self) -> str:
        """The name of the root of an XML file, "" if it is something else."""
        return tag(self.xml) if self.syntax == "xml" else ""

    @cached_property
    def table(self) -> Table | None:
        """The rows, None if the file is no table at all."""
        try:
            return read_table(self.text, self.where) if self.syntax == "text" else None
        except TooManyRows:
            raise
        except InputError:
            return None

    @cached_property
    def words(self) -> list[str]:
        """The first words of the lines that are not blank or comments, at most a hundred."""
        lines = (line.split() for line in self.text[:100_000].splitlines())
        return [line[0] for line in lines if line and not line[0].startswith("#")][:100]


@dataclass(frozen=True)
class Format:
    """A kind of file: its name in messages, how it is known, who reads it, and which options it takes."""

    name: str
    fits: Callable[[Content], bool]
    parse: Callable[[Content, dict[str, Any]], Topology | Graph]
    settings: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()  # which it is taken for where nothing fits


def _with_table(fits: Callable[[Table], bool]) -> Callable[[Content], bool]:
    return lambda content: content.table is not None and fits(content.table)


def _table_of(content: Content) -> Table:
    return content.table or read_table(content.text, content.where)


TABLES = ("unit", "directed", "nodes")
FABRICS = tuple(setting.name for setting in hosts.INSIDE_HOSTS)
SCHEDULERS = (*FABRICS, *(setting.name for setting in hosts.OF_SCHEDULERS))

LIKE = 0.6
"""How alike a column and a known one are to be named where a table is refused anyway, see ``ALMOST``."""

FORMATS = (
    Format(
        "a TE-CCL input",
        lambda c: isinstance(c.keys.get("TopologyParams"), dict),
        lambda c, s: teccl.parse(c.json, c.where),
    ),
    Format(
        "a TACCL profile",
        lambda c: "gpus_per_node" in c.keys and ("node_betas_list" in c.keys or "betas" in c.keys),
        lambda c, s: taccl.parse(c.json, c.where),
    ),
    Format(
        "topograph's JSON",
        lambda c: topograph.fits(c.keys),
        lambda c, s: topograph.parse(c.keys, c.where, s),
        SCHEDULERS,
    ),
    Format(
        "stretto's JSON",
        lambda c: c.syntax == "json",
        lambda c, s: topology_from_json(c.json, c.where),
        endings=(".json",),
    ),
    Format("NCCL's topology XML", lambda c: c.root == "system", lambda c, s: nccl_xml.parse(c.xml, c.where)),
    Format(
        "hwloc's XML",
        lambda c: c.root == "topology" and hwloc.fits(c.xml),
        lambda c, s: hwloc.parse(c.xml, c.where),
    ),
    Format(
        "SNDlib's XML",
        lambda c: c.root == "network" and bool(named(c.xml, "networkStructure")),
        lambda c, s: sndlib.parse_xml(c.xml, c.where),
    ),
    Format(
        "GraphML",
        lambda c: c.root == "graphml",
        lambda c, s: graphml.parse(c.xml, c.where),
        endings=(".graphml", ".xml"),
    ),
    Format(
        "SNDlib's native format",
        lambda c: c.text.lstrip().startswith("?SNDlib native format"),
        lambda c, s: sndlib.parse_native(c.text, c.where),
    ),
    Format(
        "nvidia-smi topo -m",
        lambda c: nvidia_smi.begins_matrix(c.text),
        lambda c, s: nvidia_smi.parse(c.text, c.where, s),
        tuple(setting.name for setting in nvidia_smi.SETTINGS),
    ),
    Format("GML", lambda c: gml.begins_graph(c.text), lambda c, s: gml.parse(c.text, c.where), endings=(".gml",)),
    Format(
        "ASTRA-sim's network YAML",
        lambda c: any(word.startswith("npus_count") for word in c.words),
        lambda c, s: astra_sim.parse(c.text, c.where),
        endings=(".yml", ".yaml"),
    ),
    Format(
        "SLURM's topology.conf",
        lambda c: slurm.begins_conf(c.words),
        lambda c, s: slurm.parse_conf(c.text, c.where, s),
        (*SCHEDULERS, "linkspeed"),
        (".conf",),
    ),
    Format(
        "SLURM's topology.yaml",
        lambda c: slurm.begins_yaml(c.text),
        lambda c, s: slurm.parse_yaml_list(c.text, c.where, s),
        (*SCHEDULERS, "topology"),
    ),
    Format(
        "ibnetdiscover",
        lambda c: infiniband.begins_netdiscover(c.text),
        lambda c, s: infiniband.parse_netdiscover(c.text, c.where, s),
        FABRICS,
    ),
    Format(
        "ibnetdiscover's report of ports",
        lambda c: infiniband.begins_report(c.text),
        lambda c, s: infiniband.parse_report(c.text, c.where, s),
        FABRICS,
    ),
    Format(
        "iblinkinfo",
        lambda c: infiniband.begins_linkinfo(c.text),
        lambda c, s: infiniband.parse_linkinfo(c.text, c.where, s),
        FABRICS,
    ),
    Format("TACOS's CSV", _with_table(tacos.fits), lambda c, s: tacos.parse(c.text, c.where)),
    Format("a CSV of pairs", _with_table(pairs.fits), lambda c, s: pairs.parse(_table_of(c), s), TABLES),
    Format(
        "a CSV matrix",
        _with_table(matrix.fits),
        lambda c, s: matrix.parse(_table_of(c), s),
        ("latency", "unit", "nodes"),
    ),
)
"""In the order in which they are tried."""


def read_topology(path: str, settings: dict[str, Any]) -> Topology:
    """Read a topology file, of whatever ending.

    Args:
        settings: the values of :data:`SETTINGS`.
    Raises:
        InputError: the file cannot be read, fits no format, or an entry is wrong; names the place, the remedy, and what
            the file was taken for.
    """
    content = Content(values.read_text(path), path)
    format = _format(content)
    _check_settings(format, settings, path)
    try:
        return _finished(format.parse(content, settings), settings, path)
    except InputError as error:
        raise InputError(f"{error} (taken for {format.name})") from None


def _format(content: Content) -> Format:
    """The first format that fits, else the one of the ending; InputError says what was found and what is read."""
    fitting = (format for format in FORMATS if format.fits(content))
    by_ending = (format for format in FORMATS if content.ending in format.endings)
    known = next(chain(fitting, by_ending), None)
    if known is not None:
        return known
    first = next((line.strip() for line in content.text.splitlines() if line.strip()), "")
    found = (
        f"the root <{content.root[:40]}>" if content.root else f"the first line {shown(first)}" if first else "nothing"
    )
    if content.ending in (".csv", ".tsv"):
        header = [] if content.table is None else content.table.header
        if wrong := misspelt(header, pairs.OF_PAIRS, LIKE) if known_columns(header) else None:
            raise InputError(wrong, content.where)
        raise InputError(
            f"has {found}; a CSV is one of pairs (columns such as src, dst, bandwidth_Gbps, rtt_ms), a matrix (the "
            "same names in line 1 and in column 1), or TACOS's (the number of NPUs in line 1)",
            content.where,
        )
    names = ", ".join(format.name for format in FORMATS)
    endings = ", ".join(ending for format in FORMATS for ending in format.endings)
    raise InputError(
        f"has {found}, and neither the content nor the ending says what it is: the content is none of {names}; "
        f"the ending is none of {endings}",
        content.where,
    )


def _check_settings(format: Format, settings: dict[str, Any], path: str) -> None:
    """Refuse options that are for other formats."""
    for setting in SETTINGS[COMMON:]:
        if settings[setting.name] is not None and setting.name not in format.settings:
            takers = " or ".join(f.name for f in FORMATS if setting.name in f.settings)
            raise InputError(f"is taken for {format.name}; the option {setting.name} is for {takers}", path)
    if isinstance(settings["latency"], str) and "latency" not in format.settings:
        raise InputError(f"is taken for {format.name}; a file of latencies is for a CSV matrix", path)


def _finished(found: Topology | Graph, settings: dict[str, Any], path: str) -> Topology:
    """The topology, with what the options say of all links, and whether its switches store."""
    if isinstance(found, Graph):
        built = to_topology(found, settings, path)
    else:
        check_connected(found, path)
        latency = None if isinstance(settings["latency"], str) else settings["latency"]
        forced = {"bandwidth": settings["bandwidth"], "latency_s": latency}
        columns: dict[str, Any] = {k: np.full(found.link_count, v) for k, v in forced.items() if v is not None}
        if found.changes and "bandwidth" in columns:
            raise InputError("its bandwidths change with time; leave out ?bandwidth", path)
        built = replace(found, **columns)
    return storing(built) if settings[SWITCHES.name] else built

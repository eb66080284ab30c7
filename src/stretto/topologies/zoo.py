"""The Internet Topology Zoo: the six networks of the WAN paper exactly, the others from topohub.

Data: Knight, Nguyen, Falkner, Bowden, Roughan, "The Internet Topology Zoo", IEEE JSAC 29(9), 2011,
CC BY 4.0. The six are tables here (places, longitude, latitude; edges, bit/s where the data has it)
because topohub leaves out nodes without coordinates.
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..model.errors import InputError, nearest
from ..model.extras import require
from ..model.topology import Topology
from . import Family, Setting, choice
from .wan import SETTINGS, Cable, Graph, Place, to_topology

Row = tuple[Any, ...]

# fmt: off
SIX: dict[str, tuple[tuple[Row, ...], tuple[Row, ...]]] = {
    "Abilene": (
        (
            ("New York", -74.00597, 40.71427), ("Chicago", -87.65005, 41.85003),
            ("Washington DC", -77.03637, 38.89511), ("Seattle", -122.33207, 47.60621),
            ("Sunnyvale", -122.03635, 37.36883), ("Los Angeles", -118.24368, 34.05223),
            ("Denver", -104.9847, 39.73915), ("Kansas City", -94.62746, 39.11417), ("Houston", -95.36327, 29.76328),
            ("Atlanta", -84.38798, 33.749), ("Indianapolis", -86.15804, 39.76838),
        ),
        (
            (0, 1), (0, 2), (1, 10), (2, 9), (3, 4), (3, 6), (4, 5), (4, 6), (5, 8), (6, 7), (7, 8), (7, 10), (8, 9),
            (9, 10),
        ),
    ),
    "Cesnet1993": (
        (
            ("Ostrava", 18.28204, 49.83465), ("Ebone", None, None), ("Plzen", 13.37759, 49.74747),
            ("Praha", 14.42076, 50.08804), ("Liberec", 15.05619, 50.76711), ("Ceske Budejovice", 14.47434, 48.97447),
            ("Pardubice", 15.77659, 50.04075), ("Hradec Kralove", 15.83277, 50.20923),
            ("Olomouc", 17.25175, 49.59552), ("Brno", 16.60796, 49.19522),
        ),
        (
            (0, 9, 20000.0), (1, 3, 20000.0), (2, 3, 20000.0), (3, 4, 20000.0), (3, 5, 20000.0), (3, 6, 20000.0),
            (3, 7, 20000.0), (3, 9, 60000.0), (8, 9, 20000.0),
        ),
    ),
    "Gblnet": (
        (
            ("New York", -0.14008, 53.07897), ("London", -0.12574, 51.50853), ("Stockholm", 18.0649, 59.33258),
            ("St Petersburg", 30.26417, 59.89444), ("Moscow", 37.61556, 55.75222), ("Amsterdam", 4.88969, 52.37403),
            ("Frankfurt", 8.68333, 50.11667), ("Paris", 2.3488, 48.85341),
        ),
        (
            (0, 5), (1, 5), (2, 3), (2, 5), (3, 4), (5, 6), (5, 7),
        ),
    ),
    "HiberniaIreland": (
        (
            ("Dublin", -6.26719, 53.34399), ("Galway", -9.04889, 53.27194), ("Limerick", -8.62306, 52.66472),
            ("Cork", -8.49583, 51.89861), ("Waterford", -7.11194, 52.25833), ("Portlaioise", -7.29979, 53.03441),
            ("", None, None), ("", None, None),
        ),
        (
            (0, 4), (0, 5), (0, 6), (0, 7), (1, 2), (2, 3), (2, 5), (3, 4),
        ),
    ),
    "Napnet": (
        (
            ("Seattle", -122.33207, 47.60621), ("San Jose", -121.89496, 37.33939),
            ("Minneapolis", -93.26384, 44.97997), ("Chicago", -87.65005, 41.85003), ("Vienna", -77.26526, 38.90122),
            ("Dallas", -96.80667, 32.78306),
        ),
        (
            (0, 1), (0, 3), (1, 3), (1, 4), (2, 3), (3, 4), (3, 5),
        ),
    ),
    "Arpanet196912": (
        (
            ("SRI", -122.18219, 37.45383), ("USCB", -119.69819, 34.42083), ("UCLA", -118.24368, 34.05223),
            ("UTAH", -111.89105, 40.76078),
        ),
        (
            (0, 1), (0, 2), (0, 3), (1, 2),
        ),
    ),
}
# fmt: on

SLIPS = {"Gblnet": ("the data has New York in England, so its links are too short",)}
SHORT = {"cesnet": "Cesnet1993", "arpanet": "Arpanet196912", "hibernia": "HiberniaIreland"}

_truth = choice({"true": True, "false": False})
TRANSIT = Setting("transit", _truth, False, "true: routes may pass through the nodes, whose routers forward")


def networks() -> list[str]:
    """The names that ``zoo:`` takes here: few without topohub."""
    if find_spec("topohub") is None:
        return sorted(SIX)
    import topohub

    folder = os.path.join(os.path.dirname(topohub.__file__), "data", "topozoo")
    return sorted({*SIX, *(name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json"))})


def _zoo(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    if len(arguments) != 1 or not arguments[0]:
        raise InputError("write it as zoo:NAME, such as zoo:Abilene", spec)
    asked = SHORT.get(arguments[0].lower(), arguments[0]).lower()
    names = {name.lower(): name for name in networks()}
    if asked not in names:
        if not get_close_matches(asked, names):
            require("zoo", spec, "topohub")
        hint = nearest(asked, names.values(), "see `stretto topologies zoo`", most=3)
        raise InputError(f"the zoo has no {arguments[0]!r}; {hint}", spec)
    name = names[asked]
    graph = _own(name) if name in SIX else _from_topohub(name)
    topology = to_topology(graph, settings, spec)
    return replace(topology, transit=np.ones_like(topology.transit)) if settings["transit"] else topology


def _own(name: str) -> Graph:
    places, edges = SIX[name]
    cables = [Cable(e[0], e[1], e[2] / 8 if len(e) > 2 else None) for e in edges]
    return Graph(f"zoo:{name}", [Place(*p) for p in places], cables, notes=list(SLIPS.get(name, ())))


def _from_topohub(name: str) -> Graph:
    import topohub

    data = topohub.get(f"topozoo/{name}")
    number = {str(node["id"]): i for i, node in enumerate(data["nodes"])}
    places = [Place(str(n.get("name") or ""), float(n["pos"][0]), float(n["pos"][1])) for n in data["nodes"]]
    cables = [Cable(number[str(e["source"])], number[str(e["target"])]) for e in data["edges"]]
    notes = ["from topohub, which leaves out nodes without coordinates and link speeds"]
    return Graph(f"zoo:{name}", places, cables, notes=notes)


FAMILIES = (
    Family("zoo", "zoo:NAME", "a network of the Internet Topology Zoo", "zoo:Abilene", _zoo, (*SETTINGS, TRANSIT)),
)

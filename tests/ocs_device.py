"""A small optical circuit switch that runs SONiC's tables behind gNMI: it turns slowly, and fails an end on demand.

Every change and every state is checked against a YANG model: the names and types of the high-level design
(``tests/data/ocs``) or of newer images, and the published modules where STRETTO_SONIC_YANG names the folder of ``sonic-ocs.yang`` and
``sonic-ocs-states.yang``, in which a folder ``newer`` has the ``sonic-ocs.yang`` of newer images and what that imports. Those
are not here, since the package that holds them says GPL-3.0.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gnmi_target import GnmiTarget, Refused, Said

yangson = pytest.importorskip("yangson", reason="needs yangson, which checks data against YANG models")

OWN = Path(__file__).parent / "data" / "ocs"
PUBLISHED = Path(os.environ["STRETTO_SONIC_YANG"]) if "STRETTO_SONIC_YANG" in os.environ else None
REVISIONS = {"sonic-ocs": "2024-11-21", "sonic-ocs-states": "2024-11-21", "sonic-extension": "2019-07-01"}
ROOT = {"CONFIG_DB": "sonic-ocs", "STATE_DB": "sonic-ocs-states"}


def model(folder: Path) -> Any:
    """The data model of the modules in a folder."""
    named = [
        {"name": name, "revision": revision, "namespace": f"http://github.com/sonic-net/{name}",
         "conformance-type": "implement" if name.startswith("sonic-ocs") else "import"}
        for name, revision in REVISIONS.items()
        if (folder / f"{name}.yang").exists()
    ]  # fmt: skip
    library = {"ietf-yang-library:modules-state": {"module-set-id": "", "module": named}}
    return yangson.DataModel(json.dumps(library), (str(folder),))


MODELS = [model(folder) for folder in (OWN, PUBLISHED) if folder]
NEWER = [model(folder / "newer") for folder in (OWN, PUBLISHED) if folder and (folder / "newer").exists()]
KEYS = {"OCS_PORT": "simplex_port_id", "OCS_CROSS_CONNECT": "cross_connect_id"}


def check(database: str, tables: Mapping[str, Mapping[str, Any]], is_newer: bool = False) -> None:
    """Refused if the tables of a database break a model.

    Args:
        is_newer: whether they have the names of images of 2026.
    """
    root = ROOT["CONFIG_DB" if is_newer else database]
    suffix = "_TABLE" if is_newer and database == "STATE_DB" else ""
    data = {
        table + suffix: {f"{table}_LIST": [{KEYS[table]: k} | row for k, row in rows.items()]}
        for table, rows in tables.items()
    }
    for one in NEWER if is_newer else MODELS:
        try:
            one.from_raw({f"{root}:{root}": data}).validate(ctype=yangson.enumerations.ContentType.all)
        except yangson.exceptions.YangsonException as error:
            raise Refused(f"{database} breaks the model: {error}") from None


class OcsDevice:
    """A switch of some ports.

    Args:
        ports: how many; port i has the ends iA and iB.
        looks: how often its state is asked for until a circuit is tuned.
        newer: whether its STATE_DB has the names of images of 2026, which have a model of their own.

    Attributes:
        dead: ends that fail when a circuit needs them.
        sets: the deletes and the adds of each Set.
        held: while it is not set, nothing becomes tuned.
    """

    def __init__(self, ports: int, looks: int = 3, newer: bool = False) -> None:
        self.looks, self.newer = looks, newer
        self.dead: set[str] = set()
        self.sets: list[tuple[list[str], list[str]]] = []
        self.held = threading.Event()
        self.held.set()
        self.circuits: dict[str, dict[str, str]] = {}
        self.asked: Counter[str] = Counter()
        self.ends = [f"{i}{side}" for i in range(1, ports + 1) for side in "AB"]
        self.lock = threading.Lock()
        self.target = GnmiTarget(self.answer, self.change)

    def __enter__(self) -> OcsDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.target.__exit__()

    @property
    def tuned(self) -> list[str]:
        """The circuits that carry light."""
        return sorted(key for key, row in self.state()["OCS_CROSS_CONNECT"].items() if set(row.values()) >= {"tuned"})

    def answer(self, path: str) -> list[Said]:
        origin, database, namespace, table, *rest = path.replace(":/", "/").split("/")
        assert (origin, namespace, rest) == ("sonic-db", "localhost", [])
        with self.lock:
            if self.newer and database == "STATE_DB":
                if not table.endswith("_TABLE"):
                    raise KeyError(path)
                table = table.removesuffix("_TABLE")
            if database == "STATE_DB":
                if table == "OCS_CROSS_CONNECT" and self.held.is_set():
                    self.asked.update(list(self.circuits))
                tables = self.state()
            else:
                tables = {"OCS_CROSS_CONNECT": self.circuits}
            if self.newer and database == "STATE_DB":
                tables = {name: {key: newer(row) for key, row in rows.items()} for name, rows in tables.items()}
            check(database, tables, self.newer)
            if not tables[table]:
                raise KeyError(path)  # SONiC keeps no table without rows
            return [Said(path.replace("sonic-db:/", "/sonic-db:"), json.loads(json.dumps(tables[table])))]

    def change(self, deletes: list[str], updates: list[tuple[str, Any]]) -> None:
        with self.lock:
            circuits = dict(self.circuits)
            for path in deletes:
                if circuits.pop(_key(path), None) is None:
                    raise Refused(f"there is no {_key(path)}")
            circuits |= {_key(path): row for path, row in updates}
            check("CONFIG_DB", {"OCS_CROSS_CONNECT": circuits}, self.newer)
            for key, row in circuits.items():
                if key != f"{row['a_side']}-{row['b_side']}" or not {*row.values()} <= {*self.ends}:
                    raise Refused(f"{key} is no circuit of this switch")
            taken = Counter(end for row in circuits.values() for end in row.values())
            if taken and max(taken.values()) > 1:
                raise Refused(f"{taken.most_common(1)[0][0]} would be in two circuits")
            for key in self.circuits.keys() - circuits.keys():
                del self.asked[key]
            self.circuits = circuits
            self.sets.append(([_key(path) for path in deletes], [_key(path) for path, _ in updates]))

    def state(self) -> dict[str, dict[str, dict[str, str]]]:
        """The tables of STATE_DB."""
        ports = {end: {"status": "blocked"} for end in self.ends}
        rows = {}
        for key, row in self.circuits.items():
            done = self.asked[key] > self.looks
            for end, other in ((row["a_side"], row["b_side"]), (row["b_side"], row["a_side"])):
                status = "failed" if end in self.dead and done else "tuned" if done else "tuning"
                ports[end] = {"status": status, "target_simplex_port_id": other}
            statuses = {f"{side}_status": ports[row[side]]["status"] for side in ("a_side", "b_side")}
            rows[key] = row | statuses
        return {"OCS_PORT": ports, "OCS_CROSS_CONNECT": rows}


def newer(row: Mapping[str, str]) -> dict[str, str]:
    """A row of STATE_DB with the names and values of images of 2026."""
    if "a_side" in row:
        return {"status": "enabled" if {row["a_side_status"], row["b_side_status"]} == {"tuned"} else "disabled"}
    status = {"tuned": "connected"}.get(row["status"], row["status"])
    return {key: value for key, value in row.items() if key != "status"} | {"oper_status": status}


def _key(path: str) -> str:
    prefix, _, key = path.rpartition("/")
    assert prefix == "sonic-db:/CONFIG_DB/localhost/OCS_CROSS_CONNECT", path
    return key

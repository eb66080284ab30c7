"""What clients say: the JSON of networks, jobs and telemetry, checked and turned into objects of the model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..face.jobs import KEYS, PLACE
from ..face.requests import workload
from ..formats.telemetry import ENTRIES, parse_telemetry
from ..model.collective import Collective
from ..model.errors import InputError
from ..model.targets import Target, find_target
from ..model.topology import Topology
from ..model.variants import costing
from ..topologies import assume_messages
from ..topologies.files import topology_from_json
from ..topologies.values import check_keys, entry, objects, real, shown
from .telemetry.samples import CAPACITY, CARRIED, LATENCY, Sample

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
JOB_KEYS = ("network", "ranks", "collectives", "weight", "target")
COLLECTIVE_KEYS = ("kind", *(key for key in KEYS if key != "collective"), "times")
MOST_COLLECTIVES = 64
"""Collectives of one job."""

DEFAULT_TARGET = "torch"
"""What runs the plans of a job that names no target: processes of PyTorch."""


def check_name(name: str, what: str) -> str:
    """A name of a network or job; InputError if it has other signs than letters, digits, '.', '_' and '-'."""
    if not NAME.fullmatch(name):
        raise InputError(f"{shown(name)} must be 1 to 100 letters, digits, '.', '_' and '-', the first a letter or "
                         "digit", what)  # fmt: skip
    return name


def parse_network(data: Any, where: str = "network") -> Topology:
    """A network from the object of a topology file."""
    return topology_from_json(data, where)


@dataclass(frozen=True)
class Job:
    """A job as its client describes it.

    Attributes:
        document: the object, with all of its keys known and of the right types.
        network: the name of its network.
        target: what runs its plans; None for plans that need not suit a runtime.
    """

    document: dict[str, Any]
    network: str
    target: Target | None

    def collectives(self, topology: Topology) -> tuple[Collective, ...]:
        """Its collectives on a network, each with the weight of the job times its calls in a step.

        Raises:
            InputError: a collective does not fit the network; names it.
        """
        shared = {} if self.document.get("ranks") is None else {"ranks": self.document["ranks"]}
        whole = float(self.document.get("weight", 1))
        found = []
        for number, said in enumerate(self.document["collectives"]):
            own = {**said, "collective": said["kind"], PLACE: f"collectives[{number}]"}
            weight = whole * float(own.pop("times", 1)) * float(own.pop("weight", 1))
            own.pop("kind")
            found.append(replace(workload([shared | own], topology).collectives[0], weight=weight))
        return tuple(found)


def parse_job(data: Any) -> Job:
    """A job: its network, ranks (all accelerators by default), collectives, weight and target.

    Raises:
        InputError: an entry is missing, unknown or of the wrong type; names it.
    """
    check_keys(data, JOB_KEYS, "job")
    network = check_name(entry(data, "network", str, "job"), "network")
    collectives = objects(data, "collectives", "job")
    if not 1 <= len(collectives) <= MOST_COLLECTIVES:
        raise InputError(f"has {len(collectives)} collectives; 1 to {MOST_COLLECTIVES} are served", "collectives")
    for number, said in enumerate(collectives):
        place = f"collectives[{number}]"
        check_keys(said, COLLECTIVE_KEYS, place)
        entry(said, "kind", str, place)
        for key in ("times", "weight"):
            real(said.get(key, 1), f"{key!r}", place, above=True)
    real(data.get("weight", 1), "'weight'", "job", above=True)
    name = data.get("target", DEFAULT_TARGET)
    if name is not None and not isinstance(name, str):
        raise InputError(f"must be a name or null, not {shown(name)}", "target")
    return Job(data, network, None if name is None else find_target(name))


def planned_network(topology: Topology, targets: tuple[Target | None, ...]) -> Topology:
    """The network on which jobs with these targets are planned: a message costs what it costs them."""
    least_s = max((target.message_s for target in targets if target is not None), default=0.0)
    return costing(topology, least_s) if least_s else assume_messages(topology)


def parse_samples(data: Any, topology: Topology, now: float) -> list[Sample]:
    """The samples in the object of a telemetry file, all of its ``time``, by default now.

    Raises:
        InputError: the network has no such link or node, or a value is of the wrong form.
    """
    where = "telemetry"
    check_keys(data, ENTRIES, where)
    for key in ("held", "at"):
        if key in data:
            raise InputError(f"{key!r} is said of a plan, not of a network; 'time' says when it was measured", where)
    at_s = _moment(data["time"], where) if "time" in data else now
    news = parse_telemetry({key: value for key, value in data.items() if key != "time"}, topology, 0, where)
    ends_at = [(int(a), int(b)) for a, b in zip(topology.src, topology.dst, strict=True)]
    down = news.links_down | {i for i, ends in enumerate(ends_at) if not news.nodes_down.isdisjoint(ends)}
    rates = {
        CAPACITY: {**news.bandwidth, **dict.fromkeys(sorted(down), 0.0)}, CARRIED: news.carried,
        LATENCY: {link: s for link, s in news.latency_s.items() if link not in down},
    }  # fmt: skip
    names = topology.names
    return [
        Sample(names[ends_at[link][0]], names[ends_at[link][1]], kind, rate, at_s)
        for kind, of in rates.items()
        for link, rate in of.items()
    ]


def _moment(value: Any, where: str) -> float:
    """Seconds since 1970 from such a number, or from ISO 8601 with a time zone."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment.timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e11:
        return float(value)
    raise InputError(
        f"'time' must be seconds since 1970, or such as 2026-01-31T12:00:00Z, not {shown(value)}", where
    ) from None

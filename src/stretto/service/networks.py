"""Networks and their versions in the store, and the telemetry of their links.

A version is what an operator gave, its *base*, under an *overlay*: the links of which telemetry says something else.
What is planned on is the base with the overlay's values; a link that is down is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, insert, select, update

from ..model.errors import InputError, StrettoError, absent
from ..model.telemetry import Telemetry, updated
from ..model.topology import Topology
from ..topologies.files import topology_from_json
from .schema import jobs, network_versions, networks, telemetry
from .telemetry.samples import Link, Sample


class Missing(StrettoError):
    """There is no such network, job, plan or version."""


class Conflict(StrettoError):
    """What is asked contradicts the state of the store."""


@dataclass(frozen=True)
class NetworkVersion:
    """A version of a network, as it is stored; see :data:`.schema.network_versions`."""

    name: str
    version: int
    base: int
    topology: dict[str, Any]
    overlay: list[dict[str, Any]]
    why: str
    at: float


def network(connection: Connection, name: str, version: int | None = None) -> NetworkVersion:
    """The newest version of a network, or the one of that number; Missing if there is none."""
    newest = connection.scalar(select(networks.c.version).where(networks.c.name == name, ~networks.c.deleted))
    if newest is None:
        known = connection.scalars(select(networks.c.name).where(~networks.c.deleted))
        raise Missing(absent("network", name, known))
    row = connection.execute(
        select(network_versions).where(
            network_versions.c.network == name, network_versions.c.version == (version or newest)
        )
    ).one_or_none()
    if row is None:
        raise Missing(f"network {name!r} has no version {version}; the newest one is {newest}")
    return NetworkVersion(
        name, row.version, row.base, json.loads(row.topology), json.loads(row.overlay), row.why, row.at
    )


def network_names(connection: Connection) -> list[tuple[str, int]]:
    """All networks and their newest versions, by name."""
    rows = connection.execute(select(networks.c.name, networks.c.version).where(~networks.c.deleted))
    return sorted((row.name, row.version) for row in rows)


def put_network(
    connection: Connection, name: str, topology: Topology, now: float, expected: int | None = None
) -> tuple[int, bool]:
    """Make a network what an operator gives; what telemetry said before counts no more.

    Args:
        expected: the version that the operator knows; None for any.
    Returns:
        the version, and whether it is new: an equal base gives none.
    Raises:
        Conflict: the newest version is another one than expected.
    """
    document = topology.to_json()
    row = connection.execute(select(networks).where(networks.c.name == name)).one_or_none()
    check_version(f"network {name!r}", 0 if row is None or row.deleted else row.version, expected)
    if row is not None and not row.deleted:
        current = network(connection, name)
        if not current.overlay and current.topology == document:
            return current.version, False
    version = 1 if row is None else row.version + 1
    if row is None:
        connection.execute(insert(networks).values(name=name, version=version, deleted=False))
    else:
        connection.execute(
            update(networks).where(networks.c.name == name).values(version=version, deleted=False)
        )  # fmt: skip
    connection.execute(delete(telemetry).where(telemetry.c.network == name))
    _add(connection, name, version, version, document, [], "an operator gave it", now)
    return version, True


def delete_network(connection: Connection, name: str) -> None:
    """Forget a network; Conflict if it has jobs."""
    network(connection, name)
    users = connection.scalars(select(jobs.c.name).where(jobs.c.network == name, ~jobs.c.deleted)).all()
    if users:
        others = f" and {len(users) - 1} more" if len(users) > 1 else ""
        raise Conflict(f"network {name!r} has the job {min(users)!r}{others}; delete first what uses it")
    connection.execute(update(networks).where(networks.c.name == name).values(deleted=True))
    connection.execute(delete(telemetry).where(telemetry.c.network == name))


def base_of(connection: Connection, current: NetworkVersion) -> Topology:
    """What the operator gave."""
    base = current if current.base == current.version else network(connection, current.name, current.base)
    return topology_from_json(base.topology, f"network {current.name}")


def lay_over(
    connection: Connection, current: NetworkVersion, overlay: list[dict[str, Any]], why: str, now: float
) -> int:
    """Make a new version of a network by what telemetry says; its number.

    Args:
        overlay: objects with ``src``, ``dst`` and ``bandwidth_Bps`` (0 for a link that is down) or ``latency_s``.
    Raises:
        InputError: no link would be left.
    """
    topology = under(base_of(connection, current), overlay)
    version = current.version + 1
    connection.execute(update(networks).where(networks.c.name == current.name).values(version=version))
    _add(connection, current.name, version, current.base, topology.to_json(), overlay, why, now)
    return version


def try_again(connection: Connection, current: NetworkVersion, links: Set[Link], why: str, now: float) -> int:
    """Make a new version of a network in which some links are as an operator gave them; its number.

    What was reported of these links counts no more.
    """
    for src, dst in links:
        connection.execute(delete(telemetry).where(
            telemetry.c.network == current.name, telemetry.c.src == src, telemetry.c.dst == dst
        ))  # fmt: skip
    overlay = [said for said in current.overlay if (said["src"], said["dst"]) not in links]
    return lay_over(connection, current, overlay, why, now)


def under(base: Topology, overlay: Iterable[Mapping[str, Any]]) -> Topology:
    """A network with what telemetry says of its links."""
    number = links_by_name(base)
    bandwidth, latency_s, down = {}, {}, set()
    for said in overlay:
        link = number[said["src"], said["dst"]]
        if said.get("bandwidth_Bps") == 0:
            down.add(link)
            continue
        if "bandwidth_Bps" in said:
            bandwidth[link] = float(said["bandwidth_Bps"])
        if "latency_s" in said:
            latency_s[link] = float(said["latency_s"])
    if not (bandwidth or latency_s or down):
        return base
    return updated(base, Telemetry(bandwidth=bandwidth, latency_s=latency_s, links_down=frozenset(down)))


def links_by_name(topology: Topology) -> dict[tuple[str, str], int]:
    """The number of each link by the names of its ends, between which there is one at most."""
    names = topology.names
    return {
        (names[a], names[b]): i
        for i, (a, b) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    }


def keep_samples(connection: Connection, name: str, samples: Iterable[Sample]) -> None:
    """Keep samples of a network's links, none of which is kept yet."""
    rows = [
        {"network": name, "src": s.src, "dst": s.dst, "kind": s.kind, "at": s.at_s, "rate": s.rate} for s in samples
    ]
    if rows:
        connection.execute(insert(telemetry), rows)


def latest_samples(connection: Connection, name: str) -> dict[tuple[Link, str], float]:
    """The moment of the newest sample of each link and kind."""
    newest = _newest().where(telemetry.c.network == name)
    return {((row.src, row.dst), row.kind): row.at for row in connection.execute(newest)}


def samples_since(connection: Connection, name: str, since: float) -> list[Sample]:
    """The samples of a network's links from a moment on, and the last one before it of each link and kind; by time."""
    newest = _newest().where(telemetry.c.network == name, telemetry.c.at < since).subquery()
    same = [telemetry.c[key] == newest.c[key] for key in ("network", "src", "dst", "kind", "at")]
    rows = [
        *connection.execute(select(telemetry).join(newest, and_(*same))),
        *connection.execute(select(telemetry).where(telemetry.c.network == name, telemetry.c.at >= since)),
    ]
    return sorted((Sample(row.src, row.dst, row.kind, row.rate, row.at) for row in rows), key=lambda s: s.at_s)


def forget_samples(connection: Connection, name: str, since: float, before: float) -> int:
    """Forget a network's samples from one moment to another, but for the last one of each link and kind; how many."""
    own, later = telemetry, telemetry.alias()
    same = [later.c[key] == own.c[key] for key in ("network", "src", "dst", "kind")]
    newer = select(later.c.at).where(*same, later.c.at > own.c.at).exists()
    span = own.c.at >= since, own.c.at < before
    return int(connection.execute(delete(own).where(own.c.network == name, *span, newer)).rowcount)


def _newest() -> Select[Any]:
    """The moment of the newest sample of each network, link and kind."""
    keys = (telemetry.c.network, telemetry.c.src, telemetry.c.dst, telemetry.c.kind)
    return select(*keys, func.max(telemetry.c.at).label("at")).group_by(*keys)


def _add(
    connection: Connection, name: str, version: int, base: int, topology: dict[str, Any], overlay: list[dict[str, Any]],
    why: str, now: float,
) -> None:  # fmt: skip
    connection.execute(
        insert(network_versions).values(
            network=name,
            version=version,
            base=base,
            topology=json.dumps(topology),
            overlay=json.dumps(overlay),
            why=why,
            at=now,
        )
    )


def check_version(what: str, version: int, expected: int | None) -> None:
    if expected is not None and version != expected:
        raise Conflict(f"{what} has version {version}, not {expected}" if version else f"{what} does not exist")


def refuse_changes(topology: Topology) -> Topology:
    """A network for the controller; InputError if its bandwidths change at moments that only a plan knows."""
    if topology.changes:
        raise InputError("are counted from the start of a plan, which no service knows; report telemetry", "changes")
    return topology

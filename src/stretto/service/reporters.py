"""Who reports telemetry, and of which links he may: a rank of those at its node, a job's token of those at its ranks.

A telemetry object may say ``"reporter": {"job": NAME, "rank": N}``. A rank sees what it sends and receives itself, so
what it says of links elsewhere is a mistake or a lie. Who it is, is what the token says: one that is bound to nodes can
name no rank elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from ..model.errors import InputError, no_node
from ..model.topology import Topology
from ..topologies.files import topology_from_json
from ..topologies.values import check_keys, count, entry, shown
from . import jobs, networks
from .calls import Call, Refused
from .documents import Job

WHERE = "telemetry, 'reporter'"


def split_reporter(data: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """A telemetry object without its reporter, and that."""
    if not isinstance(data, dict) or "reporter" not in data:
        return data, None
    check_keys(data["reporter"], ("job", "rank"), WHERE)
    return {key: value for key, value in data.items() if key != "reporter"}, data["reporter"]


def nodes_of_reporter(
    connection: Connection, call: Call, network: str, topology: Topology, reporter: Mapping[str, Any] | None
) -> frozenset[str] | None:
    """The nodes at which links of a network must end to be the reporter's; None for any.

    Raises:
        Refused: the caller's token does not speak for that job, or the job is not on that network.
        InputError: the job has no such rank.
    """
    if reporter is not None:
        job = jobs.job(connection, entry(reporter, "job", str, WHERE))
        call.speak_for(job.name)
        if job.network != network:
            raise Refused(403, "forbidden", f"job {job.name!r} is on network {job.network!r}, not on {network!r}")
        ranks = ranks_of(job.job, topology)
        node = ranks[count(reporter.get("rank"), "'rank'", WHERE, 0, len(ranks) - 1)]
        _speak_at(call, {node})
        return frozenset({node})
    if not call.caller.jobs:
        return None
    own = [job for job in jobs.all_jobs(connection, network) if call.caller.speaks_for(job.name)]
    if not own:
        raise Refused(403, "forbidden", f"none of the jobs {', '.join(call.caller.jobs)} is on network {network!r}")
    nodes = frozenset().union(*(ranks_of(job.job, topology) for job in own))
    return frozenset(filter(call.caller.speaks_at, nodes))


def check_ranks(connection: Connection, call: Call, name: str) -> None:
    """Refused if a job has a rank at a node that the caller's token does not speak at."""
    if call.caller.nodes:
        job = jobs.job(connection, name)
        found = networks.network(connection, job.network)
        check_given_ranks(call, job.job, topology_from_json(found.topology, f"network {found.name}"))


def check_given_ranks(call: Call, job: Job, topology: Topology) -> None:
    """The same of a job that is to be made."""
    if call.caller.nodes:
        _speak_at(call, {topology.names[v] for of in job.collectives(topology) for v in of.ranks})


def _speak_at(call: Call, nodes: Iterable[str]) -> None:
    if others := sorted(node for node in nodes if not call.caller.speaks_at(node)):
        known = ", ".join(call.caller.nodes)
        raise Refused(403, "forbidden", f"{call.caller.name} speaks at the nodes {known}, not at {shown(others[0])}")


def ranks_of(job: Job, topology: Topology) -> list[str]:
    """The names of a job's ranks."""
    names = topology.names
    given = job.document.get("ranks")
    if given is None:
        return [names[v] for v in topology.accelerators.tolist()]
    ranks = [names[rank] if isinstance(rank, int) and rank < len(names) else rank for rank in given]
    if unknown := [rank for rank in ranks if rank not in names]:
        raise InputError(no_node(unknown[0], names), "ranks")
    return ranks

"""Who reports telemetry, and of which links he may: a rank of those at its node, a job's token of those at its ranks.

A telemetry object may say ``"reporter": {"job": NAME, "rank": N}``. A rank sees what it sends and receives itself, so
what it says of links elsewhere is a mistake or a lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from ..model.errors import InputError
from ..model.topology import Topology
from ..topologies.values import check_keys, count, entry
from . import jobs
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
        return frozenset({ranks[count(reporter.get("rank"), "'rank'", WHERE, 0, len(ranks) - 1)]})
    if not call.caller.jobs:
        return None
    own = [job for job in jobs.all_jobs(connection, network) if call.caller.speaks_for(job.name)]
    if not own:
        raise Refused(403, "forbidden", f"none of the jobs {', '.join(call.caller.jobs)} is on network {network!r}")
    return frozenset().union(*(ranks_of(job.job, topology) for job in own))


def ranks_of(job: Job, topology: Topology) -> list[str]:
    """The names of a job's ranks."""
    names = topology.names
    given = job.document.get("ranks")
    if given is None:
        return [names[v] for v in topology.accelerators.tolist()]
    ranks = [names[rank] if isinstance(rank, int) and rank < len(names) else rank for rank in given]
    if unknown := [rank for rank in ranks if rank not in names]:
        raise InputError(f"there is no node {unknown[0]!r}", "ranks")
    return ranks

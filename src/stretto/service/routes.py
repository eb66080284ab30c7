"""What the controller answers: a function for each route, which reads or writes the store in one transaction."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from .. import __version__
from ..model.errors import InputError, StrettoError
from ..topologies.values import check_keys, count, shown
from . import holding, jobs, networks, published
from .access import ANYBODY, JOB, OPERATOR, READ
from .calls import Answer, Call, Handler, Refused
from .documents import check_name, parse_job, parse_network, parse_samples
from .pages import get_drawing, get_page
from .reporters import check_given_ranks, check_ranks, nodes_of_reporter, split_reporter
from .schema import audit
from .times import keep_times, parse_times, times_of

PARQUET = "application/vnd.apache.parquet"
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
MOST_LISTED = 1000

EXAMPLE_NETWORK = {
    "name": "two", "nodes": [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}],
    "links": [{"src": 0, "dst": 1, "bandwidth_Bps": 1e9, "latency_s": 1e-5},
              {"src": 1, "dst": 0, "bandwidth_Bps": 1e9, "latency_s": 1e-5}],
}  # fmt: skip
EXAMPLE_JOB = {"network": "two", "collectives": [{"kind": "allreduce", "size": "64MB", "times": 10}], "weight": 2}
EXAMPLE_TELEMETRY = {"time": "2026-01-31T12:00:00Z", "links": [{"src": "a", "dst": "b", "bandwidth": "500MB/s"}]}
EXAMPLE_ACCEPT = {"proposal": 17, "hold": True}
EXAMPLE_TIMES = {"version": 3, "collectives": [{"number": 0, "calls": 20, "measured_s": 0.012}]}


@dataclass(frozen=True)
class Route:
    """A method and a path, who may call it, and the function that answers.

    Attributes:
        query: by name what parameters of the query say.
        example: of the body; None where there is none.
        waits: whether a call waits for news, where its query says so.
        kept: whether the last answer is given on while there is no database.
        documented: whether the OpenAPI page has it.
    """

    method: str
    path: str
    role: str | None
    answer: Handler
    summary: str
    query: Mapping[str, str]
    example: Any = None
    waits: bool = False
    kept: bool = False
    documented: bool = True

    @property
    def of_job(self) -> bool:
        """Whether it writes the job that its path names, which the caller must speak for."""
        return self.role == JOB and self.path.startswith("/jobs/{name}")


def get_networks(call: Call) -> Answer:
    with call.read() as connection:
        return Answer(data=[{"name": n, "version": v} for n, v in networks.network_names(connection)])


def get_network(call: Call) -> Answer:
    with call.read() as connection:
        found = networks.network(connection, call.names["name"], call.whole("version"))
    data = {
        "name": found.name, "version": found.version, "base": found.base, "why": found.why, "at": found.at,
        "overlay": found.overlay, "topology": found.topology,
    }  # fmt: skip
    return Answer(data=data, headers={"ETag": f'"{found.version}"'})


def put_network(call: Call) -> Answer:
    name = check_name(call.names["name"], "name")
    given = networks.refuse_changes(parse_network(call.data, "body"))
    if not given.link_count and not given.planes:
        raise InputError("has no links", "body")
    with call.write() as connection:
        version, new = networks.put_network(connection, name, given, time.time(), call.expected)
    call.instance.kick()
    data = {"name": name, "version": version, "nodes": given.node_count, "links": given.link_count}
    return Answer(201 if new and version == 1 else 200, data, {"ETag": f'"{version}"'})


def delete_network(call: Call) -> Answer:
    with call.write() as connection:
        networks.delete_network(connection, call.names["name"])
    return Answer(204)


def post_telemetry(call: Call) -> Answer:
    name = call.names["name"]
    intake = call.instance.intake(name)
    try:
        data, reporter = split_reporter(call.data)
        with call.read() as connection:
            own = nodes_of_reporter(connection, call, name, intake.topology, reporter)
        samples = parse_samples(data, intake.topology, time.time())
    except StrettoError:
        call.instance.metrics.refused_samples.labels(name, "bad input").inc()
        raise
    receipt = intake.take(samples, own)
    return Answer(202, {"kept": receipt.kept, "refused": receipt.refused})


def get_telemetry(call: Call) -> Answer:
    name = call.names["name"]
    with call.read() as connection:
        networks.network(connection, name)
        found = networks.samples_since(connection, name, time.time() - call.seconds("seconds", 86400.0))
    return Answer(data=[sample._asdict() for sample in found])


def get_sources(call: Call) -> Answer:
    """How the sources of a network fare, and why they are not asked where they are not."""
    name, asking = call.names["name"], call.instance.asking
    with call.read() as connection:
        networks.network(connection, name)
    fares = {source: vars(health) for source, health in asking.health().get(name, {}).items()}
    return Answer(data={"sources": fares, "waiting": asking.waiting.get(name)})


def get_decisions(call: Call) -> Answer:
    name = call.names["name"]
    with call.read() as connection:
        networks.network(connection, name)
        rows = published.network_decisions(connection, name, call.whole("most", most=MOST_LISTED) or 20)
    return Answer(data=[_decision(row) for row in rows])


def _decision(row: Row[Any]) -> dict[str, Any]:
    keys = ("network_version", "effort", "published", "before_s", "after_s", "why", "at")
    said = {key: getattr(row, key) for key in keys}
    lists = {key: json.loads(getattr(row, key)) for key in ("jobs", "proposed", "refused")}
    return {**said, **lists, "plan": row.digest}


def get_jobs(call: Call) -> Answer:
    with call.read() as connection:
        found = jobs.all_jobs(connection)
        held, proposed = holding.held_jobs(connection), holding.proposals_by_job(connection)
        reasons = {network: _reasons(connection, network) for network in {job.network for job in found}}
    keys = ("name", "version", "network", "plan_version")
    return Answer(data=[
        {key: getattr(job, key) for key in keys} | {
            "status": job.status(reasons[job.network].get(job.name)), "held": job.name in held,
            "proposal": proposed.get(job.name),
        } for job in found
    ])  # fmt: skip


def get_job(call: Call) -> Answer:
    with call.read() as connection:
        job = jobs.job(connection, call.names["name"])
        reason = _reasons(connection, job.network).get(job.name)
        rows = published.plan_history(connection, job.name)
        held, proposed = holding.held_jobs(connection).get(job.name), holding.proposed_plans(connection).get(job.name)
        collectives = times_of(connection, job.name)
    versions = [{"version": r.version, "digest": r.digest, "why": r.why, "published_at": r.at} for r in rows]
    data = {
        "name": job.name, "version": job.version, "network": job.network, "job": job.document, "at": job.at,
        "status": job.status(reason), "reason": reason,
        "hold": None if held is None else vars(held), "proposed": None if proposed is None else _proposal(proposed),
        "plan_version": job.plan_version, "plan_versions": versions, "collectives": collectives,
    }  # fmt: skip
    return Answer(data=data, headers={"ETag": f'"{job.version}"'})


def _proposal(row: Row[Any]) -> dict[str, Any]:
    """A plan that is proposed; ``proposal`` is what :func:`post_accept` wants to be told."""
    said = {"proposal": row.decision, "digest": row.digest, "why": row.why, "proposed_at": row.at}
    return said | {"changed": json.loads(row.changed), "collectives": json.loads(row.facts)["collectives"]}


def post_hold(call: Call) -> Answer:
    with call.write() as connection:
        held = holding.hold_job(connection, call.names["name"], call.caller.name, time.time())
    return Answer(data={"name": call.names["name"], "hold": vars(held)})


def post_accept(call: Call) -> Answer:
    """Publish what is proposed to a job, and hold it no more unless the body says so."""
    name, said = call.names["name"], call.data if call.content else {}
    check_keys(said, ("proposal", "hold"), "body")
    seen = None if said.get("proposal") is None else count(said["proposal"], "'proposal'", "body", 1, 10**15)
    holds_on = said.get("hold", False)
    if not isinstance(holds_on, bool):
        raise InputError(f"'hold' must be true or false, not {shown(holds_on)}", "body")
    with call.write(detail=json.dumps(said)) as connection:
        version = holding.accept_plan(connection, name, seen, holds_on, time.time())
        held = holding.held_jobs(connection).get(name)
    call.instance.tell([name])
    call.instance.kick()  # a job that is held no more may leave optical planes to others
    return Answer(data={"name": name, "published": version, "hold": None if held is None else vars(held)})


def _reasons(connection: Connection, network: str) -> dict[str, str]:
    """By job of a network why it has no plan, as the last decision says."""
    last = published.last_decision(connection, network)
    return {} if last is None else dict(json.loads(last.refused))


def put_job(call: Call) -> Answer:
    name, given = check_name(call.names["name"], "name"), parse_job(call.data)
    with call.read() as connection:
        network = networks.network(connection, given.network)
    topology = parse_network(network.topology, f"network {network.name}")
    given.collectives(topology)  # refuses what does not fit
    check_given_ranks(call, given, topology)
    with call.write(detail=json.dumps(given.document)) as connection:
        networks.network(connection, given.network)
        with suppress(networks.Missing):  # a job that is new
            check_ranks(connection, call, name)
        version, new = jobs.put_job(connection, name, given, time.time(), call.expected)
    call.instance.kick()
    data = {"name": name, "version": version, "network": given.network, "plan": f"/jobs/{name}/plan"}
    return Answer(201 if new and version == 1 else 200, data, {"ETag": f'"{version}"'})


def delete_job(call: Call) -> Answer:
    with call.write() as connection:
        check_ranks(connection, call, call.names["name"])
        jobs.delete_job(connection, call.names["name"])
    call.instance.kick()
    return Answer(204)


def post_times(call: Call) -> Answer:
    """Keep how long a job's collectives took."""
    name, given = call.names["name"], parse_times(call.data)
    call.speak_for(name)
    with call.write(noted=False) as connection:
        check_ranks(connection, call, name)
        keep_times(connection, name, given, time.time())
    return Answer(202, {"kept": len(given.collectives)})


def get_job_plan(call: Call) -> Answer:
    """The plan of a job; 404 with the code ``no_plan_yet`` if there is none yet."""
    name, version = call.names["name"], call.whole("version")
    with call.read() as connection:
        row = published.published_plan(connection, name, version)
        if row is None:
            job = jobs.job(connection, name)
            reason = _reasons(connection, job.network).get(name)
            if reason is not None:
                raise Refused(409, "refused", f"job {name!r} has no plan: {reason}")
            if version is not None and version <= job.plan_version:
                raise networks.Missing(f"version {version} of the plan of {name!r} is not kept any more")
            raise Refused(404, "no_plan_yet", f"job {name!r} has no such plan yet", **{"Retry-After": "1"})
    headers = {"ETag": f'"{row.version}"', "Cache-Control": "private, no-cache"}
    keys = ("job", "version", "digest", "network", "network_version", "job_version", "effort", "why")
    data = {key: getattr(row, key) for key in keys}
    data |= {"plan": f"/plans/{row.digest}", "published_at": row.at, "changed": json.loads(row.changed)}
    return Answer(data=data | json.loads(row.facts), headers=headers)


def get_plan(call: Call) -> Answer:
    digest, accepts = call.names["digest"], call.headers.get("accept", "*/*")
    headers = {"ETag": f'"{digest}"', "Vary": "Accept, Accept-Encoding", **FOREVER}
    with call.read() as connection:
        row = published.plan_row(connection, digest)
    if PARQUET in accepts:
        return Answer(data=row.parquet, headers=headers, media=PARQUET)
    if "json" not in accepts and "*/*" not in accepts:
        raise Refused(406, "not_acceptable", f"a plan is sent as application/json or {PARQUET}")
    if "gzip" in call.headers.get("accept-encoding", ""):
        return Answer(data=row.json_gz, headers={**headers, "Content-Encoding": "gzip"})
    return Answer(data=gzip.decompress(row.json_gz), headers=headers)


def get_audit(call: Call) -> Answer:
    asked = select(audit).order_by(audit.c.id.desc()).limit(call.whole("most", most=MOST_LISTED) or 100)
    with call.read() as connection:
        rows = [*connection.execute(asked)]
    return Answer(
        data=[{key: getattr(row, key) for key in ("at", "who", "action", "status", "detail")} for row in rows]
    )


def get_health(call: Call) -> Answer:
    """Whether the store can be read, and who is the leader; without a token."""
    term, address = call.instance.database.leader()
    leads = 0 < call.instance.term == term  # one that stood still may not have noticed that another has followed it
    return Answer(data={"status": "ok", "version": __version__, "leader": leads, "leader_address": address})


def get_metrics(call: Call) -> Answer:
    from .metrics import TYPE

    return Answer(data=call.instance.metrics.page(), media=TYPE)


_MOST = {"most": "how many are listed, the newest first"}
ROUTES = (
    Route("GET", "/", None, get_page, "The page", {}, documented=False),
    Route("GET", "/page/{file}", None, get_page, "A file of the page", {}, documented=False),
    Route("GET", "/healthz", None, get_health, "Whether the service is well", {}),
    Route("GET", "/metrics", READ, get_metrics, "Counters for Prometheus", {}),
    Route("GET", "/networks", READ, get_networks, "All networks", {}, kept=True),
    Route("GET", "/networks/{name}", READ, get_network, "A network", {"version": "by default the newest"}, kept=True),
    Route("PUT", "/networks/{name}", OPERATOR, put_network, "Make or replace a network", {}, EXAMPLE_NETWORK),
    Route("DELETE", "/networks/{name}", OPERATOR, delete_network, "Forget a network without jobs", {}),
    Route("POST", "/networks/{name}/telemetry", JOB, post_telemetry, "Report what links give", {}, EXAMPLE_TELEMETRY),
    Route("GET", "/networks/{name}/telemetry", READ, get_telemetry, "The last report of each link, and recent ones",
          {"seconds": "how long reports are recent"}),
    Route("GET", "/networks/{name}/drawing", READ, get_drawing, "The drawing of a network, with its links",
          {"label": "size of names on maps"}),
    Route("GET", "/networks/{name}/sources", READ, get_sources, "How what is asked for telemetry fares", {}),
    Route("GET", "/networks/{name}/decisions", READ, get_decisions, "Why plans were published or not", _MOST),
    Route("GET", "/jobs", READ, get_jobs, "All jobs", {}, kept=True),
    Route("GET", "/jobs/{name}", READ, get_job, "A job and the versions of its plan", {}, kept=True),
    Route("PUT", "/jobs/{name}", JOB, put_job, "Make or replace a job", {}, EXAMPLE_JOB),
    Route("DELETE", "/jobs/{name}", JOB, delete_job, "End a job", {}),
    Route("POST", "/jobs/{name}/times", JOB, post_times, "Report how long collectives took", {}, EXAMPLE_TIMES),
    Route("POST", "/jobs/{name}/hold", OPERATOR, post_hold, "Let a job keep the version of its plan", {}),
    Route("POST", "/jobs/{name}/accept", OPERATOR, post_accept,
          "Publish the plan that is proposed to a job, and hold it no more unless `hold` is true", {}, EXAMPLE_ACCEPT),
    Route("GET", "/jobs/{name}/plan", READ, get_job_plan, "The plan of a job",
          {"version": "by default the newest",
           "wait": "seconds to wait for that version, or for one that If-None-Match does not name"},
          waits=True, kept=True),
    Route("GET", "/plans/{digest}", READ, get_plan, "A plan, as JSON or Parquet", {}, kept=True),
    Route("GET", "/audit", OPERATOR, get_audit, "Who has written what", _MOST),
)  # fmt: skip


def get_events(call: Call) -> Answer:
    """The first of the events that the application sends on: who asks, and whom."""
    caller, instance = call.caller, call.instance
    said = {"name": caller.name, "role": caller.role, "tokens": caller != ANYBODY, "version": __version__}
    return Answer(data=said | {"leads": bool(instance.term), "address": instance.address})


EVENTS = Route(
    "GET", "/events", READ, get_events, "What the page shows, and whatever changes, as server-sent events", {}
)

"""The tables of the controller. A change here needs a migration beside the others (:mod:`.migrations`).

Moments are seconds since 1970, UTC. Documents are JSON as text. Rows of versions, decisions and the audit log are never
changed; rows of plans are named by the digest of their request.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

TABLES = MetaData()
_COUNTED = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts rows up by themselves only in an INTEGER

leader = Table(
    "leader", TABLES,
    Column("id", Integer, primary_key=True),
    Column("term", BigInteger, nullable=False),  # one more for each instance that has become the leader
    Column("address", Text, nullable=False),
    Column("since", Double, nullable=False),
)  # fmt: skip

networks = Table(
    "networks", TABLES,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
)  # fmt: skip

network_versions = Table(
    "network_versions", TABLES,
    Column("network", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("base", Integer, nullable=False),  # the version that an operator gave, on which the overlay lies
    Column("topology", Text, nullable=False),  # what is planned on: the base under the overlay
    Column("overlay", Text, nullable=False),  # what telemetry says of links, where it differs from the base
    Column("why", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["network"], ["networks.name"]),
)  # fmt: skip

jobs = Table(
    "jobs", TABLES,
    Column("name", Text, primary_key=True),
    Column("network", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("plan_version", Integer, nullable=False),  # the newest one that was published, 0 for none
    ForeignKeyConstraint(["network"], ["networks.name"]),
    Index("jobs_of_network", "network"),
)  # fmt: skip

job_versions = Table(
    "job_versions", TABLES,
    Column("job", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("document", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job"], ["jobs.name"]),
)  # fmt: skip

plans = Table(
    "plans", TABLES,
    Column("digest", Text, primary_key=True),  # of the request
    Column("part", Text, nullable=False),  # alone, together or job: see stretto.service.requests
    Column("request", Text, nullable=False),
    Column("content", Text, nullable=False),  # the digest of the plan itself: equal plans have equal ones
    Column("facts", Text, nullable=False),
    Column("parquet", LargeBinary, nullable=False),
    Column("json_gz", LargeBinary, nullable=False),
    Column("at", Double, nullable=False),
)  # fmt: skip

refusals = Table(
    "refusals", TABLES,
    Column("digest", Text, primary_key=True),  # of the request of a plan
    Column("reason", Text, nullable=False),
    Column("at", Double, nullable=False),
)  # fmt: skip

decisions = Table(
    "decisions", TABLES,
    Column("id", _COUNTED, primary_key=True, autoincrement=True),
    Column("network", Text, nullable=False),
    Column("network_version", Integer, nullable=False),
    Column("state", Text, nullable=False),  # the digest of what was known: the network and the jobs on it
    Column("effort", Text, nullable=False),
    Column("jobs", Text, nullable=False),  # by name the version of each job that the plan serves
    Column("refused", Text, nullable=False),  # by name why a job has no plan
    Column("digest", Text, nullable=False),  # of the plan of all jobs together; empty for none
    Column("published", Boolean, nullable=False),  # whether jobs have its plan, or had it already
    Column("proposed", Text, nullable=False, default="[]", server_default="[]"),  # names of jobs that are held
    Column("before_s", Double),  # the mean completion by weight that the plans before would have
    Column("after_s", Double),
    Column("why", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["network"], ["networks.name"]),
    Index("decisions_of_network", "network", "id"),
)  # fmt: skip

plan_versions = Table(
    "plan_versions", TABLES,
    Column("job", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("decision", BigInteger, nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("why", Text, nullable=False),
    Column("changed", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job"], ["jobs.name"]),
    ForeignKeyConstraint(["digest"], ["plans.digest"]),
    ForeignKeyConstraint(["decision"], ["decisions.id"]),
    Index("plan_versions_by_digest", "digest"),
)  # fmt: skip

collective_times = Table(
    "collective_times", TABLES,
    Column("job", Text, primary_key=True),
    Column("number", Integer, primary_key=True),  # of the collective in the plan
    Column("version", Integer, nullable=False),  # of the plan by which it was called
    Column("calls", Integer, nullable=False),
    Column("measured_s", Double, nullable=False),  # the median of these calls
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job"], ["jobs.name"]),
)  # fmt: skip

holds = Table(
    "holds", TABLES,
    Column("job", Text, primary_key=True),  # it keeps the version of its plan
    Column("who", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job"], ["jobs.name"]),
)  # fmt: skip

proposals = Table(
    "proposals", TABLES,
    Column("job", Text, primary_key=True),  # which would have this plan, were it not held
    Column("digest", Text, nullable=False),
    Column("decision", BigInteger, nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("why", Text, nullable=False),
    Column("changed", Text, nullable=False),
    Column("at", Double, nullable=False),
    ForeignKeyConstraint(["job"], ["jobs.name"]),
    ForeignKeyConstraint(["digest"], ["plans.digest"]),
    ForeignKeyConstraint(["decision"], ["decisions.id"]),
)  # fmt: skip

telemetry = Table(
    "telemetry", TABLES,
    Column("network", Text, primary_key=True),
    Column("src", Text, primary_key=True),
    Column("dst", Text, primary_key=True),
    Column("kind", Text, primary_key=True),  # of stretto.service.telemetry.samples
    Column("at", Double, primary_key=True),
    Column("rate", Double, nullable=False),  # bytes/s, 0 for a link that is down; of a latency, seconds
    ForeignKeyConstraint(["network"], ["networks.name"]),
    Index("telemetry_by_time", "network", "at"),
)  # fmt: skip

audit = Table(
    "audit", TABLES,
    Column("id", _COUNTED, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),  # method and path
    Column("status", Integer, nullable=False),
    Column("detail", Text, nullable=False),
)  # fmt: skip

"""The first tables: networks, jobs, plans, decisions, telemetry, switches, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    counted = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )  # fmt: skip
    op.create_table(
        "networks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
    )  # fmt: skip
    op.create_table(
        "network_versions",
        sa.Column("network", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("base", sa.Integer, nullable=False),
        sa.Column("topology", sa.Text, nullable=False),
        sa.Column("overlay", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["network"], ["networks.name"]),
    )  # fmt: skip
    op.create_table(
        "jobs",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("plan_version", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["network"], ["networks.name"]),
    )  # fmt: skip
    op.create_index("jobs_of_network", "jobs", ["network"])
    op.create_table(
        "job_versions",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.name"]),
    )  # fmt: skip
    op.create_table(
        "plans",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("part", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("parquet", sa.LargeBinary, nullable=False),
        sa.Column("json_gz", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )  # fmt: skip
    op.create_table(
        "refusals",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )  # fmt: skip
    op.create_table(
        "decisions",
        sa.Column("id", counted, primary_key=True, autoincrement=True),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("network_version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("effort", sa.Text, nullable=False),
        sa.Column("jobs", sa.Text, nullable=False),
        sa.Column("refused", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("published", sa.Boolean, nullable=False),
        sa.Column("before_s", sa.Double),
        sa.Column("after_s", sa.Double),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["network"], ["networks.name"]),
    )  # fmt: skip
    op.create_index("decisions_of_network", "decisions", ["network", "id"])
    op.create_table(
        "plan_versions",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("decision", sa.BigInteger, nullable=False),
        sa.Column("job_version", sa.Integer, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("changed", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.name"]),
        sa.ForeignKeyConstraint(["digest"], ["plans.digest"]),
        sa.ForeignKeyConstraint(["decision"], ["decisions.id"]),
    )  # fmt: skip
    op.create_index("plan_versions_by_digest", "plan_versions", ["digest"])
    op.create_table(
        "telemetry",
        sa.Column("network", sa.Text, primary_key=True),
        sa.Column("src", sa.Text, primary_key=True),
        sa.Column("dst", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, primary_key=True),
        sa.Column("rate", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["network"], ["networks.name"]),
    )  # fmt: skip
    op.create_index("telemetry_by_time", "telemetry", ["network", "at"])
    op.create_table(
        "switches",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["network"], ["networks.name"]),
    )  # fmt: skip
    op.create_table(
        "audit",
        sa.Column("id", counted, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )  # fmt: skip
    op.execute("INSERT INTO leader (id, term, address, since) VALUES (1, 0, '', 0)")

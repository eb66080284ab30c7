"""Jobs that keep the version of their plan, and the plans that are proposed to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "holds",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.name"]),
    )  # fmt: skip
    op.create_table(
        "proposals",
        sa.Column("job", sa.Text, primary_key=True),
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

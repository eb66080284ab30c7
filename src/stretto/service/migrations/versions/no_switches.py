"""No table of optical switches: ports that fail leave the network, and who turns planes says so where they turn."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Drop the table, which was never written."""
    op.drop_table("switches")

"""To which jobs a decision's plan was proposed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; of decisions before it, it is not known."""
    op.add_column("decisions", sa.Column("proposed", sa.Text, nullable=False, server_default="[]"))

"""Alembic runs this: it applies migrations on the connection that :func:`stretto.service.database.migrate` gives."""

from __future__ import annotations

from alembic import context

from stretto.service.schema import TABLES

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=TABLES, render_as_batch=connection.dialect.name == "sqlite")
context.run_migrations()

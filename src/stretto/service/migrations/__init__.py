"""Migrations of the tables, by Alembic: one file each under ``versions``, applied when the controller starts."""

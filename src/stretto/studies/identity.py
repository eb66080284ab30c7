"""The identity of a cell: its request, its seed, and the code that answers it.

A result is reused only if all of these are equal, so a study that is resumed after a planner was changed runs
its cells again.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ..model.errors import InputError
from ..model.source import source_digest
from ..planners import find
from .model import Cell

PACKAGES = ("stretto", "numpy", "numba", "scipy", "highspy", "ortools", "clarabel")
"""Packages whose versions are kept with every row."""

NOT_IN_ROWS = {"choose", "cli", "emulator", "face", "formats", "lower", "report", "runtime", "torch"}
"""The parts of stretto on which no row depends."""

RUNNING = {"emulator", "lower", "runtime"}
"""The parts of these that run plans: the row of an emulated cell depends on them, too."""


@cache
def versions() -> dict[str, str]:
    """The versions of Python, stretto and the packages it computes with, in this process."""
    found = {"python": platform.python_version()} | dict.fromkeys(PACKAGES, "unknown")
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def code_digest() -> str:
    """A digest of the source on which rows depend, in this process."""
    return source_digest(lambda part: part not in NOT_IN_ROWS)


@cache
def running_digest() -> str:
    """A digest of the source that runs plans with real bytes, in this process."""
    return source_digest(RUNNING.__contains__)


def key_of(cell: Cell, seed: int) -> str:
    """The name of a cell's result: equal for equal requests, seeds and code."""
    asked: dict[str, Any] = {f.name: getattr(cell, f.name) for f in fields(cell) if f.name != "why_full"}
    asked["options"] = dict(cell.options)
    asked["shared"] = None if cell.shared is None else asdict(cell.shared)
    asked["run"] = None if cell.run is None else f"{cell.run.__module__}.{cell.run.__qualname__}"
    foreign = [_foreign_planners(cell.planner), "" if cell.run is None else _foreign_source(cell.run)]
    asked |= {"seed": seed, "code": code_digest(), "foreign": foreign, "file": _file_digest(cell.topology)}
    asked["running"] = running_digest() if cell.emulated else ""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:24]


@cache
def _foreign_planners(spec: str) -> str:
    """Digests of the planners of a spec that are not stretto's own."""
    try:
        return " ".join(_foreign_source(find(name).run) for name in spec.split("+"))
    except InputError:  # there is no such planner: running the cell will say so
        return ""


def _foreign_source(function: Callable[..., Any]) -> str:
    """A digest of the file that defines a function, if it is not part of stretto."""
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    return "" if file is None or function.__module__.startswith("stretto.") else _file_digest(file)


@cache
def _file_digest(path: str) -> str:
    """A digest of a file's bytes; empty if there is no such file (``path`` may be a topology's spec)."""
    place = Path(path.partition("?")[0])
    return hashlib.sha256(place.read_bytes()).hexdigest()[:16] if place.is_file() else ""

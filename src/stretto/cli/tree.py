"""The commands by name; each is made of its function when it is asked for.

Typer itself makes all commands each time it is called: 30 ms of CPU, a quarter of what a short command takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer

from .help import Command


class Commands(Mapping[str, Any]):
    """Commands and groups of commands in the order in which they are given.

    Args:
        parts: by name the function of a command, or the application of a group.
    """

    def __init__(self, parts: Mapping[str, Callable[..., None] | typer.Typer]) -> None:
        self._parts = parts
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        part = self._parts[name]
        if name not in self._made:
            self._made[name] = typer.main.get_command(part if isinstance(part, typer.Typer) else _alone(name, part))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts


def _alone(name: str, function: Callable[..., None]) -> typer.Typer:
    """An application of one command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name, cls=Command)(function)
    return app

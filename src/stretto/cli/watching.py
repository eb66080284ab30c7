"""``stretto watch``: links and collectives of a running job, in the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Protocol

from typer import Argument, Exit, Option

from .controlling import Authorities, Token
from .tables import print_line

if TYPE_CHECKING:
    from .watched import Picture

ONCE_LINKS = 40
"""Links that are listed where tables are printed one after another."""


class Source(Protocol):
    """Where a job is seen.

    Attributes:
        nothing: what to say as long as nothing is there.
    """

    @property
    def nothing(self) -> str: ...

    def picture(self) -> Picture: ...


def watch(
    job: Annotated[
        str,
        Argument(help="The folder that STRETTO_TRACE names, one file of it, or the URL of a controller."),
    ],
    once: Annotated[bool, Option("--once", help="Print what is known now, and end.")] = False,
    every: Annotated[float, Option(help="Seconds between two pictures.", min=0.1)] = 1.0,
    window: Annotated[float, Option(help="Seconds over which the bytes of links are counted.", min=0.1)] = 10.0,
    token: Token = None,
    authorities: Authorities = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object a picture, each on a line.")] = False,
) -> None:
    """Watch a running job: what its links give and how long its collectives take, against the plan."""
    source = _source(job, window, token, authorities, once)
    if once:
        picture = source.picture()
        _print(picture, source, as_json)
        if picture.empty:
            raise Exit(1)
        return
    try:
        if as_json or not sys.stdout.isatty():
            _follow(source, every, as_json)
        else:
            _draw(source, every)
    except KeyboardInterrupt:  # the way to end it
        raise Exit(0) from None


def _source(job: str, window_s: float, token: str | None, authorities: str | None, once: bool) -> Source:
    """Where the job is seen; a controller that refuses is an error at once."""
    if "://" in job:
        from ..service.client import Controller
        from .told import Told

        told = Told(Controller(job, token, authorities), Controller(job, token, authorities))
        told.read()
        if not once:
            told.follow()
        return told
    from .traced import Traces

    return Traces(job, window_s)


def _print(picture: Picture, source: Source, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(picture.to_json()) + "\n")
    elif picture.empty:
        print_line(picture.trouble or source.nothing)
    else:
        from rich.console import Console

        columns = shutil.get_terminal_size().columns
        Console(width=columns, highlight=False, markup=False, emoji=False).print(picture.tables(columns, ONCE_LINKS))
    sys.stdout.flush()


def _follow(source: Source, every_s: float, as_json: bool) -> None:
    """Print one picture after another."""
    while True:
        _print(source.picture(), source, as_json)
        threading.Event().wait(every_s)


def _draw(source: Source, every_s: float) -> None:
    """Draw pictures in one place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            picture = source.picture()
            room = console.height - len(picture.collectives) - 12
            shown = Text(picture.trouble or source.nothing) if picture.empty else picture.tables(
                console.width, max(3, room)
            )  # fmt: skip
            live.update(shown, refresh=True)
            threading.Event().wait(every_s)

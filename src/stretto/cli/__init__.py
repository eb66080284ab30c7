"""The command line. It knows everything and is known by nothing.

A module a purpose; this one puts the commands together. What costs time to import is imported where
it is used, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .. import __version__
from ..model.errors import StrettoError
from .bounding import bound
from .exchange import export, import_, report
from .judging import show, simulate, verify
from .listing import planners, topologies
from .planning import compare, plan
from .replanning import replan
from .running import emulate, run
from .studying import study
from .tuning import tune

app = typer.Typer(
    name="stretto",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (topologies, planners, plan, replan, verify, simulate, run, emulate, show, bound, compare, tune,
                study, report, export):  # fmt: skip
    app.command()(command)
app.command("import")(import_)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stretto {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Plan, verify, bound and simulate collectives over networks that are not uniform."""


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except StrettoError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        sys.stderr.write("error: this needs more memory than there is; ask for less\n")
        sys.exit(2)
    except Exception as error:
        # a usage error of typer's, or of click's under its older versions
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "stretto")
        said = " ".join(error.format_message().split()).rstrip(".")
        sys.stderr.write(f"error: {command}: {said[:1].lower()}{said[1:]}; `{command} --help` says what there is\n")
        sys.exit(2)


def main() -> None:
    """The ``stretto`` command."""
    with _errors_in_one_line():
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="stretto", standalone_mode=False))

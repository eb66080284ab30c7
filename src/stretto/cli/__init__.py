"""The command line: it imports every other part, and no other part imports it.

This module puts the commands together and prints errors. Slow imports are made where they are used, so that ``--help``
answers at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .. import __version__
from ..model.errors import InputError, StrettoError, nearest
from .bounding import bound
from .compiling import warm
from .controlling import jobs, networks
from .exchange import export, import_, report
from .help import WIDTH, Group
from .interrupting import INTERRUPTED, interruptible, was_interrupted
from .judging import show, simulate, verify
from .listing import planners, topologies
from .measuring import measure
from .ordering import order
from .planning import compare, plan, replan
from .progress import shown
from .running import emulate, run
from .serving import serve
from .studying import study
from .tables import to_terminal
from .tree import Commands
from .tuning import tune
from .watching import watch

COMMANDS = Commands({
    "topologies": topologies, "planners": planners, "plan": plan, "replan": replan, "verify": verify,
    "simulate": simulate, "run": run, "emulate": emulate, "show": show, "bound": bound, "compare": compare,
    "tune": tune, "order": order, "measure": measure, "watch": watch, "serve": serve, "study": study,
    "report": report, "export": export, "warm": warm, "import": import_, "networks": networks, "jobs": jobs,
})  # fmt: skip


class Root(Group):
    """The command ``stretto``, with all others in it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = COMMANDS  # type: ignore[assignment]


app = typer.Typer(
    name="stretto",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)


_LIKE_FLAGS = (
    "shard", "demand", "chunks", "root", "effort", "engine", "seed", "library", "collective", "groups", "order",
    "machines", "gpu",
)  # fmt: skip
"""Arguments whose flags have their names."""

FLAGS = {
    "planner": ("-p", "--planner"),
    "size": ("--size", "--shard", "--shrink"),
    "option": ("--option",),
    "target": ("--for",),
    "time limit": ("--time-limit",),
    "at": ("--at",),
    "token": ("--token",),
    "host": ("--host",),
    "database": ("--database",),
    "controller": ("--controller",),
    **{name: (f"--{name}",) for name in _LIKE_FLAGS},
}
"""For each argument that errors of the library name, the flags by which a user may have given it."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stretto {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plan, verify, bound and simulate collectives over networks that are not uniform."""


def _with_flag(error: StrettoError, arguments: Sequence[str]) -> str:
    """The message of an error on one line, with the flag in place of the argument that the flag gave."""
    message, where = " ".join(str(error).split()), error.where if isinstance(error, InputError) else None
    if where is None:
        return message
    for flag in FLAGS.get(where.partition(" ")[0] if where.startswith("option ") else where, ()):
        if any(argument == flag or argument.startswith(f"{flag}=") for argument in arguments):
            return f"--{message}" if where.startswith("option ") else flag + message.removeprefix(where)
    return message


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except StrettoError as error:
        _say(_with_flag(error, sys.argv[1:]))
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError:
        _say("not enough memory for this request")
        sys.exit(2)
    except Exception as error:
        if was_interrupted():
            raise KeyboardInterrupt from None
        # a usage error of typer's, or of click's under its older versions
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(error.format_message() + "\n")
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", "stretto")
        _say(f"{command}: {_usage(error)}; see `{command} --help`")
        sys.exit(2)


def _usage(error: Any) -> str:
    """What is wrong with the words of a command, with the name that was meant."""
    message = " ".join(error.format_message().split()).rstrip(".")
    message = re.sub(r" ?\((Possible options|Did you mean).*$|[.;]? Did you mean .*$", "", message)
    missing = getattr(error, "param", None)
    if message.startswith("Missing argument") and missing is not None:
        return f"missing argument {missing.name.upper()}: {missing.help.rstrip('.')}"
    near = getattr(error, "possibilities", None) or ()
    if name := getattr(error, "option_name", None):
        hint = nearest(name, near, "")
    else:
        meant = re.fullmatch(r"No such command '(.*)'", message)
        hint = nearest(meant[1], error.ctx.command.commands) if meant else ""
    return f"{message[:1].lower()}{message[1:]}" + (f"; {hint}" if hint else "")


def _say(message: str) -> None:
    sys.stderr.write(to_terminal(f"error: {message}", sys.stderr) + "\n")


def main() -> None:
    """The ``stretto`` command."""
    # searches for unused cycles of objects are rare, and left out at the end: they would take 0.2 s of CPU
    gc.set_threshold(200_000, 5, 100)
    atexit.register(gc.freeze)
    # a message says what is wrong, not how NumPy came across it
    warnings.simplefilter("ignore", RuntimeWarning)
    with interruptible(), _errors_in_one_line(), shown(sys.argv[1:]):
        code = app(sys.argv[1:] or ["--help"], prog_name="stretto", standalone_mode=False)
        if code == INTERRUPTED:  # what newer versions of typer make of it
            raise KeyboardInterrupt
        sys.exit(code)

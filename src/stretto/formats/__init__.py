"""What plans are written to and read from. One file a format."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from ..errors import InputError
from ..timeline import Timeline


@dataclass(frozen=True)
class Exporter:
    """A format that a simulated plan can be written to: ``write(timeline, path)``, which may answer with notes."""

    name: str
    help: str
    write: Callable[[Timeline, str], Sequence[str] | None]
    aliases: tuple[str, ...] = ()


def exporters() -> dict[str, Exporter]:
    """The formats of ``stretto export --to``, by name and alias."""
    from . import crossconnect, msccl, native, table, trace

    known = (
        Exporter("parquet", "the plan, as stretto reads it", lambda t, path: native.write_parquet(t.plan, path)),
        Exporter("json", "the plan for people, as stretto reads it", lambda t, path: native.write_json(t.plan, path)),
        Exporter("trace", "Chrome trace events, for Perfetto", trace.write, ("perfetto", "chrome")),
        Exporter("csv", "a row a transfer, with simulated times", table.write),
        Exporter("cross-connects", "what each optical switch joins, and when, as JSON", crossconnect.write_json),
        Exporter("msccl", "MSCCL XML, for MSCCL's runtimes on GPUs", msccl.write, ("msccl-xml",)),
        Exporter("cross-connects-csv", "the same, a row a circuit made or broken", crossconnect.write_csv),
    )
    return {name: e for e in known for name in (e.name, *e.aliases)}


@contextmanager
def written_whole(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that appears under its name only when it is complete.

    Raises:
        InputError: it cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = None
    try:
        if os.path.isdir(path):
            raise InputError("is a folder", path)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        os.fchmod(descriptor, 0o666 & ~_umask())
        with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path) from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current

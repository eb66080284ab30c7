"""Formats that plans are written to and read from, one file each."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..model.errors import InputError, Unsupported
from ..model.plan import Plan
from ..model.targets import TARGETS
from ..model.timeline import Timeline
from ..model.topology import Topology

if TYPE_CHECKING:
    from .threads import Threads


@dataclass(frozen=True)
class Exporter:
    """A format that a simulated plan can be written to: ``write(timeline, path)``, which may return notes for the user.

    Attributes:
        sized: whether a file can say for which sizes it is meant: ``write(timeline, path, (least, greatest))``,
            full buffers in bytes.
        by_rank: whether a file can be written of some ranks only: ``write(timeline, path, ranks=...)``.
        ending: of its files.
        check: refuses a simulated plan that cannot be written, and writes nothing; for formats of a target
            (:mod:`stretto.model.targets`).
    """

    name: str
    help: str
    write: Callable[..., Sequence[str] | None]
    aliases: tuple[str, ...] = ()
    sized: bool = False
    by_rank: bool = False
    ending: str = "json"
    check: Callable[[Timeline], object] | None = None


def exporters() -> dict[str, Exporter]:
    """The formats of ``stretto export --to``, by name and alias."""
    from . import chakra, crossconnect, msccl, mscclpp, mscclpp_dsl, native, sonic_patches, table, trace

    known = (
        Exporter("parquet", "the plan, as stretto reads it", lambda t, path: native.write_parquet(t.plan, path),
                 ending="parquet"),
        Exporter("json", "the plan for people, as stretto reads it", lambda t, path: native.write_json(t.plan, path)),
        Exporter("trace", "Chrome trace events, for Perfetto", trace.write, ("perfetto", "chrome"),
                 by_rank=True),
        Exporter("csv", "a row a transfer, with simulated times", table.write, by_rank=True, ending="csv"),
        Exporter("cross-connects", "what each optical switch joins, and when, as JSON", crossconnect.write_json),
        Exporter("msccl", "MSCCL XML, for MSCCL's runtimes on GPUs", _naming("msccl", msccl.write), ("msccl-xml",),
                 sized=True, ending="xml", check=lambda t: msccl.write(t, os.devnull)),
        Exporter("mscclpp", "MSCCL++ execution plan, JSON", _naming("mscclpp", mscclpp.write), sized=True,
                 check=lambda t: mscclpp.write(t, os.devnull)),
        Exporter("mscclpp-dsl", "MSCCL++ program in its own language, Python",
                 _naming("mscclpp", mscclpp_dsl.write), sized=True, ending="py",
                 check=lambda t: mscclpp.write(t, os.devnull)),
        Exporter("chakra", "Chakra traces for ASTRA-sim, a file FILE.RANK.et a rank",
                 _naming("chakra", chakra.write), ("et",), by_rank=True, ending="chakra", check=chakra.check),
        Exporter("cross-connects-csv", "the same, a row a circuit made or broken", crossconnect.write_csv,
                 ending="csv"),
        Exporter("sonic-patches", "the same as JSON patches for optical switches that run SONiC", sonic_patches.write),
    )  # fmt: skip
    return {name: e for e in known for name in (e.name, *e.aliases)}


def _naming(target: str, write: Callable[..., Sequence[str] | None]) -> Callable[..., Sequence[str] | None]:
    """A format's function that writes; where it refuses a plan made for another target or none, it names its own."""

    def written(timeline: Timeline, path: str, *args: Any, **given: Any) -> Sequence[str] | None:
        try:
            return write(timeline, path, *args, **given)
        except Unsupported as refusal:
            plan, asked = timeline.plan, TARGETS[target]
            kinds = {c.kind for c in plan.workload.collectives}
            made = plan.meta.get("target")
            if made == target or not kinds <= {*asked.kinds} or (plan.topology.planes and not asked.planes):
                raise
            whose = f"; the plan was made for {made}" if made else ""
            raise Unsupported(f"{refusal}{whose}; plan for the target {target}") from None

    return written


class Size(NamedTuple):
    """The size of a collective, for files that do not say it: the full buffer or one rank's shard."""

    full_bytes: int | None
    shard_bytes: int | None


@dataclass(frozen=True)
class Importer:
    """A format that plans are read from: ``read(path, topology, size)``.

    Attributes:
        sized: whether files may say the size.
        threads: ``threads(path, topology)`` reads the program of a runtime as that runs it, at any size.
        topology: the spec of a topology for a file, where none is given; None if there is no such topology.
        collectives: of a file that does not say it; ``read`` takes one of them after the size.
    """

    name: str
    help: str
    read: Callable[..., Plan]
    sized: bool = False
    threads: Callable[[str, Topology], Threads] | None = None
    topology: Callable[[str], str] | None = None
    collectives: tuple[str, ...] = ()


def importers() -> dict[str, Importer]:
    """The formats of ``stretto import --from``, by name."""
    from . import chakra_in, msccl_in, mscclpp_in, mscclpp_threads, nccl_graph_in, teccl

    known = (
        Importer("chakra", "Chakra traces of sends and receipts, FILE for FILE.RANK.et", chakra_in.read, sized=True),
        Importer("msccl", "MSCCL XML, out of place or in place", msccl_in.read, threads=msccl_in.read_threads),
        Importer("mscclpp", "MSCCL++ execution plan, JSON", mscclpp_in.read, topology=mscclpp_in.default_topology,
                 threads=mscclpp_threads.read_threads),
        Importer(
            "nccl-graph",
            "NCCL's graphs (NCCL_GRAPH_DUMP_FILE): its rings",
            nccl_graph_in.read_rings,
            collectives=nccl_graph_in.COLLECTIVES[0],
        ),
        Importer(
            "nccl-graph-trees",
            "the same: its trees",
            nccl_graph_in.read_trees,
            collectives=nccl_graph_in.COLLECTIVES[1],
        ),
        Importer("teccl", "TE-CCL's schedule JSON, timed again", teccl.read),
        Importer("teccl-queued", "the same, with switches in which bytes queue", partial(teccl.read, queued=True)),
    )  # fmt: skip
    return {i.name: i for i in known}


def _is_special(path: str) -> bool:
    """Whether a path leads to a device, a pipe or a link: such a name is kept, and what it leads to is written."""
    return os.path.lexists(path) and not os.path.isdir(path) and not stat.S_ISREG(os.lstat(path).st_mode)


ENDINGS = frozenset(
    ("parquet", "json", "csv", "xml", "svg", "html", "htm", "py", "et", "graphml", "yml", "yaml", "png", "pdf")
)
"""Of file names, each of which promises a format."""
PLAN = ("parquet", "json")
PAGE = ("html", "htm", "svg")
"""The endings of plans, and of their pages and pictures."""


def likely_ending(ending: str, endings: Sequence[str]) -> str | None:
    """The one of ``endings`` for which a misspelt ending stands."""
    from difflib import get_close_matches

    like = [each for each in endings if each[:1] == ending[:1] and each != "htm"]
    return next(iter(get_close_matches(ending, like, 1, 0.65)), None) if len(ending) > 2 else None


def check_ending(path: str, endings: Sequence[str]) -> None:
    """Refuse the name of a file whose ending promises a format that is not written, or is almost one that is; any other
    name will do."""
    name, dot_ending = os.path.splitext(path)
    ending = dot_ending[1:].lower()
    if ending not in ENDINGS and (meant := likely_ending(ending, endings)):
        raise InputError(f"there is no ending {dot_ending!r}; did you mean {name}.{meant}?", path)
    if ending in ENDINGS and ending not in endings:
        written = " or ".join(f".{e}" for e in endings if e != "htm")
        more = "; `stretto export` writes other formats" if tuple(endings) == PLAN else ""
        raise InputError(f"what is written is {written}{more}", path)


def check_writable(path: str, endings: Sequence[str] = ()) -> None:
    """Check, before long work, that a file of that name can be written; InputError if not.

    Args:
        endings: those of the formats that it may have, where its name says that.
    """
    if endings:
        check_ending(path, endings)
    try:
        if os.path.isdir(path):
            raise InputError("is a folder", path)
        if _is_special(path):
            return
        tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))).close()
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path) from None


def make_folder(path: str, named: str | None = None) -> None:
    """Make a folder; InputError, which names the path or ``named``, if it cannot be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError("is a file or lies below one, and must be a folder", named or path) from None
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", named or path) from None


@contextmanager
def atomic_file(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that appears under its name only when it is complete; InputError if it cannot be written.

    A device, a pipe or a link, such as ``/dev/stdout``, is written to as it is.
    """
    encoding = None if "b" in mode else "utf-8"
    folder, name = os.path.split(os.path.abspath(path))
    temporary = None
    try:
        if _is_special(path):
            with open(path, mode, encoding=encoding) as file:
                yield file
            return
        check_writable(path)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        os.umask(umask := os.umask(0))  # the only way to read it
        os.fchmod(descriptor, 0o666 & ~umask)
        with os.fdopen(descriptor, mode, encoding=encoding) as file:
            yield file
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path) from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


@contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """A new folder that appears under its name only when it is complete; InputError if it cannot be made.

    Yields:
        the folder's temporary name, to write files into.
    """
    parent, name = os.path.split(os.path.abspath(path))
    temporary = None
    try:
        if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise InputError("is there already; name a new folder", path)
        temporary = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
        os.umask(umask := os.umask(0))  # the only way to read it
        os.chmod(temporary, 0o777 & ~umask)
        yield temporary
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

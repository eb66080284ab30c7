"""Programs as files that runtimes run: what one takes for a buffer, from the file that was written, read back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

from ..formats import Exporter, Importer, importers
from ..formats.threads import Threads, at_size, in_write_order
from ..model.errors import InputError, StrettoError
from ..model.timeline import Timeline
from ..model.topology import Topology
from ..simulate import simulate
from ..verify import verify


class BrokenPromise(StrettoError):
    """A program does not do what its row of the table says; names the row."""


def program_s(timeline: Timeline, format: Exporter) -> float | None:
    """Seconds that a runtime takes for a plan as a program of a format; None where nothing says how it runs that.

    Raises:
        Unsupported: the format cannot express the plan.
        BrokenPromise: the program, read back, does not do what the plan promises.
    """
    if runnable(format) is None:
        return None
    plan = timeline.plan
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program")
        format.write(timeline, path)
        try:
            threads = read_back(path, format, plan.topology)
        except InputError as error:
            raise BrokenPromise(f"the file for {format.name} {without(path, error)}") from None
    return run_s(threads, plan.workload.collectives[0].size_bytes)


@dataclass(frozen=True)
class Written:
    """A file that a runtime can run, read back.

    Attributes:
        timeline: of the plan that was written. text: the file, as bytes. notes: what the format could not keep.
        threads: the file as its runtime runs it.
    """

    timeline: Timeline
    text: bytes
    notes: tuple[str, ...]
    threads: Threads

    def run_s(self, size_bytes: int) -> float:
        """Seconds that the runtime takes for a full buffer of a size; infinite if it has too few bytes."""
        return self._run_s(size_bytes)

    @cached_property
    def _run_s(self) -> Callable[[int], float]:
        return cache(partial(run_s, self.threads))


def run_s(threads: Threads, size_bytes: int) -> float:
    """Seconds that a runtime takes for a program and a full buffer; infinite if it is too small for the chunks."""
    try:
        run = at_size(threads, size_bytes)
    except InputError:
        return float("inf")
    return simulate(run.plan, follows=run.follows).completion_s


def runnable(format: Exporter) -> Importer | None:
    """How files of a format are read back as their runtime runs them; None where nothing says how it does."""
    found = importers().get(format.name)
    return found if found is not None and found.threads is not None else None


def read_back(path: str, format: Exporter, topology: Topology) -> Threads:
    """A written file as its runtime runs it.

    Raises:
        InputError: the file is not what the format asks for, or does not do what its collective promises.
    """
    reader = runnable(format)
    assert reader is not None and reader.threads is not None
    threads = reader.threads(path, topology)
    finding = None if threads.refereed else verify(in_write_order(threads)).finding
    if finding is not None:
        raise InputError(f"is not correct: {finding.message}", path)
    return threads


def without(path: str, error: InputError) -> str:
    """The message of an error about a file that is gone when somebody reads it, without the file's name."""
    return str(error).removeprefix(path).lstrip(",: ")

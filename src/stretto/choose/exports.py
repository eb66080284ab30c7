"""The programs of a table of tuning: files for a runtime, each for the sizes for which it keeps what the table says.

A program is planned for one size, and its runtime makes its chunks larger or smaller. So what it takes at another size
is simulated as the runtime runs it (:mod:`stretto.formats.threads`), from the file that was written, read back. A row
of the table becomes as many files as it takes to stay within 5 % of what the row's planner takes at each size
(:mod:`.spans`).
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..formats import Exporter, atomic_file, make_folder
from ..model.errors import InputError, StrettoError, Unsupported
from ..model.plan import Plan
from ..model.progress import Progress
from ..model.targets import TARGETS, find_target
from ..model.timeline import Timeline
from ..model.topology import Topology
from ..model.units import format_size, format_time
from ..simulate import simulate
from .programs import BrokenPromise, Written, read_back, runnable, without
from .spans import TOLERANCE, Probe, Span, spans
from .tuning import Range, Tuning, plan_one

LARGEST_BYTES = 16 << 30
"""The largest full buffer for which a program is written: what communication benchmarks end with."""

LEAST_BYTES = 1 << 10
"""The least full buffer at which programs are compared; below it bytes take no time worth mentioning."""

ALIGNMENT_BYTES = 16
"""Bytes that a chunk has at least where programs are compared."""


def write_table(
    table: Tuning, topology: Topology, format: Exporter, folder: str, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Write the programs of a table and ``index.json`` into a folder, all of them or, on an error, none.

    Files of an earlier export, which its ``index.json`` names, are removed.

    Args:
        progress: told which row of the table is being written.
    Returns:
        the entries of ``index.json``, see docs/reference/tuning.md.
    Raises:
        InputError: the table is for another target.
        BrokenPromise: a program is not correct, or it takes 5 % longer than the table says.
        Unsupported: the format can express no plan of the table.
    """
    if table.target not in (None, format.name) and runnable(format) is not None:
        raise InputError(f"was made for {table.target}; make one for {format.name}, or for no target", "table")
    new = not os.path.exists(folder)
    make_folder(folder)
    try:
        return _write_all(table, topology, format, folder, progress)
    except BaseException:
        if new:
            with suppress(OSError):
                os.rmdir(folder)
        raise


def _write_all(
    table: Tuning, topology: Topology, format: Exporter, folder: str, progress: Progress | None
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix=".export.", dir=folder) as made:
        for number, row in enumerate(table.ranges):
            writer = _Row(table, row, topology, format, made)
            if progress is not None:
                progress(number, len(table.ranges), writer.title)
            entries += writer.write()
        if all(entry["file"] is None for entry in entries):
            raise Unsupported(f"{format.name} can hold none of its plans: {entries[0]['failed']}")
        text = json.dumps({"topology": table.spec, "files": entries}, indent=1) + "\n"
        files = {entry["file"] for entry in entries} - {None}
        earlier = _earlier_files(folder) - files
        for file in files:
            os.replace(os.path.join(made, file), os.path.join(folder, file))
        with atomic_file(os.path.join(folder, "index.json")) as index:
            index.write(text)
        for file in earlier:  # runtimes read all files of a folder
            Path(folder, file).unlink(missing_ok=True)
    return entries


def _earlier_files(folder: str) -> set[str]:
    """The files that the index of an earlier export into a folder names."""
    found = set()
    with suppress(OSError, ValueError, KeyError, TypeError):
        for entry in json.loads(Path(folder, "index.json").read_text(encoding="utf-8"))["files"]:
            if entry["file"] is not None and entry["file"] == os.path.basename(entry["file"]):
                found.add(entry["file"])
    return found


class _Row:
    """A row of a table, being written into a folder."""

    def __init__(self, table: Tuning, row: Range, topology: Topology, format: Exporter, folder: str) -> None:
        self.table, self.row, self.topology, self.format, self.folder = table, row, topology, format, folder
        self.plan = cache(self._plan)

    @property
    def title(self) -> str:
        """The row as messages name it."""
        upto = "on" if self.row.to_bytes is None else f"to {format_size(self.row.to_bytes)}"
        return f"{self.row.collective} from {format_size(self.row.from_bytes)} {upto}, {self.row.planner}"

    def write(self) -> list[dict[str, Any]]:
        """Write the row's files; their entries of the index."""
        if runnable(self.format) is None:
            return [self._one()]
        pieces = self.plan(self.row.middle_bytes).workload.collectives[0].piece_count
        least = max(LEAST_BYTES, ALIGNMENT_BYTES * pieces * self.row.chunks)
        largest = min(LARGEST_BYTES, find_target(self.format.name).buffer_bytes // 2)
        low, high = max(self.row.from_bytes, least), self.row.to_bytes or largest + 1
        if low >= min(high, largest):
            return [self._entry(None, self.row.from_bytes, self.row.to_bytes) | {
                "failed": f"{self.format.name} gets programs for {format_size(least)} to {format_size(largest)}"
            }]  # fmt: skip
        found = spans(low, min(high, largest), cache(self._probe))
        ends = [span.high for span in found[:-1]] + [min(high, largest + 1)]
        begins = [self.row.from_bytes, *ends[:-1]]
        return list(map(self._span, found, begins, ends))

    def _plan(self, size_bytes: int) -> Plan:
        return self.table.plan_of(self.row, self.topology, size_bytes)

    def _entry(self, file: str | None, begin: int, end: int | None) -> dict[str, Any]:
        row = self.row
        return {
            "file": file, "collective": row.collective, "from_bytes": begin, "to_bytes": end, "planner": row.planner,
            "chunks": row.chunks,
        }  # fmt: skip

    def _one(self) -> dict[str, Any]:
        """One file for the row, of a format that holds a plan for one size and no program."""
        begin, end, size = self.row.from_bytes, self.row.to_bytes, self.row.middle_bytes
        name = f"{self.row.collective}-{begin}.{self.format.ending}"
        try:
            notes = self.format.write(simulate(self.plan(size)), os.path.join(self.folder, name))
        except Unsupported as error:
            return self._entry(None, begin, end) | {"failed": str(error)}
        return self._entry(name, begin, end) | {"notes": list(notes or ()), "planned_bytes": size}

    def _probe(self, size_bytes: int) -> Probe:
        """What the row's planner takes for a size, and the program of it: of a plan for the format's target, or of the
        plan itself if that is quicker."""
        program, refusal = self._best(size_bytes)
        if self.table.target is not None and program is not None:
            return Probe(size_bytes, program.run_s(size_bytes), program)
        return Probe(size_bytes, simulate(self.plan(size_bytes)).completion_s, program, refusal)

    def _best(self, size_bytes: int) -> tuple[Written | None, str | None]:
        """The quickest program of the row's planner for a size; or why there is none."""
        makers: list[Callable[[int], Plan]] = [self.plan]
        if self.table.target is None and self.format.name in TARGETS:
            makers.insert(0, self._plan_for_target)
        found: list[Written] = []
        refusals: list[str] = []
        for make in makers:
            try:
                found.append(self._written(simulate(make(size_bytes)), "probe", None))
            except BrokenPromise:
                raise
            except StrettoError as error:  # a runtime then does what it does without a table
                refusals.append(str(error))
            else:
                if math.isinf(found[-1].run_s(size_bytes)):
                    found.pop()
                    refusals.append(f"its {self.format.name} program does not take calls of {format_size(size_bytes)}")
                elif found[-1].run_s(size_bytes) <= (1 + TOLERANCE) * simulate(self.plan(size_bytes)).completion_s:
                    break
        if not found:
            return None, refusals[0]
        return min(found, key=lambda program: program.run_s(size_bytes)), None

    def _plan_for_target(self, size_bytes: int) -> Plan:
        collective = self.table.collective(self.row, self.topology, size_bytes)
        target = find_target(self.format.name)
        return plan_one(self.row.planner, self.topology, collective, self.table.seed, target=target)

    def _written(self, timeline: Timeline, name: str, sizes: tuple[int, int] | None) -> Written:
        """A plan as a file, read back.

        Raises:
            Unsupported: the format cannot express it. BrokenPromise: the file is not right.
        """
        path = os.path.join(self.folder, name)
        given = (sizes,) if sizes is not None and self.format.sized else ()
        notes = self.format.write(timeline, path, *given)
        try:
            threads = read_back(path, self.format, timeline.plan.topology)
        except InputError as error:
            raise BrokenPromise(f"{self.title}: the file for {self.format.name} {without(path, error)}") from None
        return Written(timeline, Path(path).read_bytes(), tuple(notes or ()), threads)

    def _span(self, span: Span, begin: int, end: int) -> dict[str, Any]:
        """Write the file of a span, for sizes below ``end``, and hold what it takes at both ends against the table."""
        if span.made is None:
            if span.broken is not None:
                self._break(span.broken, span.broken.program, span.broken.size_bytes)
            above = self.row.to_bytes is None and end > span.high  # what is larger is left out, too
            return self._entry(None, begin, None if above else end) | {"failed": span.refusal}
        planned = span.made.program
        assert isinstance(planned, Written)
        name = f"{self.row.collective}-{begin}.{self.format.ending}"
        program = self._written(planned.timeline, name, (begin, end - 1))
        ends = []
        for probe in span.probes:
            size = min(probe.size_bytes, end - 1)
            if program.run_s(size) > (1 + TOLERANCE) * probe.promised_s:
                self._break(probe, program, size)
            if probe in (span.probes[0], span.probes[-1]):
                times = {"program_s": program.run_s(size), "table_s": probe.promised_s}
                ends.append({"size_bytes": probe.size_bytes} | times)
        return self._entry(name, begin, end) | {
            "notes": list(program.notes), "planned_bytes": span.made.size_bytes,
            "plan_digest": planned.timeline.plan.digest(), "digest": sha256(program.text).hexdigest(), "ends": ends,
        }  # fmt: skip

    def _break(self, probe: Probe, program: Any, size_bytes: int) -> None:
        takes_s, size = program.run_s(size_bytes), format_size(size_bytes)
        raise BrokenPromise(
            f"{self.title}: for {size} the program for {self.format.name} takes {format_time(takes_s)}, "
            f"{100 * (takes_s / probe.promised_s - 1):.1f} % more than the {format_time(probe.promised_s)} of the table"
        )

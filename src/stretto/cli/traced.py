"""A running job as the lines show that its ranks write with ``STRETTO_TRACE`` (docs: watching)."""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model.errors import InputError
from .watched import Collective, Link, Picture

LAST_CALLS = 1 << 10
"""Lines of a rank that are kept at most, for the window."""


@dataclass
class _Rank:
    """What one rank has written.

    Attributes:
        read: bytes of its file that were read.
        lines: the last collectives.
        calls: how many there were, by kind and size.
    """

    read: int = 0
    lines: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=LAST_CALLS))
    calls: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))


class Traces:
    """Follows the traces of a job.

    Args:
        path: the folder of the ranks' files, or the file of one rank.
        window_s: seconds up to the last collective over which bytes are counted.
    """

    def __init__(self, path: str, window_s: float) -> None:
        self._path, self._window_s = Path(path), window_s
        self._ranks: dict[Path, _Rank] = {}

    @property
    def nothing(self) -> str:
        """What to say as long as nothing is there."""
        folder = self._path.parent if self._path.suffix == ".jsonl" else self._path
        return f"no collective has ended yet; processes that are started with STRETTO_TRACE={folder} write here"

    def picture(self) -> Picture:
        """What is known now; reads what was written since the last call."""
        files = sorted(self._path.glob("rank*.jsonl")) if self._path.is_dir() else [self._path]
        for file in files:
            if file.exists():
                self._read(file)
        ranks = [rank for rank in self._ranks.values() if rank.lines]
        last_at = max((rank.lines[-1]["at"] for rank in ranks), default=0.0)
        recent = [line for rank in ranks for line in rank.lines if line["at"] > last_at - self._window_s]
        return Picture([*_links(recent)], [*_collectives(ranks)], last_at or None)

    def _read(self, file: Path) -> None:
        """Take the whole lines that were added to a file."""
        rank = self._ranks.setdefault(file, _Rank())
        try:
            with open(file, "rb") as opened:
                if os.fstat(opened.fileno()).st_size < rank.read:  # it was begun anew
                    rank = self._ranks[file] = _Rank()
                opened.seek(rank.read)
                text = opened.read()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", str(file)) from None
        whole = text[: text.rfind(b"\n") + 1]
        rank.read += len(whole)
        for number, line in enumerate(whole.splitlines(), 1):
            record = _record(line)
            if record is None:
                raise InputError(f"line {number} from byte {rank.read - len(whole)} on is none of a trace", str(file))
            rank.lines.append(record)
            rank.calls[record["kind"], record["size_bytes"]] += 1


def _record(line: bytes) -> Mapping[str, Any] | None:
    """The collective of a line; None if the line is not of a trace, or of one that has no bytes."""
    try:
        record = json.loads(line)
        needed = {"kind", "rank", "at", "began_s", "ended_s", "size_bytes", "arrived", "arrived_bytes", "planned_Bps"}
        return record if needed <= record.keys() else None
    except (ValueError, AttributeError):
        return None


def _links(lines: Iterable[Mapping[str, Any]]) -> Iterator[Link]:
    """What each pair of ranks gave, as its receiver saw it."""
    carried: dict[tuple[int, int], int] = defaultdict(int)
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    planned: dict[tuple[int, int], float] = {}
    first_s: dict[int, float] = {}
    last_s: dict[int, float] = {}
    for line in lines:
        sink = line["rank"]
        first_s[sink] = min(first_s.get(sink, line["began_s"]), line["began_s"])
        last_s[sink] = max(last_s.get(sink, line["ended_s"]), line["ended_s"])
        for source, size in line["arrived_bytes"].items():
            carried[int(source), sink] += size
        for _, source, begin_s, end_s in line["arrived"]:
            spans[source, sink].append((begin_s, end_s))
        planned |= {(int(source), sink): rate for source, rate in line["planned_Bps"].items()}
    for (source, sink), size in sorted(carried.items()):
        busy_s, over_s = _busy_s(spans[source, sink]), last_s[sink] - first_s[sink]
        yield Link(
            f"{source}", f"{sink}", size / over_s if over_s else 0.0, size / busy_s if busy_s else None,
            planned.get((source, sink)), None,
        )  # fmt: skip


def _busy_s(spans: list[tuple[float, float]]) -> float:
    """Seconds within at least one of the spans."""
    busy_s, until_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        busy_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return busy_s


def _collectives(ranks: Iterable[_Rank]) -> Iterator[Collective]:
    """Each kind and size: how long the last call took, at the rank where it took longest."""
    last: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    calls: dict[tuple[str, int], int] = defaultdict(int)
    for rank in ranks:
        newest = {(line["kind"], line["size_bytes"]): line for line in rank.lines}
        for key, line in newest.items():
            last[key].append(line)
            calls[key] = max(calls[key], rank.calls[key])
    for (kind, size), lines in sorted(last.items()):
        took_s = max(line["ended_s"] - line["began_s"] for line in lines)
        yield Collective("", kind, size, calls[kind, size], took_s, lines[0].get("planned_s"), None)

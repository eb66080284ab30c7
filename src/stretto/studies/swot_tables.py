"""The tables of SWOT's study: reductions against the better baseline, the what-if, break-even sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from ..model.units import format_size, format_time
from .model import Row, Table, grouped

SCHEMES = ("swot", "one-shot", "strawman-icr")
BreakEven = Callable[[Row, float, float], float]


def tables(rows: Sequence[Row], break_even: BreakEven) -> list[Table]:
    """All tables; ``break_even(row, low, high)`` finds a size between two, bytes."""
    ours = [r for r in rows if r["scheme"] == "swot"]
    seventh = [r for r in ours if any(figure.startswith("7") for figure in r["figures"])]
    return [
        _against_best_baseline(seventh),
        *_what_if([r for r in ours if "what-if" in r["figures"]]),
        _break_evens([r for r in seventh if r["one_shot_s"] is not None], break_even),
    ]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _where(row: Row) -> str:
    return f"{row['ranks']}/{row['planes']}, {format_size(row['size_bytes'])}"


def _best(rows: Iterable[Row], column: str) -> Row | None:
    return max((r for r in rows if r.get(column) is not None), key=lambda r: float(r[column]), default=None)


def _by_algorithm(rows: Sequence[Row]) -> Iterable[tuple[Any, list[Row]]]:
    return grouped(rows, lambda r: (r["algorithm"], r["collective"])).items()


def _against_best_baseline(rows: Sequence[Row]) -> Table:
    """For each algorithm the mean and the largest reduction against the better of one-shot and strawman."""
    table: list[tuple[str, ...]] = []
    for key, own in _by_algorithm(rows):
        best = _best(own, "less_than_better")
        if best is not None:
            seconds = [best[column] for column in ("completion_s", "one_shot_s", "strawman_s")]
            times = ["" if t is None else format_time(t) for t in seconds]
            parts = [r["less_than_better"] for r in own if r.get("less_than_better") is not None]
            cells = f"{_percent(fmean(parts))} of {len(parts)}"
            table.append((*key, cells, _percent(best["less_than_better"]), _where(best), *times))
    columns = ("algorithm", "collective", "mean of cells", "at most", "at (ranks/planes)", *SCHEMES)
    return Table("Reduction against the better of one-shot and strawman-ICR (figure 7)", columns, table)


def _what_if(rows: Sequence[Row]) -> Iterable[Table]:
    """Section 4.3: completion over planes and reconfiguration times, one table for each algorithm."""
    for (algorithm, collective), own in _by_algorithm(rows):
        texts = {
            (r["planes"], r["turn_s"]): f"{format_time(r['completion_s'])} (-{_percent(r['less_than_strawman'])})"
            for r in own
        }
        planes, turns = (sorted({key[i] for key in texts}) for i in (0, 1))
        what = f"{algorithm} {collective} of {format_size(rows[0]['size_bytes'])}, {rows[0]['ranks']} ranks"
        yield Table(
            f"What if: {what}; completion (less than strawman-ICR)",
            ("planes", *(f"turn {format_time(t)}" for t in turns)),
            [(str(k), *(texts.get((k, t), "") for t in turns)) for k in planes],
        )


def _break_evens(rows: Sequence[Row], break_even: BreakEven) -> Table:
    """The sizes below which the best schedule turns no plane, for algorithms that one-shot can serve."""
    table: list[tuple[str, ...]] = []
    for key, own in grouped(rows, lambda r: (r["algorithm"], r["collective"], r["topology"])).items():
        pays = {r["size_bytes"]: r["completion_s"] < r["one_shot_s"] * (1 - 1e-5) for r in own}
        first = min((size for size, yes in pays.items() if yes), default=None)
        below = max((size for size in pays if first is not None and size < first), default=None)
        if first is None:
            words = f"above {format_size(max(pays))}"
        elif below is None:
            words = f"below {format_size(first)}"
        else:
            words = f"{break_even(own[0], below, first) / 1e6:.2g} MB"
        table.append((*key, words))
    return Table("Below this size turning does not pay", ("algorithm", "collective", "topology", "size"), table)

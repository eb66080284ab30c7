"""The claims of the papers: what they print, how a study's rows measure it, what ours is, and a verdict.

A claim is an object under ``claims`` in ``published/*.json`` (docs/studies.md has its form). Its measure is an
expression over rows: conditions that rows meet, a column of theirs, the rows that they are compared with, and how many
values become one. ``ours``, ``at`` and ``verdict`` stand in the file as ``benchmarks/claims.py`` wrote them;
:func:`claims_of_run` computes them again from the rows of a run and says whether they still agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isclose, log10
from statistics import mean, median
from typing import Any, NamedTuple

from ..model.units import format_size, format_time
from .cell import request_columns
from .model import Cell, Row, Study, grouped

Claim = Mapping[str, Any]
Ours = float | list[Any]

KEYS = ("id", "section", "claim", "printed", "value", "unit", "measure", "better", "tolerance", "fast", "ours", "at",
        "verdict", "because")  # fmt: skip
"""The keys of a claim, in the order of the file; all but id, section, claim, printed and verdict may be left out."""

MEASURE = ("rows", "value", "over", "as", "take", "within", "order", "rises", "falls", "lines", "by")
UNITS = ("s", "%", "x", "GB/s", "")
VERDICTS = ("same", "better", "differs", "unknown")

TOLERANCE = 0.02
"""By how much, relative, a number may differ from the printed one and still be the same."""

REPEATS = 1e-3
"""By how much, relative, a number may differ from the file's: other versions of libraries may round otherwise."""

CLOCKS = ("planning_s", "planning_cpu_s")
"""Columns that a clock measured: such numbers are powers of ten, here and in the file."""

ALIKE = ("scheme", "topology", "where", "collective", "size_bytes", "chunks", "collectives", "varying")
"""The columns of a request; rows are compared where all of them agree but those that the measure changes."""

COMPARED: dict[str, Callable[[float, float], float]] = {
    "ratio": lambda a, b: a / b,
    "speedup": lambda a, b: b / a,
    "less": lambda a, b: 1 - a / b,
    "more": lambda a, b: a / b - 1,
    "gain": lambda a, b: b / a - 1,
    "difference": lambda a, b: a - b,
}
TAKEN: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "median": median,
    "spread": lambda values: max(values) / min(values),
}


class Found(NamedTuple):
    """A claim in the rows of a run."""

    claim: Claim
    ours: Ours | None  # None if the run has none of its cells
    at: str  # the request of an extreme value
    whole: bool  # whether the run has all cells that the claim is about

    @property
    def verdict(self) -> str:
        return verdict_of(self.claim, self.ours)

    @property
    def agrees(self) -> bool:
        """Whether the run gives what the file says; true if the run cannot tell."""
        if not self.whole or self.ours is None:
            return True
        known = self.claim.get("ours")
        return known is not None and _agree(self.claim, self.ours, known)


def claims_of_run(study: Study, rows: Sequence[Row]) -> list[Found]:
    """Every claim of a study, measured in the rows of a run."""
    cell_order = {request_of(request_columns(cell)): i for i, cell in enumerate(study.cells)}
    requests = {request_of(row) for row in rows}
    rows = sorted(rows, key=lambda row: cell_order.get(request_of(row), len(cell_order)))
    rows += published_rows(study)
    found = []
    for claim in study.claims:
        cells = cells_of(claim, study)
        here = [request_of(request_columns(c)) in requests for c in cells]
        ours, at = measured(claim["measure"], rows) if any(here) else (None, "")
        found.append(Found(claim, ours, at, bool(cells) and all(here)))
    return found


def published_rows(study: Study) -> list[Row]:
    """The published results of a study as rows to compare with: of a scheme ``taccl`` from a source ``shipped`` the
    rows' scheme is "taccl, shipped"; ``completion_s`` is the schedule's own time, ``planning_cpu_s`` the solver's."""
    rows = []
    for source in study.published.get("sources", ()):
        for result in study.published.get(source, ()):
            alike = {"where": result.get("topology", ""), "collective": "allgather", "chunks": 1} | result
            times = {"completion_s": result.get("reported_s"), "planning_cpu_s": result.get("solver_s")}
            rows.append(alike | times | {"scheme": f"{result['scheme']}, {source}"})
    return rows


def claim_columns(found: Found) -> dict[str, Any]:
    """A claim of a run as plain data: what is printed, ours in this run and in the file, and both verdicts."""
    claim = found.claim
    texts = {key: claim.get(key, "") for key in ("id", "section", "claim", "printed", "because")}
    return texts | {
        "ours": found.ours, "ours_text": _ours_text(found), "verdict": _verdict_text(found), "whole": found.whole,
        "agrees": found.agrees, "file_ours": claim.get("ours"), "file_verdict": claim["verdict"],
    }  # fmt: skip


TABLE = ("section", "claim", "printed", "ours", "verdict", "because")


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table of a run's claims as text, see :data:`TABLE`."""
    return [(c["section"], c["claim"], c["printed"], c["ours_text"], c["verdict"], c["because"]) for c in claims]


def _ours_text(found: Found) -> str:
    if "measure" not in found.claim:
        return ""
    if found.ours is None:
        return "not in this run"
    return shown(found.claim, found.ours, found.at) + ("" if found.whole else "; of some of the cells")


def _verdict_text(found: Found) -> str:
    if "measure" in found.claim and found.ours is None:
        return ""
    documented = shown(found.claim, found.claim.get("ours")) or "nothing"
    return found.verdict + ("" if found.agrees else f" (documented: {documented})")


# --- which cells --------------------------------------------------------------------------------


def cells_of(claim: Claim, study: Study) -> list[Cell]:
    """The cells of a study that a claim is measured on, in the study's order."""
    if "measure" not in claim:
        return []
    measure = claim["measure"]
    wanted = [measure["rows"]]
    if "over" in measure:
        wanted.append(measure["rows"] | measure["over"])
    if "order" in measure:
        wanted = [measure["rows"] | {"scheme": measure["order"]}]
    return [c for c in study.cells if any(_meets_all(request_columns(c), conditions) for conditions in wanted)]


def with_claimed_cells(study: Study, claims: Sequence[Claim] | None = None) -> Study:
    """The study with only those cells on which some claims, by default all of its own, are measured."""
    wanted = {id(cell) for claim in (study.claims if claims is None else claims) for cell in cells_of(claim, study)}
    return replace(study, cells=[cell for cell in study.cells if id(cell) in wanted])


def command_of(claim: Claim, study: Study) -> str:
    """The command that measures a claim; empty if nothing does."""
    cells = cells_of(claim, study)
    flags = ["--full"] * any(c.why_full for c in cells) + ["--emulate"] * any(c.emulated for c in cells)
    return " ".join(["stretto study", study.name, *flags]) if cells else ""


def request_of(row: Row) -> tuple[str, ...]:
    """What tells the row of one cell from those of the others."""
    return tuple(str(row.get(column)) for column in (*ALIKE, "planner", "options", "figures"))


# --- measuring ----------------------------------------------------------------------------------


def measured(measure: Mapping[str, Any], rows: Sequence[Row]) -> tuple[Ours | None, str]:
    """The value of a measure, None if no row has one, and the request in which an extreme value occurs.

    A count is a list of two numbers: how many values, lines or points hold, and how many there are.
    """
    if "order" in measure:
        return _order(measure, rows), ""
    values = _values(measure, rows)
    if not values:
        return None, ""
    numbers = [value for value, _ in values]
    if "within" in measure:
        least, most = measure["within"]
        inside = [(least is None or v >= least) and (most is None or v <= most) for v in numbers]
        return [sum(inside), len(inside)], ""
    if "rises" in measure or "falls" in measure:
        return _trend(measure, values), ""
    take = measure.get("take", "only")
    if take == "each":
        return numbers, ""
    if take in ("min", "max"):
        extreme, row = (min if take == "min" else max)(values, key=lambda pair: pair[0])
        return extreme, f"{row['where']}, {format_size(row['size_bytes'])}"
    if take == "only":
        if len(numbers) > 1:
            raise ValueError(f"{len(numbers)} rows meet {measure['rows']}, where the claim is about one")
        return numbers[0], ""
    return TAKEN[take](numbers), ""


def is_count(measure: Mapping[str, Any]) -> bool:
    """Whether a measure counts."""
    return any(key in measure for key in ("within", "order", "rises", "falls"))


def _values(measure: Mapping[str, Any], rows: Sequence[Row]) -> list[tuple[float, Row]]:
    """The values of a measure with their rows, before they become one."""
    key = measure.get("value", "completion_s")
    own = [(_column(row, key), row) for row in rows if _meets_all(row, measure["rows"])]
    if "over" not in measure:
        return [(value, row) for value, row in own if value is not None]
    changed = measure["over"]
    others = (row for row in rows if _meets_all(row, measure["rows"] | changed))
    by_request = grouped(others, lambda row: _alike(row, changed))
    compare = COMPARED[measure.get("as", "ratio")]
    values = []
    for value, row in own:
        bases = [_column(other, key) for other in by_request.get(_alike(row, changed), ())]
        base = min(_numbers(bases), default=None)
        if value is not None and base is not None:
            values.append((compare(value, base), row))
    return values


def _order(measure: Mapping[str, Any], rows: Sequence[Row]) -> list[int] | None:
    """At how many points the schemes come in the measure's order, the slowest first, and the number of points."""
    order, key = measure["order"], measure.get("value", "completion_s")
    shown_rows = (row for row in rows if _meets_all(row, measure["rows"] | {"scheme": order}))
    points = grouped(shown_rows, lambda row: _alike(row, ("scheme",))).values()
    of_scheme = [{row["scheme"]: _column(row, key) for row in point} for point in points]
    lines = [[point.get(scheme) for scheme in order] for point in of_scheme]
    held = [
        _monotone(whole, False, measure.get("by", 0.0)) for line in lines if len(whole := _numbers(line)) == len(order)
    ]
    return [sum(held), len(held)] if held else None


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _trend(measure: Mapping[str, Any], values: Sequence[tuple[float, Row]]) -> list[int] | None:
    """Along how many lines the values rise or fall, and the number of lines."""
    along = measure.get("rises") or measure["falls"]
    columns = measure.get("lines", [c for c in ALIKE if c not in _changed([along])])
    lines = grouped(({"value": v} | row for v, row in values), lambda r: str([r.get(c) for c in columns])).values()
    held = []
    for line in lines:
        ordered = [row["value"] for row in sorted(line, key=lambda row: float(row[along]))]
        if len(ordered) > 1:
            held.append(_monotone(ordered, "rises" in measure, measure.get("by", 0.0)))
    return [sum(held), len(held)] if held else None


def _monotone(values: Sequence[float], rises: bool, slack: float) -> bool:
    ordered = values if rises else values[::-1]
    return all(b >= a - slack * abs(a) - 1e-9 * abs(a) for a, b in pairwise(ordered))


def _column(row: Row, key: str) -> float | None:
    """A column of a row, or a column over another; None if the row has no such value."""
    if key == "failed":
        return float("failed" in row)
    name, _, under = key.partition(" / ")
    value, divisor = row.get(name), row.get(under) if under else 1.0
    return None if value is None or not divisor else value / divisor


def _changed(columns: Iterable[str]) -> set[str]:
    """Those columns and ``where``, which says a part of them in words."""
    own = set(columns)
    return own | {"where"} if own & {"topology", "collectives", "varying"} else own


def _alike(row: Row, changed: Iterable[str]) -> str:
    without = _changed(changed)
    return str([row.get(column) for column in ALIKE if column not in without])


def _meets_all(row: Row, conditions: Mapping[str, Any]) -> bool:
    return all(_meets(row.get(column), wanted) for column, wanted in conditions.items())


def _meets(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, one of a list, or between ``least`` and ``most``; of a list, any value."""
    if isinstance(wanted, list):
        return any(_meets(found, one) for one in wanted)
    if isinstance(found, list | tuple):
        return any(_meets(one, wanted) for one in found)
    if isinstance(wanted, Mapping):
        return found is not None and wanted.get("least", found) <= found <= wanted.get("most", found)
    return bool(found == wanted)


# --- judging ------------------------------------------------------------------------------------


def verdict_of(claim: Claim, ours: Ours | None) -> str:
    """What the number says of the claim: same, better, differs, or unknown if there is none, or not all of them."""
    printed = claim.get("value")
    if ours is None or not _as_many(ours, printed):
        return "unknown"
    if is_count(claim["measure"]):
        assert isinstance(ours, list)
        share = ours[0] / ours[1]
        claimed = 1.0 if printed is None else printed[0] / printed[1]
        return _judge(share, claimed, claim.get("better", ""), 1e-9, False)
    pairs = _pairs(ours, printed)
    how = claim.get("better", ""), claim.get("tolerance", TOLERANCE), is_clock(claim)
    verdicts = {_judge(a, b, *how) for a, b in pairs}
    return next(v for v in ("differs", "better", "same") if v in verdicts)


def _as_many(ours: Ours, others: Any) -> bool:
    """Whether there is a number for each of a list; a run may lack some of a claim's cells."""
    return not (isinstance(ours, list) and isinstance(others, list)) or len(ours) == len(others)


def _pairs(ours: Ours, others: Any) -> list[tuple[Any, Any]]:
    """A number beside another, or each of a list beside each of another."""
    return list(zip(ours, others, strict=True)) if isinstance(ours, list) else [(ours, others)]


def _judge(ours: float, printed: Any, better: str, tolerance: float, clock: bool) -> str:
    span = printed if isinstance(printed, Mapping) else {"least": printed, "most": printed}
    low, high = (span.get(end, side) for end, side in (("least", float("-inf")), ("most", float("inf"))))
    if clock:
        ours = decade(ours)
        low, high = (decade(x) if 0 < x < float("inf") else x for x in (low, high))
        tolerance = 1e-9
    if low - tolerance * abs(low) <= ours <= high + tolerance * abs(high):
        return "same"
    return "better" if better == ("less" if ours < low else "more") else "differs"


def is_clock(claim: Claim) -> bool:
    """Whether a claim is about what a clock measured, so that its number is an order of magnitude."""
    return any(name in CLOCKS for name in claim["measure"].get("value", "").split(" / "))


def decade(value: float) -> float:
    """The nearest power of ten."""
    return float(10.0 ** round(log10(value)))


def kept(claim: Claim, ours: Ours | None) -> Ours | None:
    """A number as the file keeps it: six digits, a power of ten if a clock measured it."""
    if ours is None or is_count(claim["measure"]):
        return ours
    if isinstance(ours, list):
        return [kept(claim, one) for one in ours]
    return decade(ours) if is_clock(claim) else float(f"{ours:.6g}")


def _agree(claim: Claim, ours: Ours, known: Ours) -> bool:
    """Whether a number is the file's: counts exactly, what a clock measured within a factor of about ten."""
    if is_count(claim["measure"]):
        return ours == known
    if not _as_many(ours, known):
        return False
    pairs = _pairs(ours, known)
    if is_clock(claim):
        return all(abs(log10(decade(a) / b)) < 1.5 for a, b in pairs)
    return all(isclose(a, b, rel_tol=REPEATS, abs_tol=1e-6) for a, b in pairs)


def shown(claim: Claim, ours: Any, at: str = "") -> str:
    """A number in words, in the unit of its claim."""
    if ours is None:
        return ""
    if is_count(claim["measure"]):
        return f"{ours[0]} of {ours[1]}"
    if isinstance(ours, list):
        return ", ".join(shown(claim, one) for one in ours)
    number = decade(ours) if is_clock(claim) else ours
    unit = claim.get("unit", "")
    text = {
        "s": lambda: format_time(number),
        "%": lambda: f"{100 * number:.4g} %",
        "x": lambda: f"{number:.4g} x",
        "GB/s": lambda: f"{number / 1e9:.4g} GB/s",
        "": lambda: f"{number:.4g}",
    }[unit]()
    return ("about " if is_clock(claim) else "") + text + (f" ({at})" if at else "")

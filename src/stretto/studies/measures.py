"""Measures of claims: expressions over the rows of a study (docs/reference/studies.md has their keys).

Conditions choose rows, a column gives each a value, another row of the same request may be what it is compared with,
and the values become one number, a list, or a count of how many hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import mean, median
from typing import Any

from ..model.units import format_size
from .model import Row, grouped

Ours = float | list[Any]

KEYS = ("rows", "value", "over", "as", "take", "within", "order", "rises", "falls", "flattens", "lines", "by")

ALIKE = ("scheme", "topology", "where", "collective", "size_bytes", "chunks", "collectives", "varying")
"""The columns of a request; rows are compared where all of them agree but those that the measure changes."""

TRENDS = ("rises", "falls", "flattens")

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
    if any(trend in measure for trend in TRENDS):
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
    return any(key in measure for key in ("within", "order", *TRENDS))


def _values(measure: Mapping[str, Any], rows: Sequence[Row]) -> list[tuple[float, Row]]:
    """The values of a measure with their rows, before they become one."""
    key = measure.get("value", "completion_s")
    own = [(_column(row, key), row) for row in rows if meets(row, measure["rows"])]
    if "over" not in measure:
        return [(value, row) for value, row in own if value is not None]
    changed = measure["over"]
    others = (row for row in rows if meets(row, measure["rows"] | changed))
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
    shown_rows = (row for row in rows if meets(row, measure["rows"] | {"scheme": order}))
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
    """Along how many lines the values rise, fall or flatten, and the number of lines."""
    trend = next(name for name in TRENDS if name in measure)
    along = measure[trend]
    columns = measure.get("lines", [c for c in ALIKE if c not in _changed([along])])
    lines = grouped(({"value": v} | row for v, row in values), lambda r: str([r.get(c) for c in columns])).values()
    held = []
    for line in lines:
        if not isinstance(line[0][along], str):  # names are in the study's order
            line = sorted(line, key=lambda row: float(row[along]))
        ordered = [row["value"] for row in line]
        if trend == "flattens":  # steps between neighbouring values
            ordered = [abs(b - a) for a, b in pairwise(ordered)]
        if len(ordered) > 1:
            held.append(_monotone(ordered, trend == "rises", measure.get("by", 0.0)))
    return [sum(held), len(held)] if held else None


def _monotone(values: Sequence[float], rises: bool, slack: float) -> bool:
    ordered = values if rises else values[::-1]
    return all(b >= a - slack * abs(a) - 1e-9 * abs(a) for a, b in pairwise(ordered))


def _column(row: Row, key: str) -> float | None:
    """A column of a row, or a column over another; None if the row has no such value."""
    if key == "cannot":
        return None if "failed" in row else float("cannot" in row)
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


def meets(row: Row, conditions: Mapping[str, Any]) -> bool:
    """Whether a row meets conditions, columns with what is wanted of them."""
    return all(_is(row.get(column), wanted) for column, wanted in conditions.items())


def _is(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, one of a list, or between ``least`` and ``most``; of a list, any value."""
    if isinstance(wanted, list):
        return any(_is(found, one) for one in wanted)
    if isinstance(found, list | tuple):
        return any(_is(one, wanted) for one in found)
    if isinstance(wanted, Mapping):
        return found is not None and wanted.get("least", found) <= found <= wanted.get("most", found)
    return bool(found == wanted)

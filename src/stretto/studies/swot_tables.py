"""The tables of SWOT's study: headlines beside the published ones, the what-if, break-even sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..model.units import format_size, format_time
from . import Row, Table

BreakEven = Callable[[Row, float, float], float]


def tables(rows: Sequence[Row], published: Mapping[str, Any], break_even: BreakEven) -> list[Table]:
    """All tables; ``break_even(row, low, high)`` finds a size between two, bytes."""
    ours = [r for r in rows if r["scheme"] == "swot"]
    return [
        headlines(ours, published["headlines"]),
        against_best_baseline(ours),
        *what_if(ours),
        break_evens(ours, break_even),
    ]


def percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def where(row: Row) -> str:
    return f"{row['ranks']}/{row['planes']}, {format_size(row['size_bytes'])}"


def _best(rows: Iterable[Row], column: str) -> Row | None:
    known = [r for r in rows if r.get(column) is not None]
    return max(known, key=lambda r: float(r[column])) if known else None


def headlines(rows: Sequence[Row], claims: Sequence[Mapping[str, Any]]) -> Table:
    """Each published headline, the value here, and the setting in which it occurs."""
    table: list[tuple[str, ...]] = []
    for claim in claims:
        figures = {claim["figure"], f"{claim['figure']}-small"}
        own = [r for r in rows if figures & set(r["figures"])]
        own = [r for r in own if all(r[k] in values for k, values in claim.get("at", {}).items())]
        column = f"less_than_{claim['against']}"
        best = _best(own, column)
        if best is None:
            continue
        # a speedup is relative to SWOT's time, a reduction to the baseline's
        part = best[column] / (1 - best[column]) if claim.get("speedup") else best[column]
        table.append(
            (claim["figure"], claim["what"], claim["published"], percent(part), where(best), _remark(claim, own))
        )
    columns = ("figure", "headline", "published", "ours", "at (ranks/planes)", "remark")
    return Table("Headlines, published and ours", columns, table)


def _remark(claim: Mapping[str, Any], rows: Sequence[Row]) -> str:
    if claim["against"] != "one_shot":
        return ""
    # with one plane for each matching, SWOT can be at most as many times faster as there are planes
    limit = 1 - 1 / max(r["planes"] for r in rows)
    return f"published cannot be: at most 1 - 1/k = {percent(limit)}" if claim["value"] > limit else ""


def against_best_baseline(rows: Sequence[Row]) -> Table:
    """For each algorithm the largest reduction against the better of one-shot and strawman."""
    table: list[tuple[str, ...]] = []
    for algorithm, collective in dict.fromkeys((r["algorithm"], r["collective"]) for r in rows if _seventh(r)):
        own = [r for r in rows if _seventh(r) and (r["algorithm"], r["collective"]) == (algorithm, collective)]
        best = _best(own, "less_than_better")
        if best is not None:
            both = [best["one_shot_s"], best["strawman_s"]]
            times = [format_time(t) if t is not None else "" for t in (best["completion_s"], *both)]
            table.append((algorithm, collective, percent(best["less_than_better"]), where(best), *times))
    columns = ("algorithm", "collective", "at most", "at (ranks/planes)", "swot", "one-shot", "strawman-icr")
    return Table("Reduction against the better of one-shot and strawman-ICR (figure 7)", columns, table)


def _seventh(row: Row) -> bool:
    return any(figure.startswith("7") for figure in row["figures"])


def what_if(rows: Sequence[Row]) -> list[Table]:
    """Section 4.3: completion over planes and reconfiguration times, one table for each algorithm."""
    made = []
    own = [r for r in rows if "what-if" in r["figures"]]
    for algorithm, collective in dict.fromkeys((r["algorithm"], r["collective"]) for r in own):
        cells = {
            (r["planes"], r["turn_s"]): f"{format_time(r['completion_s'])} (-{percent(r['less_than_strawman'])})"
            for r in own
            if (r["algorithm"], r["collective"]) == (algorithm, collective)
        }
        planes, turns = (sorted({key[i] for key in cells}) for i in (0, 1))
        what = f"{algorithm} {collective} of {format_size(own[0]['size_bytes'])}, {own[0]['ranks']} ranks"
        made.append(
            Table(
                f"What if: {what}; completion (less than strawman-ICR)",
                ("planes", *(f"turn {format_time(t)}" for t in turns)),
                [(str(k), *(cells.get((k, t), "") for t in turns)) for k in planes],
            )
        )
    return made


def break_evens(rows: Sequence[Row], break_even: BreakEven) -> Table:
    """The sizes below which the best schedule turns no plane, for algorithms that one-shot can serve."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in rows:
        if _seventh(r) and r["one_shot_s"] is not None:
            groups.setdefault((r["algorithm"], r["collective"], r["topology"]), []).append(r)
    table: list[tuple[str, ...]] = []
    for (algorithm, collective, topology), own in groups.items():
        pays = {r["size_bytes"]: r["completion_s"] < r["one_shot_s"] * (1 - 1e-5) for r in own}
        first = min((size for size, yes in pays.items() if yes), default=None)
        below = max((size for size in pays if first is not None and size < first), default=None)
        if first is None:
            words = f"above {format_size(max(pays))}"
        elif below is None:
            words = f"below {format_size(first)}"
        else:
            words = f"{break_even(own[0], below, first) / 1e6:.2g} MB"
        table.append((algorithm, collective, topology, words))
    return Table("Below this size turning does not pay", ("algorithm", "collective", "topology", "size"), table)

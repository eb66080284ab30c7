"""The claims of the papers: what they print, how a study's rows measure it, what ours is, and a verdict.

A claim is an object under ``claims`` in ``published/*.json`` (docs/reference/studies.md has its form), with a measure
(:mod:`.measures`). ``ours``, ``at`` and ``verdict`` stand in the file as ``benchmarks/claims.py`` wrote them;
:func:`claims_of_run` computes them again from the rows of a run and says whether they still agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isclose, isfinite, log10
from typing import Any, NamedTuple

from ..model.units import format_time
from .cell import request_columns
from .measures import ALIKE, Ours, is_count, measured, meets
from .model import Cell, Row, Study

Claim = Mapping[str, Any]

KEYS = ("id", "section", "claim", "printed", "value", "unit", "measure", "test", "better", "tolerance", "fast", "ours",
        "at", "verdict", "because")  # fmt: skip
"""The keys of a claim, in the order of the file; all but id, section, claim, printed and verdict may be left out."""

UNITS = ("s", "%", "x", "GB/s", "")
VERDICTS = ("same", "better", "differs", "unknown")

TOLERANCE = 0.02
"""By how much, relative, a number may differ from the printed one and still be the same."""

REPEATS = 1e-3
"""By how much, relative, a number may differ from the file's: other versions of libraries may round otherwise."""

NOTHING = 1e-9
"""What rounding leaves of zero."""

CLOCKS = ("planning_s", "planning_cpu_s")
"""Columns that a clock measured: such numbers are powers of ten, here and in the file."""

DRAWN = {"completion_s": "reported_s", "reported_s": "reported_s", "planning_cpu_s": "solver_s"}
"""Columns of which charts show printed values, and the keys of these among the published ones."""


class ClaimResult(NamedTuple):
    """A claim in the rows of a run."""

    claim: Claim
    ours: Ours | None  # None if the run has none of its cells
    at: str  # the request of an extreme value
    whole: bool  # whether the run has all cells that the claim is about

    @property
    def verdict(self) -> str:
        return verdict_of(self.claim, self.ours if self.whole else None)

    @property
    def agrees(self) -> bool:
        """Whether the run gives what the file says; true if the run cannot tell."""
        known = self.claim.get("ours")
        if not self.whole:
            return True
        if self.ours is None or known is None:
            return self.ours is known
        return _agree(self.claim, self.ours, known)


def claims_of_run(study: Study, rows: Sequence[Row]) -> list[ClaimResult]:
    """Every claim of a study, measured in the rows of a run."""
    cell_order = {request_of(request_columns(cell)): i for i, cell in enumerate(study.cells)}
    requests = {request_of(row) for row in rows}
    rows = sorted(rows, key=lambda row: cell_order.get(request_of(row), len(cell_order)))
    rows += published_rows(study)
    results = []
    for claim in study.claims:
        cells = cells_of(claim, study)
        here = [request_of(request_columns(c)) in requests for c in cells]
        ours, at = measured(claim["measure"], rows) if any(here) else (None, "")
        results.append(ClaimResult(claim, ours, at, bool(cells) and all(here)))
    return results


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


def claim_columns(result: ClaimResult) -> dict[str, Any]:
    """A claim of a run as plain data: what is printed, ours in this run and in the file, and both verdicts."""
    claim = result.claim
    texts = {key: claim.get(key, "") for key in ("id", "section", "claim", "printed", "because")}
    return texts | {
        "ours": result.ours, "ours_text": _ours_text(result), "verdict": _verdict_text(result), "whole": result.whole,
        "agrees": result.agrees, "file_ours": claim.get("ours"), "file_verdict": claim["verdict"],
    }  # fmt: skip


TABLE = ("section", "claim", "printed", "ours", "verdict", "because")


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table of a run's claims as text, see :data:`TABLE`."""
    return [(c["section"], c["claim"], c["printed"], c["ours_text"], c["verdict"], c["because"]) for c in claims]


def _ours_text(result: ClaimResult) -> str:
    if "measure" not in result.claim:
        return ""
    if result.ours is None:
        return "not in this run"
    return shown(result.claim, result.ours, result.at) + ("" if result.whole else "; of some of the cells")


def _verdict_text(result: ClaimResult) -> str:
    if "measure" in result.claim and (result.ours is None or not result.whole):
        return ""
    documented = shown(result.claim, result.claim.get("ours")) or "nothing"
    return result.verdict + ("" if result.agrees else f" (documented: {documented})")


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
    return [cell for cell in study.cells if any(meets(request_columns(cell), conditions) for conditions in wanted)]


def printed_points(claims: Iterable[Claim], cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The printed numbers that charts show beside ours: times that are claimed of single cells."""
    points: dict[tuple[Any, ...], dict[str, Any]] = {}  # once each, if both our rules and the paper's stand for it
    for claim in claims:
        measure = claim.get("measure", {})
        key = DRAWN.get(measure.get("value", "completion_s"))
        if not measure or key is None or "value" not in claim or {"over", "as"} & {*measure} or is_count(measure):
            continue
        own = [cell for cell in cells if meets(request_columns(cell), measure["rows"])]
        values = claim["value"] if isinstance(claim["value"], list) else [claim["value"]]
        if len(own) == len(values) and not any(isinstance(value, Mapping) for value in values):
            for c, value in zip(own, values, strict=True):
                point = {"topology": c.topology, "size_bytes": c.size_bytes, "chunks": c.chunks, key: value}
                points.setdefault(tuple(point.items()), point | {"scheme": c.scheme})
    return list(points.values())


def with_claimed_cells(study: Study, claims: Sequence[Claim] | None = None) -> Study:
    """The study with only those cells on which some claims, by default all of its own, are measured."""
    wanted = {id(cell) for claim in (study.claims if claims is None else claims) for cell in cells_of(claim, study)}
    return replace(study, cells=[cell for cell in study.cells if id(cell) in wanted])


def command_of(claim: Claim, study: Study) -> str:
    """The command that measures a claim; empty if nothing does."""
    if "test" in claim:
        return f"pytest {claim['test']}"
    cells = cells_of(claim, study)
    flags = ["--full"] * any(c.why_full for c in cells) + ["--emulate"] * any(c.emulated for c in cells)
    return " ".join(["stretto study", study.name, *flags]) if cells else ""


def request_of(row: Row) -> tuple[str, ...]:
    """What tells the row of one cell from those of the others."""
    return tuple(str(row.get(column)) for column in (*ALIKE, "planner", "options", "figures"))


# --- judging ------------------------------------------------------------------------------------


def verdict_of(claim: Claim, ours: Ours | None) -> str:
    """What the number says of the claim: same, better, differs, or unknown; a test that holds it has no number."""
    printed = claim.get("value")
    if ours is None or not _as_many(ours, printed):
        return "same" if "test" in claim else "unknown"
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
    """Whether there is a number for each of a list; some cells of a claim may have failed."""
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
    below, above = (tolerance * abs(end) if isfinite(end) else 0.0 for end in (low, high))
    if low - below <= ours <= high + above:
        return "same"
    return "better" if better == ("less" if ours < low else "more") else "differs"


def is_clock(claim: Claim) -> bool:
    """Whether a claim is about what a clock measured, so that its number is an order of magnitude."""
    columns = claim.get("measure", {}).get("value", "").split(" / ")
    return any(name in CLOCKS for name in columns)


def decade(value: float) -> float:
    """The nearest power of ten."""
    return float(10.0 ** round(log10(value)))


def kept(claim: Claim, ours: Ours | None) -> Ours | None:
    """A number as the file keeps it."""
    if ours is None or is_count(claim["measure"]):
        return ours
    if isinstance(ours, list):
        return [kept(claim, one) for one in ours]
    return _rounded(claim, ours)


def _rounded(claim: Claim, number: float) -> float:
    """Six digits of a number, or the power of ten of one that a clock measured."""
    if is_clock(claim):
        return decade(number)
    return float(f"{number:.6g}") if abs(number) > NOTHING else 0.0


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
        texts = [shown(claim, one) for one in ours]
        return f"{texts[0]} each" if len({*texts}) == 1 else ", ".join(texts)
    number = _rounded(claim, ours)
    unit = claim.get("unit", "")
    text = {
        "s": lambda: format_time(number),
        "%": lambda: f"{100 * number:.4g} %",
        "x": lambda: f"{number:.4g} x",
        "GB/s": lambda: f"{number / 1e9:.4g} GB/s",
        "": lambda: f"{number:.4g}",
    }[unit]()
    return ("about " if is_clock(claim) else "") + text + (f" ({at})" if at else "")

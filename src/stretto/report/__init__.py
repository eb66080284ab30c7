"""Reports: the page, the picture, what notebooks show, and the numbers of summaries.

    data, critical, planes      what the page draws, computed from a timeline
    hops, columns               every hop, as compressed columns
    page.html, page.css, script/  the page: one HTML file that works offline
    study.html                  the page of a study, in the same hand
    picture                     plans as one SVG, as in the README and in notebooks
    figures                     plans, topologies and comparisons as figures for print, by matplotlib
    drawing, layout             a topology as SVG, and where nodes are drawn
    notebook                    HTML of plans, topologies and tables for notebooks
    facts                       plans and topologies in numbers, as ``--json`` has them

The page draws its charts itself, on canvases: a library for four charts would be larger than the rest of the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..formats import atomic_file
from ..model.timeline import Timeline

if TYPE_CHECKING:
    from ..bounds import Bound

SCRIPTS = (
    "words", "columns", "state", "colours", "filter", "map", "labels", "charts", "timeline", "pen", "summary", "main",
)  # fmt: skip
"""The parts of the page's script, in the order in which they are joined."""
STUDY_SCRIPTS = ("words", "study")


def write_page(
    path: str, timelines: Sequence[Timeline], bounds: Sequence[Sequence[Bound]], title: str | None = None
) -> None:
    """Write a page about plans.

    Args:
        path: the HTML file.
        timelines: the course of each plan.
        bounds: for each plan its lower bounds, the best first.
        title: what the page is called; the topologies by default.
    Raises:
        InputError: the file cannot be written.
    """
    from .data import page_data

    plans = [page_data(t, b) for t, b in zip(timelines, bounds, strict=True)]
    heading = title or " · ".join(dict.fromkeys(p["topology"] for p in plans))
    with atomic_file(path) as file:
        file.write(_joined("page.html", SCRIPTS, {"title": heading, "plans": plans}))


def study_html(title: str, charts: Sequence[Mapping[str, Any]], before: str, after: str) -> str:
    """The page of a study.

    Args:
        title: what the page is called.
        charts: what :func:`stretto.studies.charts.chart_data` says of each figure.
        before, after: HTML above and below the charts.
    """
    return _joined("study.html", STUDY_SCRIPTS, {"charts": charts}, title=escape(title), before=before, after=after)


def _joined(template: str, scripts: Sequence[str], data: Mapping[str, Any], **texts: str) -> str:
    """A template with the style, its scripts, its data and other texts in their places."""
    from importlib.resources import files

    here = files(__package__)

    def text(name: str) -> str:
        return (here / name).read_text(encoding="utf-8")

    payload = json.dumps(data, separators=(",", ":"))
    # nothing inside the data may end its element
    payload = payload.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    js = "".join(text(f"script/{name}.js") for name in scripts)
    parts = {"css": text("page.css"), "js": js, "data": payload, **texts}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text(template))

"""How notebooks show plans, topologies and tables: HTML with inline SVG, no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..model.plan import Plan
from ..model.timeline import Timeline
from ..model.topology import Topology
from ..model.units import format_bandwidth, format_size, format_time
from .drawing import svg
from .facts import bound_text, plan_facts, topology_facts
from .picture import picture, planes_picture
from .planes import uses_planes

if TYPE_CHECKING:
    from ..bounds import Bound

MOST_NODES, MOST_LINKS, MOST_LETTERS = 10_000, 50_000, 50_000
"""Nodes and links up to which a topology is drawn, and the length of a drawing up to which it is shown."""
MOST_KINDS = 8
"""Kinds of links that the table of a topology lists."""
CELL = 'style="text-align:left"'


def topology_html(net: Topology) -> str:
    """A map and a table."""
    facts = topology_facts(net)
    plural = {"accelerator": "accelerators", "router": "routers", "switch": "switches"}
    nodes = ", ".join(f"{n} {kind if n == 1 else plural[kind]}" for kind, n in facts["nodes"].items())
    if facts["reducing_switches"]:
        nodes += f" (reducing: {facts['reducing_switches']})"
    rows = [("nodes", nodes), ("links", f"{facts['links']}, directed")]
    for kind in facts["link_kinds"][:MOST_KINDS]:
        rows.append((f"{kind['links']} of", f"{format_bandwidth(kind['bandwidth'])}, {format_time(kind['latency_s'])}"))
    if len(facts["link_kinds"]) > MOST_KINDS:
        rows.append(("", f"and {len(facts['link_kinds']) - MOST_KINDS} more kinds"))
    if facts["changes"]:
        rows.append(("changes", f"{facts['changes']} of bandwidth"))
    for plane in facts["plane_kinds"]:
        turn = f"reconfiguration {format_time(plane['reconfiguration_s'])}"
        each = f"{format_bandwidth(plane['bandwidth'])} a port, {format_time(plane['latency_s'])}, {turn}"
        rows.append((f"{plane['planes']} optical planes of {plane['ports']} ports", each))
    if facts["sites"]:
        rows.append(("sites", ", ".join(facts["sites"][:12]) + (" ..." if len(facts["sites"]) > 12 else "")))
    rows += [("note", note) for note in facts["notes"]]
    table = _facts_html(net.name, rows)
    if net.node_count > MOST_NODES or net.link_count > MOST_LINKS:
        return table
    drawing = svg(net, label_size=20)
    if len(drawing) > MOST_LETTERS:
        return table
    drawn = f'<div style="width:400px">{drawing}</div>'
    return f'<div style="display:flex;gap:24px;align-items:center;flex-wrap:wrap">{drawn}{table}</div>'


def plan_html(plan: Plan, timeline: Timeline | None, limits: Sequence[Bound]) -> str:
    """A summary, and below it when the busiest links carry; without a timeline the size of the plan alone."""
    size = sum(c.size_bytes for c in plan.workload.collectives)
    rows = [("size", format_size(size)), ("transfers", f"{plan.transfer_count:,}")]
    if timeline is None:
        return _facts_html(plan.title, rows)
    facts = plan_facts(timeline, limits, True)
    rows += [
        ("completion", format_time(facts["completion_s"])),
        ("lower bound", bound_text(facts)),
    ]
    known: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("completion / bound", "completion_over_bound", "{:.3f}".format),
        ("mean completion", "mean_completion_s", format_time),
        ("mean / its bound", "mean_completion_over_bound", "{:.3f}".format),
        ("algorithm bandwidth", "algorithm_bandwidth", format_bandwidth),
        ("planning", "planning_s", format_time),
    )
    rows += [(name, text(facts[key])) for name, key, text in known if facts.get(key) is not None]
    rows.append(("verified", "yes"))
    bound_s = limits[0].seconds
    drawn = planes_picture(timeline, bound_s) if uses_planes(plan) else picture([timeline], bound_s)
    return _facts_html(plan.title, rows) + drawn


def wrong_plan_html(plan: Plan, message: str) -> str:
    """A plan that is not correct: its times mean nothing."""
    return _facts_html(plan.title, [("transfers", f"{plan.transfer_count:,}"), ("not correct", message)])


def table_html(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table with a title above it and notes below it."""
    head = "".join(f"<th {CELL}>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td {CELL}>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f"<b>{escape(title)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _facts_html(title: str, rows: Sequence[tuple[str, Any]]) -> str:
    body = "".join(f"<tr><th {CELL}>{escape(name)}</th><td {CELL}>{escape(str(v))}</td></tr>" for name, v in rows)
    return f"<div><b>{escape(title)}</b><table>{body}</table></div>"

"""Output of the commands: one JSON object, or tables for people (:mod:`.tables`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import progress
from .tables import print_below, print_table

if TYPE_CHECKING:
    from ..face import Comparison, Front


SPARE = ("planning", "messages", "algorithm bandwidth", "chunks", "bound")
"""Columns of a comparison that a narrow terminal can do without, the first one first."""
FRONT_SPARE = ("planned on", "over least", "bound at that cost")
"""The same of plans that trade time for money."""


def answer(as_json: bool, data: dict[str, Any], show: Callable[[], None]) -> None:
    progress.clear()
    if as_json:
        import json

        sys.stdout.write(json.dumps(data) + "\n")
    else:
        show()


def _many(word: str, count: int) -> str:
    return word + ("" if count == 1 else "es" if word.endswith("ch") else "s")


def show_topology(data: dict[str, Any], plot: str | None) -> None:
    from ..model.units import format_bandwidth, format_time

    rows = [("nodes", ", ".join(f"{n} {_many(kind, n)}" for kind, n in data["nodes"].items()))]
    if data["reducing_switches"]:
        rows.append(("switches that sum", str(data["reducing_switches"])))
    if data["links"] or not data["plane_kinds"]:
        rows.append(("links", f"{data['links']}, directed"))
    for kind in data["link_kinds"][:12]:
        speed = f"{format_bandwidth(kind['bandwidth'])}, {format_time(kind['latency_s'])}"
        rows.append((f"  {kind['links']} of", speed))
    if len(data["link_kinds"]) > 12:
        rows.append(("", f"and {len(data['link_kinds']) - 12} more kinds"))
    if data["changes"]:
        on = f"{data['changed_links']} {_many('link', data['changed_links'])}"
        rows.append(("changes", f"{data['changes']} of bandwidth, on {on}"))
    for plane in data["plane_kinds"]:
        each = f"{format_bandwidth(plane['bandwidth'])} a port, {format_time(plane['latency_s'])}"
        what = f"optical {_many('plane', plane['planes'])} of {plane['ports']} ports"
        rows.append((f"{plane['planes']} {what}", f"{each}; a turn takes {format_time(plane['reconfiguration_s'])}"))
    rows += message_rows(data)
    if "usd_per_GB" in data:
        prices = " to ".join(dict.fromkeys(f"{usd:g}" for usd in data["usd_per_GB"]))
        rows.append(("prices", f"{prices} USD a GB, on {data['priced_links']} links"))
    if data["sites"]:
        rows.append(("sites", _some(data["sites"])))
    rows += [("note", note) for note in data["notes"]]
    if plot:
        rows.append(("drawn to", plot))
    print_table(data["topology"], ("", ""), rows)


def _some(names: list[str], most: int = 12) -> str:
    """The first of many names, and how many there are."""
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def message_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """What a message costs, where it costs something."""
    from ..report.facts import message_text

    cost = message_text(data)
    return [("a message costs", cost)] if cost else []


def time_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    from ..model.units import format_bandwidth, format_time, format_usd
    from ..report.facts import bound_text

    rows = [("completion", format_time(data["completion_s"]))]
    if "mean_completion_s" in data:
        rows.append(("mean completion", format_time(data["mean_completion_s"])))
        rows.append(("its lower bound", f"{format_time(data['mean_bound_s'])} ({data['mean_bound_witness']})"))
        if data["mean_completion_over_bound"] is not None:
            rows.append(("mean / its bound", f"{data['mean_completion_over_bound']:.3f}"))
    rows.append(("lower bound", bound_text(data)))
    if data["completion_over_bound"] is not None:
        rows.append(("completion / bound", f"{data['completion_over_bound']:.3f}"))
    if "cost_usd" in data:
        rows.append(("cost", format_usd(data["cost_usd"])))
    if data["algorithm_bandwidth"] is not None:
        rows.append(("algorithm bandwidth", format_bandwidth(data["algorithm_bandwidth"])))
    return rows


def show_summary(data: dict[str, Any], front: Front | None = None, place: int = 0) -> None:
    """A plan, and the plans that trade time for money, of which it is the one at ``place``."""
    from ..model.units import format_time, format_usd
    from ..planners.auto.planner import NO_EFFORT, TOO_LATE

    inside = f" in {data['messages']} messages" if "messages" in data else ""
    rows = [
        *size_rows(data),
        ("transfers", f"{data['transfers']}{inside}, {data['chunks']} {_many('chunk', data['chunks'])} a piece"),
        *message_rows(data),
        *time_rows(data),
    ]
    if "steps_gap" in data:
        rows.append(("bound of these steps", _steps_bound_text(data)))
    if "objective_over_bound" in data:
        ratio = f"{data['objective_over_bound']:.3f} times the bound for these fixed routes"
        rows.append(("objective", f"{format_time(data['objective_s'])}, {ratio}"))
    if data.get("non_concurrent_bound_s"):
        how = "optimal" if data.get("non_concurrent_optimal") else "a lower bound"
        rows.append(("one flow a link at a time", f"{format_time(data['non_concurrent_bound_s'])}, {how}"))
    if "target" in data:
        rows.append(("made for", data["target"]))
    if "tried" in data:
        rows.append(("chosen", data["chosen"]))
        completions = [f"{t['planner']} {format_time(t['completion_s'])}" for t in data["tried"] if "completion_s" in t]
        rows.append(("tried", ", ".join(completions)))
        reasons = {NO_EFFORT: "--effort thorough asks them too", TOO_LATE: TOO_LATE}
        left_out = {why: [t["planner"] for t in data["tried"] if t.get("refused") == why] for why in reasons}
        said = [f"{', '.join(names)} ({reasons[why]})" for why, names in left_out.items() if names]
        if said:
            rows.append(("not asked", "; ".join(said)))
        others = sum("refused" in t for t in data["tried"]) - sum(map(len, left_out.values()))
        if others:
            rows.append(("do not serve this", f"{others} other {_many('planner', others)} (--json gives the reasons)"))
    if data["planning_s"] is not None:
        loading = f", after {format_time(data['loading_s'])} of loading code" if data.get("loading_s") else ""
        cpu = format_time(data["planning_cpu_s"])
        rows.append(("planning", f"{format_time(data['planning_s'])} ({cpu} of CPU){loading}"))
    if data.get("stopped"):
        rows.append(("stopped", "by --time-limit: another run may give another plan"))
    if data["verified"] is not None:
        rows.append(("verified", "yes"))
    if data.get("file"):
        rows.append(("file", data["file"]))
    title = f"{data['planner']}: {data['collective']} among {data['ranks']} ranks of {data['topology']}"
    print_table(title, ("", ""), rows)
    if front is not None:
        plans = [(cost + " *" * (k == place), *others) for k, (cost, *others) in enumerate(front.cells)]
        print_table("plans that trade time for money", front.HEADER, plans, FRONT_SPARE)
        print_below("* the plan above")
        print_below(f"no plan costs less than {format_usd(front.least_usd)}")


def _steps_bound_text(data: dict[str, Any]) -> str:
    """Of the steps: the least time of a schedule of them, whether it counts turns, and how far the plan is from it."""
    from ..model.units import format_time

    gap = data["steps_gap"]
    far = f"{100 * gap:.2f} % below the completion" if gap >= 5e-6 else "reached: no schedule of them is faster"
    return f"{format_time(data['steps_bound_s'])}{'' if data['bound_counts_turns'] else ', turns counted'} ({far})"


def size_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """How many bytes there are; of several collectives also who, from when on, and how long each takes."""
    from ..model.units import format_size, format_time

    if "jobs" not in data:
        return [("size", f"{format_size(data['size_bytes'])} ({format_size(data['shard_bytes'])} a rank)")]
    rows = []
    for number, (job, took_s) in enumerate(zip(data["jobs"], data["completions_s"], strict=True)):
        start = f" from {format_time(job['start_s'])} on" if job["start_s"] else ""
        weight = f", weight {job['weight']:g}" if job["weight"] != 1 else ""
        what = f"{job['collective']} of {format_size(job['size_bytes'])} among {job['ranks']} ranks{start}{weight}"
        rows.append((f"job {number}", f"{what}: {format_time(took_s)}"))
    return rows


def show_comparison(comparison: Comparison, output: str | None) -> None:
    print_table(comparison.title, comparison.header, comparison.cells, SPARE)
    for note in comparison.notes:
        print_below(note)
    if output:
        print_below(f"wrote {output}")


def show_bounds(data: dict[str, Any]) -> None:
    from ..model.units import format_time
    from ..report.facts import BOUNDS_WITHOUT_TURNS

    rows = [(format_time(r["bound_s"]), r["kind"], r["witness"]) for r in data["bounds"]]
    if "mean_bound_s" in data:
        rows.append((format_time(data["mean_bound_s"]), "of the mean", data["mean_bound_witness"]))
    print_table("lower bounds, the best first", ("bound", "kind", "because of"), rows)
    if not data["bound_counts_turns"]:
        print_below(BOUNDS_WITHOUT_TURNS)
    for facts in data["certificates"]:
        lines = []
        for name in ("bottleneck", "parts", "flow"):
            if name in facts:
                said = f"{format_time(facts[name]['seconds'])}: {facts[name]['seconds_exact']} s exactly"
                lines.append((f"{name}, bandwidth alone", f"{said} ({_checked(facts[name])})"))
        if "trees" in facts:
            lines.append(("best by trees", f"{format_time(facts['trees']['seconds'])} (not a bound)"))
        if "crossings" in facts:
            said = f"{format_time(facts['crossings']['seconds'])} ({_checked(facts['crossings'])})"
            lines.append(("prices of crossings", f"{said}, a better bound"))
        if "upgrade" in facts:
            up = facts["upgrade"]
            words = f"{up['link']}: twice its bandwidth (both ways) allows {up['gain']:.3g} times the throughput"
            lines.append(("link to widen", words))
        elif lines:
            lines.append(("link to widen", "no single one helps: several cuts bind alike"))
        if lines:
            print_table(facts["collective"], ("", ""), lines)
    if "plot" in data:
        print_below(f"drawn to {data['plot']}")


def _checked(bound: dict[str, Any]) -> str:
    if bound["checked"] is None:
        return "too large to check again"
    return "checked" if bound["checked"] else "NOT CONFIRMED"

"""What ``stretto run`` and ``stretto emulate`` say about optical planes, and the trace that they write of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..model.errors import InputError

if TYPE_CHECKING:
    from ..model.plan import Plan
    from ..model.timeline import Timeline
    from ..runtime.local import Outcome

ENDINGS = ("json", "svg")
"""The endings of what ``--trace`` writes."""

Trace = Annotated[
    str | None,
    Option(help="Write what the run did, by measured times, for ui.perfetto.dev; planes are drawn if it ends in .svg."),
]


def planes_answer(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """What ``--json`` says of the planes of a plan that turns any."""
    if not plan.turns.count:
        return {}
    names = plan.topology.names
    waited_s = dict.fromkeys(names, 0.0)
    for (v, _), since_s, until_s in _port_waits(plan, outcome):
        waited_s[names[v]] += until_s - since_s
    facts = {
        "turns": len(outcome.turns),
        "turning_s": sum(turn.up_at - turn.began_at for turn in outcome.turns),
        "transfers_that_waited": len(outcome.waits),
        "waited_s": waited_s,
        "off_circuits": outcome.off_circuits,
    }
    return {"circuits": facts}


def _port_waits(plan: Plan, outcome: Outcome) -> list[tuple[tuple[int, int], float, float]]:
    from ..report.run_trace import merged

    return merged(plan, outcome.waits)


def planes_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for people, as rows of a table."""
    from ..model.units import format_time

    facts = data.get("circuits")
    if not facts:
        return []
    longest = max(facts["waited_s"], key=facts["waited_s"].get)
    waited = "no transfer waited for its circuit"
    if facts["transfers_that_waited"]:
        most = f"{longest} the longest, {format_time(facts['waited_s'][longest])} over its ports"
        waited = f"{facts['transfers_that_waited']} transfers waited for their circuits; {most}"
    kept = "yes" if not facts["off_circuits"] else f"no: {len(facts['off_circuits'])} transfers"
    return [
        ("turns", f"{facts['turns']}, {format_time(facts['turning_s'])} in all"),
        ("waiting", waited),
        ("bytes on circuits only", kept),
    ]


def write_trace(plan: Plan, outcome: Outcome, simulated_s: float, path: str) -> None:
    """Write a run as a trace or as a picture.

    Args:
        plan: as it was run.
        simulated_s: the simulator's completion, for the picture.
    Raises:
        InputError: there is no plane to draw, or the file cannot be written.
    """
    from ..lower import played
    from ..runtime.recorded import timeline_of

    timeline = timeline_of(played(plan).plan, outcome.traces, outcome.completion_s)
    if plan.plane is not None and (plan.plane >= 0).any():
        _write_planes(timeline, outcome, simulated_s, path)
    elif path.lower().endswith(".svg"):
        raise InputError("a picture of a run shows optical planes, and the plan uses none; give a .json file", path)
    else:
        from ..formats.trace import write

        write(timeline, path)


def _write_planes(timeline: Timeline, outcome: Outcome, simulated_s: float, path: str) -> None:
    from ..formats import atomic_file
    from ..report.picture import planes_picture
    from ..report.run_trace import write_run

    if path.lower().endswith(".svg"):
        with atomic_file(path) as file:
            file.write(planes_picture(timeline, simulated_s, "simulated"))
    else:
        write_run(timeline, outcome.waits, path)

"""Plans by symmetry that are too large to draw whole: one link of each orbit stands for all of its links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Int64
from ..model.symmetric import SymmetricTimeline
from ..model.timeline import Timeline
from ..model.units import format_size

MOST_EXPANDED = 1_000_000
"""Transfers up to which the page shows a plan by symmetry as the plan that its images make."""


def is_large(timeline: Timeline) -> bool:
    """Whether the page shows orbits in place of links."""
    return isinstance(timeline, SymmetricTimeline) and timeline.plan.transfer_count > MOST_EXPANDED


def of_orbits(timeline: SymmetricTimeline) -> Timeline:
    """The course of the representatives, where each hop is on the first link of its link's orbit."""
    part, orbits = timeline.part, timeline.plan.symmetry.link_orbits
    route = part.plan.route.with_values(orbits[part.plan.route.values])
    return replace(part, plan=replace(part.plan, route=route))


def first_links(timeline: SymmetricTimeline) -> Int64:
    """The first link of each orbit, ascending."""
    return np.unique(timeline.plan.symmetry.link_orbits).astype(np.int64)


def other_links(timeline: SymmetricTimeline) -> tuple[Int64, Int64]:
    """Links of the orbits besides the first ones, and of each the place of its orbit among :func:`first_links`."""
    orbits, first = timeline.plan.symmetry.link_orbits, first_links(timeline)
    others = np.flatnonzero(orbits != np.arange(len(orbits)))
    return others, np.searchsorted(first, orbits[others])


def note(timeline: SymmetricTimeline) -> str:
    """What a reader of the page should know."""
    plan, links = timeline.plan, len(first_links(timeline))
    largest = format_size(int(plan.orbits.chunk_bytes.max()))
    return (
        f"{plan.transfer_count:,} transfers are the images of {plan.part.transfer_count:,} under "
        f"{plan.symmetry.size:,} elements. Each of the {links:,} links shown stands for all links of its orbit, "
        "which have its colour in the network; bytes count each chunk as the largest of its orbit "
        f"({largest} at most). Bars, chunks and transfers are those of the representatives: each bar stands for its "
        "images, which begin and end with it."
    )

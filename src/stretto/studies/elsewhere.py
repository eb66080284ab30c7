"""A paper's study on a network of one's own: the same schemes, sizes and figures, on its spec or file.

Each study makes its own cells (``study_on`` of its module). Here is what they share: whether the network suits the
study at all, and that values published for other networks do not stand beside it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model.errors import Unsupported
from ..planners import Request
from ..planners.run import refusal_of
from ..topologies import load_topology
from .model import Study

SUFFIX = ":teccl"
"""Published values of a network as TE-CCL's code ships it stand beside the network as it is meant."""


def study_on(name: str, topology: str) -> Study:
    """The study of that name on one network.

    Args:
        topology: a spec, or the path of a file.
    Raises:
        InputError: there is no such topology. Unsupported: the planner that the study is of does not serve it.
    """
    net = load_topology(topology)
    study: Study = importlib.import_module(f".{name.replace('-', '_')}", __package__).study_on(topology, net)
    shown = {figure for cell in study.cells for figure in cell.figures}
    study = replace(
        study,
        title=f"{study.title}, on {net.name}",
        figures=tuple(f for f in study.figures if f.name in shown),
        published=_published_for(study.published, topology),
    )
    reason = _unsuited(study)
    if reason is not None:
        raise Unsupported(f"the study {name} does not suit {net.name}: {reason}")
    return study


def _unsuited(study: Study) -> str | None:
    """Why the planner that the study is of, which has its name, does not serve its network; None if it may."""
    first: str | None = None
    asked: set[tuple[str, str]] = set()
    for cell in study.cells:
        stages = cell.planner.split("+")
        if study.name not in stages or (cell.planner, cell.collective) in asked:
            continue
        asked.add((cell.planner, cell.collective))
        request = Request(*cell.request(0))
        # a refiner's reason comes first: it says what the network lacks
        refusal = next(filter(None, (refusal_of(stage, request) for stage in reversed(stages))), None)
        if refusal is None:
            return None
        first = first or str(refusal)
    return first


def _published_for(published: Mapping[str, Any], topology: str) -> dict[str, Any]:
    """The published values of that network, with their sources; empty if there are none."""
    kept: dict[str, Any] = {}
    for key, values in published.items():
        if isinstance(values, list):
            here = [p for p in values if str(p.get("topology", "")).removesuffix(SUFFIX) == topology]
            kept |= {key: here} if here else {}
    sources = published.get("sources", {})
    return kept | {"sources": {k: sources[k] for k in kept if k in sources}} if kept else {}

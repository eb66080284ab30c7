"""Plans and topologies of the model with methods that need rooms above the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..model import plan as _plan
from ..model import symmetric as _symmetric
from ..model import topology as _topology
from ..model.errors import InputError, StrettoError
from ..model.extras import require

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from ..bounds import Bound
    from ..model.changes import Changes
    from ..model.timeline import Timeline
    from ..verify import Verdict

MOST_DRAWN = 200_000
"""Transfers up to which a notebook verifies, simulates and draws a plan that it shows."""


class Topology(_topology.Topology):
    """A network. Notebooks show it as a map and a table. See :class:`stretto.model.topology.Topology`."""

    def _repr_html_(self) -> str:
        from ..report.notebook import topology_html

        return topology_html(self)

    def figure(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The network as a figure for print: by servers and switches, on a map, or node by node.

        Args:
            path: where to write it, too: .pdf, .svg or .png.
        """
        from ..report.figures import map_figure, write_figure

        drawn = map_figure(self)
        if path is not None:
            write_figure(drawn, path)
        return drawn


class Plan(_plan.Plan):
    """A plan, and what can be asked of it. See :class:`stretto.model.plan.Plan` for its columns."""

    def verify(self) -> Verdict:
        """Whether the plan is correct, and if not, the first thing that is wrong."""
        return self._verdict

    def simulate(self, *, barriers: bool = True, changes: str | os.PathLike[str] | Changes | None = None) -> Timeline:
        """When each transfer starts, ends and arrives.

        Args:
            barriers: whether steps wait for each other, if the plan says so.
            changes: how bandwidths change in fact, or a file that says so; by default as the topology says.
        """
        if barriers and changes is None:
            return self._timeline
        from ..simulate import simulate

        if isinstance(changes, (str, os.PathLike)):
            from ..topologies.files import read_changes

            changes = read_changes(os.fspath(changes), self.topology)
        return simulate(self, changes, barriers=barriers)

    def bound(self) -> Bound:
        """The best lower bound: the time that no plan for this request can beat, and why."""
        return self._limits[0]

    def summary(self) -> dict[str, Any]:
        """The numbers of ``stretto plan --json``. The plan is verified and simulated for them."""
        from ..report.facts import plan_facts

        return plan_facts(self._timeline, self._limits, self.verify().ok)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draw the plan on one HTML page that needs no network, or as a picture if the path ends in ``.svg``.

        Raises:
            StrettoError: the plan is not correct, or the file cannot be written.
        """
        draw(path, [self])

    def figure(self, path: str | os.PathLike[str] | None = None, *, kind: str = "links") -> Figure:
        """The plan as a figure for print, by matplotlib.

        Args:
            path: where to write it, too: .pdf, .svg or .png.
            kind: ``links``, when each of the busiest links carries, or each optical plane; ``timeline``, what ranks
                have received over time; ``map``, the network.
        Raises:
            StrettoError: the plan is not correct, has too much to draw, or the file cannot be written.
        """
        from ..report.figures import delivered_figure, links_figure, map_figure, planes_figure, write_figure
        from ..report.planes import uses_planes

        timed = {"links": planes_figure if uses_planes(self) else links_figure, "timeline": delivered_figure}
        if kind not in (*timed, "map"):
            raise InputError(f"there is no kind {kind!r}; there are links, timeline, map", "kind")
        finding = self.verify().finding
        if finding is not None:
            raise StrettoError(f"{self.title} is not correct: {finding.message}")
        drawn = map_figure(self.topology) if kind == "map" else timed[kind](self.simulate(), self.bound().seconds)
        if path is not None:
            write_figure(drawn, path)
        return drawn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan: as JSON if the path ends in ``.json``, else as Parquet. :func:`load` reads both."""
        from ..formats.native import write_plan

        write_plan(self, os.fspath(path))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each receiver of each transfer, with the times that the simulator gives."""
        from ..formats.table import columns
        from ..model.rows import all_rows

        return pandas_module().DataFrame(columns(self._timeline, all_rows(self)))

    @cached_property
    def _verdict(self) -> Verdict:
        from ..verify import verify

        return verify(self)

    @cached_property
    def _timeline(self) -> Timeline:
        from ..simulate import simulate

        return simulate(self)

    @property
    def _limits(self) -> tuple[Bound, ...]:
        from ..bounds import bounds

        return bounds(self.topology, self.workload)

    def _repr_html_(self) -> str:
        from ..report.notebook import plan_html, wrong_plan_html

        if self.transfer_count > MOST_DRAWN:
            return plan_html(self, None, ())
        verdict = self.verify()
        if verdict.finding is not None:
            return wrong_plan_html(self, verdict.finding.message)
        return plan_html(self, self._timeline, self._limits)


class SymmetricPlan(_symmetric.SymmetricPlan, Plan):
    """The same of a plan by symmetry, whose columns are made when they are asked for."""


def of_topology(net: _topology.Topology) -> Topology:
    """The same network, as notebooks show it."""
    return net if isinstance(net, Topology) else Topology(**_columns(net))


def of_model(plan: _plan.Plan) -> Plan:
    """The same plan, with what can be asked of it."""
    if isinstance(plan, _symmetric.SymmetricPlan) and not isinstance(plan, Plan):
        return SymmetricPlan(plan.part, plan.orbits, plan.meta)
    return plan if isinstance(plan, Plan) else Plan(**{**_columns(plan), "topology": of_topology(plan.topology)})


def draw(path: str | os.PathLike[str], plans: Sequence[Plan]) -> None:
    """Write plans on one HTML page, or as a picture if the path ends in ``.svg``.

    Raises:
        StrettoError: a plan is not correct, or the file cannot be written.
    """
    from ..formats import PAGE, check_ending

    check_ending(os.fspath(path), PAGE)
    for each in plans:
        verdict = each.verify()
        if verdict.finding is not None:
            raise StrettoError(f"{each.title} is not correct: {verdict.finding.message}")
    timelines = [each.simulate() for each in plans]
    limits = [each._limits for each in plans]
    if os.fspath(path).lower().endswith(".svg"):
        from ..report.picture import write_picture

        write_picture(os.fspath(path), timelines, [each[0] for each in limits])
    else:
        from ..report import write_page

        write_page(os.fspath(path), timelines, limits)


def _columns(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def pandas_module() -> Any:
    """pandas, which is optional."""
    require("pandas", "a table", "pandas")
    import pandas

    return pandas

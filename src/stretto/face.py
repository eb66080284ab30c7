"""The face of the package: what ``import stretto as st`` offers.

Everything here is a thin call into the rooms below. :class:`Plan` and :class:`Topology` are those of the model with
methods that need rooms above the model (the model imports nothing): the verifier, the simulator, the page. The
functions take plans and topologies of either kind.

Sizes are text (``"64MB"``, ``"1MiB"``) or a number of bytes, as nccl-tests count them: ``size`` is the full buffer,
``shard`` one rank's share of it. Times are text (``"5us"``) or seconds, rates text (``"25GB/s"``) or bytes per second.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from .bounds import Bound, bounds
from .formats.native import read_plan, write_plan
from .model import plan as _plan
from .model import topology as _topology
from .model.collective import Collective, Workload, make_collective
from .model.errors import InputError, StrettoError, Unsupported
from .model.timeline import Timeline
from .model.units import format_bandwidth, format_size, format_time, parse_size, parse_time
from .report.facts import plan_facts, request_facts
from .simulate import simulate as _simulate
from .verify import Verdict
from .verify import verify as _verify

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

    from .planners import Progress

__all__ = [
    "Bound", "Collective", "Comparison", "Plan", "Timeline", "Topology", "Verdict", "Workload", "bound", "collective",
    "compare", "load", "plan", "simulate", "topology", "verify", "workload",
]  # fmt: skip

MOST_DRAWN = 200_000
"""Transfers up to which a notebook verifies, simulates and draws a plan that it shows."""

Size = str | int | float
"""``"64MB"``, ``64_000_000`` or ``6.4e7``."""


class Topology(_topology.Topology):
    """A network. Notebooks show it as a map and a table. See :class:`stretto.model.topology.Topology`."""

    def _repr_html_(self) -> str:
        from .report.notebook import topology_html

        return topology_html(self)


class Plan(_plan.Plan):
    """A plan, and what can be asked of it. See :class:`stretto.model.plan.Plan` for its columns."""

    def verify(self) -> Verdict:
        """Whether the plan is correct, and if not, the first thing that is wrong."""
        return self._verdict

    def simulate(self, *, barriers: bool = True) -> Timeline:
        """When each transfer starts, ends and arrives.

        Args:
            barriers: whether steps wait for each other, if the plan says so.
        """
        return self._timeline if barriers else _simulate(self, barriers=False)

    def bound(self) -> Bound:
        """The best lower bound: the time that no plan for this request can beat, and why."""
        return bounds(self.topology, self.workload)[0]

    def summary(self) -> dict[str, Any]:
        """The numbers of ``stretto plan --json``. The plan is verified and simulated for them."""
        return plan_facts(self._timeline, bounds(self.topology, self.workload), self.verify().ok)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draw the plan on one HTML page that needs no network, or as a picture if the path ends in ``.svg``.

        Raises:
            StrettoError: the plan is not correct, or the file cannot be written.
        """
        draw(path, [self])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan: as JSON if the path ends in ``.json``, else as Parquet. :func:`load` reads both."""
        write_plan(self, os.fspath(path))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each receiver of each transfer, with the times that the simulator gives."""
        from .formats.table import columns

        return _pandas().DataFrame(columns(self._timeline))

    @cached_property
    def _verdict(self) -> Verdict:
        return _verify(self)

    @cached_property
    def _timeline(self) -> Timeline:
        return _simulate(self)

    def _repr_html_(self) -> str:
        from .report.notebook import plan_html, wrong_plan_html

        if self.transfer_count > MOST_DRAWN:
            return plan_html(self, None, ())
        verdict = self.verify()
        if verdict.finding is not None:
            return wrong_plan_html(self, verdict.finding.message)
        return plan_html(self, self._timeline, bounds(self.topology, self.workload))


@dataclass(frozen=True, eq=False)
class Comparison(Sequence[dict[str, Any]]):
    """Plans beside each other: a sequence of rows, which ``pandas.DataFrame`` takes as it is.

    Attributes:
        rows: for each plan the numbers of :meth:`Plan.summary`; where a planner does not serve the request, what was
            asked, and ``failed``, the reason.
        plans: the plan of each row, None where there is none.
    """

    rows: tuple[dict[str, Any], ...]
    plans: tuple[Plan | None, ...]

    HEADER = ("planner", "size", "chunks", "completion", "bound", "ratio", "algorithm bandwidth", "planning")

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[dict[str, Any], ...]: ...
    def __getitem__(self, i: int | slice) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        return self.rows[i]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def title(self) -> str:
        """``allreduce among 8 ranks of ring:8``, for each request that is compared."""
        asked = (f"{r['collective']} among {r['ranks']} ranks of {r['topology']}" for r in self.rows)
        return ", ".join(dict.fromkeys(asked))

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """Each row as text, in the columns of :attr:`HEADER`."""
        return [_cells(row) for row in self.rows]

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Each planner that does not serve a request, and the reason."""
        return list(dict.fromkeys((r["planner"], r["failed"]) for r in self.rows if "failed" in r))

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table."""
        return _pandas().DataFrame(list(self.rows))

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draw the plans on one HTML page, or as a picture if the path ends in ``.svg``."""
        draw(path, [p for p in self.plans if p is not None])

    def __repr__(self) -> str:
        table = [self.HEADER, *self.cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in table]
        reasons = [f"no plan by {name}: {reason}" for name, reason in self.failures]
        return "\n".join([self.title, *lines, *reasons])

    def _repr_html_(self) -> str:
        from .report.notebook import table_html

        return table_html(self.title, self.HEADER, self.cells, [f"no plan by {n}: {why}" for n, why in self.failures])


def topology(source: str | os.PathLike[str] | Mapping[str, Any] | _topology.Topology, **options: Any) -> Topology:
    """A network.

    Args:
        source: a spec such as ``"ndv2:4"`` (``stretto topologies`` lists them), the path of a file, the object of a
            topology file (a dict), or a topology, which is given back as it is.
        options: of a spec or file, as text or numbers: ``st.topology("ring:8", bandwidth="25GB/s", latency=2e-6)``.
    Raises:
        InputError: no such spec or file, or something in it is wrong; names it and the remedy.
    """
    if isinstance(source, Topology):
        return source
    if isinstance(source, _topology.Topology):
        return Topology(**_columns(source))
    if isinstance(source, Mapping):
        from .topologies.files import topology_from_json

        return topology(topology_from_json(dict(source), "topology"))
    from .topologies import load_topology

    spec = os.fspath(source)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return topology(load_topology(spec + ("&" if "?" in spec else "?") + query if query else spec))


def collective(
    kind: str,
    topology: str | os.PathLike[str] | _topology.Topology,
    size: Size | None = None,
    *,
    shard: Size | None = None,
    chunks: int = 1,
    ranks: Sequence[int | str] | None = None,
    root: int = 0,
    receivers: Sequence[int] | None = None,
    demand: str | os.PathLike[str] | ArrayLike | None = None,
    start: str | float = 0.0,
) -> Collective:
    """What must happen: one collective among accelerators of a topology.

    Args:
        kind: allgather, reducescatter, allreduce, alltoall, broadcast, reduce, scatter, gather, multicast, alltoallv.
        size: the full buffer; or ``shard``, one rank's share of it.
        chunks: number of chunks into which each piece is cut.
        ranks: the node of each rank, by number or name; by default all accelerators, in order.
        root: the rank from which rooted collectives start, or at which they end.
        receivers: the ranks that want a multicast.
        demand: for an alltoallv, the bytes from each rank to each rank: a matrix, or a CSV file.
        start: when it may start.
    Raises:
        InputError: an unknown kind, too few bytes or ranks, a rank that is no accelerator.
    """
    net = _network(topology)
    nodes = None if ranks is None else [_node(net, rank) for rank in ranks]
    start_s = parse_time(start, "start")
    if demand is not None:
        return _uneven(kind, net, demand, size or shard, nodes, chunks, start_s)
    if (size is None) == (shard is None):
        raise InputError("give either the size of the full buffer or one rank's shard", "size")
    return make_collective(
        kind,
        net,
        None if size is None else parse_size(size, "size"),
        shard_bytes=None if shard is None else parse_size(shard, "shard"),
        ranks=nodes,
        root=root,
        receivers=receivers,
        chunks=chunks,
        start_s=start_s,
    )


def workload(
    collectives: str | Collective | Workload | Sequence[str | Collective],
    topology: str | os.PathLike[str] | _topology.Topology,
    size: Size | None = None,
    **how: Any,
) -> Workload:
    """Collectives that share a topology.

    Args:
        collectives: one or several: ``"allreduce"``, ``"allreduce,allgather"``, a list of kinds or of collectives.
        size, how: of each collective that is given by its kind, as :func:`collective` takes them.
    """
    if isinstance(collectives, Workload):
        return collectives
    each = collectives.split(",") if isinstance(collectives, str) else collectives
    net = _network(topology)
    parts = [each] if isinstance(each, Collective) else each
    return Workload(tuple(c if isinstance(c, Collective) else collective(c, net, size, **how) for c in parts))


def plan(
    collectives: str | Collective | Workload | Sequence[str | Collective],
    topology: str | os.PathLike[str] | _topology.Topology,
    size: Size | None = None,
    *,
    planner: str = "auto",
    shard: Size | None = None,
    chunks: int = 1,
    ranks: Sequence[int | str] | None = None,
    root: int = 0,
    demand: str | os.PathLike[str] | ArrayLike | None = None,
    seed: int = 0,
    effort: str = "normal",
    time_limit: str | float | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Plan collectives over a topology. Equal requests give equal plans.

    Args:
        collectives: one or several: ``"allreduce"``, ``"allreduce,allgather"``, a list of kinds or of collectives.
        topology: a topology, a spec or the path of a file.
        size, shard, chunks, ranks, root, demand: see :func:`collective`.
        planner: a planner, and refiners of its plan: ``"ring"``, ``"ring+wan"`` (``stretto planners`` lists them).
        seed: for planners that draw random numbers.
        effort: how much the planner may try, in counted work: quick, normal or thorough.
        time_limit: a safety net: time after which the best plan so far is taken, whose meta then says ``stopped``.
        options: of the planner and the refiners, by name.
        progress: called with (done, total, what) during long work.
    Raises:
        InputError: an argument is wrong. Unsupported: the planner does not serve this request.
    """
    from .planners import run_planner

    net = _network(topology)
    work = workload(collectives, net, size, shard=shard, chunks=chunks, ranks=ranks, root=root, demand=demand)
    limit_s = None if time_limit is None else parse_time(time_limit, "time limit")
    return of_model(
        run_planner(
            planner, net, work, seed=seed, effort=effort, time_limit_s=limit_s, progress=progress, options=options
        )
    )


def load(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, Parquet or JSON.

    Raises:
        InputError: it cannot be read, is torn, of another version or no plan; names the place.
    """
    return of_model(read_plan(os.fspath(path)))


def verify(plan: _plan.Plan) -> Verdict:
    """Whether a plan is correct, and if not, the first thing that is wrong."""
    return of_model(plan).verify()


def simulate(plan: _plan.Plan, *, barriers: bool = True) -> Timeline:
    """When each transfer of a plan starts, ends and arrives."""
    return of_model(plan).simulate(barriers=barriers)


def bound(
    subject: _plan.Plan | str | Collective | Workload | Sequence[str | Collective],
    topology: str | os.PathLike[str] | _topology.Topology | None = None,
    size: Size | None = None,
    **how: Any,
) -> Bound:
    """The time that no plan can beat, and why: of a plan's request, or of collectives on a topology.

    ``st.bound(plan)``, or ``st.bound("allgather", net, size="1GB")`` with the arguments of :func:`collective`.
    """
    if isinstance(subject, _plan.Plan):
        return bounds(subject.topology, subject.workload)[0]
    if topology is None:
        raise InputError("give the topology, too", "topology")
    net = _network(topology)
    return bounds(net, workload(subject, net, size, **how))[0]


def compare(
    collectives: str | Collective | Workload | Sequence[str | Collective] | Sequence[_plan.Plan],
    topology: str | os.PathLike[str] | _topology.Topology | None = None,
    size: Size | Sequence[Size] | None = None,
    *,
    planner: str | Sequence[str] = "auto",
    shard: Size | Sequence[Size] | None = None,
    chunks: int | Sequence[int] = 1,
    progress: Progress | None = None,
    **how: Any,
) -> Comparison:
    """Plan with each planner for each size and number of chunks, and put the plans beside each other and the bound.

    ``st.compare("allreduce", net, size=["1MB", "64MB"], planner=["ring", "auto"])``, or plans that are there already:
    ``st.compare([first, second])``.

    Args:
        size, shard, planner, chunks: one or several, as a list or as text by comma.
        how: the other arguments of :func:`plan`.
    Raises:
        InputError: an argument is wrong. What a planner does not serve is no error: its row says why.
    """
    from .planners import find

    made = _plans(collectives)
    if made is not None:
        return Comparison(tuple(p.summary() for p in made), tuple(made))
    if topology is None:
        raise InputError("give the topology, too", "topology")
    net = _network(topology)
    name, sizes = ("shard", _each(shard)) if size is None else ("size", _each(size))
    if size is not None and shard is not None:
        raise InputError("give either the size of the full buffer or one rank's shard", "size")
    cells = [(s, count, p) for s in sizes for count in _each(chunks) for p in _each(planner)]
    for stage in (stage for spec in _each(planner) for stage in str(spec).split("+")):
        find(stage)  # a wrong name is refused, and a planner's file imported, before the first plan
    rows: list[dict[str, Any]] = []
    plans: list[Plan | None] = []
    for i, (amount, count, spec) in enumerate(cells):
        if progress is not None:
            progress(i, len(cells), f"{spec}, {amount}")
        row, result = _cell(collectives, net, spec, progress, how | {name: amount, "chunks": count})
        rows.append(row)
        plans.append(result)
    if progress is not None:
        progress(len(cells), len(cells), "done")
    return Comparison(tuple(rows), tuple(plans))


def _cell(
    collectives: Any, net: Topology, planner: str, progress: Progress | None, how: dict[str, Any]
) -> tuple[dict[str, Any], Plan | None]:
    """One row of a comparison, and its plan if there is one."""
    asked = {key: how.pop(key) for key in ("size", "shard", "chunks", "ranks", "root", "demand") if key in how}
    work = workload(collectives, net, **asked)
    try:
        result = plan(work, net, planner=planner, progress=progress, **how)
        verdict = result.verify()
        if verdict.finding is not None:
            raise StrettoError(f"the plan is not correct: {verdict.finding.message}")
    except InputError:
        raise
    except StrettoError as error:
        return request_facts(net, work) | {"planner": planner, "failed": str(error)}, None
    return plan_facts(result.simulate(), bounds(net, work), True), result


def _network(source: str | os.PathLike[str] | _topology.Topology) -> Topology:
    return topology(source)


def of_model(plan: _plan.Plan) -> Plan:
    """The same plan, with what can be asked of it."""
    return plan if isinstance(plan, Plan) else Plan(**{**_columns(plan), "topology": topology(plan.topology)})


def _columns(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def _node(net: Topology, rank: int | str) -> int:
    """The number of a node that is given by number or name."""
    if not isinstance(rank, str):
        return int(rank)
    if rank not in net.names:
        raise InputError(f"there is no node {rank!r} in {net.name}", "ranks")
    return net.names.index(rank)


def _uneven(
    kind: str, net: Topology, demand: Any, size: Size | None, ranks: list[int] | None, chunks: int, start_s: float
) -> Collective:
    """The AllToAll of a matrix, or of a matrix in a file."""
    from .formats.demand import read_demand
    from .model.demand import alltoallv

    if kind != "alltoallv":
        raise InputError(f"{kind} has no matrix; alltoallv has one", "demand")
    if size is not None:
        raise InputError("the matrix says how many bytes there are; give no size and no shard", "demand")
    if isinstance(demand, str | os.PathLike):
        path = os.fspath(demand)
        return alltoallv(net, read_demand(path), ranks=ranks, chunks=chunks, start_s=start_s, where=path)
    return alltoallv(net, demand, ranks=ranks, chunks=chunks, start_s=start_s)


def _plans(subject: Any) -> list[Plan] | None:
    """The plans of a list of plans, None if it is not one."""
    if isinstance(subject, Sequence) and subject and all(isinstance(p, _plan.Plan) for p in subject):
        return [of_model(p) for p in subject]
    return None


def _each(values: Any) -> list[Any]:
    """Several values as a list: from a list, from text by comma, from one value."""
    if isinstance(values, str):
        return values.split(",")
    return list(values) if isinstance(values, Sequence) else [values]


def draw(path: str | os.PathLike[str], plans: Sequence[Plan]) -> None:
    """Write plans on one HTML page, or as a picture if the path ends in ``.svg``.

    Raises:
        StrettoError: a plan is not correct, or the file cannot be written.
    """
    for each in plans:
        verdict = each.verify()
        if verdict.finding is not None:
            raise StrettoError(f"{each.title} is not correct: {verdict.finding.message}")
    timelines = [each.simulate() for each in plans]
    limits = [bounds(each.topology, each.workload) for each in plans]
    if os.fspath(path).lower().endswith(".svg"):
        from .report.picture import write_picture

        write_picture(os.fspath(path), timelines, [each[0] for each in limits])
    else:
        from .report import write_page

        write_page(os.fspath(path), timelines, limits)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    start = (row["planner"], format_size(row["size_bytes"]), str(row["chunks"]))
    if "failed" in row:
        return (*start, "none", "", "", "", "")
    ratio, bandwidth, planning_s = row["completion_over_bound"], row["algorithm_bandwidth"], row["planning_s"]
    return (
        *start,
        format_time(row["completion_s"]),
        format_time(row["bound_s"]),
        "" if ratio is None else f"{ratio:.3f}",
        "" if bandwidth is None else format_bandwidth(bandwidth),
        "" if planning_s is None else format_time(planning_s),
    )


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise Unsupported("tables need pandas, which is not installed: pip install pandas") from None
    return pandas

"""What is answered: plans, and what can be asked of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..model import plan as _plan
from ..model.errors import InputError
from ..model.units import parse_time
from .objects import Plan, of_model
from .requests import Collectives, Network, Size, request_topology, workload

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..bounds import Bound
    from ..choose.replan import Replanned
    from ..model.progress import Progress
    from ..model.targets import Target
    from ..model.telemetry import Telemetry
    from ..model.timeline import Timeline
    from ..schedule.kept import Kept
    from ..verify import Verdict


def plan(
    collectives: Collectives,
    topology: Network,
    size: Size | None = None,
    *,
    planner: str = "auto",
    shard: Size | None = None,
    chunks: int = 1,
    ranks: Sequence[int | str] | None = None,
    root: int = 0,
    demand: str | os.PathLike[str] | ArrayLike | None = None,
    seed: int = 0,
    effort: str | None = None,
    time_limit: str | float | None = None,
    options: Mapping[str, Any] | None = None,
    target: str | None = None,
    several_chunks: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Plan collectives over a topology. Equal requests give equal plans.

    Args:
        collectives: one or several: ``"allreduce"``, ``"allreduce:500MB,allgather:100MB@2s"``, or a list of kinds, of
            collectives or of jobs (dicts with the arguments of :func:`collective`, the kind as ``"collective"``).
        topology: a topology, a spec or the path of a file. Where it does not say what messages cost, a modest cost is
            assumed (:func:`stretto.topologies.assume_messages`).
        size: see :func:`collective`.
        shard: see :func:`collective`.
        chunks: see :func:`collective`.
        ranks: see :func:`collective`.
        root: see :func:`collective`.
        demand: see :func:`collective`.
        planner: a planner, and refiners of its plan: ``"ring"``, ``"ring+wan"`` (``stretto planners`` lists them).
        seed: for planners that draw random numbers.
        effort: how much the planner may try, in counted work: quick, normal, thorough, or a number such as "15", work
            that takes about 15 seconds of CPU. By default normal for ``auto`` and thorough for a planner that is named.
        time_limit: a safety net: time after which the best plan so far is taken, whose meta then says ``stopped``.
        options: of the planner and the refiners, by name.
        target: what shall run the plan: msccl, mscclpp, torch, nccl-p2p or chakra (docs: targets). The plan is one
            that it can run, or that can be exported for it.
        several_chunks: whether a message may carry several chunks, where messages cost.
        progress: called with (done, total, what) during long work.
    Raises:
        InputError: an argument is wrong. Unsupported: the planner does not serve this request, or the target cannot
            run it.
    """
    from ..choose.exportable import exportable
    from ..model.targets import find_target
    from ..planners import default_effort, run_planner

    net = request_topology(topology)
    work = workload(collectives, net, size, shard=shard, chunks=chunks, ranks=ranks, root=root, demand=demand)
    limit_s = None if time_limit is None else parse_time(time_limit, "time limit")

    def make(goal: Target | None, kept: Kept | None = None) -> _plan.Plan:
        return run_planner(
            planner, net, work, seed=seed, effort=effort or default_effort(planner), time_limit_s=limit_s,
            progress=progress, options=options, target=goal, kept=kept, several_chunks=several_chunks,
        )  # fmt: skip

    return of_model(make(None) if target is None else exportable(make, find_target(target)))


def replan(
    plan: _plan.Plan,
    news: str | os.PathLike[str] | Mapping[str, Any] | Telemetry,
    *,
    at: str | float | None = None,
    planner: str | None = None,
    anew: bool = False,
    seed: int = 0,
    effort: str | None = None,
    time_limit: str | float | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Replanned:
    """Plan what is left of a plan again, on the network as it is now.

    ``st.replan(plan, {"at": "5ms", "links": [{"src": "a", "dst": "b", "bandwidth": "1GB/s"}]}).plan``

    Args:
        news: what has changed: a telemetry file, or what such a file holds (docs: replanning).
        at: moment of the change, in the plan's time. Default: the moment that the news give.
        planner: the planner to use. Default: the planner that made the original plan, or ``auto``.
        anew: keep nothing of what was delivered; ranks still have what they held at first.
        seed: see :func:`plan`.
        effort: see :func:`plan`. Default: normal.
        time_limit: see :func:`plan`.
        options: see :func:`plan`.
        progress: see :func:`plan`.
    Raises:
        InputError: an argument is wrong. Unsupported: a sum needs a rank that cannot be reached.
    """
    from ..choose import replan as replanning
    from ..formats.telemetry import parse_telemetry, read_telemetry

    chunks = plan.workload.chunk_count
    if isinstance(news, (str, os.PathLike)):
        news = read_telemetry(os.fspath(news), plan.topology, chunks)
    elif isinstance(news, Mapping):
        news = parse_telemetry(news, plan.topology, chunks, "news")
    if at is not None:
        news = replace(news, at_s=parse_time(at, "at"))
    limit_s = None if time_limit is None else parse_time(time_limit, "time limit")
    done = replanning.replan(
        plan, news, planner=planner, anew=anew, seed=seed, effort=effort, time_limit_s=limit_s, options=options,
        progress=progress,
    )  # fmt: skip
    return done if done.plan is None else replace(done, plan=of_model(done.plan))


def load(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, Parquet or JSON.

    Raises:
        InputError: it cannot be read, is torn, of another version or no plan; names the place.
    """
    from ..formats.native import read_plan

    return of_model(read_plan(os.fspath(path)))


def verify(plan: _plan.Plan) -> Verdict:
    """Whether a plan is correct, and if not, the first thing that is wrong."""
    return of_model(plan).verify()


def simulate(plan: _plan.Plan, **how: Any) -> Timeline:
    """When each transfer of a plan starts, ends and arrives; arguments as for :meth:`Plan.simulate`."""
    return of_model(plan).simulate(**how)


def bound(
    subject: _plan.Plan | Collectives, topology: Network | None = None, size: Size | None = None, **how: Any
) -> Bound:
    """The time that no plan can beat, and why: of a plan's request, or of collectives on a topology.

    ``st.bound(plan)``, or ``st.bound("allgather", net, size="1GB")`` with the arguments of :func:`collective`.
    """
    from ..bounds import bounds
    from ..model.reach import refuse_unreachable

    if isinstance(subject, _plan.Plan):
        return of_model(subject).bound()
    if topology is None:
        raise InputError("give the topology, too", "topology")
    net = request_topology(topology)
    work = workload(subject, net, size, **how)
    refuse_unreachable(net, work.collectives)
    return bounds(net, work)[0]

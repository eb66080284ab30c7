"""What the commands do before they print: read a request, make, judge and describe plans."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..model.errors import InputError
from .output import refuse

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..model.collective import Workload
    from ..model.plan import Plan
    from ..model.timeline import Timeline
    from ..model.topology import Topology
    from ..verify import Verdict


SAID = (
    "reported_s", "epochs", "epoch_s", "proven", "gap", "objective", "attempts",
    "objective_s", "objective_bound_s", "objective_over_bound", "non_concurrent_bound_s",
    "non_concurrent_optimal", "optimal",
    "chosen", "tried", "stopped",
)  # fmt: skip
"""What a planner that solves a program, or asks others, says of its answer, in the plan's meta and in summaries."""


class Request:
    """A topology and a workload, as the command line asks for them."""

    def __init__(
        self,
        collectives: str,
        topology: str,
        size: str | None,
        shard: str | None,
        chunks: int,
        root: int,
        demand: str | None = None,
    ) -> None:
        from ..model.collective import Workload, make_collective
        from ..model.units import parse_size
        from ..topologies import load_topology

        self.topology: Topology = load_topology(topology)
        if demand is not None:
            self.workload = _uneven(collectives, self.topology, demand, chunks, size or shard)
            return
        if (size is None) == (shard is None):
            raise InputError("give either --size or --shard", "size")
        self.workload = Workload(
            tuple(
                make_collective(
                    kind,
                    self.topology,
                    parse_size(size, "--size") if size is not None else None,
                    shard_bytes=parse_size(shard, "--shard") if shard is not None else None,
                    root=root,
                    chunks=chunks,
                )
                for kind in collectives.split(",")
            )
        )

    def header(self) -> dict[str, Any]:
        return header(self.topology, self.workload)

    def plan(
        self, planner: str, seed: int, effort: str, time_limit_s: float | None, options: Sequence[str] | None
    ) -> Plan:
        from ..planners import run_planner

        return run_planner(
            planner,
            self.topology,
            self.workload,
            seed=seed,
            effort=effort,
            time_limit_s=time_limit_s,
            progress=show_progress,
            options=given_options(options),
        )


def _uneven(collective: str, topology: Topology, path: str, chunks: int, size: str | None) -> Workload:
    """The AllToAll of a matrix in a file."""
    from ..formats.demand import read_demand
    from ..model.collective import Workload
    from ..model.demand import alltoallv

    if collective != "alltoallv":
        raise InputError(f"{collective} has no matrix; alltoallv has one", "--demand")
    if size is not None:
        raise InputError("the matrix says how many bytes there are; leave out --size and --shard", "--demand")
    return Workload((alltoallv(topology, read_demand(path), chunks=chunks, where=path),))


def read_foreign(file: str, source: str, topology: str, size: str | None, shard: str | None) -> Plan:
    """The plan of another tool's schedule."""
    from ..formats import Size, importers
    from ..model.units import parse_size
    from ..topologies import load_topology

    known = importers()
    if source not in known:
        raise InputError(f"there is no format {source!r}; there are {', '.join(known)}", "--from")
    if (size is None) == (shard is None) and not (size is None and known[source].sized):
        raise InputError("give either --size or --shard: the file does not say", "size")
    given = Size(
        parse_size(size, "--size") if size is not None else None,
        parse_size(shard, "--shard") if shard is not None else None,
    )
    return known[source].read(file, load_topology(topology), given)


def given_options(texts: Sequence[str] | None) -> dict[str, str]:
    """``name=value`` texts by name."""
    given = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} must be name=value", "--option")
        given[name] = value
    return given


def chunk_count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of chunks", "--chunks")
    return int(text)


def verified(subject: Plan) -> Verdict:
    from ..verify import verify as check

    return check(subject)


def read_verified(file: str, as_json: bool) -> Plan:
    """The plan in a file; one that is not correct is refused (exit code 1), since its times mean nothing."""
    from ..formats.native import read_plan

    subject = read_plan(file)
    verdict = verified(subject)
    if not verdict.ok:
        refuse(subject, verdict, as_json)
    return subject


def judged(subject: Plan, barriers: bool = True) -> tuple[Timeline, tuple[Bound, ...]]:
    from ..bounds import bounds
    from ..simulate import simulate as run

    return run(subject, barriers=barriers), bounds(subject.topology, subject.workload)


def draw(path: str, plans: Sequence[tuple[Timeline, tuple[Bound, ...]]]) -> None:
    """Write plans as a page, or as a picture if the path ends in .svg."""
    if path.lower().endswith(".svg"):
        from ..report.picture import write_picture

        write_picture(path, [timeline for timeline, _ in plans], [limits[0] for _, limits in plans])
        return
    from ..report import write_page

    write_page(path, [timeline for timeline, _ in plans], [limits for _, limits in plans])


def header(net: Topology, workload: Any) -> dict[str, Any]:
    collectives = workload.collectives
    first = collectives[0]
    return {
        "topology": net.name,
        "collective": ",".join(c.kind for c in collectives),
        "ranks": len(first.ranks),
        "size_bytes": first.size_bytes,
        "shard_bytes": first.shard_bytes,
        "chunks": int(first.chunk_count // len(first.piece_bytes)),
    }


def times(timeline: Timeline, limits: tuple[Bound, ...]) -> dict[str, Any]:
    best = limits[0].seconds
    workload = timeline.plan.workload
    completion = timeline.completion_s
    total = sum(c.size_bytes for c in workload.collectives)
    data: dict[str, Any] = {
        "completion_s": completion,
        "bound_s": best,
        "bound_kind": limits[0].kind,
        "bound_witness": limits[0].witness,
        "completion_over_bound": completion / best if best else None,
        "algorithm_bandwidth": total / completion if completion else None,
    }
    if len(workload.collectives) > 1:
        data["mean_completion_s"] = timeline.mean_completion_s
        data["completions_s"] = timeline.completions_s.tolist()
    return data


def summary(timeline: Timeline, limits: tuple[Bound, ...], verdict: Verdict | None) -> dict[str, Any]:
    subject = timeline.plan
    meta = subject.meta
    return (
        {"planner": meta.get("planner", "unknown")}
        | header(subject.topology, subject.workload)
        | {"transfers": subject.transfer_count}
        | times(timeline, limits)
        | _schedule(meta.get("schedule"))
        | {
            "planning_s": meta.get("planning_s"),
            "planning_cpu_s": meta.get("planning_cpu_s"),
            "verified": verdict.ok if verdict is not None else None,
            "digest": subject.digest(),
        }
        | {key: meta[key] for key in SAID if key in meta}
    )


def _schedule(facts: Any) -> dict[str, Any]:
    """What a refiner of steps says of its schedule: a bound that no other schedule of the same steps can beat."""
    if not isinstance(facts, dict) or not facts.get("completion_s"):
        return {}
    return {
        "steps_bound_s": facts["bound_s"],
        "steps_gap": (facts["completion_s"] - facts["bound_s"]) / facts["completion_s"],
    }


def describe(net: Topology) -> dict[str, Any]:
    from collections import Counter

    from ..model.topology import KINDS

    links = Counter(zip(net.bandwidth.tolist(), net.latency_s.tolist(), strict=True))
    planes = Counter((len(p.nodes), p.bandwidth, p.latency_s, p.reconfiguration_s) for p in net.planes)
    return {
        "topology": net.name,
        "nodes": {KINDS[k]: int((net.kind == k).sum()) for k in range(3) if (net.kind == k).any()},
        "links": net.link_count,
        "link_kinds": [
            {"bandwidth": w, "latency_s": t, "links": count} for (w, t), count in sorted(links.items(), reverse=True)
        ],
        "sites": sorted({s for s in net.sites if s}),
        "planes": len(net.planes),
        "plane_kinds": [
            {"ports": ports, "bandwidth": w, "latency_s": t, "reconfiguration_s": turn, "planes": count}
            for (ports, w, t, turn), count in sorted(planes.items(), reverse=True)
        ],
        "notes": list(net.notes),
    }


def write_topology(net: Topology, to: str | None, output: str | None) -> dict[str, Any]:
    """Write a topology in another format, if asked to; what was written."""
    from ..formats import atomic_file
    from ..topologies.files import WRITERS

    if to is None and output is None:
        return {}
    if to is None or output is None:
        raise InputError("give both --to and -o", "--to")
    if to not in WRITERS:
        raise InputError(f"there is no format {to!r}; there are {', '.join(WRITERS)}", "--to")
    text = WRITERS[to](net, "--to astra-sim" if to == "astra-sim" else output)
    with atomic_file(output) as file:
        file.write(text)
    return {"file": output, "format": to}


_STARTED = time.monotonic()


def show_progress(done: int, total: int, what: str) -> None:
    """One line on stderr, for people who wait more than a second."""
    if not sys.stderr.isatty() or time.monotonic() - _STARTED < 1.0:
        return
    sys.stderr.write("\r\033[K" + (f"{what} ({done}/{total})" if done < total else ""))
    sys.stderr.flush()

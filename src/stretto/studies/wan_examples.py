"""The worked examples of the WAN paper: figures 2 and 3, two collectives each, as cells of its study.

A chain of flows is a collective with a chunk for each flow. What flows carry matters for times only; there is
nothing for the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Workload, make_collective
from ..model.plan import Plan, make_plan
from ..model.topology import Topology, make_topology
from ..planners import Request, find
from ..simulate import simulate
from .cell import request_columns
from .model import Cell, Row, Shared

MB = 10**6
AS_WRITTEN = "figure 3, as written"
"""Figure 3 with the schedule of the text, one flow after the other: A1, B1, A2, B2."""


def two_chains(net: Topology, links: Sequence[int], size_bytes: int, first: int) -> Plan:
    """Two chains of flows of one size, each flow over one link: the first ``first`` flows, and the others."""
    starts = (0, first)
    collectives = [
        make_collective("multicast", net, size_bytes * count, ranks=[0, 1], receivers=[1], chunks=count)
        for count in (first, len(links) - first)
    ]
    flows = range(len(links))
    return make_plan(
        net, Workload(tuple(collectives)), "ready-order", chunk=flows, src=net.src[links],
        dst=Ragged.single(net.dst[links]), route=Ragged.of([[link] for link in links]),
        depends=Ragged.of([[] if k in starts else [k - 1] for k in flows]), group=[int(k >= first) for k in flows],
    )  # fmt: skip


def figure_2() -> Plan:
    """F1 to F4 and F5, F6 of 9 MB: link e1 carries F1, F4 and F6, e2 carries F2 and F5, e3 carries F3."""
    net = make_topology("figure 2", [0] * 3, [(0, 1, 9 * MB, 0), (1, 2, 9 * MB, 0), (2, 0, 9 * MB, 0)])
    e1, e2, e3 = 0, 1, 2
    return two_chains(net, [e1, e2, e3, e1, e2, e1], 9 * MB, 4)


def figure_3() -> Plan:
    """A1, A2 and B1, B2 of 1 MB over one link of 1 MB/s."""
    net = make_topology("figure 3", [0] * 2, [(0, 1, MB, 0), (1, 0, MB, 0)])
    return two_chains(net, [0] * 4, MB, 2)


EXAMPLES = {"figure 2": figure_2, "figure 3": figure_3, AS_WRITTEN: figure_3}
SCHEMES = {
    "figure 2": ("out-of-order", "tcp-fair"),
    "figure 3": ("out-of-order", "equal-alloc", "non-concurrent"),
    AS_WRITTEN: ("non-concurrent",),
}
"""Who shares the links of each example. With ``tcp-fair`` the flows that are ready share them, as the text does."""


def plan_of(example: str, scheme: str) -> Plan:
    """The example's flows with the links shared by a scheme."""
    plan = EXAMPLES[example]()
    if example == AS_WRITTEN:
        start_s = np.array([0.0, 2.0, 1.0, 3.0])  # of A1, A2, B1, B2
        return replace(plan, sharing="timed", start_s=start_s, finish_s=start_s + 1)
    return find(scheme).run(plan, Request(plan.topology, plan.workload))


def example_row(cell: Cell, seed: int = 0) -> Row:
    """The row of an example, with the completion of each collective and what the first flow takes."""
    plan = plan_of(cell.topology, cell.scheme)
    line = simulate(plan)
    mean_s = line.mean_completion_s
    first_s, second_s = line.completions_s.tolist()
    return request_columns(cell) | {
        "completion_s": mean_s, "reported_s": mean_s, "first_s": first_s, "second_s": second_s,
        "first_flow_s": float(line.finish_s[0] - line.start_s[0]),
        "ranks": 2, "transfers": plan.transfer_count, "bound_s": None, "completion_over_bound": None,
        "algorithm_bandwidth": None, "planning_s": 0.0, "planning_cpu_s": 0.0, "proven": None, "verified": False,
    }  # fmt: skip


def cells(seeds: int) -> list[Cell]:
    """The cells of both examples; they are the same for all seeds."""
    return [
        Cell(scheme, example, EXAMPLES[example]().workload.collectives[0].size_bytes, scheme, (), "multicast",
             shared=Shared(2), seeds=seeds, run=example_row)
        for example, schemes in SCHEMES.items()
        for scheme in schemes
    ]  # fmt: skip

"""Plans on optical planes of their own, at the same time: one plan of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.errors import Unsupported
from ..model.plan import Plan, Turns, make_plan
from ..model.topology import Topology

COLUMNS = ("chunk", "src", "op", "plane", "group", "start_s", "finish_s")


def side_by_side(topology: Topology, plans: Sequence[Plan]) -> Plan:
    """Plans that use different planes of one network, in one; the verifier says whether they do.

    Steps of one plan wait for none of another one's, so the plan has no barriers between steps; its dependencies say
    what waits for what.

    Raises:
        Unsupported: a plan is not timed.
    """
    if any(plan.sharing != "timed" or plan.group is None or plan.plane is None for plan in plans):
        raise Unsupported("plans on optical planes of their own are joined where all are timed and have steps")
    work = Workload(tuple(collective for plan in plans for collective in plan.workload.collectives))
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    depends, turns = [], []
    row = chunk = 0
    for plan in plans:
        for name, column in columns.items():
            column.append(getattr(plan, name) + (chunk if name == "chunk" else 0))
        depends.append(plan.depends.with_values(plan.depends.values + row))
        at = plan.turns
        turns += [
            (int(at.plane[t]), int(at.before[t]) + row, float(at.start_s[t]), at.matching[t]) for t in range(at.count)
        ]
        row, chunk = row + plan.transfer_count, chunk + plan.workload.chunk_count
    joined: dict[str, Any] = {name: np.concatenate(each) for name, each in columns.items()}
    dst, route = (Ragged.concatenate([getattr(plan, name) for plan in plans]) for name in ("dst", "route"))
    return make_plan(
        topology, work, "timed", **joined, dst=dst, route=route, depends=Ragged.concatenate(depends),
        turns=Turns.of(turns),
    )  # fmt: skip

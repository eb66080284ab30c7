"""Time against money: plans of one request that trade one for the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.errors import InputError
from ..model.topology import Topology as _Topology
from ..model.units import format_time, format_usd, parse_time
from .objects import Plan, of_model
from .requests import Collectives, Network, Size, request_topology, workload

if TYPE_CHECKING:
    from ..model import plan as _plan
    from ..model.progress import Progress

MOST_POINTS = 100


@dataclass(frozen=True, eq=False)
class Front(Sequence[Plan]):
    """Plans of one request by cost, the cheapest first: each is faster than all cheaper ones.

    Attributes:
        plans: each verified.
        rows: for each plan its ``cost_usd`` and ``completion_s``, ``bound_s``, the time that no plan beats which costs
            no more, ``how`` the planner was asked, and ``digest``.
        least_usd: what no plan can cost less than.
    """

    plans: tuple[Plan, ...]
    rows: tuple[dict[str, Any], ...]
    least_usd: float

    HEADER = ("cost", "over least", "completion", "bound at that cost", "ratio", "planned on")

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, i: Any) -> Any:
        return self.plans[i]

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """Each row as text, in the columns of ``HEADER``."""
        return [
            (
                format_usd(row["cost_usd"]),
                f"{row['cost_usd'] / self.least_usd:.3f}" if self.least_usd else "",
                format_time(row["completion_s"]),
                format_time(row["bound_s"]),
                f"{row['completion_s'] / row['bound_s']:.3f}" if row["bound_s"] else "",
                row["how"],
            )
            for row in self.rows
        ]

    def place(self, most_usd: float) -> int:
        """The place of the fastest plan that costs at most that.

        Raises:
            InputError: all cost more; says what the cheapest one costs.
        """
        cheaper = len([row for row in self.rows if row["cost_usd"] <= most_usd])
        if not cheaper:
            found, least = format_usd(self.rows[0]["cost_usd"]), format_usd(self.least_usd)
            raise InputError(f"the cheapest plan costs {found}, and none costs less than {least}", "budget")
        return cheaper - 1

    def __repr__(self) -> str:
        table = [self.HEADER, *self.cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([*lines, f"no plan costs less than {format_usd(self.least_usd)}"])


def front(
    collectives: Collectives,
    topology: Network,
    size: Size | None = None,
    *,
    points: int = 5,
    budget: float | None = None,
    planner: str = "auto",
    seed: int = 0,
    effort: str | None = None,
    time_limit: str | float | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **request: Any,
) -> Front:
    """Plans that trade time for money, on a network whose links have prices.

    Args:
        points: how many budgets are tried; the front may have more or fewer plans.
        budget: US dollars; refused before planning if no plan costs that little.
        request: the other arguments of :func:`collective`.
        planner, seed, effort, time_limit, options, progress: as for :func:`plan`; for each plan that is tried.
    Raises:
        InputError: an argument is wrong, or no link has a price.
    """
    from ..bounds.money import least_usd
    from ..choose.front import front as find
    from ..planners import default_effort, run_planner

    net = request_topology(topology)
    if not net.usd_per_byte.any():
        raise InputError("no link has a price; give links a 'usd_per_GB', or take a cloud: network", net.name)
    if not 1 <= points <= MOST_POINTS:
        raise InputError(f"{points} is not a number of points from 1 to {MOST_POINTS}", "points")
    work = workload(collectives, net, size, **request)
    if budget is not None and budget < (least := least_usd(net, work)):
        raise InputError(f"no plan costs less than {format_usd(least)}, and {format_usd(budget)} are given", "budget")
    tried = 0

    def plan_by(spec: str, on: _Topology) -> _plan.Plan:
        nonlocal tried
        tried += 1
        if progress is not None:
            progress(tried, 2 * points + 3, f"plan {tried} of the front")
        given = (options or {}) if spec == planner else {}
        limit_s = None if time_limit is None else parse_time(time_limit, "time limit")
        make = partial(run_planner, spec, on, work, seed=seed, time_limit_s=limit_s, options=given)
        return make(effort=effort or default_effort(spec))

    found = find(net, work, planner, plan_by, points)
    plans = tuple(of_model(point.plan) for point in found.points)
    rows = tuple(
        {
            "cost_usd": point.cost_usd, "completion_s": point.completion_s, "bound_s": point.bound_s, "how": point.how,
            "digest": point.plan.digest(),
        }
        for point in found.points
    )  # fmt: skip
    return Front(plans, rows, found.least_usd)

"""In which order ``auto`` asks its candidates, how far each may go, and what their plans are compared by.

Planners that take little come first, then those whose work grows with ranks alone; then come, where bandwidth decides,
the planners that fill links, then the other leading ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf

from ...bounds import bounds, mean_bound
from ...model.errors import StrettoError
from ...model.plan import Plan
from ...schedule.best import Answer, ask, completion_s, exposed_s
from ...schedule.cutting import messages_cost, share_of_bytes
from ...schedule.effort import EFFORTS, Budget
from ...schedule.fitting import fitted
from ...schedule.servers import are_far_apart
from ...simulate import simulate
from ..registry import Candidate, Entry, Request, asked_by

NEAR = 1.005
"""A plan that takes at most this many times the lower bound is good enough."""

FAR, FAR_IN_MESSAGES, BYTES_ALONE = 1.1, 2.0, 0.9
"""A plan is far from the lower bound that takes more than ``FAR`` times it where the bound is tight: where bandwidth
decides, and at least ``BYTES_ALONE`` of a message's time is that of its bytes; elsewhere ``FAR_IN_MESSAGES`` times. A
plan that is alike for all ranks suffices if it is not far, any other up to ``FAR_IN_MESSAGES``. AllGather of 1 GB on
trn2:4 ends at 1.02 of the bound by ``forest``, by ``symmetric`` at 1.12 (benchmarks/heldout.py -t trn2:4)."""

EARLY_SHARE = 0.1
"""Share of the effort, of "normal" at most, up to which a planner takes little. On seed 0 0.2 is as good
(benchmarks/sweep.py)."""

BANDWIDTH_DECIDES = 0.5
"""Share of the lower bound that is not latency, nor what messages cost, from which bandwidth decides. By
benchmarks/sweep.py 0.2 to 0.8 differ by less than 0.1 %."""

SPLIT_SHARE, FILLING_SHARE = 0.5, 0.75
"""Share of what is left that a search may spend while another leading planner follows for which the rest is enough; the
second is of planners that fill links: with 0.5 AllReduce on mesh:8x8 ends at 1.05 of the bound instead of 1.03. The
first is also the least share of all effort for one that is asked since the best plan is far from the bound and that
does not search while its budget lasts."""

KEPT_SHARE = 0.25
"""Share of what is left up to which other leading planners keep the least that they take, the cheapest first."""

DUE_TIMES = 12.0
"""Times the effort up to which a leading planner is asked though others have made plans, if none of these suffices and
the best one is far from the lower bound; fewer where it is nearer, but all of the effort."""

FURTHER_SHARE = 0.33
"""Share of the effort up to which a planner that does not lead is asked though nothing is left, while the best plan is
more than ``FAR`` times the bound."""

EXPECTING_SHARE = 0.25
"""What a planner takes to say how soon its plan may end, where that is all that it does, as a share of its work."""

OVER_BUDGET = 150.0
"""Times the effort from which a planner is asked only if no other has made a plan."""


@dataclass(frozen=True)
class Turn:
    """When a candidate is asked."""

    name: str
    steps: float  # what it takes, at least
    most: float  # if it leads and there is a plan, the steps up to which it is asked though they are not left
    leads: bool  # it is asked whatever it takes while none has made a plan that suffices
    suffices: bool  # whether its plan is one,
    far_s: float  # if it ends by then, seconds
    cuts: bool  # whether it cuts pieces as it needs
    share: float  # of the effort that is left it spends no more while another one that leads follows
    place: tuple[object, ...]
    least_s: Callable[[Request], float] | None = None  # what its plan takes at least, about
    again: float = 0.0  # the steps that it has at least if it is asked since the best plan is far from the bound

    def part(self, left: float, later: Sequence[Turn]) -> float:
        """How many steps of those that are left the candidate may spend while others follow."""
        leading = sorted(turn.steps for turn in later if turn.leads)
        kept = max((steps for steps in accumulate(leading) if steps <= KEPT_SHARE * left), default=0.0)
        part = self.share * left
        if leading and self.steps <= part and leading[0] <= left - part:
            return min(part, left - kept)
        return left - kept if self.steps <= left - kept else left


@dataclass(frozen=True)
class Case:
    """What the order of candidates depends on."""

    request: Request
    budget: Budget
    bound_s: float  # the lower bound
    latency_s: float  # of it, what the longest way takes
    wide: bool  # whether bandwidth decides
    far: float  # times the lower bound at which a plan is far from it

    @classmethod
    def of(cls, request: Request, budget: Budget) -> Case:
        limits = bounds(request.topology, request.workload)
        bound_s = limits[0].seconds
        latency_s = next((b.seconds for b in limits if b.kind == "latency path"), 0.0)
        bytes_share = share_of_bytes(request.topology, request.workload)
        wide = (1 - latency_s / bound_s if latency_s else 1.0) * bytes_share >= BANDWIDTH_DECIDES
        far = FAR if wide and bytes_share >= BYTES_ALONE else FAR_IN_MESSAGES
        return cls(request, budget, bound_s, latency_s, wide, far)

    @property
    def several(self) -> bool:
        """Whether there are several collectives, whose mean completion counts."""
        return len(self.request.workload.collectives) > 1

    def score_s(self, plan: Plan) -> float:
        """What plans are compared by, seconds: their completion, or the mean completion of several collectives."""
        return simulate(plan).mean_completion_s if self.several else completion_s(plan)

    def exposed_s(self, plan: Plan) -> float:
        """What counts besides the score where the target's bytes may come late, seconds."""
        target = self.request.target
        return 0.0 if target is None or self.several else exposed_s(plan, self.latency_s, target.late_share)

    def ask(self, name: str, make: Callable[[], Plan]) -> Answer:
        """What a candidate answers. A program of steps moves further chunks of a message at no cost."""
        target = self.request.target
        return ask(name, make, self.score_s, self.exposed_s, target is not None and target.equal_parts)

    def fitted(self, plan: Plan) -> Plan:
        """A changed plan as the target can run it; Unsupported says why it cannot."""
        target = self.request.target
        return plan if target is None else fitted(plan, target, self.request.budget.apart())

    @cached_property
    def near_s(self) -> float:
        """A plan with that score is good enough, seconds."""
        if self.several:
            return NEAR * mean_bound(self.request.topology, self.request.workload).seconds
        return NEAR * self.bound_s

    def told(self, best: Answer | None) -> Request:
        """The request, with the time that is soon enough and the best time so far. Neither is known where plans are
        not compared by their completion alone."""
        late = self.request.target is not None and self.request.target.late_share > 0
        enough_s = 0.0 if self.several or late else self.near_s
        return replace(self.request, enough_s=enough_s, others_s=inf if best is None or self.several else best.likely_s)

    def worth(self, best: Answer) -> float:
        """Steps that a leading planner may take, for what may be gained on the best plan so far."""
        above_s, far_s = NEAR * best.likely_s - self.near_s, (self.far - 1.0) * self.near_s
        return self.budget.steps * (DUE_TIMES if above_s >= far_s else max(1.0, DUE_TIMES * above_s / far_s))

    def hopeless(self, turn: Turn, best: Answer) -> bool:
        """Whether a candidate's plan would end later than the best one so far."""
        if turn.least_s is None:
            return False
        try:
            least_s = turn.least_s(self.request)
        except StrettoError:  # if it is asked, it says why it refuses
            return False
        hopeless = least_s > best.likely_s
        if hopeless:
            self.budget.charge(EXPECTING_SHARE * turn.steps)
        return hopeless

    def further(self, best: Answer) -> float:
        """Steps that any other planner may take though nothing is left, for what may be gained on the best plan."""
        far = best.likely_s > FAR * self.bound_s and not self.budget.stop.fired
        return FURTHER_SHARE * self.budget.steps if far else 0.0

    def turns(self) -> list[Turn]:
        """All candidates, in the order in which they are asked."""
        count = len(self.request.workload.collectives)
        ranks = min(len(c.ranks) for c in self.request.workload.collectives)
        asked = [
            (e, e.auto)
            for e in asked_by("auto")
            if e.auto is not None
            and e.auto.collectives_from <= count
            and e.auto.ranks_from <= ranks
            and e.auto.asked(self.request)
        ]
        return sorted((self._turn(*each) for each in asked), key=lambda turn: turn.place)

    def _turn(self, entry: Entry, candidate: Candidate) -> Turn:
        steps = candidate.steps(self.request)
        leads = candidate.leads and steps <= OVER_BUDGET * self.budget.steps
        rooted = any(c.traits.rooted for c in self.request.workload.collectives)
        # one message to all, through switches that copy, may be best of what comes from one root; and where sites are
        # far apart, what fills links between them comes nearer to the bound
        far_apart = are_far_apart(self.request.topology, self.request.workload)
        few_messages = candidate.few_messages and not rooted and not far_apart
        fills_links = leads and candidate.fills_links and not (far_apart and steps > self.budget.steps)
        affordable = leads and steps <= self.budget.beyond * self.budget.steps
        places = (
            candidate.collectives_from > 1,
            not candidate.leads and steps <= EARLY_SHARE * min(self.budget.steps, EFFORTS["normal"]),
            leads and candidate.by_ranks,
            self.wide and (fills_links or (affordable and few_messages)),
            affordable and candidate.few_messages,
            affordable and not candidate.fills_links,
            leads,
            True,
        )
        share = (FILLING_SHARE if candidate.fills_links else SPLIT_SHARE) if candidate.counts else 1.0
        # where latency or messages decide, searches may find what plans alike for all ranks are not
        fits = self.wide and not (rooted and messages_cost(self.request.topology))
        suffices = leads and (fits or not candidate.by_ranks)
        far_s = (self.far if candidate.by_ranks else FAR_IN_MESSAGES) * self.bound_s
        place, least_s = (places.index(True), candidate.counts, steps, entry.name), candidate.least_s
        # what fills links is not worth more than the effort where bandwidth does not decide
        most = self.budget.steps if candidate.fills_links and not self.wide else inf
        again = 0.0 if candidate.counts else max(steps, SPLIT_SHARE * self.budget.steps)
        return Turn(entry.name, steps, most, leads, suffices, far_s, entry.cuts, share, place, least_s, again)

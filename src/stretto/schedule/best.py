"""The one place that compares plans, by the one score: when the simulator says that the last rank has all it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..kernels import at_speed
from ..model.errors import StrettoError
from ..model.messages import message_count, messages_of
from ..model.plan import Plan
from ..model.rows import ends_at_nodes
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..simulate import simulate
from . import kernel_dispatch

PER_HALF = 1.01
"""Times the completion that half the messages may cost. On five uneven networks and five fabrics (four collectives,
benchmarks/messages.py) this leaves out 23 % of the messages and costs 0.16 % of the completion, at most 1.6 %; 1.0025
leaves out 10 % for nothing."""

CHUNK_SHARE = 0.01
"""What a further chunk of a message costs a host, as a share of what a message costs: at most 0.6 of 50 us in the
compiled loop (benchmarks/message_chunks.py). Completions do not count it. For Python's loop, in which a chunk costs a
seventh of a message, and which serves where the other one is not compiled, ``stretto run`` asks for a message for each
chunk."""

CHAIN_STEPS = 10.0
"""Steps of a kernel's inner loop for each transfer whose chains are followed."""

MOST_EXPANDED = 1 << 17
"""Transfers of a plan by symmetry beyond which its chains are not followed, as each transfer would have to be."""


def completion_s(plan: Plan) -> float:
    """When the last transfer of a plan has arrived, seconds, as the simulator says.

    A timed plan over links whose transfers have one source and one receiver each says so itself, which is quicker. Of a
    plan by symmetry the representatives say it.
    """
    if isinstance(plan, SymmetricPlan):
        plan = plan.part
    if not plan.transfer_count:
        return 0.0
    single = plan.other_src is None and (plan.dst.lengths == 1).all()
    if plan.sharing == "timed" and not plan.topology.planes and single:
        assert plan.finish_s is not None, "timed"
        return float((plan.finish_s + plan.topology.route_latency_s(plan.route)).max())
    return simulate(plan).completion_s


def preference_s(plan: Plan) -> float:
    """What plans of one request are compared by: their completion and, where messages cost, how many these are.

    A plan with half as many messages is preferred if it ends at most ``PER_HALF`` times as late.
    """
    return completion_s(plan) * _surcharge(plan)


def handling_s(plan: Plan) -> float:
    """What the host that has most to do for further chunks of messages does for them, seconds."""
    messages = messages_of(plan)
    if messages is None:
        return 0.0
    further = (ends_at_nodes(plan, forks=True) - ends_at_nodes(messages.merged, forks=True)).max()
    return chunk_s(plan.topology) * int(further)


def chunk_s(topology: Topology) -> float:
    """What a host does for a further chunk of a message, seconds."""
    costs_s = topology.message_s[topology.message_s > 0]
    return CHUNK_SHARE * float(costs_s.mean()) if len(costs_s) else 0.0


def _surcharge(plan: Plan, in_steps: bool = False) -> float:
    if not plan.topology.message_s.any():
        return 1.0
    return surcharge(message_count(plan) if in_steps else plan.transfer_count)


def surcharge(transfers: int) -> float:
    """Times its completion that a plan counts for its messages where these cost, of which each chunk is as good as one:
    whoever sends a message of several chunks does something for each of them (benchmarks/message_chunks.py)."""
    return math.pow(max(transfers, 1), math.log2(PER_HALF))


def best(plans: Iterable[Plan]) -> Plan:
    """The plan that is preferred; of several alike the first of them."""
    return min(plans, key=preference_s)


def exposed_s(plan: Plan, least_s: float, share: float) -> float:
    """Seconds of latency that chains of a plan's transfers meet beyond what no plan can avoid, as far as they count.

    On paper other transfers fill the time in which one waits for what must arrive before it. Where bytes may come late
    that time is longer than the plan says, and links fall idle.

    Args:
        least_s: latency that no plan can avoid.
        share: of the plan's completion, up to which such seconds count.
    """
    if not share or (isinstance(plan, SymmetricPlan) and plan.transfer_count > MOST_EXPANDED):
        return 0.0
    latency_s, after = plan.topology.route_latency_s(plan.route), plan.depends.turned()
    chains = at_speed(kernel_dispatch.longest_chains, CHAIN_STEPS * plan.transfer_count)
    longest_s = chains(latency_s, after.offsets, after.values.astype(np.int64)).max(initial=0.0)
    return max(0.0, min(float(longest_s) - least_s, share * completion_s(plan)))


@dataclass(frozen=True)
class Answer:
    """What one candidate answered."""

    name: str  # the candidate
    plan: Plan | None = None  # None if it refused
    score_s: float = math.inf  # the score of the plan, seconds
    refusal: StrettoError | None = None  # why it refused
    exposed_s: float = 0.0  # what counts besides the score, see exposed_s()
    in_steps: bool = False  # whether further chunks of a message cost nothing, as in programs of steps

    @property
    def likely_s(self) -> float:
        """The score, and what chains may meet besides."""
        return self.score_s + self.exposed_s

    @property
    def preference_s(self) -> float:
        """What is likely, with the surcharge for messages, see :func:`preference_s`."""
        return self.likely_s if self.plan is None else self.likely_s * _surcharge(self.plan, self.in_steps)

    @property
    def handled_s(self) -> float:
        """What is likely, with the surcharge for messages and what hosts do for further chunks of them, seconds."""
        if self.plan is None:
            return self.likely_s
        return self.likely_s * _surcharge(self.plan, True) + (0.0 if self.in_steps else handling_s(self.plan))


def ask(
    name: str, make: Callable[[], Plan], score: Callable[[Plan], float] = completion_s,
    exposed: Callable[[Plan], float] | None = None, in_steps: bool = False,
) -> Answer:  # fmt: skip
    """Ask one candidate; a candidate that cannot serve the request is an answer too."""
    try:
        plan = make()
        return Answer(name, plan, score(plan), None, 0.0 if exposed is None else exposed(plan), in_steps)
    except StrettoError as refusal:
        return Answer(name, refusal=refusal)


def best_of(answers: Iterable[Answer], within: float = 1.0) -> Answer:
    """The answer that is likely to end first; an answer without a plan if all candidates refused.

    Args:
        within: up to this many times the least seconds are alike; of several the first answer is taken.
    """
    answers = list(answers)
    enough_s = within * min(answer.likely_s for answer in answers)
    return next(answer for answer in answers if answer.likely_s <= enough_s)

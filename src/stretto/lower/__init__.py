"""Lower a plan to programs: what each node has to send, receive, add up and wait for.

Every node that sends or receives gets a program: ranks, and routers that store and forward. A program
knows its own node only. Most dependencies of a transfer are arrivals at its source, which the source sees;
where a dependency happens at another node, that node *signals* it. The turns of optical planes and the
barriers between groups are events at one more node, the *controller* (SWOT, section 3.3: before a transfer
is issued the shim verifies, by explicit signals, that its circuit is there).

A process cannot send what others sum under way. So a switch that sums is a node with a program, too (:func:`played`):
what meets there is received and added up, then sent on.

A transfer's dependencies decide what it carries (docs: decision 3), so a node may hold several
*versions* of a chunk: each is what some transfer sends, or what the node must end with. A version is
an earlier one plus more arrivals, in an order that is fixed here, so that sums do not depend on timing; and where
several ranks make the same sum, on the rank (:mod:`.orders`). A program waits only for dependencies of the plan, so
programs cannot deadlock.

A program is columns (:class:`Program`); ``program.steps`` is the same row by row, for who runs it. :func:`lower` makes
the programs of all nodes, :func:`lower_for` that of one: of a plan by symmetry without the transfers of others.
"""

from __future__ import annotations

from .kernel_programs import NOTHING
from .lowering import FIRST_CIRCUIT, MOST_SUBFLOWS, circuit_subflow, circuit_to, lower, lower_for, subflows
from .played import Played, played
from .programs import Program, node_name
from .rounds import rounds_of
from .steps import ChunkSteps, Event, Receive, Send, Steps, Version, steps_of

__all__ = [
    "FIRST_CIRCUIT", "MOST_SUBFLOWS", "NOTHING", "ChunkSteps", "Event", "Played", "Program", "Receive", "Send", "Steps",
    "Version", "circuit_subflow", "circuit_to", "lower", "lower_for", "node_name", "played", "rounds_of",
    "steps_of", "subflows",
]  # fmt: skip

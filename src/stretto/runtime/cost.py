"""What a message costs the processes that run plans, as the ``message_s`` of a topology's links.

A message is one transfer to one receiver. Its two processes spend time on it however small it is: the sender takes it
from its queue and hands it to the kernel, the receiver is woken, finds the place of the bytes and releases what waits
for them. While they do so the link between them carries nothing for them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.plan import Plan
from ..model.targets import MESSAGE_S
from ..model.topology import Topology
from ..model.variants import copying_nowhere, costing


def costed(topology: Topology, message_s: float = MESSAGE_S) -> Topology:
    """The network as processes see it: on links of those who handle messages each costs at least ``message_s``.

    What the links themselves ask for is kept where it is more, unless it was only assumed.
    """
    return costing(topology, message_s)


def served(topology: Topology, message_s: float = MESSAGE_S) -> Topology:
    """The network that plans for processes are made on: :func:`costed`, and no switch copies, since a process sends
    what is for several others to each of them."""
    return copying_nowhere(costed(topology, message_s))


def as_run(plan: Plan, message_s: float = MESSAGE_S) -> Plan:
    """The plan on the network as processes see it: messages of a timed plan take longer by what they cost more.

    It tells the simulator what to expect. It may not verify, since starts are still the plan's.
    """
    net = costed(plan.topology, message_s)
    if net is plan.topology or plan.finish_s is None:
        return replace(plan, topology=net)
    more_s = np.zeros(plan.transfer_count)
    np.maximum.at(more_s, plan.route.owners, (net.message_s - plan.topology.message_s)[plan.route.values])
    return replace(plan, topology=net, finish_s=plan.finish_s + more_s)

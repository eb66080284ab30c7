"""The network as processes see it: each message costs at least the executor's own time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from networks import ring
from stretto.runtime.cost import MESSAGE_S, costed


def test_a_link_costs_the_executors_time_or_its_own_if_that_is_more():
    net = ring(3)
    own = np.where(np.arange(net.link_count) % 2, 2 * MESSAGE_S, 0.0)
    assert costed(replace(net, message_s=own)).message_s.tolist() == np.maximum(own, MESSAGE_S).tolist()


def test_a_network_whose_messages_cost_more_stays_what_it_is():
    net = replace(ring(3), message_s=np.full(6, 1.0))
    assert costed(net) is net

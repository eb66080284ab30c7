"""What no route may pass through is not passed through, by any planner: switches without transit."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import stretto as st
from networks import random_network
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.kinds import KINDS
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.variants import usable
from stretto.planners import registered, run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

PLANNERS = [e for e in registered().values() if not e.refines]
CASES = [(e.name, kind) for e in PLANNERS for kind in e.collectives if kind in KINDS]
SEED = 23
"""A network of five accelerators, two switches and a router."""


def barred(seed):
    """A network whose accelerators also reach each other without its switches, which no route may pass through."""
    net = random_network(seed)
    assert net.is_switch.any()
    return replace(net, transit=net.transit & ~net.is_switch)


def work_of(kind, net):
    receivers = [1] if kind == "multicast" else None
    return Workload((make_collective(kind, net, 5040, receivers=receivers),))


@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda word: word)
def test_no_planner_passes_through_a_switch_without_transit(name, kind):
    net = barred(SEED)
    with suppress(Unsupported):
        plan = run_planner(name, net, work_of(kind, net), effort="quick", options=registered()[name].quick)
        assert verify(plan).ok
        assert simulate(plan).completion_s > 0


def test_ranks_that_only_such_a_switch_joins_are_named(tmp_path):
    links = [(a, b, 1e9, 1e-6) for v in (0, 1, 2) for a, b in ((v, 3), (3, v))]
    net = make_topology("hub", [ACCELERATOR] * 3 + [SWITCH], links, transit=[False] * 4)
    for name, kind in (("auto", "allreduce"), ("paths", "alltoall")):
        with pytest.raises(InputError, match=r"gpu. cannot reach gpu."):
            run_planner(name, net, work_of(kind, net))

    with pytest.raises(InputError, match=r"gpu. cannot reach gpu."):
        st.bound("allreduce", net, "1MB")
    file = tmp_path / "hub.json"
    file.write_text(json.dumps(net.to_json()))
    with pytest.raises(InputError, match="or let routes pass through all switches"):
        load_topology(str(file))


@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda word: word)
def test_every_planner_refuses_a_network_that_is_left_without_links(name, kind):
    net = load_topology("star:8?sharp=true")
    barred_net = replace(net, transit=net.transit & ~net.is_switch)
    with pytest.raises((InputError, Unsupported)):
        run_planner(name, barred_net, work_of(kind, barred_net), effort="quick", options=registered()[name].quick)


def test_ranks_that_no_way_joins_are_named_though_there_is_a_link():
    net = make_topology("sink", [ACCELERATOR] * 3 + [SWITCH], [(0, 3, 1e9, 1e-6)])
    with pytest.raises((InputError, Unsupported), match=r"cannot reach|no link"):
        run_planner("hierarchical", net, work_of("allgather", net))


@pytest.mark.parametrize("name", ["greedy", "mtegcca"])
def test_such_a_switch_keeps_no_planner_from_sums_over_others(name):
    net = barred(SEED)
    assert verify(run_planner(name, net, work_of("allreduce", net), effort="quick")).ok


def test_bounds_and_plans_of_a_request_see_the_same_network():
    net = barred(SEED)
    plan = st.plan("allgather", net, "1MB", planner="forest")
    assert plan.verify().ok
    assert st.bound("allgather", net, "1MB").seconds == pytest.approx(st.bound("allgather", usable(net), "1MB").seconds)
    assert not np.isin(plan.topology.src, np.flatnonzero(net.is_switch)).any()

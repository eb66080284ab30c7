"""gloo as PyTorch calls it, in an emulated network, beside what ``order`` says that it sends."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from library_runs import Gloo, sent_bytes
from stretto import emulator
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.order import libraries_gloo
from stretto.order.answer import order
from stretto.order.libraries import LIBRARIES
from stretto.order.traffic import Layout

pytestmark = [
    pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal())),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

RANKS, SIZE = 5, 2_000_000


@pytest.fixture(scope="module")
def gloo():
    with Gloo() as process:
        yield process


def test_every_cable_carries_the_bytes_that_the_traffic_says(gloo):
    pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
    net = make_topology("mesh", [ACCELERATOR] * RANKS, [(a, b, 1e9, 0.0) for a, b in pairs])
    with emulator.built(net) as places:

        def counters() -> np.ndarray:
            sent = [sent_bytes(places, v) for v in range(RANKS)]
            return np.array([[sent[a].get(b, 0) for b in range(RANKS)] for a in range(RANKS)])

        for kind in libraries_gloo.ALGORITHMS:
            before = counters()
            gloo.seconds(places, range(RANKS), SIZE, repeats=1, kind=kind)
            measured = (counters() - before) / 2  # it warms up by one more
            expected = np.zeros((RANKS, RANKS))
            for phase in LIBRARIES["gloo"].traffic(Layout.even(RANKS), kind, SIZE, 0).phases:
                np.add.at(expected, (phase.src, phase.dst), phase.size_bytes * phase.times)
            # headers, acknowledgements, barriers and meeting each other are the rest
            assert np.abs(measured - expected).max() < 0.02 * SIZE, kind


def test_of_two_orders_gloo_is_faster_in_the_one_that_is_predicted_to_be(gloo):
    """Two sites of two machines, whose names alternate: sorted by name, the ring crosses twice as often."""
    links = [(v, 4 + v % 2, 40e6, 0.0) for v in range(4)] + [(4, 5, 4e6, 0.0)]
    both = [link for a, b, *rest in links for link in ((a, b, *rest), (b, a, *rest))]
    kinds = [ACCELERATOR] * 4 + [SWITCH] * 2
    net = make_topology("sites", kinds, both, replicates=[False] * 6)
    found = order(net, "gloo", "allreduce", SIZE, given="sorted", machines="gpu")
    assert found.before_s > 1.5 * found.after_s
    with emulator.built(net) as places:
        sorted_s, chosen_s = (min(gloo.seconds(places, each, SIZE, 2)) for each in (found.given, found.found))
    assert sorted_s > 1.3 * chosen_s

"""gloo as PyTorch calls it, in an emulated network, beside what ``order`` says that it sends."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from stretto import emulator
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.order import libraries_gloo
from stretto.order.libraries import LIBRARIES
from stretto.order.traffic import Layout

pytestmark = [
    pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal())),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

RANKS, SIZE = 5, 2_000_000


def test_every_cable_carries_the_bytes_that_the_traffic_says():
    from library_runs import Gloo, sent_bytes

    pairs = [(a, b) for a in range(RANKS) for b in range(RANKS) if a != b]
    net = make_topology("mesh", [ACCELERATOR] * RANKS, [(a, b, 1e9, 0.0) for a, b in pairs])
    with emulator.built(net) as places, Gloo() as gloo:

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

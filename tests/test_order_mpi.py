"""Open MPI and MPICH of the package index, in an emulated network, beside what ``order`` says that they send."""

from __future__ import annotations

import numpy as np
import pytest

from library_runs import INTERPRETERS, addressed, mpi_python, mpi_seconds, sent_bytes
from stretto import emulator
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.order import libraries_open_mpi
from stretto.order.libraries import LIBRARIES
from stretto.order.traffic import Layout

pytestmark = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))

REPEATS = 3


@pytest.mark.parametrize("ranks", [5, 8])
@pytest.mark.parametrize("kind", libraries_open_mpi.TABLES)
@pytest.mark.parametrize("library", INTERPRETERS)
def test_every_cable_carries_the_bytes_that_the_traffic_says(library, kind, ranks):
    if mpi_python(library) is None:
        pytest.skip(f"{INTERPRETERS[library]} names no interpreter with mpi4py beside an mpiexec")
    size = 2_000_000 // ranks * ranks
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    net = make_topology("mesh", [ACCELERATOR] * ranks, [(a, b, 1e9, 0.0) for a, b in pairs])
    with emulator.built(net) as places:
        addressed(places, range(ranks))
        before = [sent_bytes(places, v) for v in range(ranks)]
        mpi_seconds(library, places, range(ranks), size, REPEATS, kind)
        after = [sent_bytes(places, v) for v in range(ranks)]
    expected = np.zeros((ranks, ranks))
    for phase in LIBRARIES[library].traffic(Layout.even(ranks), kind, size, 0).phases:
        np.add.at(expected, (phase.src, phase.dst), phase.size_bytes * phase.times)
    for a, b in pairs:
        # headers, acknowledgements, barriers and starting the ranks are the rest
        assert abs((after[a][b] - before[a][b]) / (1 + REPEATS) - expected[a, b]) < 0.02 * size, (a, b)

"""Open MPI and MPICH of the package index, in an emulated network, beside what ``order`` says that they send."""

from __future__ import annotations

import numpy as np
import pytest

from library_runs import INTERPRETERS, addressed, mpi_python, mpi_seconds, sent_bytes
from stretto import emulator
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.order import libraries_mpich, libraries_open_mpi
from stretto.order.libraries import LIBRARIES
from stretto.order.traffic import Layout

pytestmark = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))

REPEATS = 3


def differences(library: str, kind: str, machines: int, each: int) -> np.ndarray:
    """float64[machines, machines], bytes that a machine sent another one beyond what the traffic says, as shares of the
    buffer: headers, acknowledgements, barriers and starting the ranks."""
    if mpi_python(library) is None:
        pytest.skip(f"{INTERPRETERS[library]} names no interpreter with mpi4py beside an mpiexec")
    layout = Layout.even(machines, each)
    size = 2_000_000 // layout.ranks * layout.ranks
    pairs = [(a, b) for a in range(machines) for b in range(machines) if a != b]
    net = make_topology("mesh", [ACCELERATOR] * machines, [(a, b, 1e9, 0.0) for a, b in pairs])
    with emulator.built(net) as places:
        addressed(places, range(machines))
        before = [sent_bytes(places, v) for v in range(machines)]
        mpi_seconds(library, places, layout.machine.tolist(), size, REPEATS, kind)
        after = [sent_bytes(places, v) for v in range(machines)]
    more = np.zeros((machines, machines))
    for a, b in pairs:
        more[a, b] = (after[a][b] - before[a][b]) / (1 + REPEATS)
    for phase in LIBRARIES[library].traffic(layout, kind, size, 0).phases:
        np.subtract.at(more, (layout.machine[phase.src], layout.machine[phase.dst]), phase.size_bytes * phase.times)
    np.fill_diagonal(more, 0)  # what stays in a machine is on no cable
    return more / size


@pytest.mark.parametrize("ranks", [5, 8])
@pytest.mark.parametrize("kind", libraries_open_mpi.TABLES)
@pytest.mark.parametrize("library", INTERPRETERS)
def test_every_cable_carries_the_bytes_that_the_traffic_says(library, kind, ranks):
    assert np.abs(differences(library, kind, ranks, 1)).max() < 0.02


@pytest.mark.parametrize("machines", [2, 5])
@pytest.mark.parametrize(
    ("library", "kind"),
    [("openmpi", kind) for kind in libraries_open_mpi.INSIDE_FIRST]
    + [("mpich", kind) for kind in libraries_mpich.BY_FIRST],
)
def test_so_does_every_cable_between_machines_with_two_ranks(library, kind, machines):
    # the last of Open MPI's segments, 1/31 of the buffer here, may come from another rank
    assert np.abs(differences(library, kind, machines, 2)).max() < 0.045

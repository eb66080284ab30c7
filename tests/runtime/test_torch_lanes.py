"""Several connections a pair where the topology is named: as many as the environment says, or as are needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stretto import emulator
from stretto.choose.library import Library
from stretto.emulator import Rough
from stretto.model.errors import InputError
from stretto.model.measurements import Lanes
from stretto.topologies import load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto.runtime.congestion import congestion_of  # noqa: E402
from stretto.torch.collectives import Collectives  # noqa: E402
from stretto.torch.lanes import VARIABLE, wanted  # noqa: E402
from stretto.torch.links import Links  # noqa: E402

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
LINK, ELEMENTS = 4e6, 60_000


def test_connections_are_measured_with_the_network_or_as_the_environment_says():
    assert wanted({}, measures=True) is None and wanted({}, measures=False) == Lanes()
    assert wanted({VARIABLE: "measure"}, measures=False) is None
    assert wanted({VARIABLE: "8"}, measures=True) == Lanes(8) and wanted({VARIABLE: "3:reno"}, True) == Lanes(3, "reno")


@pytest.mark.parametrize("text", ["0", "17", "four", "-1", "4:nothing", ":bbr", "4.0"])
def test_other_values_are_refused_by_name(text):
    with pytest.raises(InputError, match=VARIABLE):
        wanted({VARIABLE: text}, measures=False)


def connected(values: list[str], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """For each of two ranks of a named network, whose flows are capped, the congestion controls of the connections to
    the other one after a sum, that for messages first."""
    store, net = torch.distributed.HashStore(), load_topology(f"fullmesh:2?bandwidth={LINK:.0f}B/s&latency=2ms")
    links = []
    with emulator.built(net, relayed=True, rough={(0, 1): Rough(cap=LINK / 8)}) as places:
        for r, value in enumerate(values):
            monkeypatch.setenv(VARIABLE, value)
            links.append(Links(store, Library(net, range(2), r, effort=None), places[r].host, False, timeout_s=60))

        def rank(r: int) -> list[str]:
            emulator.enter(places[r].argument)  # a namespace is a thread's own
            collectives = Collectives(links[r]._library, links[r])
            try:
                total = torch.full((ELEMENTS,), 1.0 + r)
                collectives.run(
                    "allreduce", {0: total}, {0: total}, [ELEMENTS], 60.0, op=torch.distributed.ReduceOp.SUM
                )
                assert bool((total == 3.0).all())
                connections = [links[r].everyone()[1 - r].line.connection, *links[r].mesh().peers[1 - r][0].lanes]
                return [congestion_of(c.sock) for c in connections]
            finally:
                collectives.close()
                links[r].close()

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(rank, range(2)))


@NEEDS_NAMESPACES
def test_pairs_of_a_named_network_get_the_connections_that_are_asked_for_and_messages_their_congestion_control(
    monkeypatch,
):
    assert connected(["3:reno"] * 2, monkeypatch) == [["reno"] * 4] * 2


@NEEDS_NAMESPACES
def test_pairs_of_a_named_network_get_the_connections_that_they_need(monkeypatch):
    here, there = connected(["measure"] * 2, monkeypatch)
    assert len(here) == len(there) and 1 + 8 <= len(here) <= 1 + 16


@NEEDS_NAMESPACES
def test_ranks_that_ask_for_different_numbers_are_told(monkeypatch):
    with pytest.raises(InputError, match=VARIABLE):
        connected(["2", "4"], monkeypatch)

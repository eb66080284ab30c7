"""Ranks that are given no topology find one whose truth is known: namespaces with shaped links."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stretto import emulator
from stretto.choose.library import Library
from stretto.model.topology import SWITCH
from stretto.runtime.channel import Channel
from stretto.topologies import load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

RANKS, WAN = 8, 4e6


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_a_wan_is_measured_as_two_sites_and_the_whole_link_that_their_pairs_share():
    from stretto.torch.links import Links

    net = load_topology("sites:2,4?bandwidth=40MB/s&router_bandwidth=40MB/s&wan_bandwidth=4MB/s&wan_latency=0s")
    nodes, store = net.accelerators.tolist(), torch.distributed.HashStore()
    libraries = [Library(None, range(RANKS), rank) for rank in range(RANKS)]
    all_done = threading.Barrier(RANKS)
    protected: list[bool] = []

    def measure(rank: int) -> None:
        place = places[nodes[rank]]
        emulator.enter(place.argument)  # a namespace is a thread's own
        links = Links(store, libraries[rank], place.host, measures=True, timeout_s=60)
        protected.append(all(isinstance(c.sock, Channel) for c in links.mesh().connections))
        all_done.wait(60)
        links.close()

    with emulator.built(net) as places, ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(measure, range(RANKS)))
    assert protected == [True] * RANKS  # between machines frames are authenticated, unless somebody says otherwise
    for found in (library.topology for library in libraries):
        assert found.name == "8 ranks in 2 sites, as measured"
        site = {int(a): int(b) for a, b in zip(found.src, found.dst) if a < RANKS}
        assert site[0] == site[1] == site[2] == site[3] != site[4] == site[5] == site[6] == site[7]
        across = found.bandwidth[(found.kind[found.src] == SWITCH) & (found.kind[found.dst] == SWITCH)]
        assert len(across) == 2
        # four pairs share the link, so that one alone shows at most about a quarter of it
        assert (across > 0.5 * WAN).all() and (across < 1.2 * WAN).all(), across

"""A measured network that is about like a kept one takes its numbers, so that plans which were kept for it serve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.choose.library import joined_by_sites
from stretto.choose.networks import SUFFIX, alike, kept_like, shared_s
from stretto.choose.quick import TARGET, quick_plan
from stretto.choose.requests import PlanRequest, Shape
from stretto.model.topology import SWITCH, Topology
from stretto.model.variants import costing


def measured(wan: float = 4e6, inside: float = 50e6, far_s: float = 20e-3, near_s: float = 0.2e-3) -> Topology:
    pairs = {
        (a, b): (near_s, inside) if a // 2 == b // 2 else (far_s, wan / 2) for a in range(4) for b in range(a + 1, 4)
    }
    return joined_by_sites(4, pairs, {(0, 1): wan, (1, 0): wan})


def request(net: Topology, size: int, kind: str = "allreduce") -> PlanRequest:
    return PlanRequest(costing(net, TARGET.message_s), (0, 1, 2, 3), Shape.of(kind, size, 0))


def test_a_second_measurement_finds_the_plans_of_the_first(tmp_path):
    first = kept_like(measured(), tmp_path)
    second = measured(wan=4.2e6, inside=70e6, far_s=20.9e-3, near_s=0.25e-3)
    assert request(second, 1 << 20).name != request(first, 1 << 20).name
    again = kept_like(second, tmp_path)
    assert request(again, 1 << 20).name == request(first, 1 << 20).name


@pytest.mark.parametrize("other", [{"wan": 4.5e6}, {"far_s": 25e-3}, {"inside": 6e6}])
def test_a_network_that_has_changed_is_kept_beside_the_first(other, tmp_path):
    kept_like(measured(), tmp_path)
    changed = measured(**other)
    assert kept_like(changed, tmp_path) is changed
    found = kept_like(replace(changed, bandwidth=1.01 * changed.bandwidth), tmp_path)
    assert np.array_equal(found.bandwidth, changed.bandwidth)
    assert np.array_equal(found.latency_s, changed.latency_s)


def test_a_damaged_file_counts_as_missing(tmp_path):
    kept_like(measured(), tmp_path)
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    for text in ("{", "[[[1.0], [2.0]]]", "[]"):
        path.write_text(text)
        net = measured(wan=4.1e6)
        assert kept_like(net, tmp_path) is net


def test_plans_for_a_network_that_is_alike_lose_little():
    net, draw = measured(), np.random.default_rng(7)
    between = (net.kind[net.src] == SWITCH) & (net.kind[net.dst] == SWITCH)
    noise = 1 + 0.09 * draw.uniform(-1, 1, (2, net.link_count))
    wide = np.where(between, 1.0, 2.0 ** draw.uniform(-1, 1, net.link_count))
    other = replace(net, bandwidth=net.bandwidth * noise[0] * wide, latency_s=net.latency_s * noise[1])
    assert alike(net, other)
    for kind in ("allreduce", "allgather"):
        theirs, ours = (
            shared_s(quick_plan(request(each, 1 << 22, kind)), costing(other, TARGET.message_s))
            for each in (net, other)
        )
        assert theirs < 1.01 * ours

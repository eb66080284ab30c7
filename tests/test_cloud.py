"""Cloud regions: what was measured, what a VM may send, and what leaving a region costs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import stretto as st
from stretto.model.errors import InputError
from stretto.topologies import load_topology
from stretto.topologies.cloud import DETOUR, measured_regions
from stretto.topologies.cloud_prices import usd_per_gb
from stretto.topologies.files import topology_from_json

THREE = "cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope"
SOURCE = Path(__file__).parents[2] / "shared" / "networks" / "cloud-regions-2022.csv"


def link(net, source: str, target: str) -> int:
    ends = net.names.index(source), net.names.index(target)
    return next(i for i in range(net.link_count) if (net.src[i], net.dst[i]) == ends)


def test_a_pair_of_regions_is_as_measured():
    net = load_topology(THREE)
    i = link(net, "aws:us-east-1.out", "azure:westeurope.in")
    back = link(net, "azure:westeurope.out", "aws:us-east-1.in")
    table = measured_regions()
    a, b = table.names.index("aws:us-east-1"), table.names.index("azure:westeurope")
    assert net.bandwidth[i] == table.gbit[a, b] * 1e9 / 8 != net.bandwidth[back]
    assert net.latency_s[i] == table.rtt_ms[a, b] * 1e-3 / 2


@pytest.mark.skipif(not SOURCE.is_file(), reason="the measurements are not here")
def test_the_packages_table_has_every_measured_pair():
    table = measured_regions()
    rows = list(csv.DictReader(SOURCE.open()))
    number = {name: k for k, name in enumerate(table.names)}
    assert len(rows) == 3906 == np.isfinite(table.gbit).sum() and len(number) == 63
    for row in rows:
        ends = number[row["src"]], number[row["dst"]]
        assert table.gbit[ends] == float(row["bandwidth_Gbps"])
        assert table.rtt_ms[ends] == pytest.approx(float(row["rtt_ms"] or "nan"), nan_ok=True)


def test_a_vm_sends_no_more_than_its_cloud_allows():
    net = load_topology(THREE + "?vms=2")
    for region, sends, receives in (
        ("aws:us-east-1", 5, 10),
        ("gcp:us-central1-a", 7, 16),
        ("azure:westeurope", 16, 16),
    ):
        assert net.bandwidth[link(net, f"{region}.switch", f"{region}.out")] == 2 * sends * 1e9 / 8
        assert net.bandwidth[link(net, f"{region}.in", f"{region}.switch")] == 2 * receives * 1e9 / 8
    slow = load_topology(THREE + "?egress=1Gbit/s")
    assert slow.bandwidth[link(slow, "azure:westeurope.switch", "azure:westeurope.out")] == 1e9 / 8


def test_few_connections_carry_a_fraction_over_long_ways():
    whole, one = load_topology(THREE), load_topology(THREE + "?connections=1")
    far = link(one, "gcp:us-central1-a.out", "azure:westeurope.in")
    assert one.bandwidth[far] == pytest.approx(3 * 2**20 / (2 * one.latency_s[far]))
    assert one.bandwidth[far] < whole.bandwidth[far] / 3


def test_a_round_trip_that_was_not_measured_is_taken_by_distance():
    net = load_topology("cloud:aws:eu-west-3,aws:us-east-1")
    assert net.latency_s[link(net, "aws:eu-west-3.out", "aws:us-east-1.in")] == pytest.approx(
        DETOUR * 6180e3 / 200e6, rel=0.01
    )
    assert any("not measured" in note for note in net.notes)


@pytest.mark.parametrize(
    ("source", "target", "usd"),
    [
        ("aws:us-east-1", "aws:us-east-2", 0.01), ("aws:us-east-1", "aws:eu-west-1", 0.02),
        ("aws:us-east-1", "gcp:us-central1-a", 0.09), ("aws:sa-east-1", "aws:us-east-1", 0.138),
        ("gcp:us-central1-a", "gcp:northamerica-northeast1-a", 0.01), ("gcp:us-central1-a", "gcp:europe-west1-b", 0.08),
        ("gcp:asia-southeast2-a", "gcp:us-central1-a", 0.15), ("gcp:asia-southeast1-a", "aws:us-east-1", 0.14),
        ("gcp:us-central1-a", "aws:ap-southeast-2", 0.19), ("azure:westeurope", "azure:uksouth", 0.02),
        ("azure:westeurope", "azure:eastus", 0.05), ("azure:japaneast", "azure:eastus", 0.08),
        ("azure:eastus", "aws:us-east-1", 0.0875), ("azure:japaneast", "aws:us-east-1", 0.12),
    ],
)  # fmt: skip
def test_bytes_that_leave_a_region_cost_what_its_cloud_charges(source, target, usd):
    assert usd_per_gb(source, target) == usd


def test_every_pair_of_regions_has_a_price_and_nothing_inside_a_region_does():
    net = load_topology("cloud:aws,gcp,azure")
    between = np.array([net.sites[a] != net.sites[b] for a, b in zip(net.src, net.dst, strict=True)])
    assert between.sum() == 3906 and (net.usd_per_byte[between] >= 0.01e-9).all()
    assert not net.usd_per_byte[~between].any()


def test_a_plan_costs_its_bytes_over_each_link_times_the_links_price():
    plan = st.plan("broadcast", THREE, "1GB", planner="shortest-path")
    prices = {("aws", "gcp"): 0.09, ("aws", "azure"): 0.09, ("gcp", "azure"): 0.12, ("azure", "gcp"): 0.0875}
    net, cost = plan.topology, 0.0
    for k in range(plan.transfer_count):
        for i in plan.route.values[plan.route.offsets[k] : plan.route.offsets[k + 1]]:
            clouds = tuple(net.sites[v].partition(":")[0] for v in (net.src[i], net.dst[i]))
            cost += int(plan.size_bytes[k]) * prices.get(clouds, 0.0) * 1e-9
    assert plan.summary()["cost_usd"] == pytest.approx(cost) and cost > 0.17
    kept = plan.topology.with_links(np.arange(plan.topology.link_count))
    assert np.array_equal(kept.usd_per_byte, plan.topology.usd_per_byte)


def test_a_network_without_prices_says_nothing_of_cost():
    assert "cost_usd" not in st.plan("allgather", "ring:3", "3KB", planner="ring").summary()


def test_prices_are_in_topology_files():
    net = load_topology(THREE)
    again = topology_from_json(net.to_json(), "file")
    assert np.array_equal(again.usd_per_byte, net.usd_per_byte)
    data = load_topology("ring:3").to_json()
    data["links"][0]["usd_per_GB"] = 0.5
    assert topology_from_json(data, "file").usd_per_byte.tolist() == [0.5e-9] + [0] * 5
    for wrong in (-1, "x", 2e9):
        data["links"][0]["usd_per_GB"] = wrong
        with pytest.raises(InputError, match="file, link 0: 'usd_per_GB' must be"):
            topology_from_json(data, "file")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cloud:aws:us-est-1", "no region 'aws:us-est-1'; did you mean aws:us-"),
        ("cloud:us-east-1,aws:us-west-1", "no region 'us-east-1'; did you mean aws:us-east-1"),
        ("cloud:mars,aws:us-east-1", "no region 'mars'; `stretto topologies cloud` lists them"),
        ("cloud:", "write it as cloud:REGION"),
        ("cloud:aws:us-east-1", "name two regions"),
        ("cloud:aws,aws:us-east-1", "aws:us-east-1 is named twice"),
        (THREE + "?gpus=0", "option gpus"),
        (THREE + "?connections=many", "option connections"),
    ],
)
def test_a_wrong_region_or_option_is_refused_in_one_line(spec, words):
    with pytest.raises(InputError) as refusal:
        load_topology(spec)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)

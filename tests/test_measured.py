"""The network that measurements show: each fact of a network that is known, from the numbers that it would give."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest

from stretto.measure.record import document
from stretto.model.errors import InputError
from stretto.model.measurements import Measured, Pair, Survey
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json
from stretto.topologies.measured import links_of, network_of, shape_of, sites_of


def exactly(value: float) -> Measured:
    return Measured(value, 0.99 * value, 1.01 * value)


def pair(latency_s: float, rate: float, message_s: float = 1e-5) -> Pair:
    return Pair(exactly(latency_s), exactly(message_s), {1: exactly(rate)})


def known(survey: Survey) -> dict[tuple[str, str], tuple[float, float]]:
    """The bandwidth and latency of each link, by the names of its ends; the ranks are a, b, c, ..."""
    names = "abcdefgh"[: survey.ranks]
    links = links_of(survey, names, shape_of(survey))
    network_of(links, names, survey.sites, "net")
    return {(e.src, e.dst): (round(e.bandwidth.value, 6), round(e.latency_s.value, 9)) for e in links}


def test_pairs_that_share_the_links_of_their_hosts_are_joined_by_a_switch():
    up, down = [10.0, 4.0, 10.0], [10.0, 10.0, 6.0]
    pairs = {(a, b): pair(2.01e-3, min(up[a], down[b])) for a, b in permutations(range(3), 2)}
    survey = Survey(
        3, pairs, [[0, 1, 2]], dict(enumerate(map(exactly, up))), dict(enumerate(map(exactly, down))),
        inside={0: exactly(24.0)},
    )  # fmt: skip
    found = known(survey)
    assert {ends: rate for ends, (rate, _) in found.items()} == {
        ("a", "switch"): 10, ("b", "switch"): 4, ("c", "switch"): 10,
        ("switch", "a"): 10, ("switch", "b"): 10, ("switch", "c"): 6,
    }  # fmt: skip
    # a small message takes what it took: half of a round trip, of which a message costs a part
    assert all(latency_s == pytest.approx(1e-3) for _, latency_s in found.values())


def test_a_switch_that_carries_less_than_its_links_has_a_link_inside():
    pairs = {(a, b): pair(1e-3, 10.0) for a, b in permutations(range(4), 2)}
    ports = dict(enumerate([exactly(10.0)] * 4))
    found = known(Survey(4, pairs, [[0, 1, 2, 3]], ports, ports, inside={0: exactly(25.0)}))
    assert found["switch.up", "switch.down"][0] == 25
    assert ("a", "switch.up") in found and ("switch.down", "a") in found and len(found) == 9


def test_pairs_that_share_nothing_have_links_of_their_own():
    pairs = {(a, b): pair(1e-3 * (a + b), 5.0 + a) for a, b in permutations(range(3), 2)}
    sums = [10.0, 12.0, 14.0]
    survey = Survey(3, pairs, [[0, 1, 2]], dict(enumerate(map(exactly, sums))), {v: exactly(13.0) for v in range(3)})
    found = known(survey)
    assert {*found} == {(a, b) for a, b in permutations("abc", 2)}
    assert found["b", "c"][0] == 6


def test_a_host_whose_flows_share_a_link_gets_one_where_its_pairs_differ():
    rates = {(0, 1): 5.0, (0, 2): 8.0, (1, 0): 5.0, (1, 2): 5.0, (2, 0): 8.0, (2, 1): 5.0}
    pairs = {ends: pair(1e-3, rate) for ends, rate in rates.items()}
    to_all = {0: exactly(9.0), 1: exactly(10.0), 2: exactly(13.0)}
    from_all = {0: exactly(13.0), 1: exactly(10.0), 2: exactly(13.0)}
    found = known(Survey(3, pairs, [[0, 1, 2]], to_all, from_all))
    assert found["a", "a.up"][0] == 9 and found["a.up", "c"][0] == 8 and ("a", "b") not in found
    assert ("b", "c") in found and ("c", "a") in found


SITES = [[0, 1], [2, 3], [4]]


def three_sites(leaving: float) -> Survey:
    at = {v: s for s, members in enumerate(SITES) for v in members}
    pairs = {
        (a, b): pair(1e-3, 10.0) if at[a] == at[b] else pair(11e-3, 2.0) for a, b in permutations(range(5), 2)
    }  # fmt: skip
    ports = {v: exactly(10.0) for v in range(5)}
    between = {ends: exactly(4.0) for ends in permutations(range(3), 2)}
    sums = {0: exactly(leaving), 1: exactly(8.0), 2: exactly(8.0)}
    return Survey(5, pairs, SITES, ports, ports, between, leaving=sums, entering={s: exactly(8.0) for s in range(3)})


def test_sites_are_joined_by_what_their_hosts_share():
    found = known(three_sites(8.0))
    assert found["site0.up", "site1.down"] == (4, pytest.approx(10.01e-3, rel=1e-2))
    assert found["e", "site0.down"][0] == 4 and found["site1.up", "e"][0] == 4
    assert not any(end.endswith((".out", ".in")) for ends in found for end in ends)


def test_a_site_that_shares_a_way_out_has_a_border():
    found = known(three_sites(5.0))
    assert found["site0.up", "site0.out"][0] == 5 and found["site0.out", "site1.down"][0] == 4
    assert ("site0.up", "site1.down") not in found


def test_no_route_leads_through_another_site_or_through_anothers_link():
    survey = three_sites(5.0)
    net = network_of(links_of(survey, "abcde", shape_of(survey)), "abcde", SITES, "net")
    after = {v: {int(net.dst[k]) for k in net.out_links[v]} for v in range(net.node_count)}
    for start in range(5):
        reached, sites = {start}, set()
        queue = [start]
        for v in queue:
            for w in after[v] - reached:
                reached.add(w)
                if w >= 5:
                    queue.append(w)  # a switch passes on; a host does not
                    sites.add(net.names[w].partition(".")[0])
        assert {*range(5)} <= reached
    gates = [v for v, name in enumerate(net.names) if name.endswith((".down", ".in"))]
    assert all(not net.names[w].endswith((".up", ".out")) for v in gates for w in after[v])
    assert not net.replicates.any()


def test_a_link_that_was_not_filled_has_at_least_what_was_seen():
    survey = three_sites(19.0)
    between = {ends: exactly(9.5 if 2 in ends else 19.0) for ends in survey.between}
    wide = Survey(**{**vars(survey), "between": between, "entering": {}})
    ranges = {(e.src, e.dst): e.bandwidth for e in links_of(wide, "abcde", shape_of(wide))}
    assert ranges["site0.up", "site1.down"].high is None
    assert ranges["a", "site0.up"].high is not None


def test_hosts_a_little_farther_than_the_nearest_are_another_site_where_latencies_are_exact():
    pairs = {(a, b): (1e-4 if a // 2 == b // 2 else 1e-3, 1e9) for a in range(4) for b in range(a + 1, 4)}
    assert sites_of(4, pairs, 1e-4) == [[0, 1], [2, 3]]
    assert sites_of(4, pairs, 2e-3) == [[0, 1, 2, 3]]


def test_two_hosts_are_one_site_only_where_they_are_near():
    assert sites_of(2, {(0, 1): (5e-3, 1e9)}) == [[0, 1]]
    assert sites_of(2, {(0, 1): (20e-3, 1e9)}) == [[0], [1]]


def test_the_file_of_a_measured_network_is_read_with_its_values_and_its_ranges_are_checked(tmp_path):
    survey = three_sites(5.0)
    data = document(survey, "abcde", links_of(survey, "abcde", shape_of(survey)), 0.0)
    path = tmp_path / "net.json"
    path.write_text(json.dumps(data))
    net = load_topology(str(path))
    assert net.bandwidth.tolist() == [link["bandwidth_Bps"] for link in data["links"]]
    assert net.message_s.max() == pytest.approx(1e-5) and net.names[:5] == tuple("abcde")
    assert data["measured"]["at"] == "1970-01-01T00:00:00Z" and len(data["measured"]["pairs"]) == 20
    spread = [link["measured"]["bandwidth_Bps"] for link in data["links"]]
    assert all(low < w and (high is None or w < high) for (low, high), w in zip(spread, net.bandwidth))
    assert np.isfinite(net.latency_s).all()


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"bandwidth_Bps": [3, 4]}, "must lie in its range"),
        ({"bandwidth_Bps": [1]}, "two ends"),
        ({"bandwidth_Bps": [None, 4]}, "must lie"),
        ({"latency_us": [1, 2]}, "may have"),
        ({"latency_s": ["x", 2]}, "finite"),
        ([1, 2], "object"),
    ],
)
def test_a_wrong_range_is_named_with_its_place(measured, words):
    link = {"src": 0, "dst": 1, "bandwidth_Bps": 2.0, "latency_s": 1.0, "measured": measured}
    back = {"src": 1, "dst": 0, "bandwidth_Bps": 2.0, "latency_s": 1.0}
    with pytest.raises(InputError, match=f"net.json, link 0: .*{words}"):
        topology_from_json({"nodes": [{}, {}], "links": [link, back]}, "net.json")

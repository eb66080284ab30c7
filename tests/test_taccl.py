"""TACCL: sketches, and what its three stages keep."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, InputError
from stretto.planners import run_planner
from stretto.planners.taccl.sketch import find_sketch, included, parse_sketch
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def made(kind="allgather", spec="ndv2:2", size=16 * 10**6, **options):
    net = load_topology(spec)
    return run_planner("taccl", net, Workload((make_collective(kind, net, size),)), options=options)


def test_ndv2_with_its_sketch_is_as_good_as_one_chunk_a_rank_can_be():
    plan = made(size=10**9)
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(43.7527e-3, rel=1e-6)


def test_every_chunk_leaves_by_the_sender_that_the_sketch_names():
    plan = made(spec="ndv2:4")
    net = plan.topology
    between = [k for k in range(plan.transfer_count) if net.sites[plan.src[k]] != net.sites[plan.dst[k][0]]]
    assert between
    assert {int(plan.src[k] - 1) % 8 for k in between} == {0}
    assert {int(plan.dst[k][0] - 1) % 8 for k in between} == {1}


def test_symmetry_makes_chassis_do_alike():
    plan = made()
    moves = {(int(c), int(s), int(plan.dst[k][0])) for k, (c, s) in enumerate(zip(plan.chunk, plan.src))}
    assert {((c + 8) % 16, (s + 8) % 16, (d + 8) % 16) for c, s, d in moves} == moves


def test_reported_time_charges_alpha_to_the_link_and_the_simulator_does_not():
    plan = made(size=1000)
    assert plan.meta["reported_s"] > simulate(plan).completion_s
    assert [s["stage"] for s in plan.meta["stages"]] == ["routing", "scheduling"]


def test_joined_messages_pay_alpha_once():
    # chunks of no size to speak of: one message between chassis for all eight of them
    plan = made(size=16_000)
    assert plan.meta["messages"] > 0


@pytest.mark.parametrize("kind", ["reducescatter", "allreduce", "reduce"])
def test_sums_are_inversions(kind):
    plan = made(kind, "dgx1")
    assert verify(plan).ok
    assert (plan.op == 1).any()


def test_a_reducescatter_takes_as_long_as_the_allgather_that_it_inverts():
    there, back = made("allgather"), made("reducescatter")
    assert simulate(back).completion_s == pytest.approx(simulate(there).completion_s, rel=0.02)


def test_sketches_come_along_by_family():
    assert set(included()) >= {"ndv2", "dgx2"}
    assert find_sketch("auto", load_topology("ndv2:2")).name == "ndv2"
    assert find_sketch("auto", load_topology("torus:3x3")).name == "none"


def test_a_sketch_file_is_taken(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"name": "mine", "symmetry_offsets": [[1, "all"]]}))
    plan = made(spec="ring:6", size=6000, sketch=str(file))
    assert plan.meta["sketch"] == "mine"
    assert np.bincount(plan.chunk).tolist() == [5] * 6


def test_the_reversed_sketch_lets_receivers_send():
    turned = find_sketch("dgx2", load_topology("dgx2:2")).reversed()
    assert turned.connections[0] == (1,)
    assert turned.sender_of[0] == turned.sender_of[1] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ('{"symmetry_offsets": 3}', "symmetry_offsets"),
        ('{"internode_sketch": {"internode_conn": {"a": [1]}}}', "internode_sketch"),
        ('{"internode_sketch": {"strategy": "magic"}}', "not relay"),
        ('{"intranode_sketch": {"switch_hyperedge_strategy": "uc-mid"}}', "intranode_sketch"),
    ],
)
def test_a_malformed_sketch_names_its_key(text, words):
    with pytest.raises(InputError, match=words):
        parse_sketch(text, "mine.json")


def test_a_sketch_that_does_not_fit_says_where(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"symmetry_offsets": [[1, "all"]]}))
    with pytest.raises(InputError, match="there is no link like"):
        made(spec="line:4", size=4000, sketch=str(file))
    file.write_text(json.dumps({"symmetry_offsets": [[4, 3]]}))
    with pytest.raises(InputError, match="does not fit 4 ranks"):
        made(spec="line:4", size=4000, sketch=str(file))
    file.write_text(json.dumps({"nodes_per_site": 2, "internode_sketch": {"internode_conn": {}}}))
    with pytest.raises(Infeasible, match="no way from"):
        made(spec="line:4", size=4000, sketch=str(file))
    with pytest.raises(InputError, match="neither a file"):
        made(spec="line:4", size=4000, sketch="nowhere.json")
    with pytest.raises(InputError, match="below 1"):
        made(spec="line:4", size=4000, slack=0.5)


def test_sums_go_from_rank_to_rank_where_ranks_also_pass_data_on():
    net = load_topology("zoo:Abilene?transit=true")
    plan = run_planner("taccl", net, Workload((make_collective("allreduce", net, 11 * 10**6),)), time_limit_s=5.0)
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(plan.finish_s.max(), rel=0.1)

"""Messages that carry several chunks: one cost, one time, and every chunk right."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from networks import star
from stretto.emulator.scaling import Scaling, scaled
from stretto.formats import native
from stretto.formats.native import plan_from_text, plan_to_text
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.message_form import wrong_message
from stretto.model.messages import apart, back_to_back, chunk_by_chunk, message_count
from stretto.model.part_plans import part_of
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.planners import run_planner
from stretto.report.critical import critical_path
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

MESSAGE_S, LATENCY_S, BANDWIDTH = 1e-3, 1e-4, 1e6


def chain(ranks: int = 3, message_s: float = MESSAGE_S) -> Topology:
    """Ranks in a row, joined both ways."""
    links = [(v, v + 1, BANDWIDTH, LATENCY_S) for v in range(ranks - 1)]
    links += [(b, a, *rest) for a, b, *rest in links]
    return make_topology("chain", [ACCELERATOR] * ranks, links, message_s=[message_s] * len(links))


def broadcast(net: Topology, message=(0, 0, 1, 1), **changed) -> Plan:
    """Two chunks of 500 bytes from the first of three ranks to the second, and from there to the third."""
    work = Workload((make_collective("broadcast", net, 1000, chunks=2),))
    columns = {
        "chunk": [0, 1, 0, 1], "src": [0, 0, 1, 1], "dst": Ragged.single([1, 1, 2, 2]),
        "route": Ragged.single([0, 0, 1, 1]), "depends": Ragged.of([[], [], [0], [1]]), "message": message,
    }  # fmt: skip
    return make_plan(net, work, changed.pop("sharing", "ready-order"), **{**columns, **changed})


def code(plan: Plan) -> str:
    finding = verify(plan).finding
    return finding.code if finding else "ok"


def timed(plan: Plan) -> Plan:
    line = simulate(plan)
    return replace(plan, sharing="timed", start_s=line.start_s, finish_s=line.finish_s)


def test_a_message_costs_once_and_carries_all_its_bytes():
    line = simulate(broadcast(chain()))
    hop_s = MESSAGE_S + 1000 / BANDWIDTH
    assert line.finish_s.tolist() == pytest.approx([hop_s, hop_s, 2 * hop_s + LATENCY_S, 2 * hop_s + LATENCY_S])
    assert line.completion_s == pytest.approx(2 * (hop_s + LATENCY_S))
    apart_s = 3 * (MESSAGE_S + 500 / BANDWIDTH) + 2 * LATENCY_S
    assert simulate(apart(broadcast(chain()))).completion_s == pytest.approx(apart_s)


def test_a_message_begins_when_all_its_chunks_are_there():
    line = simulate(broadcast(chain(), message=(0, 1, 2, 2)))
    alone_s = MESSAGE_S + 500 / BANDWIDTH
    assert line.start_s.tolist() == pytest.approx([0, alone_s, *[2 * alone_s + LATENCY_S] * 2])
    assert message_count(line.plan) == 3


def test_where_the_time_went_follows_what_any_chunk_of_a_message_waits_for():
    net = load_topology("star:4?message=1ms")
    plan = run_planner("rabenseifner", net, Workload((make_collective("allgather", net, 4000),)))
    assert plan.message is not None
    path = critical_path(simulate(plan))
    assert path["message"] == pytest.approx(2 * MESSAGE_S)
    assert path["idle"] == pytest.approx(0, abs=1e-12)


def test_pictures_show_the_chunks_of_a_message_one_after_another():
    line = simulate(broadcast(chain()))
    shown, hop_s = chunk_by_chunk(line), MESSAGE_S + 1000 / BANDWIDTH
    assert shown.start_s[:2].tolist() == pytest.approx([0, hop_s / 2])
    assert shown.finish_s[:2].tolist() == pytest.approx([hop_s / 2, hop_s])
    assert shown.arrival_s is line.arrival_s


def test_scaled_messages_stay_whole():
    work = Workload((make_collective("broadcast", chain(), 1001, chunks=2),))
    smaller = scaled(timed(replace(broadcast(chain()), workload=work)), Scaling(1.0, 3.0))
    assert smaller.workload.chunk_bytes.tolist() == [166, 167]
    assert wrong_message(smaller) is None


def test_the_times_that_the_simulator_finds_verify():
    for message in [(0, 0, 1, 1), (0, 1, 2, 2), (0, 0, 1, 2)]:
        plan = timed(broadcast(chain(), message=message))
        assert code(plan) == "ok"
        assert simulate(plan).completion_s == pytest.approx(float(plan.finish_s.max()) + LATENCY_S)


def test_a_message_that_is_too_short_for_its_bytes_is_named():
    plan = timed(broadcast(chain()))
    finding = verify(replace(plan, finish_s=plan.finish_s - 400 / BANDWIDTH)).finding
    assert finding is not None and finding.code == "speed"
    assert finding.message.startswith("message 0 (chunk 0 and others: gpu0→gpu1) takes")


def test_a_message_that_starts_before_one_of_its_chunks_is_named():
    plan = timed(broadcast(chain(), message=(0, 1, 2, 2)))
    early = plan.start_s.copy()
    early[2:] -= MESSAGE_S  # the first chunk is there by then, the second is not
    finding = verify(replace(plan, start_s=early)).finding
    assert finding is not None and (finding.code, finding.transfer) == ("before-dependency", 2)


def test_two_messages_do_not_share_a_link_that_one_fills():
    plan = timed(broadcast(chain(), message=(0, 1, 2, 2)))
    start, finish = plan.start_s.copy(), plan.finish_s.copy()
    start[1], finish[1] = start[0], finish[0]
    assert code(replace(plan, start_s=start, finish_s=finish)) == "capacity"


def test_parts_of_a_message_at_different_times_are_refused():
    plan = timed(broadcast(chain()))
    later = plan.start_s.copy()
    later[1] += 1e-6
    assert code(replace(plan, start_s=later)) == "message"


def test_contents_are_checked_chunk_by_chunk():
    plan = broadcast(chain())
    assert code(replace(plan, depends=Ragged.of([[], [], [0], []]))) == "missing-dependency"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"message": (1, 1, 2, 2)}, "must begin at 0 and rise by at most 1"),
        ({"message": (0, 0, 2, 2)}, "must begin at 0 and rise by at most 1"),
        ({"message": (0, 1, 0, 1)}, "must begin at 0 and rise by at most 1"),
        ({"message": (0, 0, 0, 1)}, "has another source"),
        ({"dst": Ragged.single([1, 2, 2, 2]), "route": Ragged.of([[0], [0, 1], [1], [1]])}, "has another receiver"),
        ({"depends": Ragged.of([[], [0], [0], [1]])}, "depends on transfer 0 of its own message"),
        ({"chunk": [0, 0, 0, 1]}, "carries chunk 0, which is in its message already"),
        ({"group": [0, 1, 2, 2]}, "has another 'group'"),
        ({"sharing": "fair", "weight": np.ones(4)}, "share by timed or ready-order"),
    ],
)
def test_what_is_no_message_is_refused(changed, words):
    with pytest.raises(InputError, match=words):
        broadcast(chain(), **changed)


def test_other_routes_and_collectives_are_other_messages():
    links = [(0, 1, BANDWIDTH, 0.0), (0, 2, BANDWIDTH, 0.0), (1, 2, BANDWIDTH, 0.0), (2, 1, BANDWIDTH, 0.0)]
    net = make_topology("two ways", [ACCELERATOR, ACCELERATOR, 1], links)
    assert not net.store_and_forward[2], "a router that cuts through"
    one = make_collective("broadcast", net, 1000, chunks=2, ranks=[0, 1])
    rows = {"chunk": [0, 1], "src": [0, 0], "dst": Ragged.single([1, 1]), "depends": Ragged.empty(2)}
    with pytest.raises(InputError, match="has another route"):
        make_plan(net, Workload((one,)), "ready-order", **rows, route=Ragged.of([[0], [1, 3]]), message=[0, 0])
    whole = make_collective("broadcast", net, 1000, ranks=[0, 1])
    with pytest.raises(InputError, match="is of another collective"):
        make_plan(net, Workload((whole, whole)), "ready-order", **rows, route=Ragged.single([0, 0]), message=[0, 0])
    to_router = rows | {"dst": Ragged.single([2, 2])}
    with pytest.raises(InputError, match="sends on what still comes"):
        make_plan(net, Workload((one,)), "ready-order", **to_router, route=Ragged.single([1, 1]), message=[0, 0])


def test_messages_of_one_chunk_each_are_no_column():
    assert broadcast(chain(), message=(0, 1, 2, 3)).message is None


def test_a_plan_without_the_column_is_what_it_was():
    plan = apart(broadcast(chain()))
    assert '"message"' not in plan_to_text(plan) and '"version": 2' in plan_to_text(plan)
    assert plan.digest() != broadcast(chain()).digest()


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_files_keep_messages(tmp_path, ending):
    plan = broadcast(chain())
    path = str(tmp_path / f"plan.{ending}")
    native.write_plan(plan, path)
    again = native.read_plan(path)
    assert again.digest() == plan.digest() and again.message.tolist() == [0, 0, 1, 1]


def test_a_file_says_that_earlier_readers_cannot_read_it():
    text = plan_to_text(broadcast(chain()))
    assert '"version": 6' in text
    assert plan_from_text(text, "here").digest() == broadcast(chain()).digest()


@pytest.mark.parametrize("row", [0, 2])
def test_a_file_in_which_one_transfer_has_no_message_is_refused(row):
    data = json.loads(plan_to_text(broadcast(chain())))
    del data["transfers"][row]["message"]
    with pytest.raises(InputError, match=f"transfer {row} has no 'message'"):
        plan_from_text(json.dumps(data), "here")


def test_chunks_one_after_another_wait_for_what_their_message_waits_for():
    plan = broadcast(chain(), message=(0, 1, 2, 2))
    rows = back_to_back(plan)
    assert rows.message is None
    assert [rows.depends[k].tolist() for k in range(4)] == [[], [], [0, 1], [0, 1]]
    shares = back_to_back(timed(broadcast(chain())))
    middle_s = (MESSAGE_S + 1000 / BANDWIDTH) / 2
    assert shares.start_s[:2].tolist() == pytest.approx([0, middle_s])
    assert shares.finish_s[:2].tolist() == pytest.approx([middle_s, 2 * middle_s])


def test_a_part_of_a_plan_keeps_its_messages():
    net = star(3)
    one = make_collective("broadcast", net, 1000, chunks=2, ranks=[0, 1])
    plan = make_plan(
        net, Workload((one, one)), "ready-order", chunk=[0, 1, 2, 3], src=[0] * 4, dst=Ragged.single([1] * 4),
        route=Ragged.of([[int(net.out_links[0][0]), int(net.in_links[1][0])]] * 4), depends=Ragged.empty(4),
        message=[0, 0, 1, 1],
    )  # fmt: skip
    assert code(plan) == "ok"
    assert part_of(plan, [1]).message.tolist() == [0, 0]


@pytest.mark.parametrize("passed", [8, 3])
@pytest.mark.parametrize(("planner", "kind"), [("bruck", "alltoall"), ("hierarchical", "allgather")])
def test_ranks_through_which_routes_may_pass_get_a_message_for_each_chunk(planner, kind, passed):
    net = load_topology("fullmesh:8?message=20us")
    net = replace(net, transit=np.arange(8) < passed)
    plan = run_planner(planner, net, Workload((make_collective(kind, net, 64_000),)))
    assert code(plan) == "ok"
    assert plan.message is None or passed < 8

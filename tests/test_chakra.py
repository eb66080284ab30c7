"""Chakra traces: read back as they were, by the public schema's library, and when damaged."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from stretto.formats import Size, exporters, importers
from stretto.formats.protobuf import block, fields, messages, number, packed, sized
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def written(tmp_path, net="torus:3x3", kind="allreduce", planner="scale-ccl"):
    topology = load_topology(net)
    plan = run_planner(planner, topology, Workload((make_collective(kind, topology, 72_000, chunks=2),)))
    exporters()["chakra"].write(simulate(plan), str(tmp_path / "t"))
    return plan


@pytest.mark.parametrize(
    "case",
    [
        ("ring:4", "allgather", "mtegcca"),
        ("torus:3x3", "allreduce", "scale-ccl"),
        ("dgx1", "alltoall", "shortest-path"),
    ],
)
def test_what_we_write_we_read(case, tmp_path):
    plan = written(tmp_path, *case)
    back = importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(72_000, None))
    assert verify(back).ok
    assert sorted(back.chunk.tolist()) == sorted(plan.chunk[plan.dst.owners].tolist())


def test_protobufs_own_library_reads_the_same(tmp_path):
    """With a message type built from the facts of et_def.proto."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    attribute = file.message_type.add(name="Attribute")
    node = file.message_type.add(name="Node")
    one = descriptor_pb2.FieldDescriptorProto
    for name, key, kind in (("name", 1, one.TYPE_STRING), ("int32_val", 7, one.TYPE_INT32), ("int64_val", 9, one.TYPE_INT64), ("bool_val", 27, one.TYPE_BOOL)):  # fmt: skip
        attribute.field.add(name=name, number=key, type=kind, label=one.LABEL_OPTIONAL)
    for name, key, kind, label in (("id", 1, one.TYPE_UINT64, 1), ("name", 2, one.TYPE_STRING, 1), ("type", 3, one.TYPE_INT32, 1), ("data_deps", 5, one.TYPE_UINT64, 3)):  # fmt: skip
        node.field.add(name=name, number=key, type=kind, label=label)
    node.field.add(name="attr", number=10, type=one.TYPE_MESSAGE, label=3, type_name=".et.Attribute")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("et.Node"))

    plan = written(tmp_path)
    sends = 0
    for r in range(9):
        data = (tmp_path / f"t.{r}.et").read_bytes()
        for raw in list(messages(data, "here"))[1:]:
            found = kind.FromString(raw)
            facts = {a.name: a for a in found.attr}
            if found.type == 4:  # a turn
                continue
            transfer = int(plan.dst.owners[facts["comm_tag"].int32_val])
            assert facts["comm_size"].int64_val == plan.size_bytes[transfer]
            assert (found.type == 5) == (facts["comm_src"].int32_val == r)
            sends += found.type == 5
            assert found.type == 5 or not found.data_deps
    assert sends == len(plan.dst.values)


def trace(*nodes: bytes) -> bytes:
    return sized(block(1, b"0.0.4")) + b"".join(map(sized, nodes))


def node(key: int, kind: int, *deps: int, us: int = 0, **facts: int) -> bytes:
    """A node as other tools write it: what is zero is left out."""
    body = (number(1, key) if key else b"") + number(3, kind) + b"".join(number(5, d) for d in deps)
    body += number(7, us) if us else b""
    for name, value in facts.items():
        body += block(10, block(1, name.encode()) + number(11, value))
    return body


def read_others(tmp_path, *traces: bytes, net: str = "ring:3?bandwidth=1GB/s&latency=1us"):
    for r, data in enumerate(traces):
        (tmp_path / f"other.{r}.et").write_bytes(data)
    return importers()["chakra"].read(str(tmp_path / "other"), load_topology(net), Size(None, None))


def test_traces_of_others_are_messages_that_wait_for_each_other(tmp_path):
    """0 sends to 1, which computes and sends on to 2: each tag is used twice, and one end of each is left out."""
    plan = read_others(
        tmp_path,
        trace(node(0, 5, comm_dst=1, comm_size=1000), node(1, 5, comm_dst=1, comm_size=3000)),
        trace(
            node(0, 6, comm_src=0, comm_size=1000), node(1, 6, comm_src=0, comm_size=3000),
            node(2, 4, 0, 1, us=7), node(3, 5, 2, comm_dst=2, comm_size=1000, comm_tag=4),
        ),
        trace(node(7, 6, comm_src=1, comm_size=1000, comm_tag=4)),
    )  # fmt: skip
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(4e-6 + 1e-6 + 1e-6 + 1e-6)
    assert any("7 us" in note for note in plan.topology.notes)


def test_a_receipt_that_waits_holds_up_what_comes_after_it(tmp_path):
    """Rank 1 receives at once, but may go on only when what it sent before has come."""
    plan = read_others(
        tmp_path,
        trace(node(0, 5, comm_dst=1, comm_size=1000)),
        trace(
            node(0, 5, comm_dst=2, comm_size=9000), node(1, 6, 0, comm_src=0, comm_size=1000),
            node(2, 5, 1, comm_dst=2, comm_size=1000, comm_tag=1),
        ),
        trace(node(0, 6, comm_src=1, comm_size=9000), node(1, 6, comm_src=1, comm_size=1000, comm_tag=1)),
    )  # fmt: skip
    assert simulate(plan).completion_s == pytest.approx(10e-6 + 2e-6)


@pytest.mark.parametrize("value", [pytest.param(number(9, 3000), id="int64"), pytest.param(number(13, 3000), id="uint64"), pytest.param(number(17, 6000), id="sint64"), pytest.param(b"\x9d\x01" + (3000).to_bytes(4, "little"), id="fixed32"), pytest.param(b"\xc9\x01" + (3000).to_bytes(8, "little"), id="sfixed64")])  # fmt: skip
def test_every_way_to_tell_a_whole_number_is_read(value, tmp_path):
    size = block(10, block(1, b"comm_size") + value)
    send, receive = node(0, 5, comm_dst=1) + size, node(0, 6, comm_src=0) + size
    plan = read_others(tmp_path, trace(send), trace(receive), net="ring:2")
    assert plan.size_bytes.tolist() == [3000]


SENT = trace(node(0, 5, comm_dst=1, comm_size=8))
GOT = trace(node(0, 6, comm_src=0, comm_size=8))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (trace(node(3, 7, comm_type=2, comm_size=8)), GOT, "node 3 is a whole collective"),
        (trace(node(3, 2)), GOT, "node 3 loads from memory"),
        (SENT, trace(node(0, 6, comm_src=0, comm_size=9)), "from 0 to 1 with tag 0 has only one end"),
        (SENT, trace(), "only one end"),
        (trace(node(0, 5, comm_dst=1)), GOT, "comm_size"),
        (
            trace(node(0, 5, comm_dst=1) + block(10, block(1, b"comm_size") + block(10, b"\x0a\x01\x08"))),
            GOT,
            "comm_size",
        ),
        (trace(node(0, 5, comm_dst=1) + block(10, block(1, b"comm_size") + number(17, 15))), GOT, "comm_size"),
        (trace(node(0, 5, 9, comm_dst=1, comm_size=8)), GOT, "waits for node 9, which is not there"),
        (trace(node(0, 5, 1, comm_dst=1, comm_size=8), node(1, 4, 0)), GOT, "in a circle"),
        (trace(node(0, 5, comm_dst=1, comm_size=8), node(0, 4)), GOT, "two nodes with one id"),
        (trace(node(0, 5, comm_src=1, comm_dst=0, comm_size=8)), GOT, "no send here has"),
    ],
)
def test_what_others_say_and_a_plan_does_not_is_named(first, second, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_others(tmp_path, first, second, net="ring:2")


def test_a_size_is_for_our_own_traces_only(tmp_path):
    read_others(tmp_path, SENT, GOT, net="ring:2")
    with pytest.raises(InputError, match="give no size"):
        importers()["chakra"].read(str(tmp_path / "other"), load_topology("ring:2"), Size(8, None))
    plan = written(tmp_path)
    with pytest.raises(InputError, match="give the size of the full buffer"):
        importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(None, None))


def test_another_size_is_refused(tmp_path):
    plan = written(tmp_path)
    with pytest.raises(InputError, match="no chunk of this size"):
        importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(72_002, None))


def test_chunks_that_are_a_byte_off_the_parts_that_they_cover_are_read(tmp_path):
    """Thirds of 1,000 bytes, two of them in one chunk, with an edge at 666 where parts have it at 667."""
    net = load_topology("ring:2")
    whole = make_collective("broadcast", net, 1000)
    cut = replace(whole, chunk_piece=np.zeros(2, dtype=np.int32), chunk_offset=np.array([0, 666]),
                  chunk_bytes=np.array([666, 334]))  # fmt: skip
    plan = run_planner("shortest-path", net, Workload((cut,)))
    exporters()["chakra"].write(simulate(plan), str(tmp_path / "t"))
    assert verify(importers()["chakra"].read(str(tmp_path / "t"), net, Size(1000, None))).ok
    with pytest.raises(InputError, match="no chunk of this size"):
        importers()["chakra"].read(str(tmp_path / "t"), net, Size(1010, None))


def test_damaged_traces_are_read_or_refused(tmp_path):
    plan = written(tmp_path, "ring:3", "allreduce", "ring")
    path, rng = tmp_path / "t.0.et", random.Random(1)
    whole = path.read_bytes()
    for _ in range(400):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        if rng.random() < 0.7:
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at : at + rng.randrange(50)] = bytes(rng.randrange(256) for _ in range(rng.randrange(12)))
        path.write_bytes(bytes(data))
        try:
            verify(importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(72_000, None)))
        except StrettoError:
            continue


def test_sends_that_are_free_together_keep_the_plans_order(tmp_path):
    """On a star all messages of a rank leave over one link: one has no turn, each other waits for one more."""
    written(tmp_path, "star:4", "alltoall", "shortest-path")
    waits, order = {}, []
    for data in messages((tmp_path / "t.0.et").read_bytes(), "here"):
        facts = list(fields(data, "here"))
        if (3, 5) in facts or (3, 4) in facts:
            key = dict(facts)[1]
            waits[key] = [d for what, value in facts if what == 5 for d in packed(value, "here")]
            order += [key] if (3, 5) in facts else []
    turns = [waits[key] for key in order]
    assert len(order) == 6 and turns[0] == []
    assert [waits[turn] for (turn,) in turns[1:]] == turns[:-1]


def test_where_switches_store_a_trace_goes_hop_by_hop(tmp_path):
    """Two messages of 1 ms a link from one rank to two: the second follows the first, each stored whole on the way."""
    said = trace(*(node(d, 5, comm_dst=d, comm_size=1_000_000) for d in (1, 2)))
    got = trace(node(0, 6, comm_src=0, comm_size=1_000_000))
    star = "star:3?bandwidth=1GB/s&latency=1us"
    through = simulate(read_others(tmp_path, said, got, got, net=star))
    stored = read_others(tmp_path, said, got, got, net=f"{star}&switches=store")
    assert verify(stored).ok and stored.transfer_count == 4
    assert through.completion_s == pytest.approx(2e-3 + 2e-6)
    assert simulate(stored).completion_s == pytest.approx(3e-3 + 2e-6)


def test_partial_sums_may_stand_in_a_switch_together(tmp_path):
    """All ranks of a ReduceScatter send to all, and the messages of one chunk are in the switch at once."""
    written(tmp_path, "star:3", "reducescatter", "shortest-path")
    stores = load_topology("star:3?switches=store")
    assert verify(importers()["chakra"].read(str(tmp_path / "t"), stores, Size(None, None))).ok
    with pytest.raises(InputError, match="where switches store"):
        importers()["chakra"].read(str(tmp_path / "t"), stores, Size(72_000, None))

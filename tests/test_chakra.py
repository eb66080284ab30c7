"""Chakra traces: read back as they were, by the public schema's library, and when damaged."""

from __future__ import annotations

import random

import pytest

from stretto.collective import Workload, make_collective
from stretto.errors import InputError, StrettoError
from stretto.formats import Size, exporters, importers
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

    from stretto.formats.protobuf import messages

    plan = written(tmp_path)
    sends = 0
    for r in range(9):
        data = (tmp_path / f"t.{r}.et").read_bytes()
        for raw in list(messages(data, "here"))[1:]:
            found = kind.FromString(raw)
            facts = {a.name: a for a in found.attr}
            transfer = int(plan.dst.owners[facts["comm_tag"].int32_val])
            assert facts["comm_size"].int64_val == plan.size_bytes[transfer]
            assert (found.type == 5) == (facts["comm_src"].int32_val == r)
            sends += found.type == 5
            assert found.type == 5 or not found.data_deps
    assert sends == len(plan.dst.values)


def test_traces_of_others_are_refused_with_the_reason(tmp_path):
    plan = written(tmp_path)
    for r in range(9):
        path = tmp_path / f"t.{r}.et"
        path.write_bytes(path.read_bytes().replace(b"\x07stretto", b"\x07another"))
    with pytest.raises(InputError, match="does not say which chunks"):
        importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(72_000, None))


def test_another_size_is_refused(tmp_path):
    plan = written(tmp_path)
    with pytest.raises(InputError, match="no chunk of this size"):
        importers()["chakra"].read(str(tmp_path / "t"), plan.topology, Size(72_002, None))


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

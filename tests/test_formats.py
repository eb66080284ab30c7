"""Plan files and exports: what goes in comes out, and what is broken is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network, ring
from stretto.formats import atomic_file, exporters
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def plan(seed: int = 1, chunks: int = 2) -> Plan:
    net = random_network(seed)
    return run_planner("mtegcca", net, Workload((make_collective("allgather", net, shard_bytes=1001, chunks=chunks),)))


@pytest.mark.parametrize("name", ["p.parquet", "p.json"])
@pytest.mark.parametrize("spec", ["ndv2:2", "amd:2", "zoo:Abilene", "sites:2,3"])
def test_a_plan_survives_its_file_bit_for_bit(tmp_path, name, spec):
    net = load_topology(spec)
    collectives = (
        make_collective("allgather", net, shard_bytes=1000, chunks=3),
        make_collective("broadcast", net, 777, root=2, start_s=0.25),
        make_collective("multicast", net, 99, root=1, receivers=[0, 2]),
    )
    before = run_planner("mtegcca", net, Workload(collectives))
    write_plan(before, str(tmp_path / name))
    after = read_plan(str(tmp_path / name))
    assert after.digest() == before.digest()
    assert (after.meta, after.topology.names) == (before.meta, before.topology.names)


@pytest.mark.parametrize("name", ["p.parquet", "p.json"])
def test_a_collective_cut_unevenly_survives_too(tmp_path, name):
    before = plan()
    c = before.workload.collectives[0]
    uneven = replace(
        c,
        chunk_offset=c.chunk_offset + (c.chunk_offset > 0),
        chunk_bytes=c.chunk_bytes + [1, -1] * (c.chunk_count // 2),
    )
    before = replace(before, workload=Workload((uneven,)))
    write_plan(before, str(tmp_path / name))
    assert read_plan(str(tmp_path / name)).digest() == before.digest()


def test_arrays_of_a_file_are_writable_so_that_kernels_are_compiled_once(tmp_path):
    write_plan(plan(), str(tmp_path / "p.parquet"))
    again = read_plan(str(tmp_path / "p.parquet"))
    arrays = [again.chunk, again.src, again.op, again.dst.values, again.route.values, again.depends.values]
    assert all(array.flags.writeable for array in arrays)


def test_a_plan_file_is_plain_parquet(tmp_path):
    write_plan(plan(), str(tmp_path / "p.parquet"))
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.num_rows == plan().transfer_count
    assert {"chunk", "src", "size_bytes", "op", "dst", "route", "depends", "start_s"} <= set(table.column_names)


def rewritten(path, change) -> None:
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def with_header(change):
    def apply(table: pa.Table) -> pa.Table:
        header = json.loads(table.schema.metadata[b"stretto"])
        change(header)
        return table.replace_schema_metadata({b"stretto": json.dumps(header).encode()})

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_header(lambda h: h.update(version=4)), "has version 4"),
        (with_header(lambda h: h.update(format="x")), "no stretto plan"),
        (with_header(lambda h: h.pop("workload")), "workload is wrong"),
        (with_header(lambda h: h["workload"][0].update(kind="x")), "workload is wrong"),
        (with_header(lambda h: h["topology"].update(links=h["topology"]["links"][:2])), "outside"),
        (with_header(lambda h: h.update(sharing="luck")), "unknown sharing"),
        (lambda t: t.drop_columns(["dst"]), "'dst' is missing"),
        (lambda t: t.drop_columns(["start_s"]), "needs the column 'start_s'"),
        (lambda t: t.set_column(0, "chunk", pa.array(["x"] * t.num_rows)), "wrong type"),
        (lambda t: t.set_column(0, "chunk", pa.array([10**6] * t.num_rows)), "outside"),
        (lambda t: t.set_column(2, "size_bytes", pa.array([1] * t.num_rows)), "bytes, its chunk"),
        (lambda t: t.replace_schema_metadata({}), "no stretto plan"),
    ],
)
def test_a_plan_file_that_is_wrong_is_refused_by_name(tmp_path, change, words):
    path = tmp_path / "p.parquet"
    write_plan(plan(), str(path))
    rewritten(path, change)
    with pytest.raises(InputError, match=words) as error:
        read_plan(str(path))
    assert "p.parquet" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1garbagePAR1", b"{", b"[1,2]", b"\xff\xfe", b'{"format":"stretto-plan"}']
)
def test_what_is_no_plan_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match="x"):
        read_plan(str(tmp_path / "x"))


@pytest.mark.parametrize("name", ["p.parquet", "p.json"])
@given(
    changes=st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=3),
    keep=st.floats(0.2, 1),
)
def test_a_damaged_plan_never_ends_in_a_traceback(tmp_path_factory, name, changes, keep):
    path = tmp_path_factory.mktemp("damage") / name
    write_plan(plan(), str(path))
    content = bytearray(path.read_bytes())
    content = content[: max(1, round(len(content) * keep))]
    for at, value in changes:
        content[at % len(content)] ^= value
    path.write_bytes(bytes(content))
    try:
        assert isinstance(read_plan(str(path)), Plan)
    except StrettoError as error:
        assert str(error)


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "p"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic_file(str(path)) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        write_plan(plan(), str(tmp_path / "nowhere" / "p.parquet"))


def test_a_trace_has_a_slice_for_every_hop(tmp_path):
    before = plan()
    exporters()["perfetto"].write(simulate(before), str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(before.route.values)
    last = max(e["ts"] + e["dur"] for e in slices)
    assert last * 1e-6 <= simulate(before).completion_s
    assert [e for e in events if e["ph"] == "C"][-1]["args"]["bytes"] == int(before.size_bytes[before.dst.owners].sum())


def test_a_table_has_a_row_for_every_receiver(tmp_path):
    net = ring(4)
    before = run_planner("mtegcca", net, Workload((make_collective("allgather", net, shard_bytes=100),)))
    timeline = simulate(before)
    exporters()["csv"].write(timeline, str(tmp_path / "t.csv"))
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert len(rows) == len(before.dst.values)
    assert max(float(r["arrival_s"]) for r in rows) == timeline.completion_s


def test_a_plan_of_thousands_of_transfers_survives_in_the_order_of_its_starts(tmp_path):
    net = load_topology("torus:8x8")
    before = run_planner("mtegcca", net, Workload((make_collective("allgather", net, shard_bytes=64, chunks=8),)))
    write_plan(before, str(tmp_path / "p.parquet"))
    assert read_plan(str(tmp_path / "p.parquet")).digest() == before.digest()
    assert np.diff(before.start_s).min() >= 0

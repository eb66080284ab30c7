"""Our own Parquet: pyarrow reads what is written, we read what pyarrow writes, and damage is found."""

from __future__ import annotations

import io
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stretto.formats import parquet
from stretto.formats.native import read_plan
from stretto.formats.parquet import Table, write_table
from stretto.formats.thrift import varint
from stretto.model.arrays import Ragged
from stretto.model.errors import InputError, Unsupported
from test_formats import plan, write_plan

RNG = np.random.default_rng(5)


def ragged(rows: int, most: int, kind: type = np.int32) -> Ragged:
    lengths = RNG.integers(0, most + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Ragged(offsets, RNG.integers(-9, 2**31 - 1, offsets[-1]).astype(kind))


def table(rows: int) -> dict[str, parquet.Column]:
    return {
        "byte": RNG.integers(-128, 128, rows).astype(np.int8),
        "long": RNG.integers(-(2**62), 2**62, rows),
        "seconds": RNG.random(rows),
        "lists": ragged(rows, 5),
        "ones": Ragged.single(np.arange(rows)),
        "empty": Ragged.empty(rows),
        "wide": ragged(rows, 40, np.int64),
    }


def content(columns, metadata=None) -> bytes:
    file = io.BytesIO()
    write_table(file, columns, metadata or {})
    return file.getvalue()


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 1000])
@pytest.mark.parametrize("group_rows", [1 << 18, 300])
def test_what_is_written_is_what_pyarrow_and_we_read(rows, group_rows, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", group_rows)
    columns = table(rows)
    data = content(columns, {"stretto": "{å}".encode()})
    theirs = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    theirs.validate(full=True)
    ours = Table(data)
    assert theirs.schema.metadata == {b"stretto": "{å}".encode()}
    assert ours.metadata == {"stretto": "{å}".encode()}
    assert ours.names == tuple(theirs.column_names) == tuple(columns)
    for name, column in columns.items():
        arrow, own = theirs.column(name), ours.column(name)
        assert arrow.null_count == 0
        if isinstance(column, Ragged):
            assert arrow.type.value_type.to_pandas_dtype() == column.values.dtype
            assert arrow.to_pylist() == [column[i].tolist() for i in range(rows)]
            assert (own.offsets.tolist(), own.values.tolist()) == (column.offsets.tolist(), column.values.tolist())
            own = own.values
            column = column.values
        else:
            assert arrow.type.to_pandas_dtype() == column.dtype
            assert arrow.to_pylist() == own.tolist() == column.tolist()
        assert own.dtype == column.dtype and own.flags.writeable


def test_every_flipped_bit_of_a_page_is_found():
    data = content({"numbers": np.arange(500), "lists": ragged(500, 3)})
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in range(30, pages, 7):
        torn = bytearray(data)
        torn[at] ^= 1 << at % 8
        try:
            again = Table(bytes(torn))
            same = [again.column("numbers").tolist(), again.column("lists").values.tolist()]
        except (ValueError, LookupError, TypeError, parquet.OtherLayout):
            continue
        intact = Table(data)
        # a bit of a header that no reader looks at
        assert same == [intact.column("numbers").tolist(), intact.column("lists").values.tolist()]


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "gzip", "use_dictionary": False},
        {"compression": "gzip", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "zstd", "write_page_checksum": True},
    ],
)
def test_a_plan_that_another_program_rewrote_is_read_and_without_pyarrow_refused_by_name(tmp_path, how, monkeypatch):
    path = tmp_path / "p.parquet"
    write_plan(plan(), str(path))
    pq.write_table(pq.read_table(path), path, **how)
    assert read_plan(str(path)).digest() == plan().digest()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"p\.parquet.*needs pyarrow.*pip install 'stretto\[parquet\]'"):
        read_plan(str(path))


def test_a_column_of_texts_beside_those_of_a_plan_is_ignored_and_one_in_their_place_refused(tmp_path):
    path = tmp_path / "p.parquet"
    write_plan(plan(), str(path))
    arrow = pq.read_table(path)
    notes = pa.array(["x"] * arrow.num_rows)
    pq.write_table(arrow.append_column("note", notes), path)
    assert read_plan(str(path)).digest() == plan().digest()
    pq.write_table(arrow.set_column(arrow.column_names.index("route"), "route", notes), path)
    with pytest.raises(InputError, match="'route' is damaged or of the wrong type"):
        read_plan(str(path))


def test_a_header_that_promises_more_than_it_has_takes_no_memory():
    data = content({"zeros": np.zeros(1 << 18)})
    page = bytearray(data)
    start = data.index(b"\x1f\x8b")
    page[4:start] = page[4:start].replace(varint(1 << 22), varint(1 << 25))
    with pytest.raises(ValueError, match=r"more bytes than values|not the bytes"):
        Table(bytes(page)).column("zeros")

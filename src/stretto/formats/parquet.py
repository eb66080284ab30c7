"""Tables as Parquet: columns of numbers, and columns with a list of numbers in each row.

https://parquet.apache.org/docs/file-format/. What is written is plain: every value is required, pages of version 1 are
in the encoding PLAIN and compressed with gzip, each with its CRC, so that any reader of Parquet reads it and NumPy and
the standard library are enough to write it. Files in other encodings, which other programs write, are read by pyarrow
(:mod:`stretto.formats.parquet_elsewhere`), whose 165 MB are an extra.

While a table is read, ValueError, IndexError, KeyError, TypeError and zlib.error say that it is damaged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Ragged
from ..model.errors import Unsupported
from .protobuf import varint
from .thrift import Long, Reader, written

Column = NDArray[Any] | Ragged
"""Numbers, one a row; or a list of numbers a row."""

MAGIC = b"PAR1"
GZIP, PLAIN, RLE, DATA_PAGE = 2, 0, 3, 0
REQUIRED, REPEATED = 0, 2
LIST_TYPE = 3
GZIP_LEVEL = 1
"""Of the plan of a million deliveries: level 6 takes six times the CPU for files 2 % smaller."""
GROUP_ROWS = 1 << 18
"""Rows of a group: a page is at most 2 GB, so lists may have some thousand values on average."""
MOST_PAGE_BYTES = 2**31 - 1
MOST_VALUE_BYTES, MOST_LEVEL_BYTES = 9, 64
"""Bytes of a page for each value with its levels, and for the beginnings of levels, at most."""
KINDS: Mapping[str, tuple[int, int | None]] = {
    "int8": (1, 15), "int16": (1, 16), "int32": (1, None), "int64": (2, None), "float64": (5, None),
}  # fmt: skip
"""Parquet's type of each of NumPy's, and what it converts to."""
PHYSICAL: Mapping[int, np.dtype[Any]] = {1: np.dtype("<i4"), 2: np.dtype("<i8"), 5: np.dtype("<f8")}


class OtherLayout(Exception):
    """A sound file, as far as it was read, that is not laid out as :func:`write_table` does."""


class Stored(NamedTuple):
    """A column of a file: its name, Parquet's type, NumPy's, and whether it has a list in each row."""

    name: str
    kind: int
    dtype: np.dtype[Any]
    lists: bool


def write_table(file: IO[bytes], columns: Mapping[str, Column], metadata: Mapping[str, bytes]) -> None:
    """Write columns of equal length.

    Args:
        columns: of int8, int16, int32, int64 or float64.
        metadata: texts in UTF-8 by their names.
    Raises:
        Unsupported: lists are so long that a page would have more than 2 GB.
    """
    first = next(iter(columns.values()))
    rows = first.rows if isinstance(first, Ragged) else len(first)
    file.write(MAGIC)
    at, groups = len(MAGIC), []
    for low in range(0, max(rows, 1), GROUP_ROWS):  # a table without rows has a group without rows
        high, chunks, total = min(low + GROUP_ROWS, rows), [], 0
        for name, column in columns.items():
            page, plain_bytes, count = _page(name, _rows(column, low, high))
            file.write(page)
            chunks.append({2: Long(at), 3: _chunk_facts(name, column, count, plain_bytes, len(page), at)})
            at, total = at + len(page), total + plain_bytes
        groups.append({1: chunks, 2: Long(total), 3: Long(high - low)})
    schema = [{4: "schema", 5: len(columns)}, *(part for name, c in columns.items() for part in _schema(name, c))]
    pairs = [{1: key, 2: value} for key, value in metadata.items()]
    footer = written({1: 1, 2: schema, 3: Long(rows), 4: groups, 5: pairs or None, 6: "stretto"})
    file.write(footer + len(footer).to_bytes(4, "little") + MAGIC)


def _rows(column: Column, low: int, high: int) -> Column:
    if not isinstance(column, Ragged):
        return column[low:high]
    offsets = column.offsets[low : high + 1]
    return Ragged(offsets - offsets[0], column.values[offsets[0] : offsets[-1]])


def _page(name: str, column: Column) -> tuple[bytes, int, int]:
    """A page with its header, its bytes before compression, and how many values it has."""
    if isinstance(column, Ragged):
        levels, count = _list_levels(column)
        values = column.values
    else:
        levels, count, values = b"", len(column), column
    plain = levels + np.ascontiguousarray(values, dtype=PHYSICAL[KINDS[values.dtype.name][0]]).tobytes()
    if len(plain) > MOST_PAGE_BYTES:
        raise Unsupported(f"the lists of the column {name!r} are too long for a file: {len(plain):,} bytes in a page")
    squeeze = zlib.compressobj(GZIP_LEVEL, wbits=31)
    packed = squeeze.compress(plain) + squeeze.flush()
    crc = zlib.crc32(packed)
    about = {1: count, 2: PLAIN, 3: RLE, 4: RLE}
    head = {1: DATA_PAGE, 2: len(plain), 3: len(packed), 4: crc - (crc >> 31 << 32), 5: about}
    header = written(head)
    return header + packed, len(header) + len(plain), count


def _list_levels(column: Ragged) -> tuple[bytes, int]:
    """Where rows begin and which are empty, as Parquet's levels, and how many there are."""
    lengths = np.diff(column.offsets)
    slots = np.maximum(lengths, 1)  # an empty list takes one
    count = int(slots.sum())
    repeats = np.ones(count, dtype=np.uint8)
    starts = np.cumsum(slots) - slots
    repeats[starts] = 0
    present = np.ones(count, dtype=np.uint8)
    present[starts[lengths == 0]] = 0
    return b"".join(len(bits).to_bytes(4, "little") + bits for bits in map(_bits, (repeats, present))), count


def _bits(levels: NDArray[np.uint8]) -> bytes:
    """Levels of 0 and 1 in Parquet's hybrid of runs and packed bits: one run where all are equal."""
    if not len(levels) or (levels == levels[0]).all():
        return varint(len(levels) << 1) + bytes(levels[:1]) if len(levels) else b""
    packed = np.packbits(levels, bitorder="little").tobytes()
    return varint(len(packed) << 1 | 1) + packed


def _schema(name: str, column: Column) -> list[dict[int, Any]]:
    dtype = (column.values if isinstance(column, Ragged) else column).dtype.name
    kind, converted = KINDS[dtype]
    if not isinstance(column, Ragged):
        return [{1: kind, 3: REQUIRED, 4: name, 6: converted}]
    return [
        {3: REQUIRED, 4: name, 5: 1, 6: LIST_TYPE},
        {3: REPEATED, 4: "list", 5: 1},
        {1: kind, 3: REQUIRED, 4: "element", 6: converted},
    ]


def _chunk_facts(name: str, column: Column, count: int, plain: int, packed: int, at: int) -> dict[int, Any]:
    lists = isinstance(column, Ragged)
    kind = KINDS[(column.values if isinstance(column, Ragged) else column).dtype.name][0]
    return {
        1: kind, 2: [PLAIN, RLE], 3: [name, "list", "element"] if lists else [name], 4: GZIP,
        5: Long(count), 6: Long(plain), 7: Long(packed), 9: Long(at),
    }  # fmt: skip


class Table:
    """A file's columns, read when asked for.

    Attributes:
        metadata: its texts by name.
        values: how many numbers and empty lists all columns have.
    Raises:
        ValueError and others: the file is damaged, or not Parquet; see above.
        OtherLayout: :func:`write_table` did not write it.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
            raise ValueError("its first and last four bytes must be PAR1")
        length = int.from_bytes(data[-8:-4], "little")
        if length > len(data) - 12:
            raise ValueError("its footer is longer than the file")
        self.data = data
        footer = Reader(data[len(data) - 8 - length : -8]).struct()
        self.metadata = {pair[1].decode(): pair.get(2, b"") for pair in footer.get(5, [])}
        self.rows = footer[3]
        self._groups: list[Any] = footer[4]
        self._columns = {column.name: column for column in _stored(footer[2])}
        for chunk in self._chunks():
            if chunk[4] != GZIP or 11 in chunk or not {*chunk[2]} <= {PLAIN, RLE}:
                raise OtherLayout
            page = Reader(data, chunk[9]).struct()
            if page[1] != DATA_PAGE or 4 not in page or page[5][2] != PLAIN or page[5][1] != chunk[5]:
                raise OtherLayout
        self.values = sum(chunk[5] for chunk in self._chunks())

    def _chunks(self) -> Iterator[dict[int, Any]]:
        for group in self._groups:
            if len(group[1]) != len(self._columns):
                raise ValueError("a group has not as many columns as the table")
            yield from (chunk[3] for chunk in group[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns."""
        return tuple(self._columns)

    def column(self, name: str) -> Column:
        """A column, in an array that may be written to."""
        number, column = list(self._columns).index(name), self._columns[name]
        pages = [self._page(group[1][number][3], column) for group in self._groups]
        values = np.concatenate([np.zeros(0, column.dtype), *(v for v, _ in pages)])
        lengths = np.concatenate([np.zeros(0, np.int64), *(n for _, n in pages)])
        rows = len(lengths) if column.lists else len(values)
        if rows != self.rows:
            raise ValueError(f"it has {rows} rows, the table {self.rows}")
        return Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), values) if column.lists else values

    def _page(self, chunk: Mapping[int, Any], column: Stored) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The values of a column in a group, and the lengths of its lists."""
        reader = Reader(self.data, chunk[9])
        header = reader.struct()
        about, packed = header[5], self.data[reader.at : reader.at + header[3]]
        if (header[4] - zlib.crc32(packed)) & 0xFFFFFFFF:
            raise ValueError("the checksum is wrong")
        if header[2] > MOST_VALUE_BYTES * about[1] + MOST_LEVEL_BYTES:
            raise ValueError("it has more bytes than values")
        # no more than the header promises, however far the bytes could be inflated
        plain = zlib.decompressobj(wbits=31).decompress(packed, header[2] + 1)
        if len(plain) != header[2]:
            raise ValueError("it has not the bytes that its header promises")
        count, lengths = about[1], np.zeros(0, np.int64)
        if column.lists:
            repeats, plain = _levels(plain, count)
            present, plain = _levels(plain, count)
            starts = np.flatnonzero(repeats == 0)
            if count and (not len(starts) or starts[0]):
                raise ValueError("a list has no beginning")
            lengths = np.add.reduceat(present, starts, dtype=np.int64) if count else lengths
            count = int(lengths.sum())
        stored = PHYSICAL[column.kind]
        if len(plain) != count * stored.itemsize:
            raise ValueError(f"it has {len(plain)} bytes for {count} values")
        return np.frombuffer(plain, dtype=stored).astype(column.dtype), lengths


def _stored(schema: list[dict[int, Any]]) -> Iterator[Stored]:
    """The columns of a schema, if they are numbers and lists of numbers without nulls."""
    types: dict[tuple[int, int | None], np.dtype[Any]] = {kind: np.dtype(name) for name, kind in KINDS.items()}
    parts = iter(schema[1:])
    for part in parts:
        name, lists = part[4].decode(), 5 in part
        if lists:
            inner = next(parts, None)
            leaf = next(parts, None)
            if inner is None or leaf is None or part.get(6) != LIST_TYPE or inner.get(3) != REPEATED:
                raise OtherLayout
        else:
            leaf = part
        if part.get(3) != REQUIRED or leaf.get(3) != REQUIRED or (leaf.get(1), leaf.get(6)) not in types:
            raise OtherLayout
        yield Stored(name, leaf[1], types[leaf[1], leaf.get(6)], lists)


def _levels(data: bytes, count: int) -> tuple[NDArray[np.uint8], bytes]:
    """Levels of 0 and 1, and the bytes that follow them."""
    length = int.from_bytes(data[:4], "little")
    reader, found, have = Reader(data[4 : 4 + length]), [np.zeros(0, np.uint8)], 0
    while have < count:
        head = reader.varint()
        if head & 1:
            packed = np.frombuffer(reader.take(head >> 1), dtype=np.uint8)
            found.append(np.unpackbits(packed, bitorder="little"))
        elif head >> 1 > count - have:
            raise ValueError("a run of levels is longer than its page")
        else:
            found.append(np.full(head >> 1, reader.byte(), dtype=np.uint8))
        if not len(found[-1]):
            raise ValueError("a run of levels is empty")
        have += len(found[-1])
    levels = np.concatenate(found)[:count]
    if count and levels.max() > 1:
        raise ValueError("a level is out of range")
    return levels, data[4 + length :]

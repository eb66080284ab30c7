"""Thrift's compact protocol, in which the headers of a Parquet file are written.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. A struct is a dict from field numbers
to values: int, str or bytes, dict (a struct), list of one of these. Whole numbers are all written as i32 or i64, which
readers of Parquet expect by field; :class:`Long` marks an i64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .protobuf import varint  # Thrift's compact protocol writes numbers the same way

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
MOST_DEPTH = 16
"""Structs and lists within each other at most: a damaged file must not exhaust Python's stack."""


class Long(int):
    """A whole number of 64 bits."""


def written(struct: Mapping[int, Any]) -> bytes:
    """A struct in bytes; fields in the order of their numbers, None for a field that is left out."""
    out = bytearray()
    before = 0
    for number, value in sorted(struct.items()):
        if value is None:
            continue
        out.append((number - before) << 4 | _kind(value))
        before = number
        _write(out, value)
    out.append(0)
    return bytes(out)


def _kind(value: Any) -> int:
    if isinstance(value, int):
        return I64 if isinstance(value, Long) else I32
    return BINARY if isinstance(value, str | bytes) else LIST if isinstance(value, list) else STRUCT


def _write(out: bytearray, value: Any) -> None:
    if isinstance(value, int):
        out += varint(value << 1 if value >= 0 else (-value << 1) - 1)
    elif isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        out += varint(len(data)) + data
    elif isinstance(value, list):
        kind = _kind(value[0])
        out += bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + varint(len(value))
        for each in value:
            _write(out, each)
    else:
        out += written(value)


class Reader:
    """Reads structs from bytes, from ``at`` on.

    Every method raises ValueError or IndexError where the bytes are no such value.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """A struct; texts are bytes, and fields that occur twice have their last value."""
        if depth > MOST_DEPTH:
            raise ValueError("structs are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _signed(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        if kind in (1, 2):  # true and false; in a list they take a byte
            return self.byte() == 1 if in_list else kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, I32, I64):
            return self._signed()
        if kind == 7:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind in (LIST, 10):
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            if count > len(self.data) - self.at:
                raise ValueError("a list is longer than the file")
            return [self._value(head & 15, depth + 1, True) for _ in range(count)]
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"there is no type {kind}")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > len(self.data) - self.at:
            raise ValueError("a text is longer than the file")
        self.at += count
        return self.data[self.at - count : self.at]

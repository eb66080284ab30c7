"""The part of the Protocol Buffers wire format that traces use (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.errors import InputError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """A non-negative whole number, seven bits in each byte, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that holds a non-negative whole number."""
    return varint(field << 3 | VARINT) + varint(value)


def block(field: int, content: bytes) -> bytes:
    """A field that holds text, a message or packed numbers."""
    return varint(field << 3 | BYTES) + sized(content)


def sized(content: bytes) -> bytes:
    """A message preceded by its length: a file holds several."""
    return varint(len(content)) + content


def read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    """A whole number, and the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise InputError(f"ends in the middle of a number at byte {at}", where)
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value & 2**64 - 1, at
    raise InputError(f"has a number of more than 64 bits at byte {at}", where)


def messages(data: bytes, where: str) -> Iterator[bytes]:
    """The messages of a file, each preceded by its length."""
    at = 0
    while at < len(data):
        size, at = read_varint(data, at, where)
        if size > len(data) - at:
            raise InputError(f"ends in the middle of a message at byte {at}", where)
        yield data[at : at + size]
        at += size


def fields(data: bytes, where: str) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by number: whole numbers as int, all else as bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at, where)
        kind = key & 7
        if kind == VARINT:
            value, at = read_varint(data, at, where)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at, where)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise InputError(f"has a field of kind {kind}, which is none", where)
        if size > len(data) - at:
            raise InputError("ends in the middle of a field", where)
        yield key >> 3, data[at : at + size]
        at += size


def packed(data: int | bytes, where: str) -> list[int]:
    """The numbers of a repeated field, packed, or a single number."""
    if isinstance(data, int):
        return [data]
    found, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at, where)
        found.append(value)
    return found

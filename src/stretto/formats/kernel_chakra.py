"""The bytes of the nodes of Chakra traces, as protobuf encodes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]

LONGEST_NUMBER = 10
"""Bytes of the longest number."""


class Words(NamedTuple):
    """The words of a trace, as bytes.

    Attributes:
        names, name_offsets: CSR, of receipts, sends and turns the text of a name before and after the chunk.
        attributes, attribute_offsets: CSR, the names of the attributes; the value of the first one is 0.
        forms: int64[attributes], the field of the value of each attribute.
    """

    names: UInt8
    name_offsets: Int64
    attributes: UInt8
    attribute_offsets: Int64
    forms: Int64


class Nodes(NamedTuple):
    """The nodes of one trace, in the order of the file.

    Attributes:
        kind: int64[nodes], 0 for a receipt, 1 for a send, 2 for a turn. key: int64[nodes], its number.
        peer: int64[nodes], the other rank.
        values: int64[nodes, attributes], the values of the attributes after the first, in the order of ``Words``; the
            last but one is the chunk.
        dep_offsets, deps: CSR, the numbers of the nodes for which each waits.
    """

    kind: Int64
    key: Int64
    peer: Int64
    values: Int64
    dep_offsets: Int64
    deps: Int64


def length(value: int) -> int:
    """The bytes of a number: seven bits in each."""
    count = 1
    while value > 127:
        value >>= 7
        count += 1
    return count


def put(out: UInt8, at: int, value: int) -> int:
    """Write a number; the place after it."""
    while value > 127:
        out[at] = value & 127 | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def put_word(out: UInt8, at: int, words: UInt8, begin: int, end: int) -> int:
    """Write a word; the place after it."""
    for i in range(begin, end):
        out[at] = words[i]
        at += 1
    return at


def put_decimal(out: UInt8, at: int, value: int) -> int:
    """Write a number as text; the place after it."""
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    for i in range(digits):
        out[at + digits - 1 - i] = 48 + value % 10
        value //= 10
    return at + digits


def put_attribute(out: UInt8, at: int, words: Words, which: int, value: int) -> int:
    """Write an attribute of a node; the place after it."""
    begin, end = words.attribute_offsets[which], words.attribute_offsets[which + 1]
    form = words.forms[which] << 3
    at = put(out, at, 10 << 3 | 2)
    at = put(out, at, 2 + end - begin + length(form) + length(value))
    at = put(out, at, 1 << 3 | 2)
    at = put(out, at, end - begin)
    at = put_word(out, at, words.attributes, begin, end)
    at = put(out, at, form)
    return put(out, at, value)


def encode(nodes: Nodes, words: Words, attributes: Int64, types: Int64, most: int) -> UInt8:
    """The nodes of a trace, each after its length.

    Args:
        attributes: int64[3], how many attributes receipts, sends and turns have. types: int64[3], their types.
        most: bytes of the longest node, without the numbers for which it waits.
    """
    count = len(nodes.kind)
    out = np.empty(count * most + LONGEST_NUMBER * len(nodes.deps), dtype=np.uint8)
    longest = 0
    for i in range(count):
        longest = max(longest, nodes.dep_offsets[i + 1] - nodes.dep_offsets[i])
    body = np.empty(most + LONGEST_NUMBER * longest, dtype=np.uint8)
    name = np.empty(most, dtype=np.uint8)
    end = 0
    for i in range(count):
        kind = nodes.kind[i]
        word = 2 * kind
        named = put_word(name, 0, words.names, words.name_offsets[word], words.name_offsets[word + 1])
        if kind < 2:
            named = put_decimal(name, named, nodes.values[i, -2])
            named = put_word(name, named, words.names, words.name_offsets[word + 1], words.name_offsets[word + 2])
            named = put_decimal(name, named, nodes.peer[i])
        at = put(body, 0, 1 << 3)
        at = put(body, at, nodes.key[i])
        at = put(body, at, 2 << 3 | 2)
        at = put(body, at, named)
        at = put_word(body, at, name, 0, named)
        at = put(body, at, 3 << 3)
        at = put(body, at, types[kind])
        begin, last = nodes.dep_offsets[i], nodes.dep_offsets[i + 1]
        if last > begin:
            size = 0
            for p in range(begin, last):
                size += length(nodes.deps[p])
            at = put(body, at, 5 << 3 | 2)
            at = put(body, at, size)
            for p in range(begin, last):
                at = put(body, at, nodes.deps[p])
        for j in range(attributes[kind]):
            at = put_attribute(body, at, words, j, nodes.values[i, j - 1] if j else 0)
        end = put(out, end, at)
        end = put_word(out, end, body, 0, at)
    return out[:end]

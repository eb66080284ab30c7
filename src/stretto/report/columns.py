"""Columns of integers as one compressed text, which a page reads without a library.

Each column becomes differences of neighbours where these compress better, then unsigned numbers (zigzag: 0, -1, 1, -2
become 0, 1, 2, 3), then planes of bytes: all lowest bytes, all second ones and so on, without the planes that are zero
throughout. All planes are one gzip stream in base64, which browsers inflate with ``DecompressionStream``. Planes
compress better than numbers: of a column of times the high bytes hardly change, and the low bytes are noise.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 6
"""Level of compression. 9 makes pages of a million transfers 1 % smaller and takes three times as long."""
SAMPLE = 65_536
"""Numbers of a column by which the page's writer decides whether differences compress better."""


def pack_columns(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """``{"columns": [[name, count, planes, differences], ...], "data": text}`` of integers of 31 bits and a sign."""
    layout: list[list[Any]] = []
    parts: list[bytes] = []
    for name, values in columns.items():
        numbers = values.astype(np.int64)
        differences = _changes(numbers)
        middle = slice(max(0, (len(numbers) - SAMPLE) // 2), (len(numbers) + SAMPLE) // 2)
        by_change = _cost(differences[middle]) < _cost(numbers[middle])
        planes = _planes(differences if by_change else numbers)
        layout.append([name, len(numbers), len(planes), int(by_change)])
        parts.append(planes.tobytes())
    stream = gzip.compress(b"".join(parts), compresslevel=LEVEL, mtime=0)
    return {"columns": layout, "data": base64.b64encode(stream).decode()}


def unpack_columns(packed: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """The columns of :func:`pack_columns` again, as the page's script reads them."""
    raw = np.frombuffer(gzip.decompress(base64.b64decode(packed["data"])), np.uint8)
    columns, at = {}, 0
    for name, count, planes, by_change in packed["columns"]:
        found = np.zeros(count, np.int64)
        for k in range(planes):
            found |= raw[at : at + count].astype(np.int64) << (8 * k)
            at += count
        found = (found >> 1) ^ -(found & 1)
        columns[name] = np.cumsum(found) if by_change else found
    return columns


def _changes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.diff(numbers, prepend=0)


def _planes(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """uint8[planes, count], the bytes of the zigzag numbers, lowest first."""
    unsigned = (numbers << 1 ^ numbers >> 63).astype("<u4")
    most = int(unsigned.max(initial=0))
    bytes_each = unsigned.view(np.uint8).reshape(-1, 4).T
    return np.ascontiguousarray(bytes_each[: (most.bit_length() + 7) // 8])


def _cost(numbers: NDArray[np.int64]) -> int:
    return len(zlib.compress(_planes(numbers).tobytes(), 1))

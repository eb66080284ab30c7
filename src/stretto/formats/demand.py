"""A demand matrix as CSV: one row for each sending rank, one column for each receiving rank, sizes such as 4MB."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64
from ..model.errors import InputError
from ..model.units import parse_size
from ..topologies.values import parse_csv, read_text


def read_demand(path: str) -> Int64:
    """int64[ranks, ranks], the bytes that a file asks for; InputError names the line and column of what is wrong."""
    lines = parse_csv(read_text(path), path)
    if not lines:
        raise InputError("is empty; give a row and a column for each rank", path)
    for line, row in lines:
        if len(row) != len(lines):
            what = f"has {len(row)} cells, and the file {len(lines)} rows; give a square"
            raise InputError(what, f"{path}, line {line}")
    cells = [
        0 if cell in ("", "0") else parse_size(cell, f"{path}, line {line}, column {column}")
        for line, row in lines
        for column, cell in enumerate(row, start=1)
    ]
    return np.array(cells, dtype=np.int64).reshape(len(lines), -1)

"""``nvidia-smi topo -m``: how the GPUs of one server are joined, as the driver sees it.

The matrix has NV# for a bonded set of # NVLinks, and PIX, PXB, PHB, NODE or SYS for routes over PCIe, from the
shortest to the longest (the legend that the command prints). It has no bandwidths and latencies: these are assumed
and listed in the notes.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np

from ..model.arrays import Int32
from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import format_bandwidth, format_time
from . import check_size
from .draft import Draft
from .values import shown

NVLINK_BANDWIDTH, NVLINK_LATENCY_S = 25e9, 0.7e-6
PCIE_BANDWIDTH, PCIE_LATENCY_S = 16e9, 0.5e-6
MOST_NVLINKS = 18
"""NVLinks of one GPU. A row that sums to more NVLinks over its peers means that they lead to an NVSwitch."""
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def begins_matrix(text: str) -> bool:
    """Whether a text begins with such a matrix."""
    return bool(re.match(r"\s*GPU0\b", _COLOUR.sub("", text[:1000])))


def parse(text: str, where: str) -> Topology:
    """The topology of the matrix."""
    names, cells = _matrix(text, where)
    n = len(names)
    check_size(2 * n, n * n, where)
    nvlinks = np.array([[int(c[2:]) if c.startswith("NV") else 0 for c in row] for row in cells])
    between = set(nvlinks[~np.eye(n, dtype=bool)].tolist())
    draft = Draft()
    for name in names:
        draft.node(ACCELERATOR, name, "server0")
    notes = [f"an NVLink taken as {format_bandwidth(NVLINK_BANDWIDTH)} and {format_time(NVLINK_LATENCY_S)}"]
    if len(between) == 1 and 0 not in between and nvlinks[0].sum() > MOST_NVLINKS:
        (links,) = between
        switch = draft.node(SWITCH, "nvswitch", "server0")
        for i in range(n):
            draft.join(i, switch, NVLINK_BANDWIDTH * links, NVLINK_LATENCY_S / 2)
        notes.append(f"{links} NVLinks to every peer taken as one NVSwitch")
    else:
        for i, j in np.argwhere(nvlinks).tolist():
            draft.link(i, j, NVLINK_BANDWIDTH * nvlinks[i, j], NVLINK_LATENCY_S)
    if max(_groups(nvlinks)) > 0:
        _add_pcie(cells, draft)
        notes.append(f"PCIe taken as {format_bandwidth(PCIE_BANDWIDTH)} and {format_time(PCIE_LATENCY_S)} a hop")
    elif 0 in between:
        notes.append("ways over PCIe left out, since NVLinks join all GPUs")
    return draft.topology(
        "nvidia-smi", ordered=True, replicates=[name == "nvswitch" for name in draft.names], notes=notes, where=where
    )


def _matrix(text: str, where: str) -> tuple[list[str], list[list[str]]]:
    """The names of the GPUs, and the cells of the matrix."""
    lines = [line.split() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    header = lines[0][: lines[0].index("CPU")] if lines and "CPU" in lines[0] else lines[0] if lines else []
    columns = [i for i, name in enumerate(header) if re.fullmatch(r"GPU\d+", name)]
    names = [header[i] for i in columns]
    if not names or len(set(names)) != len(names):
        raise InputError("has no first line with GPU0, GPU1, ...; save the output of nvidia-smi topo -m", where)
    rows = {line[0]: line[1:] for line in lines[1:] if line[0] in set(names)}
    cells = []
    for name in names:
        row = rows.get(name, [])
        if len(row) < len(header):
            raise InputError(f"the row of {name} is missing or has fewer than {len(header)} cells", where)
        cells.append([row[i] for i in columns])
    for (i, name), (j, other) in product(enumerate(names), repeat=2):
        cell = cells[i][j]
        if (cell != "X") if i == j else not (cell in LEVELS or re.fullmatch(r"NV[1-9]\d?", cell)):
            raise InputError(f"{name} to {other} is {shown(cell)}, none of X, NV#, {', '.join(LEVELS)}", where)
        if cells[j][i] != cell:
            raise InputError(f"{name} to {other} is {shown(cell)} one way and {shown(cells[j][i])} back", where)
    return names, cells


def _groups(joined: Any) -> Int32:
    """For each GPU the number of its group: GPUs are in one group if the matrix ``joined`` has a path between them."""
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(np.array(joined, dtype=np.bool_), directed=False)[1])


def _add_pcie(cells: list[list[str]], draft: Draft) -> None:
    """Add a tree of switches: GPUs whose route is of a level, or shorter, share a switch of that level."""
    top = np.arange(len(cells))
    for level, name in enumerate(LEVELS):
        group = _groups([[cell in LEVELS[: level + 1] for cell in row] for row in cells])
        for number in range(max(group) + 1):
            below = np.unique(top[group == number]).tolist()
            if len(below) > 1:
                switch = draft.node(SWITCH, f"{name.lower()}{number}", "server0")
                for v in below:
                    draft.join(v, switch, PCIE_BANDWIDTH, PCIE_LATENCY_S)
                top[group == number] = switch

"""``nvidia-smi topo -m``: how the GPUs of one server are joined, as the driver sees it.

The matrix has NV# for a bonded set of # NVLinks, and PIX, PXB, PHB, NODE or SYS for routes over PCIe, from the
shortest to the longest (the legend that the command prints). It has no bandwidths and latencies: these are assumed
and listed in the notes.
"""

from __future__ import annotations

import re

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..model.units import format_bandwidth, format_time
from . import check_size
from .values import shown

NVLINK_BANDWIDTH, NVLINK_LATENCY_S = 25e9, 0.7e-6
PCIE_BANDWIDTH, PCIE_LATENCY_S = 16e9, 0.5e-6
MOST_NVLINKS = 18
"""NVLinks of one GPU. A row that sums to more NVLinks over its peers means that they lead to an NVSwitch."""
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def looks_like(text: str) -> bool:
    """Whether a text begins with such a matrix."""
    return bool(re.match(r"\s*GPU0\b", _COLOUR.sub("", text[:1000])))


def parse_nvidia_smi(text: str, where: str) -> Topology:
    """The topology of the matrix.

    Raises:
        InputError: there is no matrix, a row or cell cannot be parsed, or two directions differ.
    """
    names, cells = _matrix(text, where)
    n = len(names)
    check_size(2 * n, n * n, where)
    nvlinks = [[int(c[2:]) if c.startswith("NV") else 0 for c in row] for row in cells]
    links: dict[tuple[int, int], tuple[float, float]] = {}
    kinds, labels = [ACCELERATOR] * n, list(names)
    notes = [f"an NVLink taken as {format_bandwidth(NVLINK_BANDWIDTH)} and {format_time(NVLINK_LATENCY_S)}"]
    if _switched(nvlinks):
        kinds.append(SWITCH)
        labels.append("nvswitch")
        for i in range(n):
            way = (NVLINK_BANDWIDTH * max(nvlinks[i]), NVLINK_LATENCY_S / 2)
            links[i, n] = links[n, i] = way
        notes.append(f"{max(nvlinks[0])} NVLinks to every peer taken as one NVSwitch")
    else:
        for i in range(n):
            for j in range(n):
                if nvlinks[i][j]:
                    links[i, j] = (NVLINK_BANDWIDTH * nvlinks[i][j], NVLINK_LATENCY_S)
    if not _joined(n, links):
        _add_pcie(cells, kinds, labels, links)
        notes.append(f"PCIe taken as {format_bandwidth(PCIE_BANDWIDTH)} and {format_time(PCIE_LATENCY_S)} a hop")
    elif any(c in LEVELS for i, row in enumerate(cells) for j, c in enumerate(row) if i != j):
        notes.append("ways over PCIe left out, since NVLinks join all GPUs")
    return make_topology(
        "nvidia-smi",
        kinds,
        [(a, b, *way) for (a, b), way in sorted(links.items())],
        names=labels,
        sites=["server0"] * len(kinds),
        replicates=[label == "nvswitch" for label in labels],
        notes=notes,
        where=where,
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
    for i, name in enumerate(names):
        for j, other in enumerate(names):
            cell = cells[i][j]
            if (cell != "X") if i == j else not (cell in LEVELS or re.fullmatch(r"NV[1-9]\d?", cell)):
                raise InputError(f"{name} to {other} is {shown(cell)}, none of X, NV#, {', '.join(LEVELS)}", where)
            if cells[j][i] != cell:
                raise InputError(f"{name} to {other} is {shown(cell)} one way and {shown(cells[j][i])} back", where)
    return names, cells


def _switched(nvlinks: list[list[int]]) -> bool:
    n = len(nvlinks)
    every = {nvlinks[i][j] for i in range(n) for j in range(n) if i != j}
    return len(every) == 1 and min(every) > 0 and sum(nvlinks[0]) > MOST_NVLINKS


def _joined(n: int, links: dict[tuple[int, int], tuple[float, float]]) -> bool:
    """Whether links alone join all GPUs."""
    group = _groups(n, [(a, b) for a, b in links if a < n and b < n])
    return len(set(group)) == 1 or any(a >= n for a, _ in links)


def _groups(n: int, pairs: list[tuple[int, int]]) -> list[int]:
    """For each of n items the group of items that pairs join."""
    group = list(range(n))

    def root(v: int) -> int:
        while group[v] != v:
            group[v] = group[group[v]]
            v = group[v]
        return v

    for a, b in pairs:
        group[root(a)] = root(b)
    return [root(v) for v in range(n)]


def _add_pcie(
    cells: list[list[str]], kinds: list[int], labels: list[str], links: dict[tuple[int, int], tuple[float, float]]
) -> None:
    """Add a tree of switches: GPUs whose route is of a level, or shorter, share a switch of that level."""
    n = len(cells)
    top = list(range(n))
    for level, name in enumerate(LEVELS):
        near = set(LEVELS[: level + 1])
        group = _groups(n, [(i, j) for i in range(n) for j in range(i) if cells[i][j] in near])
        for number, g in enumerate(sorted(set(group))):
            below = sorted({top[v] for v in range(n) if group[v] == g})
            if len(below) < 2:
                continue
            switch = len(kinds)
            kinds.append(SWITCH)
            labels.append(f"{name.lower()}{number}")
            for v in below:
                links[v, switch] = links[switch, v] = (PCIE_BANDWIDTH, PCIE_LATENCY_S)
            for v in range(n):
                top[v] = switch if group[v] == g else top[v]

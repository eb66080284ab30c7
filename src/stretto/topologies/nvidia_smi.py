"""``nvidia-smi topo -m``: how the GPUs and NICs of one server are joined, as the driver sees it.

The matrix has NV# for a bonded set of # NVLinks, and PIX, PXB, PHB, NODE or SYS for routes over PCIe, from the
shortest to the longest (the legend that the command prints). It has no bandwidths and latencies: these are assumed
and listed in the notes. A NIC is kept if it is the nearest one of some GPU; its name is ``nic`` and its number
(:mod:`.ports`), with the name of the device where the matrix tells it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Int32
from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import format_bandwidth, format_time, parse_bandwidth
from . import Setting, check_size, choice
from .draft import Draft
from .pcie import NVLINK_LATENCY_S, PCIE, PCIE_LATENCY_S
from .values import shown

NVLINK_BANDWIDTH = 25e9
MOST_NVLINKS = 18
"""NVLinks of one GPU. A row that sums to more NVLinks over its peers means that they lead to an NVSwitch."""

PCIE_OF_NVLINKS = ((18, 5), (8, 4), (0, 3))
"""From which number of NVLinks of a GPU on its PCIe is taken as of a generation: 18 of H100, 12 of A100 (8 of A800),
6 of V100."""

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")

SETTINGS = (
    Setting("nvlink", parse_bandwidth, None, "of an NVLink in a matrix of nvidia-smi; by default 25GB/s, as to H100"),
    Setting("pcie", choice({str(g): g for g in PCIE}), None,
            "generation of PCIe in a matrix of nvidia-smi; by default as GPUs with as many NVLinks have"),
)  # fmt: skip

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LEGEND = re.compile(r"^[ \t]*(NIC\d+):[ \t]+(\S+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class _Matrix:
    """The matrix of a server.

    Attributes:
        gpus, nics: names of the devices, in the order of the columns.
        nvlinks: int[gpus, gpus].
        level: int[gpus + nics, same], index into LEVELS of the route over PCIe, or len(LEVELS) where it is not told.
    """

    gpus: list[str]
    nics: list[str]
    nvlinks: NDArray[Any]
    level: NDArray[Any]


def begins_matrix(text: str) -> bool:
    """Whether a text begins with such a matrix."""
    return bool(re.match(r"\s*GPU0\b", _COLOUR.sub("", text[:1000])))


def parse(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of the matrix."""
    matrix = _matrix(_COLOUR.sub("", text), where)
    nvlinks, n = matrix.nvlinks, len(matrix.gpus)
    check_size(2 * (n + len(matrix.nics)), n * n, where)
    width = settings["nvlink"] or NVLINK_BANDWIDTH
    between = set(nvlinks[~np.eye(n, dtype=bool)].tolist())
    draft = Draft()
    for name in matrix.gpus:
        draft.node(ACCELERATOR, name, "server0")
    near = _nearest(matrix)
    for k in np.flatnonzero(near).tolist():
        draft.node(SWITCH, _nic_name(k, matrix.nics[k]), "server0")
    notes = [f"an NVLink taken as {format_bandwidth(width)} and {format_time(NVLINK_LATENCY_S)}"]
    switched = len(between) == 1 and 0 not in between and nvlinks[0].sum() > MOST_NVLINKS
    most = int(nvlinks.max() if switched else nvlinks.sum(axis=1).max())
    if switched:
        switch = draft.node(SWITCH, "nvswitch", "server0")
        for i in range(n):
            draft.join(i, switch, width * most, NVLINK_LATENCY_S / 2)
        notes.append(f"{most} NVLinks to every peer taken as one NVSwitch")
    else:
        for i, j in np.argwhere(nvlinks).tolist():
            draft.link(i, j, width * nvlinks[i, j], NVLINK_LATENCY_S)
    joined = max(_groups(nvlinks > 0)) == 0
    pcie = PCIE[settings["pcie"] or next(generation for count, generation in PCIE_OF_NVLINKS if most >= count)]
    if near.any() or not joined:
        _add_pcie(matrix, near, draft, pcie, only_nics=joined)
        notes.append(f"PCIe taken as {format_bandwidth(pcie)} and {format_time(PCIE_LATENCY_S)} a hop")
    if joined and 0 in between:
        notes.append("ways over PCIe left out, since NVLinks join all GPUs")
    if not near.all():
        left = ", ".join(name for name, kept in zip(matrix.nics, near.tolist(), strict=True) if not kept)
        notes.append(f"NICs left out, since every GPU has a nearer one: {left}")
    return draft.topology(
        "nvidia-smi", ordered=True, replicates=[name == "nvswitch" for name in draft.names], notes=notes, where=where
    )


def _nic_name(number: int, name: str) -> str:
    """``nic3 mlx5_4``, or ``nic3`` where the matrix has no name of the device."""
    return f"nic{number}" if re.fullmatch(r"NIC\d+", name) else f"nic{number} {name}"


def _matrix(text: str, where: str) -> _Matrix:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    header = lines[0][: lines[0].index("CPU")] if lines and "CPU" in lines[0] else lines[0] if lines else []
    gpus = [name for name in header if re.fullmatch(r"GPU\d+", name)]
    if not gpus or len(set(header)) != len(header):
        raise InputError("has no first line with GPU0, GPU1, ...; save the output of nvidia-smi topo -m", where)
    column = {name: k for k, name in enumerate(header)}
    rows = {line[0]: line[1:] for line in lines[1:] if line[0] in column}
    nics = [name for name in header if name in rows and not re.fullmatch(r"GPU\d+", name)]
    names = gpus + nics
    cells = {name: _row(name, rows.get(name, []), header, where) for name in names}
    check_size(2 * len(names), len(names) ** 2, where)
    level = np.full((len(names), len(names)), len(LEVELS))
    nvlinks = np.zeros((len(gpus), len(gpus)), dtype=np.int64)
    for (i, name), (j, other) in product(enumerate(names), repeat=2):
        cell = cells[name][column[other]]
        both = i < len(gpus) and j < len(gpus)
        link = re.fullmatch(r"NV([1-9]\d?)", cell) if both else None
        if (cell != "X") if i == j else not (cell in LEVELS or link):
            wanted = "X, NV#" if both else "X"
            raise InputError(f"{name} to {other} is {shown(cell)}, none of {wanted}, {', '.join(LEVELS)}", where)
        back = cells[other][column[name]]
        if back != cell:
            raise InputError(f"{name} to {other} is {shown(cell)} one way and {shown(back)} back", where)
        if link:
            nvlinks[i, j] = int(link[1])
        elif i != j:
            level[i, j] = LEVELS.index(cell)
    told = dict(_LEGEND.findall(text))
    return _Matrix(gpus, [told.get(name, name) for name in nics], nvlinks, level)


def _row(name: str, row: list[str], header: list[str], where: str) -> list[str]:
    if len(row) < len(header):
        raise InputError(f"the row of {name} is missing or has fewer than {len(header)} cells", where)
    return row


def _nearest(matrix: _Matrix) -> Bool:
    """bool[nics], which NICs are the nearest of some GPU."""
    n = len(matrix.gpus)
    ways = matrix.level[:n, n:]
    if not ways.size:
        return np.zeros(ways.shape[1], dtype=np.bool_)
    return np.asarray((ways == ways.min(axis=1, keepdims=True)).any(axis=0))


def _groups(joined: Any) -> Int32:
    """For each device the number of its group: devices are in one group if the matrix has a path between them."""
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(np.array(joined, dtype=np.bool_), directed=False)[1])


def _add_pcie(matrix: _Matrix, near: Bool, draft: Draft, bandwidth: float, only_nics: bool) -> None:
    """Add a tree of switches: devices whose route is of a level, or shorter, share a switch of that level.

    Args:
        near: which NICs are kept.
        only_nics: whether only switches between GPUs and NICs are wanted: none that joins parts of which each has both.
    """
    n = len(matrix.gpus)
    kept = np.concatenate([np.ones(n, dtype=np.bool_), near])
    levels = matrix.level[np.ix_(kept, kept)]
    top = np.arange(len(levels))  # the root of the tree of each device; devices are the first nodes
    gpu, nic = top < n, top >= n
    for level, name in enumerate(LEVELS):
        group = _groups(levels <= level)
        for number in range(max(group) + 1):
            here = group == number
            below = np.unique(top[here]).tolist()
            both = [bool(gpu[top == v].any() and nic[top == v].any()) for v in below]
            if len(below) > 1 and not (only_nics and all(both)):
                switch = draft.node(SWITCH, f"{name.lower()}{number}", "server0")
                for v in below:
                    draft.join(v, switch, bandwidth, PCIE_LATENCY_S)
                top[here] = switch

"""TACCL's topology profile (JSON): the links of one server by alpha and beta (TACCL's INPUT_GUIDE.md).

Times are microseconds; a beta is the time of 1 MB. The file has matrices ``links`` and ``betas`` (row: receiver), or
one beta for a full mesh (HubAndSpoke, DGX2), or two betas for the hybrid cube mesh (NDv2).
"""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, Topology, make_topology
from . import check_size
from .servers import CUBE_MESH
from .values import count, one_line, real

PROFILED_BYTES = 1e6


def parse(data: dict[str, Any], where: str) -> Topology:
    """The topology of one server."""
    n = count(data["gpus_per_node"], "'gpus_per_node'", where, 2, 1000)
    check_size(n, n * n, where)
    alpha = real(data.get("alpha"), "'alpha'", where) / 1e6
    notes = [f"betas taken as microseconds for {PROFILED_BYTES / 1e6:g} MB"]
    if "betas" in data:
        joined = _matrix(data, "links", n, where)
        betas = {
            (a, b): real(value, f"betas[{b}][{a}]", where)
            for b, row in enumerate(_matrix(data, "betas", n, where))
            for a, value in enumerate(row)
            if joined[b][a]
        }
    else:
        betas = _known(data["node_betas_list"], n, notes, where)
    if "remote_beta" in data:
        notes.append("the link between servers left out: a profile does not say how many there are")
    for (a, b), beta in betas.items():
        real(beta, f"the beta from {a} to {b}", where, above=True)
    links = [(a, b, PROFILED_BYTES / (beta * 1e-6), alpha) for (a, b), beta in sorted(betas.items())]
    label = one_line(str(data.get("name") or ""))[:100] or "taccl"
    return make_topology(label, [ACCELERATOR] * n, links, sites=["server0"] * n, notes=notes, where=where)


def _matrix(data: dict[str, Any], key: str, n: int, where: str) -> list[list[Any]]:
    value = data.get(key)
    if not isinstance(value, list) or [len(r) if isinstance(r, list) else -1 for r in value] != [n] * n:
        raise InputError(f"{key!r} must be {n} rows of {n}", where)
    return value


def _known(listed: Any, n: int, notes: list[str], where: str) -> dict[tuple[int, int], float]:
    """The links of the server that a list of one or two betas stands for."""
    values = [real(b, "'node_betas_list'", where, above=True) for b in listed] if isinstance(listed, list) else []
    if len(values) == 1:
        notes.append("one beta: every GPU joined to every other")
        return {(a, b): values[0] for a in range(n) for b in range(n) if a != b}
    if len(values) == 2 and n == 8:
        notes.append("two betas and 8 GPUs: NDv2's hybrid cube mesh")
        tables = zip(values, (CUBE_MESH[50.0], CUBE_MESH[25.0]), strict=True)
        return {ends: beta for beta, pairs in tables for a, b in pairs for ends in ((a, b), (b, a))}
    raise InputError("'node_betas_list' needs one beta, or two for 8 GPUs; else give 'links' and 'betas'", where)

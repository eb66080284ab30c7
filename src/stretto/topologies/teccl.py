"""TE-CCL's input (JSON): it names one of that code's topologies, which the catalogue holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, Topology
from . import load_topology
from .values import count, real, shown

FAMILIES = ("ndv2", "dgx2", "amd")


def parse(data: dict[str, Any], where: str) -> Topology:
    """The topology that it names, as its paper intends it."""
    given = data["TopologyParams"]
    name = str(given.get("name", "")).lower()
    if name == "dgx1":
        spec = "dgx1"
    elif name == "mesh":
        side = count(given.get("side_length"), "'side_length'", where, 2, 300)
        spec = f"mesh:{side}x{side}?bandwidth=100GB/s"
    elif name in FAMILIES:
        chassis = count(given.get("chassis", 1), "'chassis'", where, 1, 1000)
        spec = f"{name}:{chassis}"
    else:
        raise InputError(f"the topology {shown(given.get('name'))} is none of DGX1, DGX2, NDv2, AMD, Mesh", where)
    net = load_topology(spec)
    notes = [f"taken as {spec}, as the paper intends it; that code's slips are in the specs that end in :teccl"]
    alpha = given.get("alpha")
    if isinstance(alpha, list) and alpha and name in ("mesh", "dgx2"):
        inner, outer = (real(a, "'alpha'", where) for a in (alpha[0], alpha[-1]))
        sites = np.array(net.sites)
        same = (sites[net.src] == sites[net.dst]) | ((net.kind != ACCELERATOR).sum() == 0)
        net = replace(net, latency_s=np.where(same, inner, outer).astype(np.float64))
        notes.append("latencies are the file's alpha: in a chassis the first, between chassis the last")
    return replace(net, notes=(*net.notes, *notes))

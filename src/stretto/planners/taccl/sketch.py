"""Communication sketches: what a user knows about a network and lets TACCL's solver rely on.

Shah, Chidambaram et al., "TACCL: Guiding collective algorithm synthesis using communication
sketches", NSDI 2023, section 3. A sketch is a JSON object with the published keys that matter for
planning; those that only configure a runtime are taken and ignored. Local indexes count the
accelerators of a site in order.

    nodes_per_site              accelerators of a site (its chassis); else the topology's sites
    intranode_sketch            {"strategy": "none" | "switch", "switch_hyperedge_strategy":
                                 "uc-min" | "uc-max" | "none"}: whether a switch should serve few
                                 or many pairs of nodes
    internode_sketch            {"strategy": "relay", "internode_conn": {sender: [receivers]},
                                 "gpus_to_sender_rev_map": {sender: [sources]}}
    symmetry_offsets            [[offset, group]]: ranks x and (x + offset) mod group, within
                                 their group, do alike; group "all" is all ranks
    hyperparameters             {"input_chunkup": chunks a piece}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ...model.arrays import Int64
from ...model.errors import InputError
from ...model.topology import Topology


@dataclass(frozen=True)
class Sketch:
    """A sketch, checked against no topology yet."""

    name: str
    site_size: int = 0  # accelerators of a site, 0 to take the topology's sites
    connections: dict[int, tuple[int, ...]] | None = None  # local sender -> local receivers between sites; None for any
    sender_of: dict[int, int] | None = None  # local source -> local sender by which its chunks leave the site
    rotations: tuple[tuple[int, int], ...] = ()  # (offset, group), group 0 for all ranks
    switch_pairs: int = 0  # -1 few pairs of nodes through a switch, 1 many, 0 no preference
    chunks: int = 1  # into how many chunks a piece is cut

    def reversed(self) -> Sketch:
        """The sketch of the network with every link turned round: receivers send, senders receive."""
        if self.connections is None:
            return self
        turned: dict[int, tuple[int, ...]] = {}
        for sender, receivers in self.connections.items():
            for r in receivers:
                turned[r] = (*turned.get(r, ()), sender)
        sender_of = self.sender_of
        if sender_of is not None:
            sender_of = {g: self.connections[s][0] for g, s in sender_of.items() if self.connections.get(s)}
        return replace(self, connections=turned, sender_of=sender_of)


def included() -> list[str]:
    """The names of the sketches that come with stretto."""
    folder = resources.files(__package__) / "sketches"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))


def find_sketch(name: str, topology: Topology) -> Sketch:
    """A sketch by ``name``: "none", "auto" (by the topology's family), an included one, or a file."""
    if name == "auto":
        family = topology.name.partition(":")[0]
        name = family if family in included() and topology.node_count > 8 else "none"
    if name == "none":
        return Sketch("none")
    if name in included():
        return parse_sketch((resources.files(__package__) / "sketches" / f"{name}.json").read_text(), name)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"{name!r} is neither a file that can be read nor one of none, auto, {', '.join(included())}",
            "option sketch",
        ) from None
    return parse_sketch(text, name)


def parse_sketch(text: str, where: str) -> Sketch:
    """A sketch from JSON text.

    Raises:
        InputError: no JSON, or a key whose value has another form than the module says.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", where) from None
    place = ""
    try:
        place = "nodes_per_site"
        site_size = int(data.get(place, 0))
        if site_size < 0:
            raise ValueError
        place = "internode_sketch"
        between: dict[str, Any] = data.get(place) or {}
        if between and between.get("strategy", "relay") != "relay":
            raise InputError(f"internode_sketch: strategy {between['strategy']!r} is not relay", where)
        connections = between.get("internode_conn")
        sources = between.get("gpus_to_sender_rev_map")
        place = "symmetry_offsets"
        rotations = tuple((int(a), 0 if b == "all" else int(b)) for a, b in data.get(place, ()))
        place = "intranode_sketch"
        within = data.get(place) or {}
        strategy = within.get("switch_hyperedge_strategy", "none")
        preference = {"uc-min": -1, "uc-max": 1, "none": 0}[strategy[0] if isinstance(strategy, list) else strategy]
        place = "hyperparameters"
        chunks = int((data.get(place) or {}).get("input_chunkup", 1))
        place = "internode_sketch"
        return Sketch(
            name=str(data.get("name", where)),
            site_size=site_size,
            connections=None if connections is None else {int(a): tuple(map(int, b)) for a, b in connections.items()},
            sender_of=None if sources is None else {int(g): int(s) for s, listed in sources.items() for g in listed},
            rotations=rotations,
            switch_pairs=preference,
            chunks=chunks,
        )
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
        form = "the form that docs/understand/planners/taccl.md gives"
        raise InputError(f"the key {place!r} does not have {form}", where) from None


def site_of(sketch: Sketch, topology: Topology) -> tuple[Int64, Int64]:
    """int64[nodes] twice: the site of each accelerator, and its index within the site; -1 elsewhere."""
    nodes = topology.accelerators
    index = np.arange(len(nodes))
    if sketch.site_size:
        sites = index // sketch.site_size
    else:
        names = [topology.sites[v] for v in nodes]
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        sites = np.array([number[name] for name in names], dtype=np.int64)
    site, local = np.full((2, topology.node_count), -1)
    site[nodes] = sites
    local[nodes] = [np.count_nonzero(sites[:i] == sites[i]) for i in index]
    return site, local

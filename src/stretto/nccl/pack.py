"""The NCCL pack: a folder with the files that NCCL reads for one cluster, and a page on how to use them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..formats import atomic_folder
from ..model.errors import Unsupported
from ..model.topology import Topology
from ..order import order
from ..order.files import FILES, HOST_NAME, order_text
from ..schedule.nccl_cost_model import Cluster, expected_s
from ..schedule.nccl_releases import release_2_30
from ..topologies import assume_messages
from .generations import RELEASE, Generation, generation_of
from .graphs import Found, Graphs, find_graphs, graphs_xml
from .server import Server, read_server, servers_of, topology_xml
from .tuner import KINDS, Range, Row, choices, cluster_of, rows_of, table_csv

SIZES = tuple(2**k for k in range(10, 33))
"""Sizes at which NCCL's own choice is compared with the table's, bytes."""

TOPOLOGY, GRAPH, TUNER, SETTINGS, UNDO, README = (
    "topology.xml",
    "graph.xml",
    "tuner.csv",
    "nccl.sh",
    "undo.sh",
    "README.md",
)

ORDERED_FOR = ("allreduce", "256MB")
"""What the order of the servers is chosen by."""

ORDERS = {"slurm": "order.slurm", "openmpi-hostfile": "order.openmpi", "torchrun": "order.torchrun.sh"}
"""Files with the order of the machines, by the format's name."""


@dataclass(frozen=True)
class Change:
    """Sizes for which the table's choice is not the one that NCCL makes when network cards are all that it knows.

    Attributes:
        least, most: sizes compared, bytes.
        before, after: algorithm and protocol.
        gain: times that the choice before takes as long as the one after, at most, by NCCL's model with the pack's
            graphs.
    """

    kind: str
    least: int
    most: int
    before: tuple[str, str]
    after: tuple[str, str]
    gain: float


@dataclass(frozen=True)
class Ordering:
    """What the order of servers is worth: seconds of an AllReduce in the topology's order and in the one chosen.

    Attributes:
        proven: whether no order ends sooner.
    """

    before_s: float
    after_s: float
    proven: bool


@dataclass(frozen=True)
class Pack:
    """What the folder holds.

    Attributes:
        machines: the servers' names in the order of ranks.
        changes: where the table differs from NCCL's own choice for all ranks.
        settings: environment variables that hold for every job.
        orders: files with the order of servers, if these can be host names.
        ordering: None if no order was looked for.
    """

    topology: str
    generation: Generation
    machines: tuple[str, ...]
    server: Server
    found: Found
    rows: tuple[Row, ...]
    changes: tuple[Change, ...]
    settings: dict[str, str]
    notes: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    ordering: Ordering | None = None

    @property
    def ranks(self) -> int:
        return len(self.machines) * len(self.server.gpus)

    def summary(self, folder: str) -> dict[str, Any]:
        """The answer of the command line."""
        graphs = self.found.graphs
        of = [(name, g) for name, g in (("ring", graphs.ring), ("tree", graphs.tree), ("nvls", graphs.nvls)) if g]
        return {
            "folder": folder,
            "format": "nccl",
            "release": RELEASE,
            "topology": self.topology,
            "gpu": self.generation.name,
            "servers": len(self.machines),
            "gpus": len(self.server.gpus),
            "files": [*(name for name in (TOPOLOGY, GRAPH, TUNER, SETTINGS, UNDO, README)), *self.orders],
            "graphs": {
                name: {"channels": len(g.channels), "speed_intra_GBps": g.intra, "speed_inter_GBps": g.inter}
                for name, g in of
            },
            "order": list(self.machines),
            "ordering": None if self.ordering is None else asdict(self.ordering),
            "settings": self.settings,
            "rows": len(self.rows),
            "changes": [
                {"collective": c.kind, "from_bytes": c.least, "to_bytes": c.most, "nccl": " ".join(c.before),
                 "table": " ".join(c.after), "gain": c.gain}
                for c in self.changes
            ],
            "notes": list(self.notes),
        }  # fmt: skip


def make_pack(
    topology: Topology, gpu: str | None = None, ranks: Sequence[int] | None = None, ordered: bool = False
) -> Pack:
    """What NCCL should read on a cluster.

    Args:
        gpu: the GPUs, such as ``h100``; by default those that the topology's name says.
        ranks: the nodes of the job's GPUs; by default all accelerators.
        ordered: whether to look for the order of servers (:func:`stretto.order.order`), a few seconds of CPU; otherwise
            they keep the topology's. It is the topology's where not all accelerators have ranks.
    Raises:
        InputError: it is not known which GPUs they are.
        Unsupported: NCCL cannot run there as the network is described.
    """
    nodes = topology.accelerators if ranks is None else np.unique(np.asarray(ranks))
    servers = servers_of(topology, nodes.astype(np.int64))
    generation = generation_of(topology.name, gpu)
    server = read_server(topology, servers[0], generation)
    check_alike(topology, servers, server)
    ordering = None
    if ordered and len(servers) > 1 and len(nodes) == len(topology.accelerators):
        servers, ordering = _in_order(topology, servers)
    found = find_graphs(topology, servers, server)
    whole, unaware = (cluster_of(g, generation, len(servers), len(nodes)) for g in (found.graphs, found.by_nics))
    rows = _rows(topology, servers, server, whole)
    crosses = found.by_nics.ring.crossnic and not found.graphs.ring.crossnic
    machines = tuple(topology.sites[own[0]] for own in servers)
    return Pack(
        topology.name, generation, machines, server, found, tuple(rows), tuple(_changes(whole, unaware, generation)),
        {"NCCL_CROSS_NIC": "0"} if crosses else {}, server.notes,
        tuple(ORDERS.values()) if len(machines) > 1 and all(HOST_NAME.fullmatch(m) for m in machines) else (),
        ordering,
    )  # fmt: skip


def _in_order(topology: Topology, servers: list[list[int]]) -> tuple[list[list[int]], Ordering]:
    """The servers in the order with which NCCL ends soonest, as far as the search finds."""
    found = order(assume_messages(topology), "nccl", *ORDERED_FOR, gpus=False, effort="quick")
    by_name = {topology.sites[own[0]]: own for own in servers}
    best = [by_name[name] for name in found.order] if found.after_s < found.before_s * (1 - 1e-9) else servers
    return best, Ordering(found.before_s, found.after_s, found.proven)


def check_alike(topology: Topology, servers: Sequence[Sequence[int]], server: Server) -> None:
    """Refuse servers that differ: one graph file and one table serve all."""
    text = topology_xml(server)
    for own in servers[1:]:
        if topology_xml(read_server(topology, list(own), server.generation)) != text:
            first, other = topology.sites[servers[0][0]], topology.sites[own[0]]
            raise Unsupported(f"{other} is not built as {first} is; NCCL's files are written for equal servers")


def _rows(topology: Topology, servers: list[list[int]], server: Server, whole: Cluster) -> list[Row]:
    """Rows for the communicators of a usual job: all ranks, one server, one GPU of each server; then for any other."""
    sm, gpus = server.generation.sm, len(server.gpus)
    clusters = [(whole, len(servers), whole.ranks)]
    if len(servers) > 1 and gpus > 1:
        one = find_graphs(topology, servers[:1], server).graphs
        clusters.append((cluster_of(one, server.generation, 1, gpus), 1, gpus))
        across = _graphs_across(topology, [own[:1] for own in servers], server.generation)
        if across is not None:
            clusters.append(
                (cluster_of(across, server.generation, len(servers), len(servers)), len(servers), len(servers))
            )
    rows = [row for c, n, r in clusters for kind in KINDS for row in rows_of(c, sm, kind, n, r)]
    return rows + [row for kind in KINDS for row in rows_of(whole, sm, kind, -1, -1)]


def _graphs_across(topology: Topology, servers: list[list[int]], generation: Generation) -> Graphs | None:
    """The graphs of a communicator of the first GPU of each server; None if that GPU has no network card of its own."""
    try:
        return find_graphs(topology, servers, read_server(topology, servers[0], generation)).graphs
    except Unsupported:
        return None


def _changes(whole: Cluster, unaware: Cluster, generation: Generation) -> list[Change]:
    """Where the model chooses otherwise once it knows the network between servers."""
    release = release_2_30(generation.sm)
    found: list[Change] = []
    for kind in KINDS:
        before_ranges, after_ranges = (choices(c, generation.sm, kind) for c in (unaware, whole))
        for size in SIZES:
            before, after = (_choice(ranges, size) for ranges in (before_ranges, after_ranges))
            if before == after:
                continue
            expected = {(a, p.lower()): s for (a, p), s in expected_s(whole, size, kind, release).items()}
            change = Change(kind, size, size, before, after, expected[before] / expected[after])
            if found and (found[-1].kind, found[-1].most * 2, found[-1].before, found[-1].after) == (
                kind,
                size,
                before,
                after,
            ):
                last = found.pop()
                change = replace(change, least=last.least, gain=max(last.gain, change.gain))
            found.append(change)
    return found


def _choice(ranges: Sequence[Range], size: int) -> tuple[str, str]:
    own = next(r for r in ranges if r.least <= size <= r.most)
    return own.algorithm, own.protocol


def write_pack(pack: Pack, folder: str) -> None:
    """Write the folder: it appears under its name when it is complete.

    Raises:
        InputError: it is there already, or cannot be written.
    """
    from .readme import readme, settings_sh, tuner_comments, undo_sh

    texts = {
        TOPOLOGY: topology_xml(pack.server),
        GRAPH: graphs_xml(pack.found.graphs),
        TUNER: table_csv(pack.rows, tuner_comments(pack)),
        SETTINGS: settings_sh(pack),
        UNDO: undo_sh(pack),
        README: readme(pack),
    }
    texts |= {file: order_text(name, pack.machines, len(pack.server.gpus))
              for name, file in ORDERS.items() if file in pack.orders and name in FILES}  # fmt: skip
    with atomic_folder(folder) as place:
        for name, text in texts.items():
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.write(text)

"""The network as a library meets it: machines with their GPUs, and the routes that the network itself takes.

Libraries do not choose routes. A message goes the way with the fewest links through switches and routers, and of those
the one of least latency. Equal ways are spread over by destination, as static routing does (InfiniBand's D-mod-K).
Where switches do not join two GPUs, other accelerators pass their messages on, as few as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.errors import InputError, Unsupported, nearest_numbered, none_of
from ..model.topology import Topology
from . import kernel_routes

MOST_TABLE = 100_000_000
"""Entries of the table of routes (ranks times nodes, 4 bytes each) up to which an order is searched."""

STEPS_A_ROUTE = 4.0
"""Steps of the search for routes, for each target and link, about."""


class Pairs(NamedTuple):
    """Messages from node to node.

    Attributes:
        seconds: float64[pairs], for which each keeps its slowest link busy.
        latency_s: float64[pairs].
        hops: int64[pairs], links passed; 0 where nothing joins the two.
    """

    seconds: Float64
    latency_s: Float64
    hops: Int64


@dataclass(frozen=True, eq=False)
class Machines:
    """The machines of a topology, in its own order.

    Attributes:
        topology: with all nodes letting routes pass, so that accelerators may relay.
        names: of the machines: their sites, or the names of accelerators that are machines by themselves.
        gpus: for each machine its accelerators, in the order of the topology.
    """

    topology: Topology
    names: tuple[str, ...]
    gpus: tuple[Int64, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def nodes(self) -> Int64:
        """int64[ranks], all accelerators, machine by machine."""
        return np.concatenate(self.gpus)

    @cached_property
    def counts(self) -> Int64:
        """int64[machines], GPUs of each."""
        return np.array([len(g) for g in self.gpus])

    @cached_property
    def table(self) -> Int32:
        """int32[ranks, nodes], the link by which each node sends on what is for each accelerator of ``nodes``."""
        t, n = self.topology, len(self.nodes)
        if n * t.node_count > MOST_TABLE:
            raise Unsupported(
                f"{t.name}: {n} ranks on {t.node_count} nodes are more than fit the table of routes; "
                "give each machine as one accelerator"
            )
        switching = t.is_switch | t.is_router
        ends = np.zeros(t.node_count, dtype=np.bool_)
        ends[self.nodes] = True
        # the place in the machine counts too: rails of one machine spread as machines do
        key = np.concatenate([m + np.arange(len(g)) for m, g in enumerate(self.gpus)])
        work = STEPS_A_ROUTE * n * t.link_count
        return at_speed(kernel_routes.next_links, work)(
            self.nodes, key, t.in_links.offsets, _wide(t.in_links.values), t.out_links.offsets,
            _wide(t.out_links.values), _wide(t.src), _wide(t.dst), t.latency_s, switching, ends,
        )  # fmt: skip

    @cached_property
    def row(self) -> Int64:
        """int64[nodes], the row of each accelerator in ``table``, -1 for other nodes."""
        rows = np.full(self.topology.node_count, -1)
        rows[self.nodes] = np.arange(len(self.nodes))
        return rows

    def pairs(self, src: Int64, dst: Int64, size_bytes: Float64) -> Pairs:
        """What messages between these nodes cost by themselves."""
        t = self.topology
        return Pairs(*at_speed(kernel_routes.pairs, 10.0 * len(src))(
            src, self.row[dst], dst, size_bytes, self.table, _wide(t.dst), t.latency_s, t.bandwidth, t.message_s,
        ))  # fmt: skip

    def routes(self, src: Int64, dst: Int64, hops: Int64) -> Ragged:
        """The links of each pair, as many as :meth:`pairs` says."""
        ends = src, self.row[dst], dst
        links = at_speed(kernel_routes.routes, 10.0 * len(src))(*ends, self.table, _wide(self.topology.dst), hops)
        return Ragged.from_lengths(hops, links)

    def numbers(self, names: Sequence[str], where: str = "order") -> Int64:
        """int64[machines], the machines of an order given by names.

        Raises:
            InputError: a name that no machine has, or an order that does not name each machine once.
        """
        known = {name: i for i, name in enumerate(self.names)}
        unknown = [name for name in names if name not in known]
        if unknown:
            told = f"there is no file {names[0]!r}, and " if len(names) == 1 < self.count else ""
            hint = nearest_numbered(unknown[0], self.names, f"it has {_some(self.names)}")
            raise InputError(f"{told}{self.topology.name} has no machine {unknown[0]!r}; {hint}", where)
        order = [known[name] for name in names]
        if len(set(order)) < len(order):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise InputError(f"the machine {twice!r} is named twice", where)
        if len(order) < self.count:
            missing = next(name for i, name in enumerate(self.names) if i not in set(order))
            raise InputError(f"the machine {missing!r} is missing; an order names all {self.count}", where)
        return np.array(order, dtype=np.int64)


def machines_of(topology: Topology, by: str = "site") -> Machines:
    """The machines of a topology.

    Args:
        by: "site": accelerators of one site are one machine (a site of one server's GPUs, or a datacenter); "gpu": each
            accelerator is a machine by itself. Where all accelerators are of one site, they are taken by themselves.
    Raises:
        InputError: fewer than two accelerators.
        Unsupported: a topology with optical planes, or whose bandwidths change.
    """
    if topology.planes:
        raise Unsupported(f"{topology.name} has optical planes; the order of ranks is planned for links alone")
    if topology.changes:
        raise Unsupported(f"bandwidths of {topology.name} change; the order of ranks is planned for constant ones")
    accelerators = topology.accelerators.astype(np.int64)
    if len(accelerators) < 2:
        raise InputError(f"{topology.name} has fewer than two accelerators, and so nothing to order", "topology")
    if by not in ("site", "gpu"):
        raise InputError(none_of(by, ("site", "gpu")), "machines")
    sites = [topology.sites[v] if by == "site" and topology.sites[v] else topology.names[v] for v in accelerators]
    if len(set(sites)) == 1:
        sites = [topology.names[v] for v in accelerators]
    names = tuple(dict.fromkeys(sites))
    members = tuple(accelerators[[site == name for site in sites]] for name in names) if len(names) < len(sites) else (
        tuple(accelerators[i : i + 1] for i in range(len(names)))
    )  # fmt: skip
    passing = replace(topology, transit=np.ones(topology.node_count, dtype=np.bool_))
    return Machines(passing, names, members)


def _wide(column: Int32 | Int64) -> Int64:
    return column.astype(np.int64)


def _some(names: Sequence[str]) -> str:
    """The first few names, as errors list them."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

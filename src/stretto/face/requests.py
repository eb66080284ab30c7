"""What is asked: topologies, collectives and workloads, from text, numbers, files or objects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from ..model import topology as _topology
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError, no_node
from ..model.kinds import BY_NAME
from ..model.units import parse_size, parse_time
from .jobs import PLACE, checked, jobs_of_text
from .objects import Topology, of_topology

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Size = str | int | float
"""``"64MB"``, ``64_000_000`` or ``6.4e7`` bytes."""
Network = str | os.PathLike[str] | _topology.Topology
"""A spec, the path of a file, or a topology."""
Collectives = str | Collective | Workload | Sequence[str | Collective | Mapping[str, Any]]
"""``"allreduce"``, ``"allreduce:500MB,allgather:100MB@2s"``, a workload, or a list of kinds, of collectives or of jobs:
objects with the arguments of :func:`collective`, and the kind as ``"collective"``."""


def topology(source: str | os.PathLike[str] | Mapping[str, Any] | _topology.Topology, **options: Any) -> Topology:
    """A network.

    Args:
        source: a spec such as ``"ndv2:4"`` (``stretto topologies`` lists them), the path of a file, the object of a
            topology file (a dict), or a topology, which is given back as it is.
        options: of a spec or file, as text or numbers: ``st.topology("ring:8", bandwidth="25GB/s", latency=2e-6)``.
    Raises:
        InputError: no such spec or file, or something in it is wrong; names it and the remedy.
    """
    if isinstance(source, _topology.Topology):
        return of_topology(source)
    if isinstance(source, Mapping):
        from ..topologies.files import topology_from_json

        return of_topology(topology_from_json(dict(source), "topology"))
    from ..topologies import load_topology

    spec = os.fspath(source)
    query = "&".join(f"{name}={_with_unit(name, value)}" for name, value in options.items())
    return of_topology(load_topology(spec + ("&" if "?" in spec else "?") + query if query else spec))


def compose(
    servers: Network | Sequence[Network], count: int | Sequence[int] | None = None, fabric: Network = "rails", *,
    nics: str | None = None, **options: Any,
) -> Topology:  # fmt: skip
    """A cluster: servers under a fabric, or clusters joined over a WAN.

        cluster = st.compose("server.txt", 64, "rails", nics="8x400Gbit/s", spines=4, oversubscription=2)
        world = st.compose([cluster, "gb200:1"], [2, 1], "wan", km=1000)

    Args:
        servers: a spec, the path of a file or a topology; or several different ones.
        count: how many of each; one number for all, or one for each of ``servers``. By default one, or as many as a
            topology that is the fabric has places.
        fabric: ``rails``, ``leafspine``, ``fattree``, ``dragonfly``, ``site`` or ``wan`` (``stretto topologies`` lists
            their options), or a topology with an accelerator for each server, which becomes its router, or the server
            itself where it is below switches.
        nics: of each server: ``"8x400Gbit/s"``, ``"8"`` or ``"400Gbit/s"``; by default those that it has.
        options: of the fabric, as text or numbers.
    Raises:
        InputError: a server, the fabric or an option is wrong; names it and the remedy.
    """
    from ..topologies import compose as composed

    texts = {name: _with_unit(name, value) for name, value in options.items()}
    return of_topology(composed(servers, count, fabric, nics=nics, **texts))


def _with_unit(name: str, value: object) -> object:
    """An option's value as a spec takes it: a bandwidth that is a number is in bytes/s."""
    return f"{float(value)!r}B/s" if name.endswith("bandwidth") and isinstance(value, Real) else value


find_topology = topology  # for functions with an argument of that name


def request_topology(source: Network) -> Topology:
    """The network of a request.

    Where nothing is known of what messages cost, a modest cost is assumed. Switches that no route may pass through have
    no links.
    """
    from ..model.variants import usable
    from ..topologies import assume_messages

    return of_topology(assume_messages(usable(find_topology(source))))


def collective(
    kind: str,
    topology: Network,
    size: Size | None = None,
    *,
    shard: Size | None = None,
    chunks: int = 1,
    ranks: Sequence[int | str] | None = None,
    root: int = 0,
    receivers: Sequence[int] | None = None,
    demand: str | os.PathLike[str] | ArrayLike | None = None,
    start: str | float = 0.0,
    weight: float = 1.0,
) -> Collective:
    """What must happen: one collective among accelerators of a topology.

    Args:
        kind: allgather, reducescatter, allreduce, alltoall, broadcast, reduce, scatter, gather, multicast, alltoallv.
        size: the full buffer; or ``shard``, one rank's share of it.
        chunks: number of chunks into which each piece is cut.
        ranks: the node of each rank, by number or name; by default all accelerators, in order.
        root: the rank from which rooted collectives start, or at which they end.
        receivers: the ranks that want a multicast.
        demand: for an alltoallv, the bytes from each rank to each rank: a matrix, or a CSV file.
        start: when it may start.
        weight: how much its completion counts among those of several collectives.
    Raises:
        InputError: an unknown kind, too few bytes or ranks, a rank that is no accelerator.
    """
    net = find_topology(topology)
    nodes = None if ranks is None else [_node(net, rank) for rank in ranks]
    start_s = parse_time(start, "start")
    if demand is not None:
        return replace(_uneven(kind, net, demand, size or shard, nodes, chunks, start_s), weight=weight)
    if (size is None) == (shard is None):
        raise InputError("give either the size of the full buffer or one rank's shard", "size")
    return make_collective(
        kind,
        net,
        None if size is None else parse_size(size, "size"),
        shard_bytes=None if shard is None else parse_size(shard, "shard"),
        ranks=nodes,
        root=root,
        receivers=receivers,
        chunks=chunks,
        start_s=start_s,
        weight=weight,
    )


def workload(collectives: Collectives, topology: Network, size: Size | None = None, **how: Any) -> Workload:
    """Collectives that share a topology.

    Args:
        collectives: see :data:`Collectives`.
        size: of each collective that does not say its own size.
        how: the other arguments of :func:`collective`, where a collective does not say its own.
    Raises:
        InputError: as :func:`collective`; of several the message names the one that is wrong.
    """
    if isinstance(collectives, Workload):
        return collectives
    net = find_topology(topology)
    parts = [collectives] if isinstance(collectives, str | Collective) else collectives
    found: list[Collective] = []
    for number, part in enumerate(parts):
        if isinstance(part, Collective):
            found.append(part)
        elif isinstance(part, str):
            found += [_job(job, net, size, how, text) for job, text in zip(jobs_of_text(part), part.split(","))]
        else:
            given = {**part} if isinstance(part, Mapping) else part
            place = given.pop(PLACE, f"job {number}") if isinstance(given, dict) else f"job {number}"
            found.append(_job(checked(given, place), net, size, how, place))
    if not found:
        raise InputError("name at least one", "collectives")
    return Workload(tuple(found))


def _job(job: dict[str, Any], net: Topology, size: Size | None, how: dict[str, Any], place: str) -> Collective:
    """The collective that a job stands for; what it does not say is as for all."""
    given = dict(job)
    kind = given.pop("collective")
    if "size" not in given and "shard" not in given:
        given["size"] = size
    else:
        how = {**how, "shard": None}
    try:
        return collective(kind, net, **{**how, **given})
    except InputError as error:
        if place == kind:
            raise  # its text says nothing but its kind
        raise InputError(str(error), place) from None


def _node(net: Topology, rank: int | str) -> int:
    """The number of a node that is given by number or name."""
    if isinstance(rank, str) and rank not in net.names:
        raise InputError(no_node(rank, net.names, net.name), "ranks")
    number = net.names.index(rank) if isinstance(rank, str) else int(rank)
    if not 0 <= number < net.node_count:
        raise InputError("every rank must be an accelerator of the topology", "ranks")
    return number


def _uneven(
    kind: str, net: Topology, demand: Any, size: Size | None, ranks: list[int] | None, chunks: int, start_s: float
) -> Collective:
    """The AllToAll of a matrix, or of a matrix in a file."""
    from ..formats.demand import read_demand
    from ..model.demand import alltoallv

    if kind in BY_NAME and not BY_NAME[kind].takes_matrix:
        raise InputError(f"{kind} has no matrix; alltoallv has one", "demand")
    if size is not None:
        raise InputError("the matrix says how many bytes there are; give no size and no shard", "demand")
    where = "demand"
    if isinstance(demand, str | os.PathLike):
        where = os.fspath(demand)
        demand = read_demand(where)
    return alltoallv(net, demand, ranks=ranks, chunks=chunks, start_s=start_s, where=where)

"""Right plans by symmetry of several kinds: random trees and paths of a representative, on networks with known groups.

A representative's transfers follow each other in time: a link orbit serves one row at a time, at the speed at which its
links carry all images of that row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.collective import Collective, Promised, Workload, make_collective
from stretto.model.kinds import KINDS
from stretto.model.plan import COPY, REDUCE
from stretto.model.symmetric import SymmetricPlan, dealt, make_symmetric_plan
from stretto.model.symmetry import Symmetry
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.planners import run_planner
from stretto.topologies import load_topology
from symmetric_networks import full_mesh, group, h100, rails, ring, star, torus

ROOTED = ("broadcast", "reduce", "scatter", "gather")

Orbit = tuple[tuple[int, ...], int]
"""The owner, or owners, of an orbit's representative, and its position."""


class Row(NamedTuple):
    """A transfer of a representative; its route is a path, or several paths with one beginning."""

    chunk: int
    op: int
    paths: list[list[int]]
    depends: list[int]
    others: tuple[int, ...] = ()


def neighbours(topology: Topology, v: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """A shortest path from an accelerator to each that it reaches over switches alone."""
    came = {v: [v]}
    front = [v]
    while front:
        after = []
        for a in front:
            for b in rng.permutation(topology.dst[topology.out_links[a]]).tolist():
                if b in came:
                    continue
                came[b] = [*came[a], b]
                if topology.is_accelerator[b]:
                    yield came[b]
                else:
                    after.append(b)
        front = after


def tree(topology: Topology, root: int, ranks: list[int], rng: np.random.Generator) -> list[list[int]]:
    """A random tree from a root that reaches all ranks, as paths over switches from one accelerator to another, each
    after the one that leads to its beginning; what is no rank and leads to none is left out."""
    paths: dict[int, list[int]] = {}
    open_paths = list(neighbours(topology, root, rng))
    while open_paths:
        path = open_paths.pop(int(rng.integers(len(open_paths))))
        if path[-1] != root and path[-1] not in paths:
            paths[path[-1]] = path
            open_paths += neighbours(topology, path[-1], rng)
    needed = set()
    for rank in ranks:
        while rank != root and rank not in needed:
            needed.add(rank)
            rank = paths[rank][0]
    return [path for v, path in paths.items() if v in needed]


def copies_of(chunk: int, paths: list[list[int]], base: int, after: dict[int, int]) -> list[Row]:
    """Copies along a tree. ``after``: for nodes that have the chunk by a transfer, that transfer."""
    rows: list[Row] = []
    for path in paths:
        rows.append(Row(chunk, COPY, [path], [after[path[0]]] if path[0] in after else []))
        after[path[-1]] = base + len(rows) - 1
    return rows


def sums_of(chunk: int, paths: list[list[int]], base: int) -> tuple[list[Row], list[int]]:
    """Sums along a tree towards its root, and the transfers that end there. All nodes of the tree must be ranks."""
    rows: list[Row] = []
    come: dict[int, list[int]] = {}
    for path in reversed(paths):
        way = path[::-1]
        rows.append(Row(chunk, REDUCE, [way], come.get(way[0], [])))
        come.setdefault(way[-1], []).append(base + len(rows) - 1)
    return rows, come.get(paths[0][0], []) if paths else []


def timed(symmetry: Symmetry, rows: list[Row], sizes: list[int], slack: float) -> dict[str, object]:
    """The columns of the part: each row as soon as what it waits for is there and its links are free."""
    t = symmetry.topology
    free = np.zeros(t.link_count)
    arrived, start, finish, routes = [], [], [], []
    for row in rows:
        route: list[int] = []
        for path in row.paths:
            for link in symmetry.links_between(path[:-1], path[1:]).tolist():
                if link not in route:
                    route.append(link)
        reached = {path[0]: 0.0 for path in row.paths}
        for link in route:  # a sum leaves a switch when all of it has come there
            at = reached[int(t.src[link])] + t.latency_s[link]
            reached[int(t.dst[link])] = max(reached.get(int(t.dst[link]), 0.0), at)
        # by when each hop carries the bytes: a row in which paths meet needs equal latencies up to there
        later = np.array([reached[int(t.src[link])] for link in route])
        orbit = symmetry.link_orbits[route]
        load = np.zeros(t.link_count)
        np.add.at(load, orbit, symmetry.copies[route] * (sizes[row.chunk] / t.bandwidth[route] + t.message_s[route]))
        takes = float(load.max()) * (1 + slack)
        begin = max([0.0, *(arrived[d] for d in row.depends), *(free[orbit] - later)]) * (1 + slack * 1e-3)
        np.maximum.at(free, orbit, begin + takes + later)
        arrived.append(begin + takes + max(reached.values()))
        start.append(begin)
        finish.append(begin + takes)
        routes.append(route)
    dst = [sorted({path[-1] for path in row.paths} if row.op == COPY else {row.paths[0][-1]}) for row in rows]
    return {
        "chunk": [row.chunk for row in rows], "src": [row.paths[0][0] for row in rows], "op": [r.op for r in rows],
        "dst": Ragged.of(dst), "route": Ragged.of(routes), "depends": Ragged.of([row.depends for row in rows]),
        "start_s": np.array(start), "finish_s": np.array(finish),
        "other_src": Ragged.of([list(row.others) for row in rows]),
    }  # fmt: skip


def random_plan(
    symmetry: Symmetry, kind: str, size: int, seed: int, *, groups: list[list[int]] | None = None, chunks: int = 1,
    slack: float = 0.0,
) -> SymmetricPlan:  # fmt: skip
    """A right plan with random trees or paths.

    Args:
        groups: the ranks of each of several collectives; by default one of all accelerators.
        chunks: into how many chunks a piece is cut; for AllReduce into how many ranges an orbit's part is.
        slack: share of its time by which each transfer takes longer than it needs.
    """
    orbits, sizes, work = chunk_orbits(symmetry, kind, size, groups, chunks)
    return of_orbits(symmetry, orbits, sizes, work, np.random.default_rng(seed), slack)


def of_orbits(
    symmetry: Symmetry, orbits: list[Orbit], sizes: list[int], work: Workload, rng: np.random.Generator, slack: float
) -> SymmetricPlan:
    """A right plan of given orbits of chunks."""
    topology, kind = symmetry.topology, work.collectives[0].kind
    collective = {int(v): c for c in work.collectives for v in c.ranks}
    rows: list[Row] = []
    for chunk, (owner, _) in enumerate(orbits):
        mine, base = collective[owner[0]], len(rows)
        ranks = mine.ranks.tolist()
        if kind in ("alltoall", "scatter", "gather"):
            root = int(mine.ranks[mine.root])
            ends = {"alltoall": owner, "scatter": (root, *owner), "gather": (*owner, root)}[kind]
            paths = tree(topology, ends[0], [ends[1]], rng)
            rows += copies_of(chunk, paths, base, {})
        elif kind in ("broadcast", "reduce"):
            paths = tree(topology, int(mine.ranks[mine.root]), ranks, rng)
            rows += copies_of(chunk, paths, base, {}) if kind == "broadcast" else sums_of(chunk, paths, base)[0]
        elif kind == "allgather":
            rows += copies_of(chunk, tree(topology, owner[0], ranks, rng), base, {})
        else:
            # only ranks have something to add, so a tree over others cannot sum
            paths = [p for p in tree(topology, owner[0], ranks, rng) if len(ranks) == len(collective)]
            paths = paths or star_paths(topology, owner[0], ranks, rng)
            sums, last = sums_of(chunk, paths, base)
            rows += sums
            if kind == "allreduce":
                copies = tree(topology, owner[0], ranks, rng)
                mark = len(rows)
                for row in copies_of(chunk, copies, mark, {}):
                    waits = row.depends or last
                    # who gets a copy no longer needs what it has sent
                    sent = [base + k for k, r in enumerate(sums) if r.paths[0][0] == row.paths[0][-1]]
                    rows.append(row._replace(depends=sorted({*waits, *sent})))
    order = mixed_order(rows, rng)
    columns = timed(symmetry, order, sizes, slack)
    owners, positions = zip(*orbits, strict=True)
    return make_symmetric_plan(symmetry, work, owner=owners, position=positions, meta={"planner": "test"}, **columns)


def star_paths(topology: Topology, root: int, ranks: list[int], rng: np.random.Generator) -> list[list[int]]:
    """A path from the root to each other rank, over switches alone."""
    return [path for path in neighbours(topology, root, rng) if path[-1] in ranks]


def mixed_order(rows: list[Row], rng: np.random.Generator) -> list[Row]:
    """The rows in a random order in which each comes after what it waits for."""
    left = {k: set(row.depends) for k, row in enumerate(rows)}
    new: dict[int, int] = {}
    while left:
        ready = [k for k, waits in left.items() if waits <= new.keys()]
        k = ready[int(rng.integers(len(ready)))]
        new[k] = len(new)
        del left[k]
    return [rows[k]._replace(depends=sorted(new[d] for d in rows[k].depends)) for k in new]


def chunk_orbits(
    symmetry: Symmetry, kind: str, size: int, groups: list[list[int]] | None, chunks: int
) -> tuple[list[Orbit], list[int], Workload]:
    """For each orbit of chunks its owner and position, the size of its representative, and the workload."""
    topology = symmetry.topology
    each = groups or [topology.accelerators.tolist()]
    firsts = sorted(set(symmetry.node_orbits[[v for ranks in each for v in ranks]].tolist()))
    home = {v: number for number, ranks in enumerate(each) for v in ranks}
    firsts.sort(key=lambda v: home[v])
    n = len(each[0])
    if kind == "allreduce":
        inside = [sum(symmetry.node_orbits[v] == first for v in each[home[first]]) for first in firsts]
        # each collective has ranges of its own; those of all are alike
        mine = [number for first, number in zip(firsts, inside, strict=True) if home[first] == home[firsts[0]]]
        owners = np.repeat(mine, chunks)
        shares = size * np.cumsum(owners) // owners.sum()
        ranges = np.diff(np.concatenate(([0], shares)))
        begins = (np.cumsum(owners) - owners).tolist()
        found: list[Orbit] = []
        for number in sorted({home[first] for first in firsts}):
            of_range = np.repeat([first for first in firsts if home[first] == number], chunks).tolist()
            found += [((owner,), begin) for owner, begin in zip(of_range, begins, strict=True)]
        whole = [make_collective(kind, topology, size, ranks=ranks) for ranks in each]
        cut: list[Collective] = [dealt(c, ranges, owners) for c in whole]
        lengths = (-(-ranges // owners)).tolist()
        return found, lengths * (len(found) // len(lengths)), Workload(tuple(cut))
    if kind == "alltoall":
        found = [((a, b), p) for a in firsts for b in each[home[a]] for p in range(chunks)]
    else:
        found = [((a,), p) for a in firsts for p in range(chunks)]
    work = Workload(tuple(make_collective(kind, topology, size, ranks=ranks, chunks=chunks) for ranks in each))
    return found, [-(-size // (n * chunks))] * len(found), work


def through_switches(symmetry: Symmetry, size: int, kind: str = "allreduce") -> SymmetricPlan:
    """On a star whose switch sums and replicates: each chunk once through the switch, from all to all that want it."""
    topology = symmetry.topology
    ranks = topology.accelerators.tolist()
    hub = int(np.flatnonzero(topology.is_switch)[0])
    orbits, sizes, work = chunk_orbits(symmetry, kind, size, None, 1)
    rows = []
    for chunk, ((owner,), _) in enumerate(orbits):
        # links of the sum first, then those of the copies
        senders, takers = [owner], [owner]
        if kind != "allgather":
            senders = [owner, *(v for v in ranks if v != owner)]
        if kind != "reducescatter":
            takers = [v for v in ranks if v != owner or kind == "allreduce"]
        rows.append((chunk, senders, takers))
    columns = timed_through(symmetry, rows, hub, sizes, REDUCE if kind == "reducescatter" else COPY)
    owners, positions = zip(*orbits, strict=True)
    return make_symmetric_plan(symmetry, work, owner=owners, position=positions, meta={"planner": "test"}, **columns)


def timed_through(
    symmetry: Symmetry, rows: list[tuple[int, list[int], list[int]]], hub: int, sizes: list[int], op: int
) -> dict[str, object]:
    """The columns of rows (chunk, senders, receivers) that pass one switch, one after another."""
    t, now = symmetry.topology, 0.0
    routes, start, finish, senders = [], [], [], []
    for chunk, sources, takers in rows:
        if op == REDUCE:
            sources = [v for v in sources if v not in takers]
        route = [*symmetry.links_between(sources, np.full(len(sources), hub)).tolist(),
                 *symmetry.links_between(np.full(len(takers), hub), takers).tolist()]  # fmt: skip
        takes = max(len(sources), len(takers)) * sizes[chunk] / 1e9
        routes.append(route)
        senders.append(sources)
        start.append(now)
        finish.append(now + takes)
        now += takes + 2.1e-6
    assert (t.bandwidth == 1e9).all()
    return {
        "chunk": [r[0] for r in rows], "src": [s[0] for s in senders], "op": [op] * len(rows),
        "dst": Ragged.of([r[2] for r in rows]), "route": Ragged.of(routes), "depends": Ragged.empty(len(rows)),
        "start_s": np.array(start), "finish_s": np.array(finish), "other_src": Ragged.of([s[1:] for s in senders]),
    }  # fmt: skip


def met(topology: Topology, size: int) -> SymmetricPlan:
    """What the planner makes where messages cost."""
    plan = run_planner("symmetric", topology, Workload((make_collective("allreduce", topology, size),)))
    assert isinstance(plan, SymmetricPlan)
    return plan


def fixed(kind: str, seed: int) -> SymmetricPlan:
    """On a full mesh of four that are turned and one that no element moves, whose piece is cut into more chunks."""
    rng = np.random.default_rng(seed)
    links = [(a, b, 1e9, 1e-6) for a in range(5) for b in range(5) if a != b]
    topology = make_topology("hub", [ACCELERATOR] * 5, links)
    symmetry = group(topology, lambda v: v if v == 4 else (v + 1) % 4, orders=[4])
    size, chunks = 4000 + seed % 7, int(rng.integers(1, 3))
    orbits: list[Orbit] = [((0,), p) for p in range(chunks)] + [((4,), 4 * p) for p in range(chunks)]
    each = np.array([chunks] * 4 + [4 * chunks])
    if kind == "alltoall":
        orbits = [((0, b), p) for b in range(5) for p in range(chunks)] + [((4, 0), p) for p in range(chunks)]
        orbits += [((4, 4), 4 * p) for p in range(chunks)]
        each = np.append(np.full(24, chunks), 4 * chunks)
    whole = make_collective(kind, topology, size, root=4)
    sizes = [-(-size // (5 * chunks * (4 if owner[0] == owner[-1] == 4 else 1))) for owner, _ in orbits]
    if whole.traits.whole:
        ranges = [size // 4 + size % 4, size // 4, size // 4, size // 4]
        work = dealt(whole, np.array(ranges), np.full(4, 4))
        orbits = [((0,), 0), ((4,), 4), ((0,), 8), ((4,), 12)]
        sizes = [-(-r // 4) for r in ranges]
    else:
        work = Promised(kind, whole.ranks, size, whole.root, 0.0, 1.0, each)
    return of_orbits(symmetry, orbits, sizes, Workload((work,)), rng, 0.0)


def planned_from_a_root(kind: str, seed: int) -> SymmetricPlan:
    """As the planner makes it on four servers of three: the group exchanges the three other servers and, where the
    buffer is one piece, the two other rails. Some elements then move a rank beside the root, and some do not."""
    topology = rails(4, 3).topology
    size, root = 240 + seed % 7, seed % 12
    plan = run_planner("symmetric", topology, Workload((make_collective(kind, topology, size, root=root),)))
    assert isinstance(plan, SymmetricPlan)
    return plan


@cache
def examples(seed: int) -> dict[str, SymmetricPlan]:
    """Plans of all kinds, by name; others for every seed. Several files take their cases from them."""
    found = {}
    networks = {
        "ring": ring(5), "ring in two orbits": ring(6, 2), "mesh": full_mesh(2, 3), "torus": torus(3, 3),
        "star": star(4), "rails": rails(3, 2), "rails in two orbits": rails(2, 2, shift_gpus=False, mixed=True),
        "mixed rails in three orbits": rails(3, 3, shift_gpus=False, mixed=True),
    }  # fmt: skip
    number = seed * 1000
    for name, symmetry in networks.items():
        for kind in ("allgather", "reducescatter", "allreduce", "alltoall"):
            number += 1
            rng = np.random.default_rng(number)
            size = int(rng.integers(200, 9000)) * len(symmetry.topology.accelerators) + int(rng.integers(0, 5))
            chunks, slack = int(rng.integers(1, 3)), float(rng.choice([0.0, 0.2]))
            found[f"{kind} on {name}"] = random_plan(symmetry, kind, size, number, chunks=chunks, slack=slack)
    for name, kind, symmetry, ranks in (
        ("servers", "allreduce", rails(3, 2), [[0, 1], [2, 3], [4, 5]]),
        ("rails", "allgather", rails(2, 3), [[0, 3], [1, 4], [2, 5]]),
        ("rails in orbits", "reducescatter", rails(3, 2, shift_gpus=False), [[0, 2, 4], [1, 3, 5]]),
        ("rails in orbits", "allreduce", rails(3, 2, shift_gpus=False), [[0, 2, 4], [1, 3, 5]]),
        ("rows", "alltoall", full_mesh(2, 3), [[0, 1, 2], [3, 4, 5]]),
        ("a ring's halves", "alltoall", ring(6), [[0, 2, 4], [1, 3, 5]]),
    ):
        number += 1
        found[f"{kind} of {name}"] = random_plan(symmetry, kind, 6000 + seed % 7, number, groups=ranks)
    for spec, sizes in (
        ("h100:2?message=1us", (1000, 300_000)),
        ("star:6?message=2us", (40, 9000)),
        ("h100:2?sharp=true", (100, 9000)),
        ("fattree:4?sharp=true", (100, 90_000)),
    ):
        # few owners: sums that meet, a group of the identity alone; and sums in switches
        for size in sizes:
            found[f"allreduce of {size} on {spec}"] = met(load_topology(spec), size + seed % 7)
    for kind in ("allgather", "reducescatter", "allreduce"):
        symmetry = star(4, reduces=True, replicates=True, transit=True)
        found[f"{kind} in a switch"] = through_switches(symmetry, 4000 + seed % 3, kind)
    for kind in KINDS:
        number += 1
        found[f"{kind} with a rank that stays"] = fixed(kind, number)
    for kind in ROOTED:
        number += 1
        found[f"{kind} planned from a root"] = planned_from_a_root(kind, number)
    if seed == 0:
        for servers in (2, 4):
            found[f"alltoall on h100:{servers}"] = random_plan(h100(servers), "alltoall", 64000, number)
    return found

"""Damages of what a plan by symmetry claims to serve: of its group, its workload, and its network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from damaged_parts import Damage, Rng, Useless, orbits_changed
from stretto.model.collective import Collective, Promised, Workload, make_collective
from stretto.model.symmetric import SymmetricPlan

# --- the group ------------------------------------------------------------------------------------------------------


def group_changed(plan: SymmetricPlan, **facts: Any) -> SymmetricPlan:
    return orbits_changed(plan, symmetry=replace(plan.symmetry, **facts))


def two_nodes_exchanged(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A generator with two images exchanged."""
    images = np.array(plan.symmetry.generators)
    i, (a, b) = rng.integers(len(images)), rng.integers(images.shape[1], size=2)
    images[i, [a, b]] = images[i, [b, a]]
    return group_changed(plan, generators=images)


def another_generator(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A power, a product, the identity, or a random permutation in the place of a generator."""
    images, orders = np.array(plan.symmetry.generators), np.array(plan.symmetry.orders)
    i, j = rng.integers(len(images), size=2)
    images[i] = [images[i][images[i]], images[i][images[j]], np.arange(images.shape[1]), rng.permutation(images[i])][
        rng.integers(4)
    ]
    if rng.integers(2):
        orders[i] = rng.choice([1, orders[i], orders[j]])
    return group_changed(plan, generators=images, orders=orders)


def another_order(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    orders = np.array(plan.symmetry.orders)
    i = rng.integers(len(orders))
    orders[i] = rng.choice([0, 1, orders[i] - 1, orders[i] + 1, 2 * orders[i]])
    return group_changed(plan, orders=orders)


def no_permutation(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    images = np.array(plan.symmetry.generators)
    images[rng.integers(len(images)), rng.integers(images.shape[1])] = rng.integers(-2, images.shape[1] + 2)
    return group_changed(plan, generators=images)


def other_places(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """The generator turned around another way: conjugate by a random permutation of nodes of one kind."""
    kind = plan.topology.kind
    move = np.arange(len(kind))
    for each in np.unique(kind):
        nodes = np.flatnonzero(kind == each)
        move[nodes] = rng.permutation(nodes)
    images = np.empty_like(plan.symmetry.generators)
    images[:, move] = move[plan.symmetry.generators]
    return group_changed(plan, generators=images)


# --- the workload ---------------------------------------------------------------------------------------------------


def work_changed(plan: SymmetricPlan, rng: Rng, number: int | None, **facts: Any) -> SymmetricPlan:
    """With other facts of one collective, or of all."""
    each: list[Collective] = []
    for i, c in enumerate(plan.workload.collectives):
        each.append(replace(c, **facts) if number in (None, i) else c)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def another_size(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """More or fewer bytes, promised as the kind does."""
    of_all = bool(rng.integers(2))
    which = int(rng.integers(len(plan.workload.collectives)))
    factor = rng.choice([0.5, 0.99, 1.001, 2.0])
    each: list[Collective] = []
    for i, c in enumerate(plan.workload.collectives):
        if of_all or i == which:
            size, chunks = max(int(c.size_bytes * factor), 1), c.chunk_count // c.piece_count
            root = max(c.root, 0)
            c = make_collective(c.kind, plan.topology, size, ranks=c.ranks.tolist(), chunks=chunks, root=root)
        each.append(c)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def other_chunks(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Bytes moved from one chunk to the next, in one collective."""
    which = int(rng.integers(len(plan.workload.collectives)))
    c = plan.workload.collectives[which]
    if c.chunk_count < 2:
        raise Useless
    k = int(rng.integers(c.chunk_count - 1))
    sizes, offsets = np.array(c.chunk_bytes), np.array(c.chunk_offset)
    by = int(rng.choice([-1, 1, -sizes[k] // 2, sizes[k + 1] // 2]))
    sizes[k] += by
    sizes[k + 1] -= by
    offsets[k + 1] += by * int(rng.integers(4) > 0)
    return work_changed(plan, rng, which, chunk_bytes=sizes, chunk_offset=offsets)


def another_cut(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Pieces cut into other numbers of chunks, in one collective or all; as many in all, mostly."""
    c = plan.workload.collectives[0]
    which = None if rng.integers(2) else int(rng.integers(len(plan.workload.collectives)))
    if not isinstance(c, Promised) or c.traits.whole:
        raise Useless
    counts = np.array(np.broadcast_to(c.chunks, c.piece_count))
    a, b = rng.integers(len(counts), size=2)
    if rng.integers(2):
        counts[[a, b]] = counts[[b, a]]
    else:
        counts[a] += 1
        counts[b] = max(counts[b] - 1, 1)
    each = [
        Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, counts if which in (None, i) else c.chunks)
        for i, c in enumerate(plan.workload.collectives)
        if isinstance(c, Promised)
    ]
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def another_rank(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Ranks in another order, another node, or another root."""
    which = int(rng.integers(len(plan.workload.collectives)))
    c = plan.workload.collectives[which]
    ranks = np.array(c.ranks)
    change = rng.integers(3)
    if change == 0 and c.traits.rooted:
        return work_changed(plan, rng, which, root=int(rng.integers(len(ranks))))
    if change == 1:
        a, b = rng.integers(len(ranks), size=2)
        ranks[[a, b]] = ranks[[b, a]]
    else:
        ranks[rng.integers(len(ranks))] = rng.integers(plan.topology.node_count)
    return work_changed(plan, rng, which, ranks=ranks.astype(np.int32))


def another_root(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """The same promise from or to another root."""
    c = plan.workload.collectives[0]
    if not isinstance(c, Promised) or not c.traits.rooted:
        raise Useless
    other = Promised(c.kind, c.ranks, c.size_bytes, int(rng.integers(len(c.ranks))), c.start_s, c.weight, c.chunks)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload((other,)))


def another_moment(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    which = None if rng.integers(2) else int(rng.integers(len(plan.workload.collectives)))
    facts = {"start_s": 1e-4} if rng.integers(2) else {"weight": 2.0}
    return work_changed(plan, rng, which, **facts)


def other_sums(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    c = plan.workload.collectives[0]
    if rng.integers(2):
        return work_changed(plan, rng, None, reduces=not c.reduces)
    kind = str(rng.choice(["allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "multicast", "none"]))
    return work_changed(plan, rng, None, kind=kind)


def other_promise(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    c = plan.workload.collectives[0]
    wanted = c.wanted.with_values(np.roll(c.wanted.values, 1))
    return work_changed(plan, rng, 0, wanted=wanted)


def one_collective_less(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    each = plan.workload.collectives
    if len(each) < 2:
        raise Useless
    return orbits_changed(plan, workload=Workload(each[1:] if rng.integers(2) else each[::-1]))


def other_representatives(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A part about other chunks: smaller ones, or held by more."""
    work = plan.part.workload
    c = work.collectives[0]
    sizes = np.maximum(c.piece_bytes // 2, 1)
    facts: dict[str, Any] = {"piece_bytes": sizes, "chunk_bytes": sizes} if rng.integers(2) else {"wanted": c.holders}
    part = replace(plan.part, workload=Workload((replace(c, **facts), *work.collectives[1:])))
    return SymmetricPlan(part, plan.orbits, {})


# --- the network ----------------------------------------------------------------------------------------------------


def another_network(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """One link, or one of each orbit's, is slower, farther, or costs more a message; what a node does is other."""
    t, links = plan.topology, np.array([rng.integers(plan.topology.link_count)])
    if rng.integers(2):
        links = np.flatnonzero(plan.symmetry.link_orbits == plan.symmetry.link_orbits[links[0]])
    if rng.integers(4):
        name = str(rng.choice(["bandwidth", "latency_s", "message_s"]))
        column = np.array(getattr(t, name))
        column[links] = column[links] * rng.choice([0.5, 0.99, 1.5]) + (1e-6 if name == "message_s" else 0)
    else:
        name = str(rng.choice(["replicates", "transit", "reduces", "kind"]))
        column = np.array(getattr(t, name))
        at = rng.integers(t.node_count)
        column[at] = rng.integers(3) if name == "kind" else not column[at]
    net = replace(t, **{name: column})
    # one of them alone would be two networks in a plan
    both = rng.integers(4)
    part = replace(plan.part, topology=net) if both != 1 else plan.part
    symmetry = replace(plan.symmetry, topology=net) if both != 2 else plan.symmetry
    return SymmetricPlan(part, replace(plan.orbits, symmetry=symmetry), {})


DAMAGES: list[Damage] = [
    two_nodes_exchanged, another_generator, another_order, no_permutation, other_places, another_size, other_chunks,
    another_cut, another_rank, another_root, another_moment, other_sums, other_promise, one_collective_less,
    other_representatives, another_network,
]  # fmt: skip

"""Plans by symmetry: checked on one chunk of each orbit, which stands for all others.

A symmetric plan is correct if

- each generator maps nodes and links to nodes and links of the same kind (:func:`wrong_group`),
- the group maps ranks to ranks and collectives to collectives (:func:`wrong_ranks`), and every element but the identity
  moves an owner of data, or none does (:func:`wrong_owners`),
- the orbits hold each chunk of the workload once (:func:`wrong_cuts`, :func:`wrong_owners`, :func:`wrong_cover`),
- the part is timed, about this network and the representatives of the orbits (:func:`wrong_part`), and
- the representatives' transfers are correct where every link carries all images of them (:mod:`.capacity`).

For then each image of a transfer is as correct as the transfer itself: what its source holds, which links it takes and
what it waits for are images, too.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int32, Int64
from ..model.collective import Collective, Promised
from ..model.kinds import BY_NAME
from ..model.symmetric import Orbits, SymmetricPlan
from ..model.symmetry import Symmetry
from . import capacity, contents, promises, routes, timed
from .findings import Finding

COLUMNS = ("kind", "transit", "replicates", "reduces"), ("bandwidth", "latency_s", "message_s")
"""What must be equal for nodes, and for links, that the group maps to each other."""


def wrong_plan(plan: SymmetricPlan) -> Finding | None:
    """The first violation in a symmetric plan, or None."""
    part, symmetry = plan.part, plan.symmetry
    return (
        wrong_group(symmetry)
        or wrong_ranks(plan.orbits)
        or wrong_cuts(plan.orbits)
        or wrong_owners(plan.orbits)
        or wrong_cover(plan.orbits)
        or wrong_part(plan)
        or routes.broken_route(part)
        or capacity.too_fast(part)
        or contents.wrong_contents(part)
        or timed.wrong_time(part, symmetry)
    )


def wrong_group(symmetry: Symmetry) -> Finding | None:
    """What is wrong with the generators: each must be an automorphism of its order, and they must commute."""
    t, nodes = symmetry.topology, np.arange(symmetry.topology.node_count)
    if t.planes or t.changes:
        return _symmetry("the network has optical planes, or bandwidths that change")
    count = len(symmetry.orders)
    if not count or symmetry.generators.shape != (count, t.node_count) or (symmetry.orders < 1).any():
        return _symmetry("there must be a generator, and each needs an image for every node, and an order")
    for number, (image, order) in enumerate(zip(symmetry.generators, symmetry.orders.tolist(), strict=True)):
        if not np.array_equal(np.sort(image), nodes):
            return _symmetry(f"generator {number} is no permutation of the nodes")
        unlike = [name for name in COLUMNS[0] if not np.array_equal(getattr(t, name)[image], getattr(t, name))]
        if unlike:
            return _symmetry(f"generator {number} maps a node to one of another kind ({unlike[0]})")
        links = symmetry.links_between(image[t.src], image[t.dst])
        if (links < 0).any():
            return _symmetry(f"generator {number} maps link {t.link_name(int((links < 0).argmax()))} to none")
        for name in COLUMNS[1]:
            column = getattr(t, name)
            bad = column[links] != column
            if bad.any():
                link = t.link_name(int(bad.argmax()))
                return _symmetry(f"generator {number} maps link {link} to one of another {name}")
        if not np.array_equal(_power(image, order), nodes):
            return _symmetry(f"generator {number} is not the identity after {order} times")
        for other in symmetry.generators[:number]:
            if not np.array_equal(image[other], other[image]):
                return _symmetry(f"generator {number} does not commute with one before it")
    return None


def wrong_ranks(orbits: Orbits) -> Finding | None:
    """What is wrong with the images of ranks: those of a collective must be ranks of one collective, and roots those of
    roots. Where each rank owns data, every element but the identity moves it, or none does."""
    symmetry, collectives = orbits.symmetry, orbits.workload.collectives
    first = collectives[0]
    if any(c.kind not in BY_NAME for c in collectives):
        return Finding("promise", "a collective is of no kind that there is")
    for c in collectives:
        if (c.kind, c.size_bytes, len(c.ranks), c.chunk_count, c.start_s, c.weight, c.reduces) != (
            first.kind, first.size_bytes, len(first.ranks), first.chunk_count, first.start_s, first.weight,
            first.traits.reduces,
        ) or not c.traits.general:  # fmt: skip
            return _symmetry("the collectives are not all alike")
        if not symmetry.topology.is_accelerator[c.ranks].all():
            return _symmetry("a rank is no accelerator")
    ranks = np.concatenate([c.ranks for c in collectives])
    if len(np.unique(ranks)) != len(ranks):
        return _symmetry("a node has two ranks")
    collective, _ = orbits.seats
    for number, image in enumerate(symmetry.generators):
        if (collective[image[ranks]] < 0).any():
            return _symmetry(f"generator {number} maps a rank to a node without one")
        if any(len(np.unique(collective[image[c.ranks]])) > 1 for c in collectives):
            return _symmetry(f"generator {number} parts the ranks of a collective")
        if first.traits.rooted:
            roots = np.array([c.ranks[c.root] for c in collectives])
            if not np.array_equal(image[roots], roots[collective[image[roots]]]):
                return _symmetry(f"generator {number} maps a root to a rank that is none")
    if not first.traits.whole and _partly_moved(symmetry, ranks):
        return _symmetry("some elements map a rank to itself, and some do not")
    return None


def wrong_cuts(orbits: Orbits) -> Finding | None:
    """Whether pieces are what their kind promises, and the group maps them to pieces that are cut alike."""
    collectives = orbits.workload.collectives
    first = collectives[0]
    if not all(isinstance(c, Promised) for c in collectives):
        if not first.traits.whole:
            return Finding("promise", "pieces of ranks or pairs are not cut evenly")
        wrong = promises.wrong_collectives(orbits.workload)
        if wrong is not None:
            return wrong
        if any(not np.array_equal(c.chunk_bytes, first.chunk_bytes) for c in collectives):
            return Finding("cover", "the buffers of the collectives are not cut alike")
    elif not all(_cut_alike(c, orbits.symmetry) and np.array_equal(_cuts(c), _cuts(first)) for c in collectives):
        return Finding("cover", "the group maps a piece to one that is cut into another number of chunks")
    return None


def wrong_owners(orbits: Orbits) -> Finding | None:
    """Whether each orbit has an owner in one collective, in the order of collectives, and a place in a piece. Every
    element but the identity moves an owner, or none does."""
    first, symmetry = orbits.workload.collectives[0], orbits.symmetry
    owner, position = orbits.owner, orbits.position
    if not orbits.count or owner.shape != (orbits.count, 2 if first.traits.pieces == "pair" else 1):
        return Finding("cover", "there is no orbit of chunks, or one without its owners")
    if (owner < 0).any() or (owner >= symmetry.topology.node_count).any():
        return Finding("cover", "an owner is no node")
    if _partly_moved(symmetry, owner.ravel()):
        return _symmetry("some elements map an owner to itself, and some do not")
    collective = orbits.seats[0][owner]
    if (collective < 0).any() or (collective != collective[:, :1]).any() or (np.diff(collective[:, 0]) < 0).any():
        return Finding("cover", "owners must be ranks of one collective, and orbits in the order of collectives")
    if (position < 0).any() or (position + orbits.shares > orbits.cuts).any():
        return Finding("cover", "an orbit has a place beyond the chunks of a piece")
    if (position[orbits.fixed] % symmetry.size).any():
        return Finding("cover", "chunks of an owner that no element moves are not numbered by elements")
    return None


def wrong_cover(orbits: Orbits) -> Finding | None:
    """Whether the orbits hold every chunk of the workload once."""
    symmetry, collectives = orbits.symmetry, orbits.workload.collectives
    first = collectives[0]
    total = sum(c.chunk_count for c in collectives)
    once = orbits.count * symmetry.size == total
    if once and first.traits.pieces == "pair":
        a, b = orbits.owner.T
        # where one of a pair stays, its orbit is told by the orbit of the other one
        stays = (symmetry.place[a] < 0) | (symmetry.place[b] < 0)
        step = np.where(stays, 0, symmetry.product(symmetry.place[b], symmetry.inverse(symmetry.place[a])))
        keys = np.stack((symmetry.node_orbits[a], symmetry.node_orbits[b], step, orbits.position), axis=1)
        once = len(np.unique(keys, axis=0)) == len(keys)
    elif once:
        chunks = orbits.chunks(np.arange(orbits.count)[:, None], np.arange(symmetry.size))
        once = bool((np.bincount(chunks.ravel(), minlength=total) == 1).all())
    return None if once else Finding("cover", "the orbits do not hold every chunk of the workload once")


def _partly_moved(symmetry: Symmetry, nodes: Int32) -> bool:
    """Whether some element, but not every one, leaves one of ``nodes`` where it is besides the identity."""
    sizes = np.bincount(symmetry.node_orbits, minlength=symmetry.topology.node_count)
    return not np.isin(sizes[symmetry.node_orbits[nodes]], (1, symmetry.size)).all()


def _cuts(c: Collective) -> Int64:
    """int64[1 or pieces], into how many chunks each piece is cut."""
    return np.atleast_1d(c.chunks if isinstance(c, Promised) else c.chunk_count)


def _cut_alike(c: Collective, symmetry: Symmetry) -> bool:
    """Whether the group maps pieces of a collective to pieces that are cut into equal numbers of chunks."""
    cuts = _cuts(c)
    if len(cuts) == 1:
        return True
    rank = np.full(symmetry.topology.node_count, -1)
    rank[c.ranks] = np.arange(len(c.ranks))
    images = rank[symmetry.generators[:, c.ranks]]
    if (images < 0).any():  # a generator maps it to another collective
        return bool((cuts == cuts[0]).all())
    if c.traits.pieces == "pair":
        images = (images[:, :, None] * len(c.ranks) + images[:, None, :]).reshape(len(images), -1)
    return bool((cuts[images] == cuts).all())


def wrong_part(plan: SymmetricPlan) -> Finding | None:
    """Whether the part is timed, on the network of the group, and about the representatives of the orbits."""
    part = plan.part
    if part.topology is not plan.symmetry.topology:
        return _symmetry("the group is of another network than the transfers")
    if part.sharing != "timed" or part.start_s is None or part.finish_s is None:
        return _symmetry(f"the representatives share links by {part.sharing!r}; they must be timed")
    if part.plane is not None or part.turns.count or part.barriers:
        return _symmetry("the representatives use optical planes, or barriers")
    if not _alike(plan):
        return Finding("promise", "the part is not about the representatives of the orbits")
    return None


def _alike(plan: SymmetricPlan) -> bool:
    """Whether the workload of the part is that of the orbits' representatives."""
    ours, theirs = (
        [w.chunk_bytes, w.chunk_reduces, w.chunk_start_s, *w.chunk_holders, *w.chunk_wanted]
        for w in (plan.orbits.representatives, plan.part.workload)
    )
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _power(image: Int32, times: int) -> Int64:
    """The permutation that applies ``image`` the given number of times."""
    out, square = np.arange(len(image)), image.astype(np.int64)
    while times:
        out, square, times = (square[out] if times & 1 else out), square[square], times >> 1
    return out


def _symmetry(words: str) -> Finding:
    return Finding("symmetry", words)

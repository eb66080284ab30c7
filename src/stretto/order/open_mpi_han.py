"""Open MPI's coll/han: machines with several ranks sum up inside, and one rank of each speaks with the others.

Facts from open-mpi/ompi at v5.0.10: ompi/mca/coll/han (coll_han_allreduce.c, coll_han_bcast.c, coll_han_reduce.c,
coll_han_allgather.c), and what libnbc takes between machines (nbc_ireduce.c, nbc_ibcast.c). All but AllGather go 64 KiB
by 64 KiB, so that one segment goes between machines while the next is summed inside. The ranks that speak for their
machines have the root's number in its machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..model.arrays import Int64
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import Step
from .exchanges import down, every_block, folded_by_halves, highest_bit, power_below, sums_at
from .patterns import Part, Pattern, backwards, inside_machines, renumbered
from .traffic import Layout

SEGMENT_BYTES = 1 << 16
"""Bytes of a segment (han_allreduce_segsize and the like)."""
FEW = 4
"""Machines up to which the first one sends to all others itself."""


def allreduce(layout: Layout, size_bytes: int, root: int) -> Pattern:
    members, speakers = _speakers(layout, 0)
    blocks = power_below(len(speakers))
    inside = _inside(members, blocks)
    between = [*_sums(len(speakers)), *(every_block(step, blocks) for step in _spread(len(speakers)))]
    return _in_segments([*backwards(inside, REDUCE), *renumbered(between, speakers), *inside], size_bytes, blocks)


def broadcast(layout: Layout, size_bytes: int, root: int) -> Pattern:
    members, speakers = _speakers(layout, root)
    return _in_segments([*renumbered(_spread(len(speakers)), speakers), *_inside(members, 1)], size_bytes, 1)


def reduce(layout: Layout, size_bytes: int, root: int) -> Pattern:
    members, speakers = _speakers(layout, root)
    blocks = power_below(len(speakers))
    steps = [*backwards(_inside(members, blocks), REDUCE), *renumbered(_sums(len(speakers)), speakers)]
    return _in_segments(steps, size_bytes, blocks)


def allgather(choose: Callable[[int, float], Pattern]) -> Callable[[Layout, int, int], Pattern]:
    """How pieces come to all, for machines with equally many ranks.

    Args:
        choose: the algorithm for a number of machines and the bytes of all pieces of one.
    """

    def make(layout: Layout, size_bytes: int, root: int) -> Pattern:
        members, speakers = _speakers(layout, 0)
        each = len(members[0])
        others = np.concatenate([ranks[1:] for ranks in members])
        first = Step(others, others, np.repeat(speakers, each - 1), COPY)
        between = choose(len(speakers), size_bytes / len(speakers))
        pieces = np.stack(members)
        parts = [
            Part([
                Step(pieces[s.block].ravel(), np.repeat(speakers[s.src], each), np.repeat(speakers[s.dst], each), s.op)
                for s in part.steps
            ])
            for part in between.parts
        ]  # fmt: skip
        last = Part(_inside(members, layout.ranks), tree=True)
        return Pattern(f"han, {between.algorithm}", (Part([first]), *parts, last))

    return make


def _in_segments(steps: Sequence[Step], size_bytes: int, blocks: int) -> Pattern:
    segments = max(1, math.ceil(size_bytes / SEGMENT_BYTES))
    return Pattern("han", (Part(steps, tree=True, segments=segments),), blocks)


def _speakers(layout: Layout, root: int) -> tuple[list[Int64], Int64]:
    """The ranks of each machine, from the one that speaks for it on; and those that speak, the root first."""
    here = int(layout.machine[root])
    place = int(np.flatnonzero(layout.members[here] == root)[0])
    members = [np.roll(ranks, -min(place, len(ranks) - 1)) for ranks in layout.members]
    speakers: Int64 = np.array([ranks[0] for ranks in members])
    return members, np.roll(speakers, -here)


def _inside(members: Sequence[Int64], blocks: int) -> list[Step]:
    return [every_block(step, blocks) for step in inside_machines(members)]


def _sums(machines: int) -> list[Step]:
    """All sums to the first of the machines: by halves, and of two machines at once."""
    if machines == 2:
        return [Step(np.arange(2), np.ones(2, dtype=np.int64), np.zeros(2, dtype=np.int64), REDUCE)]
    blocks = power_below(machines)
    halving, gather = sums_at(blocks, 0)
    steps = folded_by_halves(machines, lambda power: [*halving, *gather], blocks)
    return steps if machines == blocks else steps[:-1]  # the last would give the others the sums, too


def _spread(machines: int) -> list[Step]:
    return down(machines, highest_bit if machines > FEW else lambda v: 0)


INSIDE_FIRST = {"allreduce": allreduce, "broadcast": broadcast, "reduce": reduce}
"""By kind of collective."""

"""What nodes hold in the middle of a plan: copies, whole sums, and partial sums that together make a whole one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool
from ..model.errors import Unsupported
from ..model.plan import REDUCE, Plan


class Held(NamedTuple):
    """For each chunk of a plan the accelerators from which the rest can be served.

    Attributes:
        holders: bool[chunks, nodes], of a copy or a whole sum all who have it; else nodes whose partial sums have each
            contribution once.
        to_sum: bool[chunks], whether these are partial sums.
        whole: bool[chunks, nodes], who had the copy or the whole sum, nodes that have failed since among them.
    """

    holders: Bool
    to_sum: Bool
    whole: Bool


def held_after(plan: Plan, arrived: Bool, alive: Bool) -> Held:
    """What is held once some transfers have arrived, and some nodes have failed. Routers and switches keep nothing.

    Args:
        arrived: bool[transfers' receivers].
        alive: bool[nodes].
    Raises:
        Unsupported: a contribution to a sum is lost.
    """
    work, nodes = plan.workload, plan.topology.node_count
    keeps = alive & plan.topology.is_accelerator
    holders = work.chunk_holders.mask(nodes)
    copies = arrived & ~work.chunk_reduces[plan.chunk][plan.dst.owners]
    holders[plan.chunk[plan.dst.owners[copies]], plan.dst.values[copies]] = True
    to_sum = work.chunk_reduces.copy()
    holders[to_sum] = False
    whole = holders & plan.topology.is_accelerator
    holders &= keeps
    sums = _partial_sums(plan, arrived)
    for chunk in np.flatnonzero(to_sum).tolist():
        contributors = work.chunk_holders[chunk].tolist()
        at = sums.get(chunk) or {v: 1 << i for i, v in enumerate(contributors)}
        everyone = (1 << len(contributors)) - 1
        whole[chunk, [v for v, parts in at.items() if parts == everyone and plan.topology.is_accelerator[v]]] = True
        holders[chunk] = whole[chunk] & alive
        to_sum[chunk] = not holders[chunk].any()
        if to_sum[chunk]:
            holders[chunk, _cover(plan, chunk, {v: at[v] for v in at if keeps[v]}, everyone)] = True
    return Held(holders, to_sum, whole)


def _partial_sums(plan: Plan, arrived: Bool) -> dict[int, dict[int, int]]:
    """For each chunk to be summed of which something has arrived: the contributions at each node, as bits."""
    work, dst = plan.workload, plan.dst
    begun = work.chunk_reduces & (np.bincount(plan.chunk[dst.owners[arrived]], minlength=work.chunk_count) > 0)
    first = {
        chunk: {v: 1 << i for i, v in enumerate(work.chunk_holders[chunk].tolist())}
        for chunk in np.flatnonzero(begun).tolist()
    }
    sums = {chunk: dict(at) for chunk, at in first.items()}
    carried: dict[int, int] = {}
    for k in np.flatnonzero(begun[plan.chunk]).tolist():  # whatever a transfer needs comes before it
        chunk = int(plan.chunk[k])
        carried[k] = 0
        for v in plan.sources[k].tolist():
            carried[k] |= _carried_from(plan, k, v, first[chunk].get(v, 0), carried)
        for i in range(int(dst.offsets[k]), int(dst.offsets[k + 1])):
            if arrived[i]:
                at, v = sums[chunk], int(dst.values[i])
                at[v] = carried[k] | (at.get(v, 0) if plan.op[k] == REDUCE else 0)
    return sums


def _carried_from(plan: Plan, k: int, source: int, first: int, carried: dict[int, int]) -> int:
    """The contributions that a transfer takes from a source: those held at first, and what it waits for has brought.

    What else has come there by then is not in it: a router that cuts through sends each partial sum on by itself.
    """
    parts = 0 if plan.forwards is not None and plan.forwards[k] else first
    for before in sorted(plan.depends[k].tolist()):
        if plan.chunk[before] == plan.chunk[k] and source in plan.dst[before]:
            parts = carried[before] | (parts if plan.op[before] == REDUCE else 0)
    return parts


def _cover(plan: Plan, chunk: int, here: dict[int, int], everyone: int) -> list[int]:
    """Nodes whose partial sums have each contribution once: the largest first, of equal ones where it is wanted."""
    wants = {*plan.workload.chunk_wanted[chunk].tolist()}
    nodes, taken = [], 0
    for v in sorted(here, key=lambda v: (-here[v].bit_count(), v not in wants, v)):
        if here[v] and not here[v] & taken:
            nodes.append(v)
            taken |= here[v]
    if taken != everyone:
        lost = everyone
        for parts in here.values():
            lost &= ~parts
        kind = plan.workload.collectives[int(plan.workload.chunk_collective[chunk])].kind
        if not lost:
            raise Unsupported(f"{kind} has partial sums of chunk {chunk} that overlap; plan it from the start")
        missing = plan.workload.chunk_holders[chunk][(lost & -lost).bit_length() - 1]
        raise Unsupported(f"{kind} needs {plan.topology.names[missing]}, which is cut off")
    return nodes

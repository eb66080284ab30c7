"""Steps without what no rank needs in the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.arrays import Bool
from .algorithms import Step


def useful(
    steps: Sequence[Step], first: Bool, last: Bool, once: bool, carried: Sequence[tuple[int, ...]] | None = None
) -> list[Step]:
    """The steps without blocks that their sender does not have, and without those that no rank needs. Some may be
    empty then.

    Args:
        first, last: bool[nodes, blocks], which nodes have each block at first, and which want it in the end.
        once: whether no block goes to a node that has it. Sums do.
        carried: see :class:`~stretto.schedule.job_loads.Candidate`.
    """
    chosen = list[Bool]()
    has, brought = first.copy(), list[Bool]()  # by all steps so far, and by each of them alone
    for number, step in enumerate(steps):
        if carried is None:
            sent = has[step.src, step.block]
        else:
            sources = [(first if k < 0 else brought[k])[step.src, step.block] for k in carried[number]]
            sent = np.any(sources, axis=0)
            brought.append(np.zeros_like(has))
            brought[-1][step.dst[sent], step.block[sent]] = True
        if once:
            sent &= ~has[step.dst, step.block]
        has[step.dst[sent], step.block[sent]] = True
        chosen.append(sent)
    needed = last.copy()
    for step, sent in zip(reversed(steps), reversed(chosen), strict=True):
        sent &= needed[step.dst, step.block]
        needed[step.src[sent], step.block[sent]] = True
    return [Step(s.block[sent], s.src[sent], s.dst[sent], s.op) for s, sent in zip(steps, chosen, strict=True)]

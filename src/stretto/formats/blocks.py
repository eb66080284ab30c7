"""The transfers of a plan in blocks, for files that are written transfer by transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..model.arrays import Int32
from ..model.errors import InputError
from ..model.memory import too_much
from ..model.plan import Plan
from ..model.rows import Rows, rows_of, touched_by

BLOCK_ROWS = 1 << 15
"""Transfers of a block: few enough that its columns take a few megabytes."""


def blocks_of(plan: Plan, ranks: Sequence[int] | None) -> Iterator[Rows]:
    """The transfers of a plan, or those that some ranks send or receive, in their order; one empty block if there are
    none.

    Raises:
        InputError: the transfers of all ranks are too many for the memory of this machine. What reads the file could
            not hold them either, and writing a billion transfers takes hours.
    """
    if ranks is None:
        count = plan.transfer_count
        if (reason := too_much(count, "transfers")) is not None:
            raise InputError(f"{reason}; write those of some ranks", "plan")
    else:
        chosen = touched_by(plan, nodes_of_ranks(plan)[list(ranks)].tolist()).number
        count = len(chosen)
    for begin in range(0, max(count, 1), BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, count)
        yield rows_of(plan, np.arange(begin, end) if ranks is None else chosen[begin:end])


def nodes_of_ranks(plan: Plan) -> Int32:
    """int32[ranks], the node of each rank of the one collective; if there are several, every accelerator is a rank."""
    collectives = plan.workload.collectives
    return collectives[0].ranks if len(collectives) == 1 else plan.topology.accelerators

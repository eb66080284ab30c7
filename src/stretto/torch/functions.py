"""Calls of the backend that PyTorch has no name for: sums that are compressed between sites."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from ..model.errors import Unsupported
from .compressed import Feedback
from .group import StrettoGroup
from .tensors import OPS


def all_reduce(
    tensor: Tensor, op: Any = OPS.SUM, group: Any = None, async_op: bool = False, *,
    compress: str | None = None, feedback: Feedback | None = None,
) -> Any:  # fmt: skip
    """``torch.distributed.all_reduce`` whose numbers may cross between sites in fewer bits.

    Args:
        compress: ``"int8"`` or ``"fp8"`` (:mod:`stretto.torch.codes` states the errors); full precision by default.
            All ranks must give the same.
        feedback: what rounding has left out of this tensor before, and will: one object for each tensor that is summed
            again and again.
    Returns:
        A handle to wait for if ``async_op``.
    """
    if compress is None:
        return dist.all_reduce(tensor, op, group, async_op)
    return _end(_group(group).compressed.allreduce([tensor], compress, feedback, op), async_op)


def reduce_scatter(
    output: Tensor, source: Tensor, op: Any = OPS.SUM, group: Any = None, async_op: bool = False, *,
    compress: str | None = None, feedback: Feedback | None = None,
) -> Any:  # fmt: skip
    """``torch.distributed.reduce_scatter_tensor`` likewise; see :func:`all_reduce`."""
    if compress is None:
        return dist.reduce_scatter_tensor(output, source, op, group, async_op)
    return _end(_group(group).compressed.reduce_scatter(output, source, compress, feedback, op), async_op)


def _group(group: Any) -> StrettoGroup:
    found = group or dist.group.WORLD
    if not isinstance(found, StrettoGroup):
        raise Unsupported("only groups of the backend 'stretto' compress sums")
    return found


def _end(work: Any, async_op: bool) -> Any:
    if async_op:
        return work
    work.wait()
    return None

"""AllReduce of sparse tensors: each rank gathers the indices and values of all, and adds them in the order of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model.errors import ArgumentError, Unsupported
from .tensors import OPS


def check_sparse(tensor: Tensor, op: Any) -> None:
    """Refuse what :func:`sum_sparse` does not add up."""
    if tensor.layout != torch.sparse_coo or tensor.device.type != "cpu":
        raise Unsupported(f"the backend 'stretto' sums sparse tensors in COO layout on the CPU, not {tensor.layout}")
    if getattr(op, "op", op) != OPS.SUM:
        raise Unsupported("the backend 'stretto' reduces sparse tensors by SUM alone")


def sum_sparse(tensor: Tensor, rank: int, ranks: int, gather: Callable[[Tensor, list[Tensor]], None]) -> None:
    """Put the sum of the ranks' sparse tensors into ``tensor``.

    Args:
        gather: an AllGather of flat tensors, whose sizes may differ from rank to rank.
    """
    own = tensor.coalesce()
    indices, values = own.indices(), own.values()
    shape = torch.tensor([values.shape[0], indices.shape[0], *tensor.shape])
    shapes = [torch.empty_like(shape) for _ in range(ranks)]
    gather(shape, shapes)
    for r, other in enumerate(shapes):
        if other[1:].tolist() != shape[1:].tolist():
            mine, theirs = list(tensor.shape), other[2:].tolist()
            raise ArgumentError(f"all_reduce: rank {rank} has a sparse tensor of {mine}, rank {r} one of {theirs}")
    counts = [int(other[0]) for other in shapes]
    all_indices = [torch.empty(indices.shape[0] * n, dtype=torch.int64) for n in counts]
    all_values = [torch.empty((n, *values.shape[1:]), dtype=values.dtype) for n in counts]
    gather(indices.t().reshape(-1), all_indices)
    gather(values.reshape(-1), [v.view(-1) for v in all_values])
    places = torch.cat(all_indices).view(-1, indices.shape[0]).t()
    tensor.copy_(torch.sparse_coo_tensor(places, torch.cat(all_values), tensor.shape, check_invariants=True).coalesce())


def sparse_sums(
    tensors: Sequence[Tensor], op: Any, rank: int, ranks: int, run: Callable[..., None], timeout_s: float
) -> Callable[[], None]:
    """What sums sparse tensors over the ranks, each in its place; refuses what cannot be summed.

    Args:
        run: runs a collective over pieces, as of :meth:`.Collectives.run`.
    """
    for t in tensors:
        check_sparse(t, op)

    def gather(own: Tensor, out: list[Tensor]) -> None:
        run("allgather", {rank: own}, dict(enumerate(out)), [t.numel() for t in out], timeout_s)

    def sum_all() -> None:
        for t in tensors:
            sum_sparse(t, rank, ranks, gather)

    return sum_all

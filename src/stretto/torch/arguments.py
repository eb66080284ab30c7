"""Whether a call's tensors fit together at this rank, before any byte moves: a wrong size would leave peers waiting,
and a wrong type would give them numbers that nobody sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from ..model.errors import ArgumentError, Unsupported
from ..model.kinds import split_evenly


def check_tensors(tensors: Collection[Tensor]) -> None:
    """Refuse what the backend does not move, and tensors of several types or devices in one call."""
    if any(t.is_sparse for t in tensors):
        raise Unsupported("the backend 'stretto' does not move sparse tensors; it moves dense ones")
    devices = dict.fromkeys(t.device for t in tensors)
    if len(devices) > 1:
        raise ArgumentError(f"all tensors of one call must be on one device, found {' and '.join(map(str, devices))}")
    types = dict.fromkeys(t.dtype for t in tensors)
    if len(types) > 1:
        raise ArgumentError(f"all tensors of one call must have one type, found {' and '.join(map(str, types))}")


def check_pieces(function: str, held: Mapping[int, Tensor], wanted: Mapping[int, Tensor], even: bool) -> None:
    """Refuse pieces whose input and output differ in size.

    Args:
        held, wanted: the tensor of each piece that this rank gives or gets.
        even: whether all pieces must have one size, since a rank knows its own only.
    """
    check_tensors([*held.values(), *wanted.values()])
    for piece, output in wanted.items():
        if piece in held and held[piece].numel() != output.numel():
            sizes = f"the output has {output.numel()} elements, the input {held[piece].numel()}"
            raise ArgumentError(f"{function}: for rank {piece} {sizes}")
    counts = sorted({t.numel() for t in [*held.values(), *wanted.values()]})
    if even and len(counts) > 1:
        raise ArgumentError(f"{function}: all tensors must have one size, found {counts} elements")


def is_on_device(tensors: Sequence[Tensor]) -> bool:
    """Whether a message is in the memory of an accelerator; refuses tensors that do not fit together."""
    check_tensors(tensors)
    return bool(tensors[0].device.type != "cpu")


def check_splits(function: str, tensor: Tensor, splits: Sequence[int], ranks: int) -> None:
    """Refuse splits that are not one for each rank, or do not cover the tensor."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise ArgumentError(f"{function}: {ranks} splits must add up to {rows} rows, found {list(splits)}")


def check_count(function: str, tensors: Collection[Any], ranks: int) -> None:
    """Refuse a list that has not one tensor for each rank."""
    if len(tensors) != ranks:
        raise ArgumentError(f"{function}: a list must have a tensor for each of {ranks} ranks, found {len(tensors)}")


def check_rank(function: str, rank: int, ranks: int) -> None:
    """Refuse a rank that the group does not have."""
    if not 0 <= rank < ranks:
        raise ArgumentError(f"{function}: rank {rank} is not in the group of {ranks}")


def seconds(options: Any, otherwise: float) -> float:
    """The timeout in a call's options, or another one where they have none."""
    given: timedelta | None = getattr(options, "timeout", None)
    return given.total_seconds() if given is not None and given.total_seconds() > 0 else otherwise


def shares(tensor: Tensor, splits: Sequence[int] = (), *, count: int) -> list[Tensor]:
    """A tensor as one part for each of ``count`` ranks, along its first dimension."""
    if splits:
        check_splits("all_to_all_single", tensor, splits, count)
        return list(torch.split(tensor, list(splits)))
    rows = tensor.shape[0] if tensor.dim() else 1
    if rows % count:
        if not tensor.is_contiguous() or tensor.numel() % count:
            raise Unsupported(f"{rows} rows do not divide among {count} ranks; give the splits")
        return list(torch.split(tensor.view(-1), split_evenly(tensor.numel(), count).tolist()))
    return list(torch.split(tensor, rows // count)) if rows else [tensor] * count

"""Messages of several chunks as one tensor each, for libraries that only send and receive tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from .rounds import Part


def by_message(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of a round that go to one rank, or come from one, as one message; without those of no bytes."""
    found: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        if part.tensor.numel():
            found.setdefault((part.peer, part.message), []).append(part)
    return [*found.values()]


def packed(parts: Sequence[Part]) -> Tensor:
    """What a message carries, as one tensor: a view where the parts lie side by side, else a copy."""
    whole = side_by_side([part.tensor for part in parts])
    return torch.cat([part.tensor for part in parts]) if whole is None else whole


def unpack(whole: Tensor, parts: Sequence[Part]) -> None:
    """Copy a message to its parts."""
    for part, piece in zip(parts, whole.split([part.tensor.numel() for part in parts]), strict=True):
        part.tensor.copy_(piece)


def side_by_side(tensors: Sequence[Tensor]) -> Tensor | None:
    """Flat tensors that lie in memory one after another as one view; None if they do not, or if that is not known."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    bytes_ = [t.numel() * t.element_size() for t in tensors]
    follow = all(a.data_ptr() + size == b.data_ptr() for (a, b), size in zip(pairwise(tensors), bytes_, strict=False))
    memory = first.untyped_storage().data_ptr()
    if not memory or not follow or any(t.untyped_storage().data_ptr() != memory for t in tensors):
        return None
    return first.as_strided((sum(t.numel() for t in tensors),), (1,), first.storage_offset())

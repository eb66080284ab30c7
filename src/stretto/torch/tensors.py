"""The memory of tensors as NumPy arrays, and the operations that reduce them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..model.errors import Unsupported
from ..runtime.native.machine import BFLOAT16

OPS = dist.ReduceOp.RedOpType
REDUCE: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {
    OPS.SUM: (np.add, torch.add),
    OPS.AVG: (np.add, torch.add),
    OPS.PRODUCT: (np.multiply, torch.mul),
    OPS.MIN: (np.minimum, torch.minimum),
    OPS.MAX: (np.maximum, torch.maximum),
    OPS.BAND: (np.bitwise_and, torch.bitwise_and),
    OPS.BOR: (np.bitwise_or, torch.bitwise_or),
    OPS.BXOR: (np.bitwise_xor, torch.bitwise_xor),
}
"""For each operation the function over arrays, and the one over tensors of types that NumPy lacks."""


def array_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The flat memory of a contiguous CPU tensor, as numbers, or as raw bits for types that NumPy lacks."""
    return np.asarray(_Memory(tensor)) if tensor.numel() else np.empty(0, dtype=number_type(tensor.dtype))


class _Memory:
    """A tensor's memory for NumPy. ``Tensor.numpy`` would mark the storage for ever as one that cannot be resized, as
    FSDP does with it. An array of this keeps the tensor alive."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def __array_interface__(self) -> dict[str, Any]:
        t = self._tensor
        kind = number_type(t.dtype).str
        return {"shape": (t.numel(),), "typestr": kind, "data": (t.data_ptr(), False), "version": 3}


@cache
def number_type(dtype: torch.dtype) -> np.dtype[Any]:
    """NumPy's type for a tensor's numbers, or integers of as many bits for a type that NumPy lacks."""
    try:
        numbers: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        numbers = np.dtype({1: np.uint8, 2: np.int16, 4: np.int32}[dtype.itemsize])
    return numbers


def plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie in its memory one after another, as they are."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def plain_copy(tensor: Tensor) -> Tensor:
    """The tensor itself if it is plain, else a copy that is."""
    return tensor.detach() if plain(tensor) else tensor.detach().resolve_conj().resolve_neg().contiguous()


def divide(tensor: Tensor, count: int) -> None:
    """Turn a sum of ``count`` values into their average, rounded towards zero for integers."""
    tensor.div_(count, rounding_mode=None if tensor.is_floating_point() or tensor.is_complex() else "trunc")


@cache
def reducer(kind: Any, dtype: torch.dtype) -> Callable[..., Any]:
    """The function that reduces arrays of a type by an operation; raises Unsupported if there is none."""
    if kind not in REDUCE:
        name, names = str(kind).rpartition(".")[2], ", ".join(o.name for o in REDUCE)
        raise Unsupported(f"the backend 'stretto' does not reduce by {name}; it does by {names}")
    with_arrays, with_tensors = REDUCE[kind]
    try:  # checked once, before any byte moves
        sample = with_tensors(*(torch.ones(1, dtype=dtype),) * 2)
        if kind == OPS.AVG:
            divide(sample, 1)
    except (RuntimeError, TypeError):
        raise Unsupported(f"the backend 'stretto' does not reduce {dtype} by {kind.name}") from None
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:

        def by_tensors(a: Any, b: Any, out: Any) -> None:
            x, y, z = (torch.from_numpy(v).view(dtype) for v in (a, b, out))
            with_tensors(x, y, out=z)

        if dtype == torch.bfloat16 and with_tensors is torch.add:
            by_tensors.compiled = BFLOAT16  # type: ignore[attr-defined]
        return by_tensors
    return with_arrays

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
    flat = tensor.detach().reshape(-1)
    try:
        return np.asarray(flat.numpy())
    except TypeError:
        return np.asarray(flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[flat.element_size()]).numpy())


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

        return by_tensors
    return with_arrays

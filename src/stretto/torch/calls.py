"""What a rank calls, as the code that every frame of the collective carries, and in words when two codes differ."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import torch

from ..model.arrays import Int64
from ..runtime.wire import CALL_BYTES

_CODE = struct.Struct("!BBBxIQQ")  # function, operation, type, root, elements, plan
assert _CODE.size == CALL_BYTES

FUNCTIONS = {
    "allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "gather": "gather", "scatter": "scatter", "alltoall": "all_to_all",
    "barrier": "barrier", "int8": "sum_in_int8", "fp8": "sum_in_fp8",
}  # fmt: skip
"""PyTorch's name of each kind, and of calls that are made of one; sums that are compressed, by their format."""
_FUNCTIONS = tuple(FUNCTIONS.values())
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
_TYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
_TYPE_NUMBER = {dtype: i + 1 for i, dtype in enumerate(_TYPES)}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def code_of(kind: str, op: Any, dtype: torch.dtype, root: int, counts: Int64, plan: int) -> bytes:
    """The code of a call; equal at all ranks that make the same call by the same plan.

    Args:
        kind: a key of :data:`FUNCTIONS`.
        op: the operation that reduces; None for kinds that do not reduce.
        counts: int64[pieces], the elements of each piece; empty where a rank knows its own pieces only, and the size of
            each transfer is in its frames.
        plan: the plan's digest, 64 bits.
    """
    number = _FUNCTIONS.index(FUNCTIONS[kind])
    operation = 0 if op is None else _OPERATIONS.index(op.name) + 1
    if len(counts) > 1 and (counts != counts[0]).any():
        plan ^= zlib.crc32(counts.tobytes())
    return _CODE.pack(number, operation, _TYPE_NUMBER.get(dtype, 0), root, int(counts.sum()), plan)


def describe(code: bytes) -> str:
    """A call in words, such as ``broadcast(root=0, float32[1024])``."""
    number, operation, dtype, root, count, _ = _CODE.unpack(code)
    if number >= len(_FUNCTIONS) or operation > len(_OPERATIONS) or dtype > len(_TYPES):
        return f"something unknown ({code.hex()})"
    function = _FUNCTIONS[number]
    if function == "barrier":
        return "barrier()"
    parts = [f"root={root}"] if function in _ROOTED else []
    parts += [_OPERATIONS[operation - 1]] if operation else []
    name = str(_TYPES[dtype - 1]).removeprefix("torch.") if dtype else "of a rare type"
    return f"{function}({', '.join([*parts, name if function == 'all_to_all' else f'{name}[{count}]'])})"

"""Sums in fewer bits: blocks of numbers as one scale and a code of eight bits each.

``int8``: whole multiples of a 127th of the block's largest magnitude M, so a number is wrong by M/254 at most. ``fp8``:
OCP's E4M3 of numbers scaled to at most 448, so it is wrong by a 16th of itself, or by M/458,752 where that is more.
(Both but for float32's own rounding.) A block with a number that is not finite becomes NaN as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model.errors import InputError

BLOCK = 256
"""Numbers with one scale. A scale has 4 bytes, so 256 numbers of float32 take 260 bytes instead of 1,024; blocks of 64
would take 272, and make the errors of numbers that vary a lot smaller."""
SCALE_BYTES = 4


@dataclass(frozen=True)
class Format:
    """A way to write numbers in eight bits; ``largest`` is the code of a block's largest magnitude."""

    name: str
    largest: float
    round: Callable[[Tensor], Tensor]
    code: torch.dtype


FORMATS = {
    "int8": Format("int8", 127.0, torch.round, torch.int8),
    "fp8": Format("fp8", 448.0, lambda x: x, torch.float8_e4m3fn),
}


def format_of(name: str) -> Format:
    """The format of a name; raises InputError for others."""
    if name not in FORMATS:
        raise InputError(f"sums are compressed as {' or '.join(FORMATS)}, not as {name!r}")
    return FORMATS[name]


@dataclass(frozen=True)
class Coded:
    """Whole blocks in a format: ``scales`` float32[blocks], ``codes`` of the format [blocks, BLOCK]."""

    scales: Tensor
    codes: Tensor

    def decode(self) -> Tensor:
        """The numbers, float32[blocks * BLOCK]; equal wherever the bytes are."""
        return (self.codes.float() * self.scales[:, None]).view(-1)

    def pack(self, low: int, high: int) -> Tensor:
        """Some blocks as bytes."""
        scales = self.scales[low:high].contiguous().view(torch.uint8)
        return torch.cat([scales, self.codes[low:high].reshape(-1).view(torch.uint8)])


def packed_bytes(blocks: int) -> int:
    """The bytes that a number of blocks take."""
    return blocks * (SCALE_BYTES + BLOCK)


def encode(numbers: Tensor, form: Format) -> Coded:
    """Write float32[blocks * BLOCK] in a format."""
    blocks = numbers.view(-1, BLOCK)
    most = blocks.abs().amax(1)
    scales = torch.where(most.isfinite(), most / form.largest, torch.nan)
    scaled = blocks / torch.where(scales > 0, scales, torch.inf)[:, None]  # all 0 where the scale is 0 or NaN
    scaled = torch.nan_to_num(scaled, nan=0.0).clamp(-form.largest, form.largest)
    return Coded(scales, form.round(scaled).to(form.code))


def unpack(content: Tensor, form: Format) -> Coded:
    """Blocks from what :meth:`Coded.pack` made of them."""
    blocks = content.numel() // packed_bytes(1)
    scales = content[: blocks * SCALE_BYTES].clone().view(torch.float32)
    return Coded(scales, content[blocks * SCALE_BYTES :].view(form.code).view(blocks, BLOCK))

"""Sums whose numbers cross from site to site in eight bits; inside a site they are float32.

The vector is cut into *slices* of whole blocks, and each site cuts each slice into one *part* for each of its ranks.

1. Inside a site each rank adds up its parts.
2. What a site has summed is rounded once, and sent to the site that owns the slice; the sum of what was sent is exact
   up to float32, in the order of sites. Of two sites both own the whole vector, and have the result after this.
3. Of more sites each rounds the sum of its slice once more, and sends it to all others.
4. Inside a site ranks give each other the parts of the result.

Two sites send 1 byte a number each way in step 2, where 4 are the least without compression; more sites send 2 (S-1)/S
bytes in steps 2 and 3 together, instead of 8 (S-1)/S. All ranks decode the same bytes, so all have the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..model.errors import Unsupported
from .codes import BLOCK, Format, encode, packed_bytes, unpack
from .tensors import OPS

Span = tuple[int, int]
"""The first block, and the one after the last."""
Exchange = Callable[[Mapping[int, Tensor], Mapping[int, Tensor]], None]
"""Sends each rank its tensor, and receives from each rank into its tensor; ranks that exchange nothing are left out."""
TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Feedback:
    """What rounding has left out of one bucket of numbers, to be added when the bucket is summed next.

    One for each tensor that is summed again and again, at every rank. Ranks may come and go between two sums: each
    keeps what it has itself rounded, wherever that was.

    Attributes:
        rest: float32[numbers]; None before the first sum.
        turn: a number that changes when what was summed so far counts, or is thrown away.
    """

    def __init__(self) -> None:
        self.rest: Tensor | None = None
        self._before: Tensor | None = None
        self._open = False
        self.turn = 0

    def begin(self) -> None:
        """What was summed so far counts, and cannot be undone any more."""
        self._open, self._before = False, None
        self.turn += 1

    def undo(self) -> None:
        """What was summed last was thrown away, so nothing of it counts as sent."""
        if self._open:
            self.rest = self._before
        self.begin()

    def add_to(self, numbers: Tensor) -> Tensor:
        return numbers if self.rest is None or self.rest.numel() != numbers.numel() else numbers + self.rest

    def keep(self, rest: Tensor, turn: int | None = None) -> None:
        """Keep what was rounded away; what is not finite would stay for ever, and is dropped.

        Args:
            turn: the turn in which the sum began. If that is over, the sum came too late to count.
        """
        if turn is not None and turn != self.turn:
            return
        self._before, self._open = self.rest, True
        self.rest = torch.nan_to_num(rest, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Shares:
    """Who has which part of which slice.

    Attributes:
        sites: the ranks of each site.
        slices: the blocks of each slice: one for each site, which owns it, or one for two sites, which both do.
    """

    sites: Sequence[Sequence[int]]
    slices: Sequence[Span]

    @property
    def both(self) -> bool:
        """Whether two sites own one slice."""
        return len(self.slices) < len(self.sites)

    def parts(self, rank: int) -> list[Span]:
        """The part of each slice that a rank has in its site."""
        site = self.sites[self.site(rank)]
        i, n = site.index(rank), len(site)
        return [(low + (high - low) * i // n, low + (high - low) * (i + 1) // n) for low, high in self.slices]

    def site(self, rank: int) -> int:
        return next(s for s, ranks in enumerate(self.sites) if rank in ranks)


def shares_of(sites: Sequence[Sequence[int]], blocks: int) -> Shares:
    """The shares of an AllReduce."""
    n = 1 if len(sites) == 2 else len(sites)
    return Shares(sites, [(blocks * s // n, blocks * (s + 1) // n) for s in range(n)])


class Sum:
    """One compressed sum at one rank.

    Args:
        numbers: this rank's float32[blocks * BLOCK], which is overwritten.
    Attributes:
        rest: what rounding leaves out at this rank.
    """

    def __init__(self, numbers: Tensor, shares: Shares, rank: int, form: Format, exchange: Exchange) -> None:
        self.numbers, self.shares, self.rank, self.form, self.exchange = numbers, shares, rank, form, exchange
        self.rest = torch.zeros_like(numbers)
        self.home = shares.site(rank)
        self.mates = [r for r in shares.sites[self.home] if r != rank]
        self.mine = shares.parts(rank)

    def all_reduce(self) -> None:
        """Leave the sum in ``numbers``."""
        self._sum_inside()
        self._send_to_owners()
        if not self.shares.both:
            self._send_to_all()
        self._gather_inside()

    def reduce_scatter(self) -> None:
        """Leave the sum of this rank's part of its site's slice there, in ``numbers``."""
        self._sum_inside()
        self._send_to_owners()

    def _view(self, span: Span) -> Tensor:
        return self.numbers[span[0] * BLOCK : span[1] * BLOCK]

    def _of(self, rank: int) -> Tensor:
        """The parts of a rank, one after another."""
        return torch.cat([self._view(span) for span in self.shares.parts(rank)])

    def _sum_inside(self) -> None:
        own = self._of(self.rank)
        came = {r: torch.empty_like(own) for r in self.mates}
        self.exchange({r: self._of(r) for r in self.mates}, came)
        total = torch.zeros_like(own)
        for r in self.shares.sites[self.home]:
            total += own if r == self.rank else came[r]
        self._put(self.rank, total)

    def _gather_inside(self) -> None:
        own = self._of(self.rank)
        came = {r: torch.empty_like(self._of(r)) for r in self.mates}
        self.exchange(dict.fromkeys(self.mates, own), came)
        for r, content in came.items():
            self._put(r, content)

    def _put(self, rank: int, content: Tensor) -> None:
        """Write the parts of a rank, which come one after another."""
        at = 0
        for span in self.shares.parts(rank):
            view = self._view(span)
            view.copy_(content[at : at + view.numel()])
            at += view.numel()

    def _round(self, k: int) -> _Part:
        """Round this rank's part of a slice, and keep what that leaves out."""
        span = self.mine[k]
        part = _Part(span, self._view(span), self.form)
        self.rest[span[0] * BLOCK : span[1] * BLOCK] = self._view(span) - part.decoded
        return part

    def _send_to_owners(self) -> None:
        sites, both = self.shares.sites, self.shares.both
        owned = 0 if both else self.home
        parts = {k: self._round(k) for k in range(len(self.shares.slices)) if both or k != owned}
        going: dict[int, Tensor] = {}
        coming: dict[int, Span] = {}
        for s, ranks in enumerate(sites):
            for r in ranks if s != self.home else ():
                k = 0 if both else s
                going |= parts[k].cut_for(r, self.shares.parts(r)[k])
                coming |= _overlap(r, self.shares.parts(r)[owned], self.mine[owned])
        came = self._swap(going, coming)
        total = torch.zeros_like(self._view(self.mine[owned]))
        for s, ranks in enumerate(sites):
            if s == self.home:
                total += parts[owned].decoded if both else self._view(self.mine[owned])
            else:
                total += self._joined({r: came[r] for r in ranks if r in came}, coming, self.mine[owned])
        self._view(self.mine[owned]).copy_(total)

    def _send_to_all(self) -> None:
        part = self._round(self.home)
        going: dict[int, Tensor] = {}
        coming: dict[int, Span] = {}
        for s, ranks in enumerate(self.shares.sites):
            for r in ranks if s != self.home else ():
                going |= part.cut_for(r, self.shares.parts(r)[self.home])
                coming |= _overlap(r, self.shares.parts(r)[s], self.mine[s])
        came = self._swap(going, coming)
        self._view(self.mine[self.home]).copy_(part.decoded)
        for r, content in came.items():
            self._view(coming[r]).copy_(content)

    def _swap(self, going: Mapping[int, Tensor], coming: Mapping[int, Span]) -> dict[int, Tensor]:
        """Exchange packed blocks with ranks of other sites; returns what came as numbers."""
        came = {r: torch.empty(packed_bytes(high - low), dtype=torch.uint8) for r, (low, high) in coming.items()}
        self.exchange(going, came)
        return {r: unpack(content, self.form).decode() for r, content in came.items()}

    def _joined(self, came: Mapping[int, Tensor], spans: Mapping[int, Span], within: Span) -> Tensor:
        """What the ranks of a site sent, in one piece."""
        whole = torch.empty((within[1] - within[0]) * BLOCK)
        for r, content in came.items():
            low = (spans[r][0] - within[0]) * BLOCK
            whole[low : low + content.numel()] = content
        return whole


class _Part:
    """A part of a slice, rounded."""

    def __init__(self, span: Span, numbers: Tensor, form: Format) -> None:
        self.span, self.coded = span, encode(numbers, form)
        self.decoded = self.coded.decode()

    def cut_for(self, rank: int, wanted: Span) -> dict[int, Tensor]:
        """What a rank wants of this part, packed."""
        common = _overlap(rank, self.span, wanted)
        return {r: self.coded.pack(low - self.span[0], high - self.span[0]) for r, (low, high) in common.items()}


def _overlap(rank: int, a: Span, b: Span) -> dict[int, Span]:
    """What two spans have in common, for a rank; nothing if that is empty."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return {rank: (low, high)} if low < high else {}


def _operation(opts: Any) -> Any:
    op = OPS.SUM if opts is None else getattr(opts, "reduceOp", opts)
    return getattr(op, "op", op)


def may_compress(tensor: Tensor, opts: Any) -> bool:
    """Whether a sum can be compressed."""
    dense = tensor.device.type == "cpu" and tensor.layout == torch.strided
    return dense and tensor.dtype in TYPES and _operation(opts) in (OPS.SUM, OPS.AVG)


def is_average(opts: Any) -> bool:
    """Whether a call asks for the average; refuses what is neither that nor a sum."""
    op = _operation(opts)
    if op not in (OPS.SUM, OPS.AVG):
        raise Unsupported(f"only sums and averages are compressed, not {op.name}")
    return bool(op == OPS.AVG)


def check_compressible(tensor: Tensor) -> None:
    """Refuse types that are not summed in eight bits."""
    if tensor.dtype not in TYPES:
        names = ", ".join(str(t).removeprefix("torch.") for t in TYPES)
        raise Unsupported(f"sums are compressed for {names}, not for {tensor.dtype}")

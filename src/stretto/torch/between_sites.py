"""Compressed sums of a group: the layout of tensors in blocks, and the exchanges between its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..choose.library import Library
from ..model.errors import ArgumentError
from .arguments import check_tensors, seconds
from .codes import BLOCK, Format, format_of
from .collectives import Collectives
from .compressed import Exchange, Feedback, Shares, Sum, check_compressible, is_average, shares_of
from .links import Links
from .pending import Order
from .tensors import OPS, divide, plain_copy


class BetweenSites:
    """One rank's compressed sums. Where the group is on one site, sums are what they are without compression.

    Attributes:
        timeout_s: the seconds that each sum from now on may take, where its caller does not say.
    """

    def __init__(
        self, library: Library, collectives: Collectives, links: Links, order: Order, timeout_s: float
    ) -> None:
        self._library, self._collectives, self._links = library, collectives, links
        self._order, self.timeout_s = order, timeout_s

    def allreduce(
        self, tensors: list[Tensor], compress: str, feedback: Feedback | None = None, opts: Any = None
    ) -> Any:
        """An AllReduce whose numbers cross between sites in a format of :mod:`.codes`; see :mod:`.compressed`.

        Returns:
            A handle to wait for.
        """
        form, average, timeout_s = format_of(compress), is_average(opts), seconds(opts, self.timeout_s)
        check_tensors(tensors)
        for t in tensors:
            check_compressible(t)

        def run() -> None:
            for t in tensors:
                self._all_reduce(t, form, feedback, average, timeout_s)

        return self._order.later(run, tensors, number=self._order.call())

    def reduce_scatter(
        self, output: Tensor, source: Tensor, compress: str, feedback: Feedback | None = None, opts: Any = None
    ) -> Any:
        """A ReduceScatter of the same kind; ``source`` has the pieces of all ranks, one after another."""
        form, average, timeout_s = format_of(compress), is_average(opts), seconds(opts, self.timeout_s)
        check_tensors([output, source])
        check_compressible(source)
        if source.numel() != output.numel() * self._library.size:
            ranks = self._library.size
            raise ArgumentError(f"reduce_scatter: {source.numel()} elements are not {ranks} of {output.numel()}")
        run = partial(self._reduce_scatter, output, source, form, feedback, average, timeout_s)
        return self._order.later(run, [output], number=self._order.call())

    def _all_reduce(
        self, tensor: Tensor, form: Format, feedback: Feedback | None, average: bool, timeout_s: float
    ) -> None:
        """Put the sum over all ranks, or its average, into the tensor."""
        self._collectives.drain()  # what is still to come may be the input
        sites = self._sites()
        if len(sites) == 1:
            op = OPS.AVG if average else OPS.SUM
            self._collectives.run("allreduce", {0: tensor}, {0: tensor}, [tensor.numel()], timeout_s, op=op)
            return
        whole = _Feedback(feedback, plain_copy(tensor).view(-1))
        blocks = -(-tensor.numel() // BLOCK)
        numbers = torch.zeros(blocks * BLOCK)
        numbers[: tensor.numel()] = whole.numbers
        run = Sum(numbers, shares_of(sites, blocks), self._library.rank, form, self._exchange(form, timeout_s))
        run.all_reduce()
        tensor.copy_(numbers[: tensor.numel()].view(tensor.shape))
        whole.keep(run.rest[: tensor.numel()])
        if average:
            divide(tensor, self._library.size)

    def _reduce_scatter(
        self, output: Tensor, source: Tensor, form: Format, feedback: Feedback | None, average: bool, timeout_s: float
    ) -> None:
        """Put the sum of this rank's piece over all ranks into the output.

        Args:
            source: the pieces of all ranks, one after another.
        """
        self._collectives.drain()
        sites, n, me = self._sites(), self._library.size, self._library.rank
        if len(sites) == 1:
            op, pieces = OPS.AVG if average else OPS.SUM, source.view(n, -1)
            counts = [output.numel()] * n
            held = dict(enumerate(pieces.unbind()))
            self._collectives.run("reducescatter", held, {me: output}, counts, timeout_s, op=op)
            return
        whole = _Feedback(feedback, plain_copy(source).view(-1))
        order = [r for ranks in sites for r in ranks]
        size, each = output.numel(), -(-output.numel() // BLOCK)
        numbers = torch.zeros(n, each * BLOCK)
        numbers[:, :size] = whole.numbers.view(n, size)[order]
        numbers = numbers.view(-1)
        shares = Shares(sites, _slices(sites, each))
        run = Sum(numbers, shares, me, form, self._exchange(form, timeout_s))
        run.reduce_scatter()
        output.copy_(numbers.view(n, -1)[order.index(me), :size].view(output.shape))
        rest = torch.empty(n, size)
        rest[order] = run.rest.view(n, -1)[:, :size]
        whole.keep(rest.view(-1))
        if average:
            divide(output, n)

    def _sites(self) -> Sequence[Sequence[int]]:
        """The ranks of each site, for which the network must be known."""
        if self._library.size > 1:
            self._links.ready()
        sites = self._library.sites
        return [[r for r, site in enumerate(sites) if site == number] for number in dict.fromkeys(sites)]

    def _exchange(self, form: Format, timeout_s: float) -> Exchange:
        n, me = self._library.size, self._library.rank

        def exchange(going: Mapping[int, Tensor], coming: Mapping[int, Tensor]) -> None:
            none = torch.empty(0, dtype=torch.uint8)
            counts = np.zeros(n * n, dtype=np.int64)
            held = {me * n + r: going[r].view(torch.uint8) if r in going else none for r in range(n)}
            wanted = {r * n + me: coming[r].view(torch.uint8) if r in coming else none for r in range(n)}
            for piece, tensor in (*held.items(), *wanted.items()):
                counts[piece] = tensor.numel()
            self._collectives.run("alltoall", held, wanted, counts, timeout_s, direct=True, function=form.name)

        return exchange


class _Feedback:
    """A feedback that may be missing, for one sum."""

    def __init__(self, feedback: Feedback | None, numbers: Tensor) -> None:
        check_compressible(numbers)
        self._feedback = feedback
        self._turn = 0 if feedback is None else feedback.turn
        self.numbers = numbers.float() if feedback is None else feedback.add_to(numbers.float())

    def keep(self, rest: Tensor) -> None:
        if self._feedback is not None:
            self._feedback.keep(rest, self._turn)


def _slices(sites: Sequence[Sequence[int]], each: int) -> list[tuple[int, int]]:
    """The first and last block of each site's pieces; a piece has ``each`` blocks."""
    ends = np.cumsum([0, *(len(ranks) * each for ranks in sites)]).tolist()
    return list(pairwise(ends))

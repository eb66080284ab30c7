"""Collectives that were called before with the same memory: looked up once, then given to the compiled loop at once.

Training calls the same collectives on the same buffers in each step. What a call of Python costs beyond that is the
largest part of a small collective's time where ranks share cores (``benchmarks/torch_backend.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from .collectives import Again, Collectives
from .pending import Order, Started

MOST_KEPT = 256
"""Calls that are remembered; after that many others all are forgotten."""
_TIME = ("timeout",)
_FIELDS: dict[type, tuple[str, ...]] = {
    c10d.AllreduceOptions: _TIME, c10d.AllgatherOptions: _TIME, c10d.ReduceScatterOptions: _TIME,
    c10d.AllToAllOptions: _TIME, c10d.BarrierOptions: _TIME, c10d.BroadcastOptions: ("rootRank", *_TIME),
    c10d.ReduceOptions: ("rootRank", *_TIME), c10d.GatherOptions: ("rootRank", *_TIME),
    c10d.ScatterOptions: ("rootRank", *_TIME),
}  # fmt: skip
"""What matters of PyTorch's options, besides the operation that reduces."""
_REDUCING = (c10d.AllreduceOptions, c10d.ReduceOptions, c10d.ReduceScatterOptions)


def repeated(result: Callable[..., Any] = lambda repeats, first, *_: first) -> Callable[..., Any]:
    """Let a group's collective be repeated.

    Args:
        result: what the future of a call gives, by the group's :class:`Repeats` and the call's arguments; by default
            the first of these. A group knows its last call, which must keep neither the group nor its inputs alive: in
            place of the second argument, which may be inputs, there is None.
    """

    def of(method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__

        @wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            repeats: Repeats = self.repeats
            parts: list[Any] = [name, self.timeout_s]
            tensors: list[Tensor] = []
            known = not named or named.keys() == {"opts"}
            key = None
            if known and _describe((arguments, named.get("opts")), parts, tensors):
                key = tuple(parts)
                kept = (*arguments[:1], None, *arguments[2:])
                work = repeats.begin(key, tensors, lambda: result(repeats, *kept))
                if work is not None:
                    return work
            work = method(self, *arguments, **named)
            repeats.note(key, work)
            return work

        return call

    return of


def _describe(value: Any, parts: list[Any], tensors: list[Tensor]) -> bool:
    """Add to ``parts`` what decides how a call is run, and to ``tensors`` whose memory it uses; False for what is not
    kept. The caller's own lists may lose their tensors while the call runs."""
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        if not value.is_cpu or value.layout is not torch.strided or value.is_neg() or value.is_conj():
            return False
        parts += (value.data_ptr(), value.dtype, value.shape, value.stride())
        tensors.append(value)
    elif kind is list or kind is tuple:
        parts.append(len(value))
        return all(_describe(part, parts, tensors) for part in value)
    elif value is None or kind is int:
        parts.append(value)
    elif kind in _FIELDS:
        parts += [getattr(value, name) for name in _FIELDS[kind]]
        if kind in _REDUCING:
            parts.append(value.reduceOp.op)
    else:
        return False
    return True


class Repeats:
    """The calls that one rank of a group can repeat.

    Args:
        shares: a tensor as a part for each rank.
        token, tokens: what a barrier gathers.
    """

    def __init__(
        self, collectives: Collectives, order: Order, shares: Callable[..., Any], token: Tensor, tokens: list[Tensor]
    ) -> None:
        self._collectives, self._order, self._keep = collectives, order, (token, tokens)
        self.shares, self.tokens = shares, tokens
        self._kept: dict[tuple[Any, ...], Again | None] = {}

    def begin(self, key: tuple[Any, ...], tensors: list[Tensor], result: Callable[[], Any]) -> Started | None:
        """Repeat a call; None where it must be looked up."""
        again = self._kept.get(key)
        if again is None:
            return None
        number = self._order.call()
        if self._order.free:
            run = self._collectives.repeat(again, (tensors, self._keep))
            if run is not None:
                return self._order.start(number, Started([run], result))
        self._order.give_back(number)
        return None

    def note(self, key: tuple[Any, ...] | None, work: Any) -> None:
        """Remember a call that was looked up; at the second time how to repeat it, as memory may be used only once.

        Args:
            key: None for a call that cannot be repeated.
        """
        if not isinstance(work, Started):
            return
        calls, work.calls = work.calls, ()  # they keep tensors alive
        if key is None or len(calls) != 1:
            return
        if key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = None
        else:
            self._kept[key] = self._collectives.again(calls[0])

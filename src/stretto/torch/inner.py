"""The ranks of one site among themselves: rounds by the sends and receives of another backend."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .backends import INNER_DEFAULT, OWN, backend_of
from .driver import Driver
from .rounds import Part

NONE = "none"
HOST_BACKENDS = ("gloo", "mpi", OWN)
"""Backends that send and receive memory of the host alone."""


def inner_backend(device: torch.device) -> str | None:
    """The backend inside sites, for one type of devices; None where the executor moves all, by way of the host."""
    name = os.environ.get("STRETTO_INNER") or INNER_DEFAULT.get(device.type, NONE)
    return None if name == NONE else name


class Inner:
    """A group of the ranks of one site.

    Making it waits for all of them, where the backend does.

    Args:
        name: the backend.
        ranks: those of the site, in order, by their places in the whole group.
        rank: this one.
        members: the numbers in the world of all ranks of the whole group.
    """

    def __init__(
        self,
        name: str,
        driver: Driver,
        store: Any,
        ranks: Sequence[int],
        rank: int,
        members: Sequence[int],
        timeout: timedelta,
    ) -> None:
        self._name, self._driver = name, driver
        self._place = {r: i for i, r in enumerate(ranks)}
        world = [members[r] for r in ranks]
        prefix = dist.PrefixStore(f"stretto/inner/{ranks[0]}", store)
        self._backend, _ = backend_of(
            self._name, prefix, self._place[rank], world, timeout, f"stretto inner {ranks[0]}"
        )
        if name not in HOST_BACKENDS:  # NCCL's first operation must be one of all ranks
            self._backend.allreduce([torch.zeros(1, device=driver.device)], dist.AllreduceOptions()).wait()

    def __contains__(self, rank: int) -> bool:
        return rank in self._place

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part], stream: Any) -> None:
        """Do one round. Where the backend moves memory of the device, the current stream has it when it goes on; else
        it has come when this returns.

        Args:
            stream: the current stream.
        """
        out = [part._replace(tensor=part.tensor.view(torch.uint8)) for part in sends if part.tensor.numel()]
        into = [part._replace(tensor=part.tensor.view(torch.uint8)) for part in receives if part.tensor.numel()]
        if not out and not into:
            return
        if self._name not in HOST_BACKENDS:
            self._batch(out, into)
            return
        sent, room = [self._host(part) for part in out], [self._host(part) for part in into]
        for there, here in zip(sent, out, strict=True):
            there.tensor.copy_(here.tensor, non_blocking=True)
        self._driver.mark(stream).synchronize()
        self._batch(sent, room)
        for there, here in zip(room, into, strict=True):
            here.tensor.copy_(there.tensor, non_blocking=True)

    def _host(self, part: Part) -> Part:
        return part._replace(tensor=self._driver.host_bytes(part.tensor.numel()))

    def _batch(self, sends: Sequence[Part], receives: Sequence[Part]) -> None:
        """Send and receive as one operation, as PyTorch's ``batch_isend_irecv`` does."""
        backend, place = self._backend, self._place
        whole = backend.supports_coalescing
        if whole:
            backend._start_coalescing()
        works = [backend.recv([p.tensor], place[p.peer], 0) for p in receives]
        works += [backend.send([p.tensor], place[p.peer], 0) for p in sends]
        for work in [backend._end_coalescing()] if whole else works:
            work.wait()

    def abort(self) -> None:
        """End what waits for other ranks, where the backend can."""
        with contextlib.suppress(RuntimeError):
            self._backend.abort()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._backend.shutdown()

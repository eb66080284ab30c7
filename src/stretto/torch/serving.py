"""What moves a tensor, by its device: this group's own part for the CPU or an accelerator, or another backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..choose.library import Library
from ..model.errors import PeerFailed, Unsupported
from .backends import OWN, group_of
from .collectives import Collectives
from .devices import Devices
from .links import Links


def by_device(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a group's call on tensors of a device for which the program named another backend go there."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        tensor = _first_tensor(arguments)
        other = None if tensor is None else self._serving.other(tensor.device.type)
        if other is None:
            return method(self, *arguments, **named)
        given = arguments[:-1] if arguments[-1] is None else arguments
        return getattr(other, method.__name__)(*given, **named)

    return call


def _first_tensor(value: Any) -> Tensor | None:
    """The first tensor in lists of lists."""
    if isinstance(value, (list, tuple)):
        return next((t for t in map(_first_tensor, value) if t is not None), None)
    return value if isinstance(value, Tensor) else None


class Serving:
    """The parts of one rank's group, each made at its first use.

    Args:
        config: gives the backend of each type of devices; None where PyTorch does not know the group.
        collectives: those of tensors in host memory.
        members: the numbers in the world of the ranks of the group.
        failed: called when a message of an accelerator's tensor fails.
    """

    def __init__(
        self,
        config: Callable[[], Mapping[str, str] | None],
        library: Library,
        links: Links,
        collectives: Collectives,
        store: Any,
        members: Sequence[int],
        timeout_s: float,
        failed: Callable[[PeerFailed], None],
    ) -> None:
        self._config, self._library, self._links, self._store = config, library, links, store
        self._collectives = collectives
        self._members, self._timeout_s, self._failed = list(members), timeout_s, failed
        self._known: Mapping[str, str] | None = None
        self._devices: dict[torch.device, Devices] = {}
        self._others: dict[str, Any] = {}

    def backends(self) -> Mapping[str, str]:
        """The backend of each type of devices; empty while PyTorch does not know the group."""
        self._known = self._known or self._config()
        return self._known or {}

    def types(self) -> list[torch.device]:
        """The types of devices whose tensors are moved."""
        return [torch.device(name) for name in self.backends() or ("cpu",)]

    def other(self, device: str) -> Any:
        """The group of another backend for a type of devices; None if this group serves it."""
        config = self.backends()
        name = config.get(device, None if config else OWN)
        if name is None:
            served = ",".join(f"{d}:{b}" for d, b in config.items())
            raise Unsupported(f"the group {served!r} moves no tensors on {device}: add {device}:{OWN} to its backends")
        if name == OWN:
            return None
        if device not in self._others:
            store, timeout = dist.PrefixStore(f"stretto/{device}", self._store), timedelta(seconds=self._timeout_s)
            label = f"{device} beside {OWN}"
            self._others[device] = group_of(name, device, store, self._library.rank, self._members, timeout, label)
        return self._others[device]

    def accelerator(self, tensor: Tensor) -> Devices:
        """This group's part for the accelerator on which a tensor is."""
        device = tensor.device
        if device not in self._devices:
            parts = self._library, self._links, self._collectives, self._store, self._members, self._timeout_s
            self._devices[device] = Devices(device, *parts, self._failed)
        return self._devices[device]

    def close(self) -> None:
        """End after the calls made so far, which the group's thread has run."""
        for other in self._others.values():
            other.shutdown()
        for device in self._devices.values():
            device.close()

    def leave(self, within_s: float) -> None:
        """End at once; the connections have been left."""
        for other in self._others.values():
            with contextlib.suppress(RuntimeError):  # not every backend can
                other.abort()
        for device in self._devices.values():
            device.leave(within_s)

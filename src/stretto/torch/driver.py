"""What the process group asks of a device besides arithmetic: streams, events, pinned memory and futures.

:class:`Driver` does it by PyTorch's calls that serve every accelerator. A device whose backend has not got them brings
its own in :data:`DRIVERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ..model.errors import Unsupported


class Driver:
    """The calls for one device.

    Streams and events are PyTorch's (:class:`torch.Stream`, :class:`torch.Event`), or have those methods of theirs that
    :mod:`.devices` uses: ``stream.wait_event(event)`` and ``event.synchronize()``.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stream(self) -> Any:
        """A new stream."""
        return torch.Stream(device=self.device)

    def current(self) -> Any:
        """The stream on which the calling thread works."""
        return torch.accelerator.current_stream(self.device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Let the calling thread work on a stream."""
        context: AbstractContextManager[Any] = stream
        return context

    def mark(self, stream: Any) -> Any:
        """An event that happens when a stream has done all that it has been given."""
        return stream.record_event()

    def host_bytes(self, count: int) -> Tensor:
        """uint8[count] in host memory, to which and from which copies run beside other work."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def keep(self, tensor: Tensor, stream: Any) -> None:
        """Let nobody have a tensor's memory before a stream has done what it has been given."""
        tensor.record_stream(stream)

    def future(self) -> torch.futures.Future:
        """A future for tensors of the device. Its result is there for the stream on which the thread that sets it
        works, and ``wait`` lets the caller's stream go on after that."""
        return torch.futures.Future(devices=[self.device])


DRIVERS: dict[str, Callable[[torch.device], Driver]] = {}
"""Drivers of types of devices that :class:`Driver` does not serve."""


def driver_of(device: torch.device) -> Driver:
    """The driver of a device; refuses one that is no accelerator of this PyTorch."""
    own = torch.accelerator.current_accelerator()
    if device.type not in DRIVERS and (own is None or own.type != device.type):
        raise Unsupported(f"the backend 'stretto' does not move tensors on {device}: PyTorch has no such accelerator")
    return DRIVERS.get(device.type, Driver)(device)

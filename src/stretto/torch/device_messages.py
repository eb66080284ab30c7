"""Messages of tensors on an accelerator, by way of pinned host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..model.errors import PeerFailed
from ..runtime.inbox import Done
from .driver import Driver
from .pending import Order, Pending
from .tensors import array_of, plain_copy

Post = Callable[[memoryview, Done], None]
"""Gives a message's memory to the connection, which calls the other argument when it has been sent or has come."""


class DeviceMessages:
    """Sends and receives of one device.

    Args:
        copies: the thread that waits until what is to be sent is in host memory, in the order of the calls.
        failed: called with the failure of a message before its future has it.
    """

    def __init__(self, driver: Driver, copies: Order, failed: Callable[[PeerFailed], None]) -> None:
        self._driver, self._copies, self._failed = driver, copies, failed
        self._out, self._into = driver.stream(), driver.stream()

    def send(self, tensor: Tensor, post: Post) -> Pending:
        """Send a tensor as it is when the caller's stream has done what it has been given."""
        driver, stream, kept = self._driver, self._out, plain_copy(tensor)
        host = driver.host_bytes(kept.nbytes)
        stream.wait_event(driver.mark(driver.current()))
        with driver.on(stream):
            host.copy_(kept.view(-1).view(torch.uint8), non_blocking=True)
            copied = driver.mark(stream)
        future: torch.futures.Future = torch.futures.Future()

        def done(failure: PeerFailed | None) -> None:
            self._end(future, None, failure)

        def wait(source: Tensor = kept) -> None:
            copied.synchronize()
            post(_bytes(host), done)

        self._copies.later(wait, None)
        return Pending(future)

    def receive(self, tensor: Tensor, post: Post, source: Callable[[], int]) -> Pending:
        """Receive into a tensor; the caller's stream has it after ``wait``."""
        driver, stream = self._driver, self._into
        host = driver.host_bytes(tensor.nbytes)
        called, future = driver.mark(driver.current()), driver.future()
        driver.keep(tensor, stream)

        def done(failure: PeerFailed | None) -> None:
            with driver.on(stream):
                if failure is None:
                    stream.wait_event(called)
                    tensor.copy_(host.view(tensor.dtype).view(tensor.shape), non_blocking=True)
                self._end(future, [tensor], failure)

        post(_bytes(host), done)
        return Pending(future, source)

    def _end(self, future: Any, result: Any, failure: PeerFailed | None) -> None:
        if failure is None:
            future.set_result(result)
        else:
            self._failed(failure)
            future.set_exception(failure)


def _bytes(host: Tensor) -> memoryview:
    memory = array_of(host)
    return memory.data.cast("B") if memory.size else memoryview(bytearray())

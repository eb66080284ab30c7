"""An accelerator that works beside the host, as a GPU does: streams are threads, memory is the host's.

It is PyTorch's private-use backend, in Python. An operation with an output that exists is queued on the current
stream; a copy to the host is, too, if it does not block. Memory comes with arbitrary content, and streams take their time,
so who forgets to wait for one reads that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from stretto.torch.driver import DRIVERS, Driver

NAME = "fake"
LATE_S = 0.001
"""Seconds by which each copy of a stream is late."""
JUNK = 0xA5
DEVICE = torch.device("cpu")
LOCAL = threading.local()


class Event:
    def __init__(self) -> None:
        self._happened = threading.Event()

    def synchronize(self) -> None:
        assert self._happened.wait(60), "the stream does not get on"


class Stream:
    """A thread that does one thing after another."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        threading.Thread(target=self._do, daemon=True).start()

    def _do(self) -> None:
        while True:
            self._work.get()()

    def give(self, work: Callable[[], Any]) -> None:
        self._work.put(work)

    def record_event(self) -> Event:
        event = Event()
        self.give(event._happened.set)
        return event

    def wait_event(self, event: Event) -> None:
        self.give(event.synchronize)

    def synchronize(self) -> None:
        self.record_event().synchronize()


def current() -> Stream:
    """The stream of this thread; one of its own by default."""
    if not hasattr(LOCAL, "stream"):
        LOCAL.stream = Stream()
    return LOCAL.stream


@contextmanager
def on(stream: Stream) -> Iterator[None]:
    before, LOCAL.stream = current(), stream
    try:
        yield
    finally:
        LOCAL.stream = before


class FakeTensor(torch.Tensor):
    """A tensor on the device; ``content`` is its memory."""

    content: torch.Tensor

    @staticmethod
    def __new__(cls, content: torch.Tensor) -> FakeTensor:
        layout = {"strides": content.stride(), "dtype": content.dtype}  # without an offset its address is always 0
        tensor = torch.Tensor._make_wrapper_subclass(cls, content.shape, device=DEVICE, **layout)
        tensor.content = content
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        target = kwargs.get("out", args[0] if func._schema.is_mutable else None)
        plain_args, plain_kwargs = tree_map(inside, (args, kwargs))
        if func is torch.ops.aten._to_copy.default or "local_scalar" in str(func):
            current().synchronize()
            return func(*plain_args, **plain_kwargs)
        if target is not None:
            run_late(lambda: func(*plain_args, **plain_kwargs))
            to_host = not isinstance(target, FakeTensor)
            if to_host and not (len(args) > 2 and args[2]) and not kwargs.get("non_blocking"):
                current().synchronize()
            return target
        made = func(*plain_args, **plain_kwargs)
        if func._schema.name.startswith("aten::new_empty") or func._schema.name.startswith("aten::empty"):
            for t in tree_leaves(made):
                t.view(-1).view(torch.uint8).fill_(JUNK)
        elif not any(r.alias_info for r in func._schema.returns):  # it has read what the stream may still write
            current().synchronize()
            made = func(*plain_args, **plain_kwargs)
        return tree_map(lambda x: FakeTensor(x) if isinstance(x, torch.Tensor) else x, made)


def inside(value: Any) -> Any:
    return value.content if isinstance(value, FakeTensor) else value


def run_late(work: Callable[[], Any]) -> None:
    def do() -> None:
        time.sleep(LATE_S)
        with torch.no_grad():
            work()

    current().give(do)


class FakeFuture(torch.futures.Future):
    """Its result is there for the stream of the thread that sets it; ``wait`` lets the caller's stream go on after."""

    def set_result(self, result: Any) -> None:
        self.event = current().record_event()
        super().set_result(result if isinstance(result, BaseException) else True)

    def wait(self) -> Any:
        super().wait()
        current().wait_event(self.event)
        return True


class FakeDriver(Driver):
    """The driver's calls, by these streams."""

    def stream(self) -> Any:
        return Stream()

    def current(self) -> Any:
        return current()

    def on(self, stream: Any) -> Any:
        return on(stream)

    def mark(self, stream: Any) -> Any:
        return stream.record_event()

    def host_bytes(self, count: int) -> torch.Tensor:
        return torch.full((count,), JUNK, dtype=torch.uint8)

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        pass  # Python keeps what a queued operation needs

    def future(self) -> torch.futures.Future:
        return FakeFuture()


class Module(_DummyBackendModule):
    """``torch.fake``."""

    def current_stream(self, device: Any = None) -> Stream:
        return current()

    def stream(self, stream: Stream) -> Any:
        return on(stream)


def set_up() -> torch.device:
    """Register the device."""
    global DEVICE
    if NAME not in DRIVERS:
        _setup_privateuseone_for_python_backend(NAME, Module())
        DEVICE = torch.device(NAME, 0)
        DRIVERS[NAME] = FakeDriver
        torch.library.impl("aten::empty.memory_format", "privateuseone")(empty)
    return DEVICE


def empty(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, **others: Any) -> FakeTensor:
    """``torch.empty`` on the device."""
    made = torch.empty(size, dtype=dtype)
    made.view(-1).view(torch.uint8).fill_(JUNK)
    return FakeTensor(made)


def on_device(content: torch.Tensor) -> FakeTensor:
    """A tensor on the device, which has its content after what the current stream has been given."""
    tensor = FakeTensor(torch.full_like(content, 0).view(content.shape))
    held = content.clone()
    run_late(lambda: tensor.content.copy_(held))
    return tensor


def made(content: torch.Tensor) -> FakeTensor:
    """A tensor on the device that has its content at once."""
    return FakeTensor(content)


def delay(stream: Stream, seconds: float) -> None:
    """Keep a stream busy for a time."""
    stream.give(lambda: time.sleep(seconds))


def content_of(tensor: FakeTensor) -> torch.Tensor:
    """What a tensor has after what the current stream has been given."""
    current().synchronize()
    return tensor.content

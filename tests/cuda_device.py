"""A GPU with the calls that tests of devices make of the fake one (:mod:`fake_device`). Its copies are late, too."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

NAME = "cuda"
LATE_CYCLES = 2_000_000
"""Cycles of the GPU's clock by which a tensor's content is late: about a millisecond."""
JUNK = 0xA5
Stream = torch.cuda.Stream


def set_up() -> torch.device:
    """The device."""
    torch.cuda.init()
    return torch.device(NAME, 0)


def current() -> torch.cuda.Stream:
    """The stream of this thread."""
    return torch.cuda.current_stream()


def on(stream: torch.cuda.Stream) -> AbstractContextManager[None]:
    return torch.cuda.stream(stream)


def delay(stream: torch.cuda.Stream, seconds: float) -> None:
    """Keep a stream busy for a time."""
    with on(stream):
        torch.cuda._sleep(int(seconds * 1000 * LATE_CYCLES))


def on_device(content: torch.Tensor) -> torch.Tensor:
    """A tensor on the device, which has its content after what the current stream has been given."""
    tensor = made(
        torch.empty_like(content).view(-1).view(torch.uint8).fill_(JUNK).view(content.dtype).view(content.shape)
    )
    held = content.pin_memory()
    torch.cuda._sleep(LATE_CYCLES)
    tensor.copy_(held, non_blocking=True)
    return tensor


def made(content: torch.Tensor) -> torch.Tensor:
    """A tensor on the device that has its content at once."""
    tensor = content.to(NAME)
    torch.cuda.current_stream().synchronize()
    return tensor


def content_of(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor has after what the current stream has been given."""
    return tensor.cpu()

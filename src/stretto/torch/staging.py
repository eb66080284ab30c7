"""What goes between sites: through host memory and the executor, in segments, beside the work of the device.

What is to be sent is copied into pinned memory on a stream of its own; a thread waits for each segment's copy and then
lets the executor send it. What arrives is copied to the device when the plan needs it there, segment by segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..lower import Program
from ..model.errors import PeerFailed
from ..runtime.execute import execute
from ..runtime.gate import Gate
from ..runtime.mesh import Mesh
from ..runtime.recorded import Trace
from ..runtime.segments import Segments, segments_of
from .driver import Driver
from .pending import Order, Pending
from .tensors import array_of


class Staging:
    """One rank's way between a device and the network.

    Args:
        name: of its threads.
        failed: called when a run ends early, by the thread that runs it.
    Attributes:
        copies: the thread that waits for copies to host memory.
    """

    def __init__(self, driver: Driver, name: str, failed: Callable[[], None]) -> None:
        self._driver, self._failed = driver, failed
        self._gate = Gate()
        self._stream = driver.stream()
        self._network = Order(f"{name}-network", lambda failure: None)
        self.copies = Order(f"{name}-copies", lambda failure: None)
        self._run: Pending | None = None

    def begin(
        self, mesh: Mesh, program: Program, crosses: Callable[[int], bool], sizes: Mapping[int, int], **options: Any
    ) -> None:
        """Begin a run of those transfers of a program that cross to other sites.

        Args:
            crosses: whether a node is at another site.
            sizes: the bytes of each chunk.
            options: those of :func:`.execute.execute`.
        """
        segments = segments_of(program, crosses, sizes)
        self._segments, self._targets, self._trace = segments, dict[int, Tensor](), Trace()
        self._sent = self._driver.host_bytes(segments.sent_bytes)
        self._received = self._driver.host_bytes(segments.received_bytes)
        self._gate.begin()
        self._last: Any = None
        self._run = self._network.later(lambda: self._execute(mesh, segments, options), None)

    def _execute(self, mesh: Mesh, segments: Segments, options: Mapping[str, Any]) -> None:
        steps, sent, received = segments.steps, array_of(self._sent), array_of(self._received)
        size = {chunk: steps.chunks[chunk].size_bytes for chunk in steps.chunks}

        def parts(memory: Any, chunks: Any) -> dict[int, Any]:
            places = (segments.places[chunk % segments.plan.transfer_count][chunk] for chunk in chunks)
            return {chunk: memory[a:b] for chunk, (a, b) in zip(chunks, places, strict=True)}

        try:
            inputs, outputs = parts(sent, steps.held), parts(received, steps.wanted)
            self._trace = execute(mesh, segments, inputs, outputs, sizes=size, gate=self._gate, **options)
        except BaseException as error:
            self._gate.end(error)
            self._failed()
            raise

    def send(self, row: int, tensor: Tensor, after: Any) -> None:
        """Send a transfer.

        Args:
            tensor: its bytes, which nothing changes before :meth:`settle`.
            after: the event with which they are there.
        """
        driver, flat = self._driver, tensor.view(torch.uint8)
        self._stream.wait_event(after)
        at = 0
        with driver.on(self._stream):
            for segment, (a, b) in self._segments.places[row].items():
                self._sent[a:b].copy_(flat[at : at + b - a], non_blocking=True)
                at += b - a
                self._release(segment, driver.mark(self._stream), tensor)

    def _release(self, segment: int, copied: Any, source: Tensor) -> None:
        """Let a segment go when it is in host memory; until then its source is kept."""

        def wait(kept: Tensor = source) -> None:
            copied.synchronize()
            self._gate.release(segment)

        self._last = copied
        self.copies.later(wait, None)

    def receive(self, row: int, tensor: Tensor) -> None:
        """Say where the bytes of a transfer belong."""
        self._targets[row] = tensor

    def await_arrival(self, row: int) -> None:
        """Let the current stream have a transfer; returns when all of it has arrived in host memory."""
        target = self._targets.pop(row, None)
        if target is None:
            return
        flat, at = target.view(torch.uint8), 0
        for segment, (a, b) in self._segments.places[row].items():
            self._gate.await_row(segment)
            flat[at : at + b - a].copy_(self._received[a:b], non_blocking=True)
            at += b - a

    def settle(self, stream: Any) -> None:
        """Let a stream wait until all that is sent has been copied."""
        if self._last is not None:
            stream.wait_event(self._last)

    def end(self) -> tuple[Segments, Trace]:
        """Wait until all has been sent; raises what ended the run early.

        Returns:
            What was run, and when.
        """
        run, self._run = self._run, None
        if run is not None:
            run.wait()
        return self._segments, self._trace

    def fail(self, failure: PeerFailed) -> None:
        """End the run because of what happened at this rank, and wait for that."""
        if self._run is not None:
            self._gate.fail(failure)
            self.end()

    def close(self, within_s: float) -> None:
        """End the threads."""
        self.copies.stop(within_s)
        self._network.stop(within_s)
        self._gate.close()

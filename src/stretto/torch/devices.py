"""Collectives of tensors on an accelerator: inside a site by another backend, between sites by the executor.

A rank does the rounds of the plan (:mod:`.rounds`) on a stream of its own. What goes to a rank of its site is sent by
the inner group (NCCL on GPUs), what goes to another site is staged through host memory (:mod:`.staging`), and PyTorch
adds up on the device. Calls wait for nothing: a result is there for the caller's stream after ``wait``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ..choose.library import Library, Recipe
from ..model.errors import PeerFailed
from ..model.kinds import BY_NAME
from .calls import code_of
from .collectives import Collectives
from .device_messages import DeviceMessages
from .driver import driver_of
from .inner import Inner, inner_backend
from .links import Links
from .pending import Order, Pending
from .rounds import Execution, Part, RoundProgram
from .staging import Staging
from .tensors import OPS, divide, plain, plain_copy, reducer


class Devices:
    """One rank's collectives on one device, which the group's thread runs in the order of the calls.

    Args:
        collectives: those of tensors in host memory, whose plans and traces it shares.
        store: where the ranks of a site meet.
        members: the numbers in the world of the ranks of the group.
        failed: called when a message fails.
    Attributes:
        messages: sends and receives of the device's tensors.
    """

    def __init__(
        self,
        device: torch.device,
        library: Library,
        links: Links,
        collectives: Collectives,
        store: Any,
        members: Sequence[int],
        timeout_s: float,
        failed: Callable[[PeerFailed], None],
    ) -> None:
        self._library, self._links, self._store = library, links, store
        self._plans, self._traces = collectives.plans, collectives.traces
        self._members, self._timeout_s = members, timeout_s
        self._driver = driver_of(device)
        self._stream = self._driver.stream()
        self._staging = Staging(self._driver, f"stretto-{library.rank}-{device.type}", self._abort_inner)
        self.messages = DeviceMessages(self._driver, self._staging.copies, failed)
        self._programs: WeakKeyDictionary[Recipe, RoundProgram] = WeakKeyDictionary()
        self._inner: Inner | None = None
        self._met = False

    def later(
        self, order: Order, tensors: Sequence[Tensor], run: Callable[[], None], result: Any, number: int = 0
    ) -> Pending:
        """Queue a job that works on tensors; it begins after what the caller's stream has been given. ``number`` as of
        :meth:`.pending.Order.later`."""
        driver, stream = self._driver, self._stream
        called = driver.mark(driver.current())
        for tensor in tensors:
            driver.keep(tensor, stream)

        def on_stream() -> None:
            stream.wait_event(called)
            with driver.on(stream):
                run()

        return order.later(on_stream, result, driver.future(), lambda: driver.on(stream), number)

    def run(
        self,
        kind: str,
        held: Mapping[int, Tensor],
        wanted: Mapping[int, Tensor],
        elements: Any,
        timeout_s: float,
        *,
        root: int = 0,
        op: Any = None,
        direct: bool = False,
        function: str = "",
    ) -> None:
        """Run one collective; see :meth:`.collectives.Collectives.run`. What it leaves to do is given to the stream."""
        if self._library.size == 1:
            for p, t in wanted.items():
                t.copy_(held[p])
            return
        operation = getattr(op, "op", op)
        dtype = next(iter((held or wanted).values())).dtype
        if op is not None:
            reducer(operation, dtype)  # refuses what has no sum
        mesh = self._links.own_mesh()
        self._meet()
        counts = np.asarray(elements, dtype=np.int64)
        known = counts[:0] if BY_NAME[kind].pieces == "pair" else counts
        recipe = self._plans.recipe(kind, int(known.max(initial=1)) * dtype.itemsize, root, direct, timeout_s)
        low, high = recipe.cut.edges(counts)
        results = {p: t if plain(t) else torch.empty(t.shape, dtype=dtype, device=t.device) for p, t in wanted.items()}
        node = {v: r for r, v in enumerate(self._library.nodes)}
        began_s = time.monotonic()
        self._staging.begin(
            mesh,
            recipe.program,
            lambda v: not self._is_near(node[v]),
            (high - low) * dtype.itemsize,
            timeout_s=timeout_s,
            call=code_of(function or kind, operation, dtype, root, known, recipe.digest),
        )
        inputs = {p: plain_copy(t) for p, t in held.items()}
        try:
            Execution(self._program(recipe), self, inputs, results, counts, operation).run()
        except PeerFailed:
            self._staging.end()  # it says what happened first
            raise
        except Exception as error:
            failure = PeerFailed("a rank of this site", f"{type(error).__name__}: {error}")
            with contextlib.suppress(PeerFailed):
                self._staging.fail(failure)
            raise failure from error
        segments, trace = self._staging.end()
        self._traces.add(kind, recipe, segments, (high - low) * dtype.itemsize, began_s, trace)
        for p, t in wanted.items():
            if results[p] is not t:
                t.copy_(results[p])
            if operation == OPS.AVG:
                divide(t, self._library.size)

    def _program(self, recipe: Recipe) -> RoundProgram:
        """This rank's rounds of a plan."""
        if recipe not in self._programs:
            self._programs[recipe] = RoundProgram.of(recipe.program.plan, self._library.rank, self._library.size)
        return self._programs[recipe]

    def _meet(self) -> None:
        """Join the ranks of this site at the first collective."""
        if self._met:
            return
        self._met, sites = True, self._library.sites
        rank, timeout = self._library.rank, timedelta(seconds=self._timeout_s)
        here = [r for r, site in enumerate(sites) if site == sites[rank]]
        name = inner_backend(self._driver.device)
        if name is not None and len(here) > 1:
            self._inner = Inner(name, self._driver, self._store, here, rank, self._members, timeout)

    def _is_near(self, rank: int) -> bool:
        return self._inner is not None and rank in self._inner

    # --- the transport of the rounds ---

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part]) -> None:
        near_sends, near_receives = ([p for p in parts if self._is_near(p.peer)] for parts in (sends, receives))
        for part in receives:
            if not self._is_near(part.peer):
                self._staging.receive(part.row, part.tensor)
        far = {part.row: part.tensor for part in sends if not self._is_near(part.peer)}
        ready = self._driver.mark(self._stream) if far else None
        for row, tensor in far.items():
            self._staging.send(row, tensor, ready)
        if self._inner is not None:
            self._inner.exchange(near_sends, near_receives, self._stream)

    def await_arrival(self, row: int) -> None:
        self._staging.await_arrival(row)

    def settle(self) -> None:
        self._staging.settle(self._stream)

    # --- the end ---

    def _abort_inner(self) -> None:
        if self._inner is not None:
            self._inner.abort()

    def close(self) -> None:
        """End the threads after the last collective."""
        self._staging.close(self._timeout_s)
        if self._inner is not None:
            self._inner.close()

    def leave(self, within_s: float) -> None:
        """End at once; the connections have been left."""
        self._abort_inner()
        self._staging.close(within_s)

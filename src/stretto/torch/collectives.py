"""One collective at one rank: it looks up the plan, cuts the pieces as the plan does, runs it and records it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..choose.library import Library
from ..lower import Program
from ..model.kinds import BY_NAME
from ..runtime.execute import execute
from ..runtime.recorded import Trace
from .calls import code_of
from .links import Links
from .plans import Plans
from .tensors import OPS, array_of, divide, plain, plain_copy, reducer


class Collectives:
    """Runs a group's collectives; records them in the folder that ``STRETTO_TRACE`` names."""

    def __init__(self, library: Library, links: Links) -> None:
        self._library, self._links = library, links
        self.plans = Plans(library, links)
        folder = os.environ.get("STRETTO_TRACE")
        if folder:
            os.makedirs(folder, exist_ok=True)
        self._traces = open(os.path.join(folder, f"rank{library.rank}.jsonl"), "a") if folder else None  # noqa: SIM115

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
        """Run one collective over pieces.

        Args:
            held, wanted: the tensor of each piece that this rank holds or wants.
            elements: the number of elements of every piece.
            timeout_s: seconds that it may take.
            op: how pieces are reduced; None for kinds that do not reduce.
            direct: whether pieces go straight from sender to receiver, since no other rank knows their sizes.
            function: the key of :data:`.calls.FUNCTIONS` for what the caller asked for; the kind by default.
        """
        if self._library.size == 1:
            for p, t in wanted.items():
                t.copy_(held[p])
            return
        operation = getattr(op, "op", op)
        mesh = self._links.mesh()
        dtype = next(iter((held or wanted).values())).dtype
        counts = np.asarray(elements, dtype=np.int64)
        known = counts[:0] if BY_NAME[kind].pieces == "pair" else counts
        size = int(known.max(initial=1)) * dtype.itemsize
        recipe = self.plans.recipe(kind, size, root, direct, timeout_s)
        low, high = recipe.cut.edges(counts)
        results = {p: t if plain(t) else torch.empty(t.shape, dtype=t.dtype) for p, t in wanted.items()}
        inputs = {p: array_of(plain_copy(t)) for p, t in held.items()}
        outputs = {p: array_of(t) for p, t in results.items()}
        program, steps = recipe.program, recipe.program.steps

        def parts(arrays: dict[int, Any], chunks: Any) -> dict[int, Any]:
            return {c: arrays[int(recipe.cut.piece[c])][low[c] : high[c]] for c in chunks}

        began_s = time.monotonic()
        call = code_of(function or kind, operation, dtype, root, known, recipe.digest)
        self._links.control(kind, program.plan, call)
        trace = execute(
            mesh,
            program,
            parts(inputs, steps.held),
            parts(outputs, steps.wanted),
            sizes=(high - low) * dtype.itemsize,
            dtype=next(iter((inputs or outputs).values())).dtype,
            reduce=np.add if op is None else reducer(operation, dtype),
            timeout_s=timeout_s,
            call=call,
        )
        if not direct:
            self.plans.look(kind, size, root, recipe, (high - low) * dtype.itemsize, trace)
        if self._traces is not None:
            self._traces.write(self._record(kind, program, began_s, trace) + "\n")
        for p, t in wanted.items():
            if results[p] is not t:
                t.copy_(results[p])
            if operation == OPS.AVG:
                divide(t, self._library.size)

    def close(self) -> None:
        self.plans.close()
        if self._traces is not None:
            self._traces.close()

    def _record(self, kind: str, program: Program, began_s: float, trace: Trace) -> str:
        """A line of the trace: for each transfer here its row, the other rank, and seconds of first and last byte."""
        rank = {node: r for r, node in enumerate(self._library.nodes)}
        sent = [
            [row, rank[to], began_s + began, began_s + trace.gone_s[row]]
            for row, began in trace.sent_s.items()
            for to in program.steps.sends[row].to
        ]
        arrived = [
            [row, rank[receive.source], began_s + trace.coming_s[row], began_s + trace.arrived_s[row]]
            for row, receive in program.steps.receives.items()
        ]
        span = {"began_s": began_s, "ended_s": time.monotonic()}
        return json.dumps({"kind": kind, "rank": self._library.rank, **span, "sent": sent, "arrived": arrived})

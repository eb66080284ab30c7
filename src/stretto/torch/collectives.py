"""One collective at one rank: it looks up the plan, cuts the pieces as the plan does, runs it and records it.

Where the compiled loop runs programs, a collective that was called before is given to it at once, by the thread that
calls. Anything else is a job for the group's own thread: to connect, to plan, and where tensors must be copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..choose.dead_links import DeadPairs
from ..choose.expected import LEAST_BYTES
from ..choose.library import Library, Recipe
from ..model.arrays import Int64
from ..model.errors import InputError
from ..runtime.execute import execute
from ..runtime.native.engine import Engine
from ..runtime.native.inputs import Fixed, Places
from ..runtime.native.runs import Run
from .calls import code_of
from .changes import Use
from .job import Job as AtController
from .links import Links
from .plans import Plans
from .tensors import OPS, array_of, divide, number_type, plain, plain_copy, reducer
from .traces import Traces

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of :meth:`Collectives.run`, by place and by name."""


@dataclass(eq=False)
class Job:
    """How to run calls of one kind, root, operation, type and size.

    Attributes:
        low, high: int64[chunks], where each chunk begins and ends in its piece, in elements.
        number: NumPy's type of an element. call: the code of the call.
        size_bytes: of the largest piece. watched: whether it is compared with the plan how fast the bytes came.
        places: where chunks lie, for the compiled loop.
    """

    recipe: Recipe
    low: Int64
    high: Int64
    number: np.dtype[Any]
    reduce: Callable[..., Any]
    call: bytes
    size_bytes: int
    watched: bool
    places: Places | None = None

    @property
    def sizes(self) -> Int64:
        """int64[chunks], bytes of each chunk."""
        sizes: Int64 = (self.high - self.low) * self.number.itemsize
        return sizes


class Again(NamedTuple):
    """A call that can be repeated.

    Attributes:
        jobs: the jobs of when it was made; after a link has failed there are others.
        use: of its shape; None where pieces go straight to their receivers.
        runs: give its runs to the loop.
    """

    jobs: dict[Any, Job]
    job: Job
    kind: str
    root: int
    use: Use | None
    runs: Fixed


class Collectives:
    """Runs a group's collectives.

    Attributes:
        plans: what it runs.
        traces: where it says what they did.
    """

    def __init__(self, library: Library, links: Links, job: AtController | None = None) -> None:
        self._library, self._links = library, links
        self.plans, self._timed, self._at_controller = Plans(library, links, job=job), job is not None, job
        self._jobs: dict[Any, Job] = {}
        self._last: Run | None = None
        self._unseen: tuple[str, int, Job, Run] | None = None
        self.traces = Traces(library)

    def begin(self, calls: Sequence[Call]) -> list[Run] | None:
        """Give collectives to the compiled loop if they were called before and their tensors can be used as they are.

        Args:
            calls: for each the arguments of :meth:`run`.
        """
        if self.traces.wanted:
            return None
        loop = self._links.loop()
        if loop is None:
            return None
        if not all(plain(t) for (_, held, wanted, *_), _ in calls for t in (*held.values(), *wanted.values())):
            return None
        if any(getattr(options.get("op"), "op", options.get("op")) == OPS.AVG for _, options in calls):
            return None
        if self._library.dead and any(options.get("direct") for _, options in calls):
            return None  # sizes are exchanged first
        self._look()
        runs: list[Run] = []
        for (kind, held, wanted, elements, timeout_s), options in calls:
            job = self._job(kind, held, wanted, elements, at_once=not runs, timeout_s=timeout_s, **options)
            if job is None:
                return None
            runs.append(self._start(loop, job, held, wanted, timeout_s))
            if job.watched:
                self._unseen = kind, options.get("root", 0), job, runs[-1]
        return runs

    def _look(self) -> None:
        """Compare the last collective that was given to the loop with its plan, once it has ended."""
        unseen, self._unseen = self._unseen, None
        if unseen is not None:
            kind, root, job, run = unseen
            if run.ended and run.failure is None:
                self.plans.look(kind, job.size_bytes, root, job.recipe, job.sizes, run.trace())

    def _job(
        self,
        kind: str,
        held: Mapping[int, Tensor],
        wanted: Mapping[int, Tensor],
        elements: Sequence[int],
        *,
        timeout_s: float,
        root: int = 0,
        op: Any = None,
        direct: bool = False,
        function: str = "",
        at_once: bool = False,
    ) -> Job | None:
        """How to run the next call of a kind; None where it is asked for at once, and others must be heard first."""
        operation = getattr(op, "op", op)
        dtype = next(iter((held or wanted).values())).dtype
        key = kind, root, direct, function, operation, dtype, tuple(elements)
        size = _size(direct, elements, dtype)
        shape = kind, max(size, dtype.itemsize), root, direct
        if at_once and self.plans.waits(*shape):
            return None
        recipe = self.plans.recipe(*shape, timeout_s)
        job = self._jobs.get(key)
        if job is None or job.recipe is not recipe:
            counts = np.asarray(elements, dtype=np.int64)
            known = counts[:0] if direct else counts
            reduce = np.add if op is None else reducer(operation, dtype)
            call = code_of(function or kind, operation, dtype, root, known, recipe.digest)
            low, high = recipe.cut.edges(counts)
            number = number_type(dtype)
            looks = not direct and (self._timed or not self._library.assumed)
            watched = looks and size * len(elements) >= LEAST_BYTES
            job = self._jobs[key] = Job(recipe, low, high, number, reduce, call, size, watched)
        return job

    def again(self, call: Call) -> Again | None:
        """How to repeat a call that was just given to the loop."""
        (kind, held, wanted, elements, timeout_s), options = call
        root, direct = options.get("root", 0), options.get("direct", False)
        operation = getattr(options.get("op"), "op", options.get("op"))
        dtype = next(iter((held or wanted).values())).dtype
        jobs = self._jobs  # another thread may renew them, and the plans
        job = jobs.get((kind, root, direct, options.get("function", ""), operation, dtype, tuple(elements)))
        use = None if direct else self.plans.use(kind, max(_size(direct, elements, dtype), dtype.itemsize), root)
        if job is None or job.places is None or (use is None and not direct):
            return None
        adds, size = job.places.engine.sums.of(job.reduce, job.number), job.number.itemsize
        inputs, outputs = [t.data_ptr() for t in held.values()], [t.data_ptr() for t in wanted.values()]
        runs = job.places.fixed(inputs, outputs, adds, size, timeout_s, job.call)
        return Again(jobs, job, kind, root, use, runs)

    def repeat(self, again: Again, keep: Any) -> Run | None:
        """Give a call to the compiled loop once more; None where it must be looked up.

        Args:
            keep: what must live until it has ended.
        """
        if self.traces.wanted or again.jobs is not self._jobs or not again.runs.serves:
            return None
        if again.use is None:
            if self._library.dead:
                return None  # sizes are exchanged first
        elif not self.plans.goes_on(again.use, again.job.recipe):
            return None
        self._look()
        self._last = run = again.runs.start(keep)
        if again.job.watched:
            self._unseen = again.kind, again.root, again.job, run
        return run

    def drain(self, within_s: float | None = None) -> None:
        """Wait until the compiled loop has ended all collectives that were begun."""
        if self._last is not None:
            self._last.wait(within_s)

    def _start(
        self, loop: Engine, job: Job, held: Mapping[int, Tensor], wanted: Mapping[int, Tensor], timeout_s: float
    ) -> Run:
        """Give a collective to the compiled loop."""
        size, places = job.number.itemsize, job.places
        if places is None or places.engine is not loop:
            piece, ends = job.recipe.cut.piece, (job.low * size, job.high * size)
            places = Places(loop, self._links.mesh(), job.recipe.program, piece, *ends, [*held], [*wanted])
            job.places = places
        run = places.run([t.data_ptr() for t in held.values()], [t.data_ptr() for t in wanted.values()], (held, wanted))
        self._last = run
        loop.submit(run, *loop.sums.of(job.reduce, job.number), size, timeout_s, job.call)
        return run

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
            direct: whether pieces go straight from sender to receiver, since no other rank knows their sizes. Where the
                link of some pair is dead, all ranks are told them first, and others pass the pieces of the pair on.
            function: the key of :data:`.calls.FUNCTIONS` for what the caller asked for; the kind by default.
        """
        if self._library.size == 1:
            for p, t in wanted.items():
                t.copy_(held[p])
            return
        if direct and self._library.dead:
            elements, direct = self._all_sizes(elements, timeout_s), False
        operation = getattr(op, "op", op)
        mesh = self._links.mesh()
        job = self._job(
            kind, held, wanted, elements, timeout_s=timeout_s, root=root, op=op, direct=direct, function=function
        )
        assert job is not None, "it was not asked for at once"
        recipe, program = job.recipe, job.recipe.program
        self.drain()  # what is still to come may be the input
        results = {p: t if plain(t) else torch.empty(t.shape, dtype=t.dtype) for p, t in wanted.items()}
        inputs = {p: plain_copy(t) for p, t in held.items()}
        began_s = time.monotonic()
        self._links.control(kind, program.plan, job.call)
        loop = self._links.loop()
        if loop is not None:
            trace = self._start(loop, job, inputs, results, timeout_s).result(job.watched or self.traces.wanted)
        else:
            trace = execute(
                mesh,
                program,
                _parts(inputs, program.steps.held, recipe.cut.piece, job.low, job.high),
                _parts(results, program.steps.wanted, recipe.cut.piece, job.low, job.high),
                sizes=job.sizes,
                dtype=job.number,
                reduce=job.reduce,
                timeout_s=timeout_s,
                call=job.call,
            )
        if job.watched:
            self.plans.look(kind, job.size_bytes, root, recipe, job.sizes, trace)
        self.traces.add(kind, recipe, program, job.sizes, began_s, trace)
        for p, t in wanted.items():
            if results[p] is not t:
                t.copy_(results[p])
            if operation == OPS.AVG:
                divide(t, self._library.size)

    def _all_sizes(self, elements: Sequence[int], timeout_s: float) -> list[int]:
        """The elements of all pieces that ranks send to each other, of which this rank knows its own.

        Raises:
            InputError: a rank waits for more or less than another one sends it, at all ranks.
        """
        n, me = self._library.size, self._library.rank
        own = torch.tensor(elements, dtype=torch.int64).view(n, n)
        said = torch.empty(n, 2, n, dtype=torch.int64)
        self.run(
            "allgather", {me: torch.stack((own[me], own[:, me])).view(-1)}, dict(enumerate(said.view(n, -1).unbind())),
            [2 * n] * n, timeout_s,
        )  # fmt: skip
        sent, awaited = said[:, 0], said[:, 1].T
        for source, sink in (sent != awaited).nonzero().tolist():
            counts = f"{int(sent[source, sink])} elements to rank {sink}, which waits for {int(awaited[source, sink])}"
            raise InputError(f"rank {source} sends {counts}", "all_to_all")
        sizes: list[int] = sent.reshape(-1).tolist()
        return sizes

    def renew(self, dead: DeadPairs) -> None:
        """Plan anew for connections without those of some pairs of ranks."""
        self.plans.close()
        self._library.lose(dead)
        self.plans = Plans(self._library, self._links, job=self._at_controller)
        self._jobs, self._last, self._unseen = {}, None, None

    def close(self) -> None:
        self.plans.close()
        self.traces.close()


def _size(direct: bool, elements: Sequence[int], dtype: torch.dtype) -> int:
    """The bytes of the largest piece; of one element where nobody knows them."""
    count = 1 if direct else max(elements, default=1)
    return count * int(dtype.itemsize)


def _parts(tensors: Mapping[int, Tensor], chunks: Any, piece: Any, low: Any, high: Any) -> dict[int, Any]:
    """The memory of some chunks."""
    arrays = {p: array_of(t) for p, t in tensors.items()}
    return {c: arrays[int(piece[c])][low[c] : high[c]] for c in chunks}

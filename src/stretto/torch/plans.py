"""Which plan each call of a group runs by: first a quick one, then a better one, from the same call on at all ranks.

The first plan of a shape is there at once (:mod:`.first_plans`). At the second call of the shape rank 0 asks for a
better one, which a process of its own makes (:mod:`stretto.choose.planning`), or finds on disk. All ranks then change
to it as follows, by notes beside the collectives, so that as a rule no call waits for a note:

1. *Prepare.* Rank 0 puts the plan into the store. Each rank takes it from there, lowers it, and says that it is ready.
2. *Count.* When all are ready, rank 0 asks how many calls of the shape each has begun. A rank that answers may begin
   ``SLACK`` more of them by the old plan; only one that wants to begin yet another one waits for what follows.
3. *Change.* Rank 0 says the number of the call from which on the new plan is used: the largest count, and ``SLACK``.
   No rank has begun that call, and all begin it by the new plan.

What links give is compared with the plan (:mod:`.slowness`). A rank to which a link was slow for ten collectives, or
fast again, tells rank 0, which plans for what the link gave (:mod:`.adapting`), and lets all ranks change to the new
plans as above: to quick ones at once, and to better ones as after the second call.

Where a controller plans for the group (:mod:`.agent`), better plans come from it alone, and ranks tell rank 0 what
links give for the controller's sake (:mod:`.link_rates`). While it is gone, rank 0 makes plans itself.

The calls of a shape come in the same order at all ranks, so their numbers agree. Nobody changes before rank 0 has said
so: if it leaves, or a rank leaves that has not counted, or cannot use the new plan, all go on by the old one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..choose.expected import ends_sooner
from ..choose.given import Given
from ..choose.kept import Kept, packed, unpacked
from ..choose.library import Library, Recipe
from ..choose.planning import planner
from ..choose.requests import ALIKE, PlanRequest, Shape
from ..model.errors import PeerFailed
from ..model.kinds import KINDS
from ..model.topology import Topology
from ..runtime.recorded import Trace
from .adapting import Adapted
from .agent import Agent
from .changes import MOST_RATIO, NEVER, NOTE, RATIO_UNIT, SLACK, TAG, Round, Use, Word, note_of
from .first_plans import FirstPlans
from .job import Job
from .link_rates import LinkRates
from .links import Links
from .slowness import SUSPECTED, Slowness
from .worker import Worker

ASKED_AT = 2
"""The call of a shape at which a better plan is asked for: one that is called once needs none."""

LOOK_S = 0.5
"""Seconds between two looks at whether the others are there, for a call that waits."""


class Plans:
    """The plans of a group at one rank.

    Args:
        kept: the plans on disk; they are read at rank 0 alone.
        job: what the group is at a controller; None without one.
    """

    def __init__(self, library: Library, links: Links, kept: Kept | None = None, job: Job | None = None) -> None:
        self._library, self._links = library, links
        self._first_plans = FirstPlans(library, links, kept or Kept.from_environment())
        self._changed = threading.Condition()
        self._uses: dict[Shape, Use] = {}
        self._rounds: dict[Shape, Round] = {}
        self._worker = Worker("plans of a group", self._failed)
        self._later = self._worker.later
        self._closed, self._slowness, self._adapted = False, Slowness(), Adapted(library)
        self._planned_for: dict[Shape, Topology | None] = {}  # of shapes that were planned anew for slow links
        self._offers: dict[Shape, Callable[[], None]] = {}  # better plans that came while their shape was changing
        self._told_rates = LinkRates(library) if job is not None else None
        self._agent: Agent | None = None
        self._taken: dict[Shape, Given] = {}  # plans of the controller that were proposed last
        if job is not None and library.rank == 0:
            news, back, gone = (partial(self._later, do) for do in (self._take_all, self._return, self._plan_alone))
            self._agent = Agent(job, library, self._say, news, back, gone)
        links.inbox.listeners[TAG] = self._hear

    def waits(self, kind: str, size_bytes: int, root: int, direct: bool) -> bool:
        """Whether :meth:`recipe` would have to plan, or to wait for others, before it answers for the next call."""
        if direct:
            return not self._first_plans.has(kind, size_bytes, root, direct=True)
        with self._changed:
            use = self._uses.get(Shape.of(kind, size_bytes, root))
            return use is None or use.recipe is None or (use.limit is not None and use.begun >= use.limit)

    def use(self, kind: str, size_bytes: int, root: int) -> Use | None:
        """The use of a shape; None if it was not called before."""
        return self._uses.get(Shape.of(kind, size_bytes, root))

    def goes_on(self, use: Use, recipe: Recipe) -> bool:
        """Whether the next call of a shape runs by this plan without a word of others, which counts it then."""
        with self._changed:
            if use.recipe is not recipe or use.limit is not None or use.change_at is not None:
                return False
            use.begun += 1
        if self._library.rank == 0:
            self._lead(use)
        return True

    def recipe(self, kind: str, size_bytes: int, root: int, direct: bool, timeout_s: float) -> Recipe:
        """How to run the next call of a shape; every rank asks once for each call, in the order of the calls.

        Raises:
            PeerFailed: this call has to wait for rank 0, and that does not answer.
        """
        if direct:
            return self._first_plans.recipe(kind, size_bytes, root, direct=True)
        shape = Shape.of(kind, size_bytes, root)
        with self._changed:
            use = self._uses.setdefault(shape, Use(shape))
        if use.recipe is None:
            use.recipe = self._first_plans.recipe(kind, size_bytes, root)
        with self._changed:
            if use.limit is not None and use.begun >= use.limit:
                self._await_change(use, timeout_s)
            if use.change_at is not None and use.begun >= use.change_at:
                assert use.next is not None
                use.recipe, use.next, use.change_at = use.next, None, None
                if use.waits:
                    use.waits = False
                    self._later(partial(self._prepare, shape))
            use.begun += 1
        if self._library.rank == 0:
            self._lead(use)
        return use.recipe

    def _lead(self, use: Use) -> None:
        """At rank 0, when a call begins: see to the plans that are to come."""
        agent, shape = self._agent, use.shape
        if agent is not None:
            agent.begin()
            if agent.newest.get(shape) not in (None, self._taken.get(shape)):
                self._later(partial(self._take, shape))
        if use.begun == ASKED_AT and not (agent and agent.want(shape)) and self._may_ask(shape):
            self._later(partial(self._ask, shape))
        if use.shape in self._offers and not self._changing(use):
            self._later(self._offers.pop(use.shape))
        if self._adapted.tick():
            self._later(lambda: self._plan_anew(self._adapted.forgive()))

    def look(self, kind: str, size_bytes: int, root: int, recipe: Recipe, sizes: Any, trace: Trace) -> None:
        """Compare what the links gave in a call with its plan; rank 0 learns of those that stay slow.

        Args:
            sizes: bytes of each chunk.
        """
        net = recipe.program.plan.topology  # another one where pieces go straight to their receivers
        if self._agent is not None:
            self._agent.took(recipe.digest, trace.spans_s)
        if self._library.assumed or net.planes or net.name != self._library.topology.name:
            return
        for source, ratio, calls in self._slowness.look(recipe, sizes, trace):
            number = self._library.nodes.index(source) << 32 | round(min(ratio, MOST_RATIO) * RATIO_UNIT)
            word = Word.SUSPECT if calls == SUSPECTED else Word.SLOW if ratio < 1 else Word.FAST
            self._answer(word, Shape.of(kind, size_bytes, root), number)
        if self._told_rates is not None:
            for source, sink, rate in self._told_rates.note(recipe, self._slowness.ratios, time.monotonic()):
                self._answer(Word.GAVE, Shape(KINDS[0], sink, source), round(rate))

    def load(self) -> None:
        """Connect and measure, and load what the first call needs at this rank."""
        self._first_plans.load()

    def close(self) -> None:
        """Change no plan any more."""
        self._first_plans.close()
        if self._agent is not None:
            self._agent.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.close()

    # --- the better plan --------------------------------------------------------------------------

    def _ask(self, shape: Shape) -> None:
        """Ask the planner's process, at rank 0."""

        def answered(content: bytes | None, reason: str) -> None:
            if content is None:
                self._say(f"no better plan for {shape.kind}: {reason}; calls go on by the first one")
            else:
                self._later(partial(self._offer, shape, content, request))

        request = self._request(shape)
        planner().ask(request, answered)

    def _offer(self, shape: Shape, content: bytes, request: PlanRequest) -> None:
        """Propose a better plan, at rank 0, if it was asked for the network as it is known now."""
        use, plan = self._uses[shape], unpacked(content, request.name)
        if self._led or plan is None or use.recipe is None or request.topology is not self._request(shape).topology:
            return
        if shape in self._planned_for and not ends_sooner(plan, use.recipe.program.plan, 1 / ALIKE):
            return
        if self._changing(use):
            self._offers[shape] = partial(self._offer, shape, content, request)
        else:
            self._propose(shape, content, request.name)

    @property
    def _led(self) -> bool:
        """Whether a controller plans for the group now; rank 0 knows."""
        return self._agent is not None and self._agent.reached

    def _take_all(self) -> None:
        """There are new plans of the controller, at rank 0."""
        for shape in [*self._agent.newest] if self._agent is not None else []:
            self._take(shape)

    def _take(self, shape: Shape) -> None:
        """Propose the newest plan that the controller has given for a shape, at rank 0."""
        assert self._agent is not None
        given, use = self._agent.newest.get(shape), self._uses.get(shape)
        if given in (None, self._taken.get(shape)) or use is None or use.recipe is None or self._changing(use):
            return  # the next call looks again
        self._taken[shape] = given
        if given.plan.digest() != use.recipe.program.plan.digest():
            name = f"version-{given.version}-{shape.name}"
            self._propose(shape, packed(name, given.plan), name)

    def _return(self) -> None:
        """The controller is back, at rank 0: its plans take the place of those that were made meanwhile."""
        self._adapted, self._planned_for, self._taken = Adapted(self._library), {}, {}
        self._take_all()

    def _plan_alone(self) -> None:
        """The controller is gone, at rank 0: make better plans for shapes for which it has given none."""
        for shape in self._agent.unserved if self._agent is not None else []:
            if self._may_ask(shape):
                self._ask(shape)

    def _may_ask(self, shape: Shape) -> bool:
        return self._library.effort is not None and not self._first_plans.kept(shape)

    def _changing(self, use: Use) -> bool:
        """Whether the ranks are changing the plan of a shape; rank 0 knows."""
        return use.shape in self._rounds or use.limit is not None or use.change_at is not None

    def _request(self, shape: Shape) -> PlanRequest:
        """The request for a plan on the network as it is known now, at rank 0."""
        asked = self._library.request(shape)
        return asked if self._adapted.network is None else replace(asked, topology=self._adapted.network)

    def _adapt(self, word: Word, shape: Shape, rank: int, number: int) -> None:
        """Hear what a link gave, at rank 0, and plan for it, unless a controller does."""
        recipe, nodes, begun = self._uses[shape].recipe, self._library.nodes, self._uses[shape].begun
        source, ratio = number >> 32, (number & 0xFFFFFFFF) / RATIO_UNIT
        plan = None if recipe is None else recipe.program.plan
        links = self._library.topology.link_count
        odd = plan is None or plan.topology.link_count != links or max(source, rank) >= len(nodes)
        if self._led or plan is None or odd:
            return
        ends = nodes[source], nodes[rank]
        if word == Word.SUSPECT:
            self._adapted.suspect(shape, *ends, begun)
        elif word == Word.FAST:
            self._plan_anew(self._adapted.fast(plan, *ends, ratio))
        else:
            self._plan_anew(self._adapted.slow(shape, plan, *ends, ratio, begun))

    def _plan_anew(self, news: str | None) -> None:
        """Make plans for the network as it is known now, for shapes whose plans are for another one."""
        if news is not None:
            self._say(news)
        from ..choose.quick import quick_plan  # only ranks that plan load planners

        network = self._adapted.network
        for use in [*self._uses.values()]:
            if use.recipe is None or self._changing(use) or self._planned_for.get(use.shape) is network:
                continue
            self._planned_for[use.shape] = network
            plan = quick_plan(request := self._request(use.shape))
            if ends_sooner(plan, use.recipe.program.plan):
                self._propose(use.shape, packed(request.name, plan), request.name)
            if self._library.effort is not None:
                self._ask(use.shape)

    def _propose(self, shape: Shape, content: bytes, name: str) -> None:
        """Let all ranks change to a plan."""
        if unpacked(content, name) is None:
            return  # the first plan is as good
        self._rounds[shape] = Round()
        self._links.tell(f"better/{shape.name}", name.encode() + b"\n" + content)
        self._tell_all(Word.PREPARE, shape)

    def _prepare(self, shape: Shape) -> None:
        """Take a plan from the store and lower it."""
        with self._changed:
            use = self._uses.setdefault(shape, Use(shape))
            if use.change_at is not None:  # this rank is behind
                use.waits = True
                return
        try:
            name, _, content = self._links.told(f"better/{shape.name}", 0).partition(b"\n")
            plan = unpacked(content, name.decode())
            assert plan is not None, "rank 0 proposes plans"
            recipe = self._library.recipe_of(plan)
            assert recipe.digest and recipe.program.steps, "both are wanted at the first call"
        except Exception as error:
            self._say(f"cannot use the better plan for {shape.kind}: {type(error).__name__}: {error}")
            self._answer(Word.UNABLE, shape)
            return
        with self._changed:
            use.next = recipe
        self._answer(Word.READY, shape)

    def _hear(self, note: bytes) -> None:
        """Act on a note; called in the threads that receive from other ranks."""
        word, kind, rank, root, size, number = NOTE.unpack(note)
        shape = Shape(KINDS[kind % len(KINDS)], size, root)
        if word == Word.PREPARE:
            self._later(partial(self._prepare, shape))
            return
        if word == Word.GAVE and self._agent is not None:
            self._agent.gave((root, size), rank, float(number))
            return
        if word in (Word.SUSPECT, Word.SLOW, Word.FAST):
            self._later(partial(self._adapt, Word(word), shape, rank, number))
            return
        with self._changed:
            use = self._uses.setdefault(shape, Use(shape))
            if word == Word.COUNT:
                use.limit = use.begun + SLACK
                self._answer(Word.COUNTED, shape, use.begun)
            elif word == Word.CHANGE:
                use.change_at, use.limit = number, None
                if number == NEVER:
                    use.next = use.change_at = None
                self._changed.notify_all()
            elif shape in self._rounds:
                self._collect(Word(word), shape, rank, number)

    def _collect(self, word: Word, shape: Shape, rank: int, number: int) -> None:
        """At rank 0: count what ranks say. The caller has the lock."""
        heard = self._rounds[shape]
        if word == Word.WAITING:
            missing = [m for r, m in self._links.everyone().items() if r not in heard.counts]
            if any(messages.failure is not None for messages in missing):
                del self._rounds[shape]
                self._tell_all(Word.CHANGE, shape, NEVER)
            return
        if (answer := heard.hear(word, rank, number, self._library.size)) is None:
            return
        if word != Word.COUNTED:  # all have read it
            self._later(partial(self._links.forget, f"better/{shape.name}"))
        if answer[0] == Word.CHANGE:
            del self._rounds[shape]
        self._tell_all(answer[0], shape, answer[1])

    def _await_change(self, use: Use, timeout_s: float) -> None:
        """Wait until rank 0 has said from which call on the better plan is used. The caller has the lock."""
        waited_s = 0.0
        while use.limit is not None and use.begun >= use.limit:
            if self._closed or self._links.left:
                raise PeerFailed(f"rank {self._library.rank}", "it leaves the group")
            if waited_s > timeout_s:
                raise PeerFailed("rank 0", f"it has not said within {timeout_s:g} s which plan is next")
            first = self._links.everyone().get(0)
            if first is not None and first.failure is not None:
                use.limit = None  # it has said nothing, so nobody changes
                return
            if waited_s:
                self._answer(Word.WAITING, use.shape)
            self._changed.wait(LOOK_S)
            waited_s += LOOK_S

    # --- notes and work ---------------------------------------------------------------------------

    def _tell_all(self, word: Word, shape: Shape, number: int = 0) -> None:
        """Send a note from rank 0 to all, itself last."""
        note = note_of(word, shape, self._library.rank, number)
        for rank in range(1, self._library.size):
            self._links.relays.note(rank, TAG, note)
        self._later(partial(self._hear, note))

    def _answer(self, word: Word, shape: Shape, number: int = 0) -> None:
        """Send a note to rank 0."""
        note = note_of(word, shape, self._library.rank, number)
        if self._library.rank == 0:
            self._later(partial(self._hear, note))
        else:
            self._links.relays.note(0, TAG, note)

    def _failed(self, error: Exception) -> None:
        if not self._closed and not self._links.left:
            self._say(f"{type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        print(f"stretto, rank {self._library.rank}: {text}", file=sys.stderr, flush=True)

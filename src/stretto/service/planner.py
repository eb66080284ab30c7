"""The process that plans: ``python -m stretto.service.planner``, started by the leader (:mod:`.planning_process`).

It reads what is known from the store, plans what has changed, weighs, and publishes; so the process that answers over
HTTP never waits for a plan. Work is done in small steps, each of which begins with the store as it is then: the plan of
one collective alone, or the plans of a network's jobs put together and published. Networks with new jobs or links get
plans of little effort at once, and plans of more effort when nothing else waits.

It ends when its input ends, with the process that started it, or when its term is over.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection

from ..bounds import bounds
from ..model.errors import InputError, StrettoError
from ..model.plan import Plan
from .database import Database, DatabaseGone, NotLeader
from .keeping import Keep, forget, sizes
from .listening import Sensitivity, news_of
from .networks import Missing, base_of, lay_over, network, network_names, samples_since, try_again
from .published import (
    Stored,
    bounds_of,
    find_plan,
    has_plans,
    keep_plan,
    keep_refusal,
    last_decision,
    refusal_reasons,
)
from .publishing import Planned, Publishing, plan_of_tasks
from .requests import Alone
from .states import State, States, Task
from .together import plan_alone
from .trials import Trials

FORGET_S = 600.0
"""Seconds after which the store forgets again what has been kept long enough, and its sizes are told."""

LISTENED_S = 60.0
"""Seconds of telemetry that are looked at besides the holding time, and the last report of each link before them."""

RETRY_S = 1.0
"""Seconds after which the database is tried again."""

PATIENCE = 6
"""Times as long as requests the planner waits for the database: it writes large plans, and nobody waits for it."""

MOST_TRANSFERS = 1_000_000
"""Transfers of the plans alone that are kept in memory, besides those of the newest one; about 100 bytes each."""

IDLE_S = 3600.0
"""Seconds after which the planner looks whether there is something to do even if nobody has said so."""

NICENESS = 10
"""What is added to the niceness of the process, so that answers over HTTP come first."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    """How the controller plans.

    Attributes:
        effort: of plans; those of the first moment are quick.
        sensitivity: when telemetry counts.
        planner: what plans each collective alone.
        least_gain: share of the mean completion that a new plan must gain for jobs that have one.
        keep: for how long the store keeps what is not in use.
    """

    effort: str = "normal"
    sensitivity: Sensitivity = field(default_factory=Sensitivity)
    least_gain: float = 0.05
    planner: str = "auto"
    keep: Keep = field(default_factory=Keep)

    @property
    def efforts(self) -> tuple[str, ...]:
        return ("quick",) if self.effort == "quick" else ("quick", self.effort)


class Planner:
    """Does what is to be done, one step at a time.

    Args:
        term: of the leader whose planner this is.
        tell: told what happened, as an object that can be written as JSON.
        clock: seconds since 1970.
    """

    def __init__(
        self, database: Database, term: int, settings: Settings, tell: Tell, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._term, self._settings = database, term, settings
        self._tell, self._clock = tell, clock
        self._states = States(settings.efforts, settings.planner)
        self._publishing = Publishing(database, term, settings.least_gain, tell, clock, settings.keep.versions)
        self._forget_at = -math.inf
        self._done: dict[str, tuple[str, int]] = {}  # by network the last state, and how many efforts it has had
        self._plans: dict[str, Plan] = {}  # by digest of the request, the one used last at the end
        self._absurd: set[str] = set()  # overlays that leave no network
        self._trials = Trials()
        self._expected: dict[str, list[dict[str, Any]]] = {}  # by network its overlay if links stay as they are

    def work(self) -> float:
        """Do all that is to be done, and forget what is old when it is time; the moment to look again."""
        again_at = self.listen()
        while self.step() or self.plan_ahead():
            self._forget_old()  # a planner that always has work forgets, too
            again_at = self.listen()
        self._forget_old()
        return min(again_at, self._forget_at)

    def _forget_old(self) -> None:
        """Forget what was kept long enough, if that was not done lately, and tell what is left."""
        now = self._clock()
        if now >= self._forget_at:
            gone = forget(self._database, self._term, self._settings.keep, now)
            self._forget_at = now + FORGET_S
            self._tell({"event": "stored", "forgotten": gone, **sizes(self._database)})

    def listen(self) -> float:
        """Make new versions of networks whose links differ from what was planned; when to look again."""
        again_at = math.inf
        with self._database.read() as connection:
            names = [name for name, _ in network_names(connection)]
        self._expected.clear()
        for name in names:
            with suppress(Missing):  # it was deleted meanwhile
                again_at = min(again_at, self._listen_to(name, self._clock()))
        return again_at

    def _listen_to(self, name: str, now: float) -> float:
        """Make a new version of a network if its links differ from what was planned; when to look again."""
        how = self._settings.sensitivity
        with self._database.read() as connection:
            current = network(connection, name)
            reported = samples_since(connection, name, now - how.hold_s - LISTENED_S)
            base = base_of(connection, current) if reported else None
        trial = self._trials.due(current, reported, now)
        if trial.links:
            with self._database.write(self._term) as connection:
                if network(connection, name).version != current.version:
                    return trial.again_at
                version = try_again(connection, current, trial.links, trial.why, now)
            self._trials.note(name, trial.links)
            self._tell({"event": "telemetry", "network": name, "version": version, "why": trial.why})
            return trial.again_at
        if base is None:
            return trial.again_at
        news = news_of(base, current.overlay, reported, now, how)
        again_at = min(trial.again_at, news.again_at)
        if news.overlay is None and news.expected is not None:
            self._expected[name] = news.expected
        if news.overlay is None or (said := json.dumps([name, news.overlay])) in self._absurd:
            return again_at
        with self._database.write(self._term) as connection:
            if network(connection, name).version != current.version:
                return again_at
            try:
                version = lay_over(connection, current, news.overlay, news.why, now)
            except InputError as error:
                self._absurd.add(said)
                self._tell({"event": "telemetry", "network": name, "refused": str(error)})
                return again_at
        self._tell({"event": "telemetry", "network": name, "version": version, "why": news.why})
        return again_at

    def step(self) -> bool:
        """Do the next piece of work; False if there is none."""
        with self._database.read() as connection:
            names = [name for name, _ in network_names(connection)]
        for stage in range(len(self._settings.efforts)):
            for name in names:
                with suppress(Missing):  # it was deleted meanwhile
                    if self._advance(name, stage):
                        return True
        return False

    def plan_ahead(self) -> bool:
        """Plan one collective alone for links that differ, but do not count yet; False if there is nothing to plan.

        If they come to count with what they give now, their plans are there, and can be published at once.
        """
        effort = self._settings.efforts[0]
        for name, overlay in self._expected.items():
            with self._database.read() as connection:
                try:
                    tasks = self._states.expected(connection, name, overlay)
                except (Missing, InputError):  # it is gone; or no link would be left
                    continue
                digests = [task.alone[effort].digest for task in tasks]
                known = has_plans(connection, digests) | refusal_reasons(connection, digests).keys()
            for task in tasks:
                if task.alone[effort].digest not in known:
                    self._plan_alone(task, effort)
                    return True
        return False

    def _advance(self, name: str, stage: int) -> bool:
        """Take a network one piece of work further with the efforts up to a stage; False if there is none."""
        with self._database.read() as connection:
            state = self._states.read(connection, name)
            if self._efforts_had(connection, state) > stage:
                return False
            digests = [alone.digest for task in state.tasks for alone in task.alone.values()]
            reasons, planned = refusal_reasons(connection, digests), has_plans(connection, digests)
            tasks, refused = state.without(reasons)
            effort = self._settings.efforts[stage]
            chosen = [self._best(task, stage, planned) for task in tasks]
            missing = next((i for i, digest in enumerate(chosen) if digest is None), None)
            if missing is None:
                plans = {digest: self._plan(connection, digest) for digest in {*chosen} if digest is not None}
                bounds_s = bounds_of(connection, [*plans])
        if missing is not None:
            self._plan_alone(tasks[missing], effort)
            return True
        final = all(d == task.alone[self._settings.efforts[-1]].digest for d, task in zip(chosen, tasks, strict=True))
        had = len(self._settings.efforts) if final else stage + 1
        alone = [Planned(d, plans[d], bounds_s.get(d)) for d in chosen if d is not None]
        self._put_together(state, tasks, refused, alone, effort, had)
        return True

    def _efforts_had(self, connection: Connection, state: State) -> int:
        """With how many of the efforts the state has been planned."""
        name = state.network.name
        if name not in self._done:
            last = last_decision(connection, name)
            efforts = self._settings.efforts
            had = efforts.index(last.effort) + 1 if last is not None and last.effort in efforts else 0
            self._done[name] = (last.state if last is not None else "", had)
        digest, had = self._done[name]
        if not state.jobs and not digest:
            return len(self._settings.efforts)
        return had if digest == state.digest else 0

    def _best(self, task: Task, stage: int, planned: set[str]) -> str | None:
        """The request for a task's plan alone that is to be used: that of the most effort which there is already."""
        efforts = self._settings.efforts
        for effort in reversed(efforts[stage:]):
            if task.alone[effort].digest in planned:
                return task.alone[effort].digest
        return None

    def _plan(self, connection: Connection, digest: str) -> Plan | None:
        """A plan of the store; those that were used last are kept in memory."""
        plan = self._plans.pop(digest, None) or find_plan(connection, digest)
        if plan is not None:
            self._plans[digest] = plan
            while sum(each.transfer_count for each in self._plans.values()) > MOST_TRANSFERS and len(self._plans) > 1:
                del self._plans[next(iter(self._plans))]
        return plan

    def _plan_alone(self, task: Task, effort: str) -> None:
        """Plan a collective alone, and keep the plan or why there is none."""
        asked, cpu_s = task.alone[effort], time.process_time()
        try:
            plan = plan_alone(asked)
        except StrettoError as error:
            self._refuse(asked.digest, str(error))
            return
        except Exception as error:  # a planner with a bug must not end the others
            self._refuse(asked.digest, f"{type(error).__name__}: {error}")
            return
        stored = Stored.of(plan)
        facts = {"title": plan.title, "transfers": plan.transfer_count, **_bound_of(asked)}
        with self._database.write(self._term) as connection:
            keep_plan(connection, asked.digest, asked.document, stored, facts, self._clock())
        self._tell({"event": "planned", "what": task.collective.title, "cpu_s": time.process_time() - cpu_s})

    def _refuse(self, digest: str, reason: str) -> None:
        with self._database.write(self._term) as connection:
            keep_refusal(connection, digest, " ".join(reason.split()), self._clock())
        self._tell({"event": "refused", "reason": reason})

    def _put_together(
        self, state: State, tasks: list[Task], refused: dict[str, str], alone: list[Planned], effort: str, had: int
    ) -> None:
        """Plan the jobs of a network together, and publish what that gains."""
        if any(each.plan is None for each in alone):
            return  # some were forgotten meanwhile: the next step plans them again
        cpu_s = time.process_time()
        marked = self._settings.efforts[had - 1]
        try:
            whole = plan_of_tasks(state, tasks, alone, effort) if tasks else None
        except Exception as error:
            words = str(error) if isinstance(error, StrettoError) else f"{type(error).__name__}: {error}"
            refused, whole = {**dict.fromkeys((task.job for task in tasks), words), **refused}, None
        try:
            decided = self._publishing.decide(state, whole, refused, marked, time.process_time() - cpu_s)
        except (DatabaseGone, NotLeader):
            raise
        except Exception as error:  # the process would die of it again and again, and plan for no other network
            traceback.print_exc()
            self._tell({"event": "fault", "network": state.network.name, "reason": f"{type(error).__name__}: {error}"})
            decided = True  # nothing was written; the network is planned again when something on it changes
        if decided:
            self._done[state.network.name] = (state.digest, had)


def _bound_of(asked: Alone) -> dict[str, float]:
    """What no plan can beat, seconds; nothing where that cannot be said."""
    with suppress(StrettoError):
        return {"bound_s": bounds(asked.topology, asked.work)[0].seconds}
    return {}


def main() -> None:
    """Serve the leader that has started this process: its first line says how, every other one that there is news."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    with suppress(OSError):
        os.nice(NICENESS)
    said = json.loads(sys.stdin.readline())
    how = said["settings"]
    sensitivity, keep = Sensitivity(how["threshold"], how["hold_s"]), Keep(**how["keep"])
    settings = Settings(how["effort"], sensitivity, how["least_gain"], how["planner"], keep)
    kicks: SimpleQueue[None] = SimpleQueue()
    threading.Thread(target=_listen, args=(kicks,), daemon=True).start()
    planner, patience_s = None, PATIENCE * said["gone_after_s"]
    while True:
        try:
            planner = planner or Planner(Database(said["database"], patience_s), said["term"], settings, tell)
            again_at = planner.work()
            tell({"event": "idle"})
            wait_s = min(max(again_at - time.time(), 0.0), IDLE_S)
        except DatabaseGone as error:
            tell({"event": "database", "gone": str(error)})
            wait_s = RETRY_S
        except (NotLeader, BrokenPipeError):
            os._exit(0)
        try:
            kicks.get(timeout=wait_s)
            while True:
                kicks.get_nowait()
        except Empty:
            pass


def _listen(kicks: SimpleQueue[None]) -> None:
    """Pass on that there is news; the process ends with who started it, even in the middle of a plan."""
    for _ in sys.stdin:
        kicks.put(None)
    os._exit(0)


if __name__ == "__main__":
    main()

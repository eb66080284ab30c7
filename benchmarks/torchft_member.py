"""A member of :mod:`torchft_stress`: collectives in one quorum after another, and the time that each part takes."""

from __future__ import annotations

import faulthandler
import hashlib
import queue
import random
import signal
import threading
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions

from stretto.model.errors import PeerFailed
from stretto.torch.group import StrettoGroup
from stretto.torch.links import Links
from stretto.torch.plans import Plans
from stretto.torchft import ProcessGroupStretto
from torch_stress import Wrong, spent_s

MOST_ELEMENTS = 100_000
STEPS = 3
"""Collectives of a quorum."""
PARTS = {"make": (StrettoGroup, "__init__"), "connect": (Links, "connect"), "measure": (Links, "_measure"),
         "plan": (Plans, "recipe")}  # fmt: skip
"""What a member does in a new quorum, and the functions in which it does that, none inside another."""
WAITS = ("leave", *PARTS, "rest")
"""Where the time goes: leaving the last quorum, the parts, and the rest of the first collective."""


@dataclass(frozen=True)
class Quorum:
    """What the coordinator tells a member."""

    number: int
    rank: int
    size: int
    named_at: float
    """By the monotonic clock, which all processes of a machine share."""


class Watch:
    """How long a member takes for each part of a new quorum, up to its first result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin(0.0)
        for part, (owner, name) in PARTS.items():
            self._count(part, owner, name)

    def begin(self, named_at: float) -> None:
        """A quorum was named; it is left to the parts to say what else was done since."""
        with self._lock:
            self._named_at, self._cpu_s = named_at, time.process_time()
            self._first_at: float | None = None
            self._spent = dict.fromkeys(PARTS, 0.0)

    def end(self) -> dict[str, float]:
        """Seconds for each part, and CPU seconds of this process for all."""
        with self._lock:
            now = time.monotonic()
            leave = (self._first_at or now) - self._named_at
            rest = now - self._named_at - leave - sum(self._spent.values())
            return {"leave": leave, **self._spent, "rest": rest, "cpu": time.process_time() - self._cpu_s}

    def _count(self, part: str, owner: type, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            began = time.monotonic()
            with self._lock:
                self._first_at = self._first_at or began
            try:
                return function(*arguments, **named)
            finally:
                with self._lock:
                    self._spent[part] += time.monotonic() - began

        setattr(owner, name, counted)


def numbers(seed: int, rank: int, count: int) -> torch.Tensor:
    """What a rank puts into a collective: integers whose sums are exact in float32."""
    return torch.randint(-1000, 1000, (count,), generator=torch.Generator().manual_seed(seed * 64 + rank)).float()


def collective(pg: ProcessGroupStretto, q: Quorum, step: int) -> str:
    """Do one; returns the digest of what every member must have, or raises Wrong."""
    seed = 1000 * q.number + step
    rng = random.Random(seed)
    count, root = rng.choice([1, rng.randrange(1, 300), rng.randrange(1, MOST_ELEMENTS)]), rng.randrange(q.size)
    mine, kind = numbers(seed, q.rank, count), rng.choice(["sum", "rounded", "gather", "broadcast"])
    if kind == "sum":
        pg.allreduce([mine], dist.ReduceOp.SUM).wait()
        expected = sum(numbers(seed, r, count) for r in range(q.size))
    elif kind == "rounded":
        mine = mine / 7
        pg.allreduce([mine], dist.ReduceOp.SUM).wait()
        return hashlib.sha256(mine.numpy().tobytes()).hexdigest()
    elif kind == "gather":
        parts = [torch.empty(count) for _ in range(q.size)]
        pg.allgather([parts], [mine], AllgatherOptions()).wait()
        mine, expected = torch.stack(parts), torch.stack([numbers(seed, r, count) for r in range(q.size)])
    else:
        pg.broadcast_one(mine, root).wait()
        expected = numbers(seed, root, count)
    if not torch.equal(mine, expected):
        raise Wrong(f"{kind} of {count} in quorum {q.number} is wrong at rank {q.rank}")
    return ""


def member(pipe: Connection, store: str, timeout_s: float) -> None:
    """A member's process: does what the coordinator says until its end of the pipe closes."""
    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1)
    watch = Watch()
    pg = ProcessGroupStretto(timedelta(seconds=timeout_s), connect_timeout=timedelta(seconds=timeout_s))
    todo: queue.SimpleQueue[Quorum | None] = queue.SimpleQueue()
    idle = threading.Event()
    idle.set()

    def work() -> None:
        while (q := todo.get()) is not None:
            told: list[str] = []
            try:
                pg.configure(f"{store}/q{q.number}", "0", q.rank, q.size)
                for step in range(STEPS):
                    told.append(collective(pg, q, step))
                    if step == 0:
                        pipe.send((q.number, "resumed", time.monotonic(), watch.end()))
                pipe.send((q.number, "done", time.monotonic(), told))
            except Wrong as error:
                pipe.send((q.number, "wrong", time.monotonic(), str(error)))
            except (PeerFailed, RuntimeError, AssertionError) as error:  # the last is torchft's, of a group given up
                pipe.send((q.number, "failed", time.monotonic(), str(error)))
            except BaseException:
                pipe.send((q.number, "wrong", time.monotonic(), traceback.format_exc()))
            finally:
                idle.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    pipe.send((0, "ready", time.monotonic(), None))
    q = pipe.recv()
    while q is not None:
        watch.begin(q.named_at)
        idle.clear()
        todo.put(q)
        q = pipe.recv()
        while not idle.wait(0.002):
            pg.abort(errored=False)  # whatever the last quorum still does
    pg.abort(errored=False)
    todo.put(None)
    thread.join()
    pipe.send((0, "ended", time.monotonic(), spent_s()))

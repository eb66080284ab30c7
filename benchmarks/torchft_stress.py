"""Are sums right by ``stretto.torchft`` through changes of quorum, whoever dies and whenever?

A coordinator plays the lighthouse of torchft. For each change it names the members of a new quorum, and they do random
AllReduces, AllGathers and Broadcasts. At a random moment one of them is killed, or the next quorum comes early, while
members connect, measure, plan or run. The next quorum has those who live, and newcomers where places are free. Each
result of integers is compared with its definition, bit for bit, and sums that are rounded between all members. Exits
with 1 if anything is wrong, hangs, or if a quorum that is left alone does not finish. Writes
benchmarks/out/torchft_stress.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import queue
import random
import resource
import signal
import statistics
import threading
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions

from stretto.model.errors import PeerFailed
from stretto.torchft import ProcessGroupStretto

OUT = Path(__file__).parent / "out"
MOST_ELEMENTS = 100_000
STEPS = 3
"""Collectives of a quorum."""
MOMENT_S = 0.6
"""Seconds within which somebody is killed, or the next quorum comes."""
HANGS = 12
"""Times the timeout after which a member that says nothing hangs."""
MEMBERS = "TORCHFT_STRESS_MEMBERS"
"""Set in the process from which members are forked."""


class Wrong(Exception):
    """A collective ended with what it should not."""


@dataclass(frozen=True)
class Quorum:
    """What the coordinator tells a member."""

    number: int
    rank: int
    size: int


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
    pg = ProcessGroupStretto(timedelta(seconds=timeout_s), connect_timeout=timedelta(seconds=timeout_s))
    todo: queue.SimpleQueue[Quorum | None] = queue.SimpleQueue()
    idle = threading.Event()
    idle.set()

    def work() -> None:
        while (q := todo.get()) is not None:
            told: list[str] = []
            try:
                pg.configure(f"{store}/q{q.number}", "0", q.rank, q.size)
                pipe.send((q.number, "met", time.monotonic(), None))
                for step in range(STEPS):
                    told.append(collective(pg, q, step))
                    pipe.send((q.number, "step", time.monotonic(), None))
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
        idle.clear()
        todo.put(q)
        q = pipe.recv()
        while not idle.wait(0.002):
            pg.abort(errored=False)  # whatever the last quorum still does
    pg.abort(errored=False)
    todo.put(None)
    thread.join()
    spent = resource.getrusage(resource.RUSAGE_SELF)
    pipe.send((0, "ended", time.monotonic(), spent.ru_utime + spent.ru_stime))


@dataclass
class Change:
    """What became of one quorum."""

    number: int
    size: int
    killed: int | None
    told: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    began_s: float = 0.0
    resumed_s: float | None = None
    """Seconds until the first collective was done everywhere; None if somebody died before."""


class Coordinator:
    """Names quorums, kills, and collects what the members say."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.size, self.timeout_s = arguments.members, arguments.timeout
        self.rng = random.Random(arguments.seed)
        self.kills, self.hurry = arguments.kills, arguments.hurry
        self.context = multiprocessing.get_context("forkserver")
        # members are forked from a process that has imported this file, and with it PyTorch and compiled kernels
        os.environ[MEMBERS] = str(self.size)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        self.context.set_forkserver_preload([Path(__file__).stem])
        self.server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.members: dict[Connection, Any] = {}
        self.bad: list[str] = []
        self.changes: list[Change] = []
        self.cpu_s = 0.0

    def join(self) -> None:
        """A newcomer."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=member, args=(theirs, f"localhost:{self.server.port}", self.timeout_s), daemon=True
        )
        process.start()
        theirs.close()
        ours.recv()  # it is ready
        self.members[ours] = process

    def change(self, number: int) -> None:
        """One quorum, from its names to its end."""
        free = self.size - len(self.members)
        for _ in range(max(free if self.rng.random() < 0.7 else 0, 2 - len(self.members))):
            self.join()
        pipes = list(self.members)
        self.rng.shuffle(pipes)
        kills = self.rng.random() < self.kills
        victim = self.rng.randrange(len(pipes)) if kills else None
        # a new quorum may come while the last one is under way
        hurried = not kills and self.rng.random() < self.hurry
        now = Change(number, len(pipes), victim, began_s=time.monotonic())
        for rank, pipe in enumerate(pipes):
            pipe.send(Quorum(number, rank, len(pipes)))
        moment = now.began_s + self.rng.random() * MOMENT_S
        steps = 0
        waiting = set(range(len(pipes)))
        hit = False
        while waiting and time.monotonic() < now.began_s + HANGS * self.timeout_s:
            until = moment - time.monotonic()
            if not hit and until <= 0:
                hit = True
                if victim is not None:
                    process = self.members.pop(pipes[victim])
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()
                    pipes[victim].close()
                    waiting.discard(victim)
                elif hurried:
                    break
                continue
            alive = {pipes[r]: r for r in waiting}
            for pipe in wait(list(alive), None if hit else max(until, 0.0)) if not hit else wait(list(alive), 1.0):
                rank = alive[pipe]
                try:
                    said, what, at_s, content = pipe.recv()
                except (EOFError, ConnectionResetError):
                    if rank != victim:
                        self.bad.append(f"quorum {number}: rank {rank} died by itself")
                    waiting.discard(rank)
                    continue
                if what == "wrong":
                    self.bad.append(f"quorum {number}: rank {rank}: {content}")
                if said != number:
                    continue  # of the last quorum, which this one ended
                if what == "step":
                    steps += 1
                    if steps == len(pipes):
                        now.resumed_s = at_s - now.began_s
                if what == "done":
                    now.told[rank] = content
                if what == "failed":
                    now.failed[rank] = content
                if what in ("done", "failed", "wrong"):
                    waiting.discard(rank)
        if waiting and not hurried:
            self.bad.append(f"quorum {number}: {sorted(waiting)} say nothing; victim {victim}")
        if victim is None and not hurried and now.failed:
            self.bad.append(f"quorum {number}: nobody died, but {now.failed}")
        for step in range(STEPS):
            if len({told[step] for told in now.told.values()}) > 1:
                self.bad.append(f"quorum {number}: members have different sums in step {step}")
        self.changes.append(now)

    def end(self) -> None:
        for pipe in self.members:
            pipe.send(None)
        for pipe, process in self.members.items():
            while pipe.poll(2 * self.timeout_s):
                _, what, _, content = pipe.recv()
                if what == "ended":
                    self.cpu_s += content
                    break
            process.join(self.timeout_s)
            process.kill()


def warm(members: int) -> None:
    """Load compiled kernels once, in the process from which members are forked."""
    from stretto.choose.library import Library

    for n in range(2, members + 1):
        for kind in ("allreduce", "allgather", "broadcast"):
            Library(None, range(n), 0).recipe(kind, 1 << 18)


def run(arguments: argparse.Namespace) -> Coordinator:
    """All changes, one after another."""
    coordinator = Coordinator(arguments)
    for number in range(1, arguments.changes + 1):
        coordinator.change(number)
    coordinator.end()
    return coordinator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--members", type=int, default=4, help="the most members of a quorum")
    parser.add_argument("--kills", type=float, default=0.7, help="share of the quorums in which a member is killed")
    parser.add_argument("--hurry", type=float, default=0.5, help="share of the others that the next one ends early")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds that members wait for each other")
    parser.add_argument("--out", type=Path, default=OUT / "torchft_stress.json")
    arguments = parser.parse_args()
    began = time.perf_counter()
    coordinator = run(arguments)
    changes, bad = coordinator.changes, coordinator.bad
    resumed = sorted(c.resumed_s for c in changes if c.resumed_s is not None)
    killed = sum(c.killed is not None for c in changes)
    results = sum(len(c.told) * STEPS for c in changes)
    print(
        f"{len(changes)} quorums of 2 to {arguments.members} members, {killed} members killed: {results} results of "
        f"members that finished, {len(bad)} complaints, {time.perf_counter() - began:.0f} s"
    )
    if resumed:
        late = resumed[min(len(resumed) - 1, round(0.99 * len(resumed)))]
        print(
            f"from the names of a quorum to its first result everywhere, {len(resumed)} times: median "
            f"{statistics.median(resumed):.3f} s, 99th percentile {late:.3f} s, most {resumed[-1]:.3f} s"
        )
    print("\n".join(bad))
    arguments.out.parent.mkdir(exist_ok=True)
    rows = [vars(c) | {"told": len(c.told)} for c in changes]
    arguments.out.write_text(json.dumps({"changes": rows, "bad": bad}, indent=1) + "\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
elif __name__ == Path(__file__).stem and MEMBERS in os.environ:
    warm(int(os.environ[MEMBERS]))

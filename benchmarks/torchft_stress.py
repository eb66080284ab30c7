"""Are sums right by ``stretto.torchft`` through changes of quorum, whoever dies and whenever?

A coordinator plays the lighthouse of torchft. For each change it names the members of a new quorum, and they do random
AllReduces, AllGathers and Broadcasts. At a random moment one of them is killed, or the next quorum comes early, while
members connect, measure, plan or run, or when they have ended. The next quorum has those who live, and newcomers where
places are free. Each result of integers is compared with its definition, bit for bit, and sums that are rounded between
all members. Exits with 1 if anything is wrong, hangs, or if a quorum that is left alone does not finish. Prints a line
every ten seconds or so, and in the end how long members took to resume and for what; a member that says nothing prints
its stacks. Writes benchmarks/out/torchft_stress.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch.distributed as dist

from torch_stress import conclude
from torchft_member import STEPS, WAITS, Quorum, member

OUT = Path(__file__).parent / "out"
HANGS = 12
"""Times the timeout after which a member that says nothing hangs."""
MEMBERS = "TORCHFT_STRESS_MEMBERS"
"""Set in the process from which members are forked."""
PROGRESS_S = 10.0
"""Seconds between two lines of progress."""


@dataclass
class Change:
    """What became of one quorum.

    Attributes:
        victim: the rank that is to be killed at a moment; None if none is.
        hurried: whether the next quorum is named at that moment, whatever this one does.
        struck: whether the moment came before all members had ended; else the victim is killed after that.
        told, failed: the digests of members that have finished, and the errors of those that have not.
        resumed_s: seconds until the first collective was done everywhere; None if somebody died before.
        parts: where the member that was last spent them, and its CPU seconds.
        newcomers: members that were in no quorum before.
    """

    number: int
    size: int
    newcomers: int
    victim: int | None
    hurried: bool
    began_s: float
    struck: bool = False
    told: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    resumed: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    resumed_s: float | None = None
    parts: dict[str, float] | None = None

    def hear(self, rank: int, what: str, at_s: float, content: Any) -> None:
        """Take note of what a member says."""
        if what == "done":
            self.told[rank] = content
        elif what == "failed":
            self.failed[rank] = content
        elif what == "resumed":
            self.resumed[rank] = at_s - self.began_s, content
            if len(self.resumed) == self.size:
                self.resumed_s, self.parts = max(self.resumed.values(), key=lambda r: r[0])


class Coordinator:
    """Names quorums, kills, and collects what the members say."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.size, self.timeout_s = arguments.members, arguments.timeout
        self.rng = random.Random(arguments.seed)
        self.kills, self.hurry, self.within_s = arguments.kills, arguments.hurry, arguments.within
        self.context = multiprocessing.get_context("forkserver")
        # members are forked from a process that has imported this file, and with it PyTorch and compiled kernels
        os.environ[MEMBERS] = str(self.size)
        # PyTorch asks for the names of the ends of connections to its store; all are on this machine, so nobody need be
        # asked, and a name server that loses requests would hold up quorums for 5 s
        os.environ.setdefault("RES_OPTIONS", "attempts:0")
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
        newcomers = max(free if self.rng.random() < 0.7 else 0, 2 - len(self.members))
        for _ in range(newcomers):
            self.join()
        pipes = list(self.members)
        self.rng.shuffle(pipes)
        kills = self.rng.random() < self.kills
        victim = self.rng.randrange(len(pipes)) if kills else None
        hurried = not kills and self.rng.random() < self.hurry
        now = Change(number, len(pipes), newcomers, victim, hurried, time.monotonic())
        for rank, pipe in enumerate(pipes):
            pipe.send(Quorum(number, rank, len(pipes), now.began_s))
        silent = self._follow(now, pipes, now.began_s + self.rng.random() * self.within_s)
        self._judge(now, silent, pipes)
        if now.victim is not None and not now.struck:
            self._kill(pipes[now.victim])
        self.changes.append(now)

    def _follow(self, now: Change, pipes: list[Connection], moment: float) -> set[int]:
        """Hear what the members of a quorum say until all have ended; strike at a moment. Returns who has not ended."""
        waiting = set(range(now.size))
        limit = now.began_s + HANGS * self.timeout_s
        while waiting and time.monotonic() < limit:
            if not now.struck and time.monotonic() >= moment:
                now.struck = True
                if now.hurried:
                    break
                if now.victim is not None:
                    self._kill(pipes[now.victim])
                    waiting.discard(now.victim)
                continue
            alive = {pipes[r]: r for r in waiting}
            for pipe in wait(list(alive), max(0.0, (limit if now.struck else moment) - time.monotonic())):
                if not self._hear(now, alive[pipe], pipe):
                    waiting.discard(alive[pipe])
        return waiting

    def _kill(self, pipe: Connection) -> None:
        process = self.members.pop(pipe)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        pipe.close()

    def _hear(self, now: Change, rank: int, pipe: Connection) -> bool:
        """Hear what a member says next; returns whether it has more to say."""
        try:
            said, what, at_s, content = pipe.recv()
        except (EOFError, ConnectionResetError):
            self.bad.append(f"quorum {now.number}: rank {rank} died by itself")
            self.members.pop(pipe).join()
            return False
        if what == "wrong":
            self.bad.append(f"quorum {said}: a member has {content}")
        if said != now.number:
            return True  # of the last quorum, which this one ended
        now.hear(rank, what, at_s, content)
        return what not in ("done", "failed", "wrong")

    def _judge(self, now: Change, silent: set[int], pipes: list[Connection]) -> None:
        """Complain of what should not be."""
        if silent and not now.hurried:
            self.bad.append(f"quorum {now.number}: {sorted(silent)} say nothing; victim {now.victim}")
            for rank in silent:
                os.kill(self.members[pipes[rank]].pid, signal.SIGUSR1)  # it prints the stacks of its threads
        if not now.struck and now.failed:
            self.bad.append(f"quorum {now.number}: nobody died, but {now.failed}")
        for step in range(STEPS):
            if len({told[step] for told in now.told.values()}) > 1:
                self.bad.append(f"quorum {now.number}: members have different sums in step {step}")

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
    """Load compiled kernels and planners once, in the process from which members are forked."""
    from stretto.choose.library import Library
    from stretto.choose.requests import code_digest
    from stretto.runtime.native import machine_code

    code_digest()
    machine_code.load()
    for n in range(2, members + 1):
        for kind in ("allreduce", "allgather", "broadcast"):
            Library(None, range(n), 0).recipe(kind, 1 << 18)


def run(arguments: argparse.Namespace, told: bool = False) -> Coordinator:
    """All changes, one after another; ``told`` asks for lines of progress."""
    coordinator = Coordinator(arguments)
    began = last = time.monotonic()
    for number in range(1, arguments.changes + 1):
        coordinator.change(number)
        if told and (time.monotonic() - last >= PROGRESS_S or number == 1):
            last = time.monotonic()
            print(f"quorum {number} after {last - began:.0f} s, {len(coordinator.bad)} complaints", flush=True)
    coordinator.end()
    return coordinator


def summary(changes: Sequence[Change]) -> list[str]:
    """How long it took to resume, and for what, in lines of a table."""
    lines = ["| from the names of a quorum to its first result everywhere | quorums | median | 99 % within | most |"]
    lines += ["|---|---|---|---|---|"]
    resumed = [(c, c.resumed_s, c.parts) for c in changes if c.resumed_s is not None and c.parts is not None]
    lines.append(_row("with newcomers", [s for c, s, _ in resumed if c.newcomers]))
    lines.append(_row("without", [s for c, s, _ in resumed if not c.newcomers]))
    lines.append(_row("all", [s for _, s, _ in resumed]))
    lines += [_row(f"of that: {name}", [parts[name] for _, _, parts in resumed]) for name in WAITS]
    return [*lines, _row("CPU of a member", [parts["cpu"] for _, _, parts in resumed])]


def _row(name: str, seconds: Sequence[float]) -> str:
    if not seconds:
        return f"| {name} | 0 | | | |"
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"| {name} | {len(ordered)} | {statistics.median(ordered):.3f} s | {late:.3f} s | {ordered[-1]:.3f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--members", type=int, default=4, help="the most members of a quorum")
    parser.add_argument("--kills", type=float, default=0.7, help="share of the quorums in which a member is killed")
    parser.add_argument("--hurry", type=float, default=0.5, help="share of the others that the next one ends early")
    parser.add_argument("--within", type=float, default=0.6, help="seconds within which that happens, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds that members wait for each other")
    parser.add_argument("--out", type=Path, default=OUT / "torchft_stress.json")
    arguments = parser.parse_args()
    began = time.perf_counter()
    coordinator = run(arguments, told=True)
    changes, bad = coordinator.changes, coordinator.bad
    killed = [c for c in changes if c.victim is not None]
    errors = [(text, c.victim) for c in killed for text in c.failed.values()]
    named = sum(text.startswith(f"rank {victim}:") for text, victim in errors)
    results = sum(len(c.told) * STEPS for c in changes)
    print(
        f"{len(changes)} quorums of 2 to {arguments.members} members, {len(killed)} members killed, "
        f"{sum(c.struck for c in killed)} of them before they had ended: "
        f"{named} of {len(errors)} errors name the one that was; "
        f"{results} results of members that finished, {len(bad)} complaints, {time.perf_counter() - began:.0f} s"
    )
    print("\n".join(summary(changes)))
    rows = [vars(c) | {"told": len(c.told)} for c in changes]
    conclude(bad, {"changes": rows, "bad": bad}, arguments.out)


if __name__ == "__main__":
    main()
elif __name__ == Path(__file__).stem and MEMBERS in os.environ:
    warm(int(os.environ[MEMBERS]))

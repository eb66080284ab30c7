"""Do random collectives in a row come out right by stretto, and does everyone name a rank that is killed?

One run of many collectives of random kinds, sizes, types and roots, each checked against what its definition says; then
runs in each of which one rank is killed, or stopped, at a random moment. Every other rank must raise an error that
names it and what was under way, and must end by itself. With ``--groups`` each rank is in several groups, whose
collectives go on at once. Exits with 1 if something hangs, is wrong, or is not named;
writes benchmarks/out/torch_stress.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import stretto.torch  # noqa: F401

OUT = Path(__file__).parent / "out"
MOST_ELEMENTS = 200_000
DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16)


WHAT = "in transfer|in the message|connect|handshake|did not come"
"""What an error says was under way."""


class Wrong(Exception):
    """A collective ended with what it should not."""


class Rank:
    """Collectives of a group whose numbers everyone can tell from their place in the sequence."""

    def __init__(self, rank: int, ranks: int, group: Any) -> None:
        self.rank, self.ranks, self.group = rank, ranks, group

    def numbers(self, i: int, rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """What a rank puts into collective i: integers so small that no sum of them is rounded."""
        g = torch.Generator().manual_seed(i * self.ranks + rank)
        return torch.randint(0, 8, (count,), generator=g).to(dtype)

    def all_reduce(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        t = self.numbers(i, self.rank, count, dtype)
        dist.all_reduce(t, group=self.group)
        return torch.equal(t, sum(self.numbers(i, r, count, dtype) for r in range(self.ranks)))

    def reduce(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        t = self.numbers(i, self.rank, count, dtype)
        dist.reduce(t, root, group=self.group)
        expected = sum(self.numbers(i, r, count, dtype) for r in range(self.ranks))
        return self.rank != root or torch.equal(t, expected)

    def broadcast(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        t = self.numbers(i, self.rank, count, dtype)
        dist.broadcast(t, root, group=self.group)
        return torch.equal(t, self.numbers(i, root, count, dtype))

    def all_gather(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        made = torch.empty(self.ranks * count, dtype=dtype)
        dist.all_gather_into_tensor(made, self.numbers(i, self.rank, count, dtype), group=self.group)
        return torch.equal(made, torch.cat([self.numbers(i, r, count, dtype) for r in range(self.ranks)]))

    def reduce_scatter(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        made = torch.empty(count, dtype=dtype)
        dist.reduce_scatter_tensor(made, self.numbers(i, self.rank, self.ranks * count, dtype), group=self.group)
        total = sum(self.numbers(i, r, self.ranks * count, dtype) for r in range(self.ranks))
        return torch.equal(made, total[self.rank * count :][:count])

    def all_to_all(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        made = torch.empty(self.ranks * count, dtype=dtype)
        dist.all_to_all_single(made, self.numbers(i, self.rank, self.ranks * count, dtype), group=self.group)
        sent = [self.numbers(i, r, self.ranks * count, dtype) for r in range(self.ranks)]
        return torch.equal(made, torch.cat([t[self.rank * count :][:count] for t in sent]))

    def gather(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        made = [torch.empty(count, dtype=dtype) for _ in range(self.ranks)] if self.rank == root else None
        dist.gather(self.numbers(i, self.rank, count, dtype), made, root, group=self.group)
        return made is None or all(torch.equal(t, self.numbers(i, r, count, dtype)) for r, t in enumerate(made))

    def scatter(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        made = torch.empty(count, dtype=dtype)
        parts = [self.numbers(i, r, count, dtype) for r in range(self.ranks)]
        dist.scatter(made, parts if self.rank == root else None, root, group=self.group)
        return torch.equal(made, parts[self.rank])

    def pass_on(self, i: int, count: int, dtype: torch.dtype, root: int) -> bool:
        """Messages around a ring."""
        made = torch.empty(count, dtype=dtype)
        before, after = (self.rank - 1) % self.ranks, (self.rank + 1) % self.ranks
        sent = self.numbers(i, self.rank, count, dtype)
        ends = (dist.isend, sent, after), (dist.irecv, made, before)
        for work in dist.batch_isend_irecv([dist.P2POp(*end, group=self.group) for end in ends]):
            work.wait()
        return torch.equal(made, self.numbers(i, before, count, dtype))


KINDS: tuple[Callable[..., bool], ...] = (
    *(Rank.all_reduce, Rank.reduce, Rank.broadcast, Rank.all_gather, Rank.reduce_scatter),
    *(Rank.all_to_all, Rank.gather, Rank.scatter, Rank.pass_on),
)


def work(
    rank: int, ranks: int, groups: int, store: str, seed: int, collectives: int, timeout_s: float, pipe: Connection
) -> None:
    """One rank: sends the number of every collective that it begins, then what became of each group, and its CPU
    seconds."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    rng, telling = random.Random(seed), threading.Lock()
    calls = [(rng.choice(KINDS), rng.choice(DTYPES), rng.randrange(ranks), rng.random()) for _ in range(collectives)]

    def do(number: int, group: Any) -> str:
        """All collectives of one group."""
        here = Rank(rank, ranks, group)
        try:
            for i in range(number, collectives, groups):
                with telling:
                    pipe.send(i)
                kind, dtype, root, part = calls[i]
                count = [0, int(100 * part), int(MOST_ELEMENTS * part)][i // groups % 3]
                if not kind(here, i, count, dtype, root):
                    raise Wrong(f"collective {i}, {kind.__name__} of {count} {dtype} from {root}, is wrong at {rank}")
        except RuntimeError as error:
            return str(error)
        except Exception:
            return traceback.format_exc()
        return "ended"

    told = [""]
    try:
        within = timedelta(seconds=timeout_s)
        dist.init_process_group("stretto", f"file://{store}", within, world_size=ranks, rank=rank)
        more = [dist.new_group(backend="stretto", timeout=within) for _ in range(groups - 1)]
        made = [dist.group.WORLD, *more]
        for group in more:
            dist.barrier(group=group)
        with ThreadPoolExecutor(groups) as pool:
            told = list(pool.map(do, range(groups), made))
        if {*told} == {"ended"}:
            dist.destroy_process_group()
    except RuntimeError as error:
        told = [str(error)]
    pipe.send((told, spent_s()))


def run(
    ranks: int, groups: int, seed: int, collectives: int, timeout_s: float, struck_at: int | None = None,
    blow: int = signal.SIGKILL,
) -> dict[str, Any]:  # fmt: skip
    """Some processes; rank ``seed % ranks`` gets a signal when it begins collective ``struck_at``, if given."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "stretto.torch"])
    victim = seed % ranks if struck_at is not None else None
    with tempfile.TemporaryDirectory() as folder:
        pipes, children = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(duplex=False)
            arguments = rank, ranks, groups, os.path.join(folder, "store"), seed, collectives, timeout_s, theirs
            children.append(context.Process(target=work, args=arguments, daemon=True))
            children[-1].start()
            theirs.close()
            pipes.append(ours)
        if victim is not None:
            while pipes[victim].poll(3 * timeout_s) and pipes[victim].recv() != struck_at:
                pass
            os.kill(children[victim].pid, blow)
        told = {rank: told_by(pipe, 3 * timeout_s) for rank, pipe in enumerate(pipes) if rank != victim}
        for rank, child in enumerate(children):
            if rank != victim:
                child.join(3 * timeout_s)
            child.kill()
            child.join()
        codes = {rank: child.exitcode for rank, child in enumerate(children) if rank != victim}
    return {
        "victim": victim, "struck_at": struck_at, "told": {r: t for r, (t, _) in told.items()}, "exit_codes": codes,
        "cpu_s": sum(cpu_s for _, cpu_s in told.values()),
    }  # fmt: skip


def told_by(pipe: Connection, within_s: float) -> tuple[list[str], float]:
    """What a rank says in the end; it must say something at least every so often."""
    try:
        while pipe.poll(within_s):
            if isinstance(message := pipe.recv(), tuple):
                return message
        return ["it hangs"], 0.0
    except EOFError:
        return ["it died without a word"], 0.0


def spent_s() -> float:
    """CPU seconds of this process so far."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def conclude(bad: Sequence[str], found: Any, out: Path) -> NoReturn:
    """Print the complaints, write what was found, and exit with 1 if there are any complaints."""
    print("\n".join(bad))
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(1 if bad else 0)


def complaints(found: dict[str, Any]) -> list[str]:
    """What is wrong with a run."""
    bad = [f"rank {r} ended with exit code {code}" for r, code in found["exit_codes"].items() if code]
    for rank, text in ((rank, text) for rank, texts in found["told"].items() for text in texts):
        named = text.startswith(f"rank {found['victim']}: ") and re.search(WHAT, text)
        if not (text == "ended" if found["victim"] is None else named):
            bad.append(f"rank {rank}: {text}")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1, help="of all ranks, whose collectives go on at once")
    parser.add_argument("--collectives", type=int, default=1000, help="in the run in which nobody is killed")
    parser.add_argument("--kills", type=int, default=20, help="runs in which somebody is")
    parser.add_argument("--stops", type=int, default=5, help="runs in which somebody is stopped, and says nothing more")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds that a rank may be silent")
    parser.add_argument("--out", type=Path, default=OUT / "torch_stress.json")
    arguments = parser.parse_args()
    began = time.perf_counter()
    runs = [run(arguments.ranks, arguments.groups, arguments.seed, arguments.collectives, arguments.timeout)]
    both = arguments.ranks, arguments.groups
    for k in range(arguments.kills + arguments.stops):
        seed = arguments.seed + 1 + k
        moment = random.Random(seed).randrange(max(1, arguments.collectives // 10))
        blow = signal.SIGKILL if k < arguments.kills else signal.SIGSTOP
        runs.append(run(*both, seed, 2 * arguments.collectives, arguments.timeout, moment, blow))
    bad = [f"run {k}: {text}" for k, found in enumerate(runs) for text in complaints(found)]
    named = sum(len(found["told"]) for found in runs[1:])
    print(f"{arguments.collectives} collectives among {arguments.ranks} ranks; {arguments.kills} runs with one killed, "
          f"{arguments.stops} with one stopped ({named} survivors): {len(bad)} complaints, "
          f"{sum(found['cpu_s'] for found in runs):.0f} CPU s, {time.perf_counter() - began:.0f} s")  # fmt: skip
    conclude(bad, runs, arguments.out)


if __name__ == "__main__":
    main()

"""How soon does a DDP job run by a new plan when a link is halved, and how good is that plan? In namespaces (root).

Ranks train a small model with DDP on a full mesh of emulated links; a controller in rank 0's namespace plans for them.
The cable between the first two ranks is halved and restored again and again under the running job. For each halving the
seconds are taken until the first step at which all ranks run by a plan for the halved link, and the times of steps
after that. A second job then runs on the network that was halved from the start, by the controller's plan for it.
Prints both, their ratio, and how near the bandwidth that the plan is for comes to what the link has; writes
benchmarks/out/controller_ddp.json. ``--hold`` is that of ``stretto serve``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

OUT = Path(__file__).parent / "out"
JOB = "training"
SETTLE_S = 1.0
"""Seconds in which steps are measured, and those before them in which plans may still become better."""
START_S, MISSED_S = 60.0, 6.0
"""Seconds within which a job must begin, and after which a change of plans counts as missed. A halving takes four times
``SETTLE_S`` and both changes of plans: 12 of them at most 4 minutes with both starts, if none is missed."""


def worker(rank: int, ranks: int, folder: str, numbers: int) -> None:
    """One rank: trains until a file says that it is enough, and writes a line for each step."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("stretto", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(numbers // 250, 250, bias=False))
    given, wanted = torch.randn(4, numbers // 250), torch.randn(4, 250)
    group, stop, steps = dist.group.WORLD, torch.zeros(1), 0
    with open(f"{folder}/steps{rank}", "w", buffering=1) as log:
        while not stop.item():
            torch.nn.functional.mse_loss(model(given), wanted).backward()
            with torch.no_grad():  # torch.optim takes seconds to load
                for parameter in model.parameters():
                    parameter -= 1e-4 * parameter.grad
                    parameter.grad = None
            steps += 1
            if steps % 10 == 0:  # all stop at the same step
                stop.fill_(float(rank == 0 and Path(folder, "stop").exists()))
                dist.all_reduce(stop)
            uses = [
                u for s, u in group._collectives.plans._uses.items() if s.kind == "allreduce" and s.size_bytes > 1 << 16
            ]
            narrowest = float(uses[0].recipe.program.plan.topology.bandwidth.min())
            log.write(json.dumps([time.monotonic(), narrowest, uses[0].recipe.digest]) + "\n")
    dist.destroy_process_group()


class Site:
    """The emulated machines, and the controller in the namespace of the first."""

    def __init__(self, net, places, folder: str, arguments: argparse.Namespace, name: str, topology: str) -> None:
        self.net, self.places, self.folder, self.wide = net, places, Path(folder, name), arguments.bandwidth
        self.folder.mkdir()
        inside = ["ip", "netns", "exec", places[0].argument]
        serve = ["serve", "--host", places[0].host, "--port", "8642", "--insecure", "--data", str(self.folder / "data"),
                 "--hold", str(arguments.hold), "--effort", arguments.effort, "--least-gain", "0.01",
                 "--json"]  # fmt: skip
        log = open(self.folder / "controller.log", "w")  # noqa: SIM115
        self.controller = subprocess.Popen(
            [*inside, sys.executable, "-m", "stretto", *serve], stdout=subprocess.PIPE, stderr=log, text=True
        )
        url = json.loads(self.controller.stdout.readline())["url"]
        environment = {**os.environ, "STRETTO_CONTROLLER": url, "STRETTO_JOB": JOB, "STRETTO_TOPOLOGY": topology,
                       "STRETTO_CACHE": ""}  # fmt: skip
        ranks = len(net.accelerators)
        for r in range(ranks):
            Path(self.folder, f"steps{r}").touch()
        self.workers = [
            subprocess.Popen(
                ["ip", "netns", "exec", places[r].argument, "env", f"STRETTO_HOST={places[r].host}", sys.executable,
                 __file__, "--worker", str(r), str(ranks), str(self.folder), str(arguments.numbers)],
                env=environment, stderr=log if r == 0 else None,
            )
            for r in range(ranks)
        ]  # fmt: skip

    def steps(self) -> list[list[list[float]]]:
        """For each rank its steps so far: moment, narrowest planned link, digest of the plan."""
        return [
            [json.loads(line) for line in text.splitlines() if line.endswith("]")]
            for text in (Path(self.folder, f"steps{r}").read_text() for r in range(len(self.workers)))
        ]

    def await_plan(self, fits: Callable[[float], bool], since: float, within_s: float) -> float | None:
        """The moment from which on all ranks run by plans whose narrowest link fits; None if that does not come."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            moments = [[row[0] for row in rows if row[0] > since and fits(row[1])] for rows in self.steps()]
            if all(moments):
                return max(times[0] for times in moments)
            if any(w.poll() is not None for w in self.workers):
                raise SystemExit(f"a rank ended: {self.folder}")
            time.sleep(0.1)
        return None

    def widen(self, bandwidth: float) -> float:
        """Change the cable between the first two ranks, both ways; returns the moment."""
        from stretto.emulator.shaping import bucket, wire_share

        for a, b in ((0, 1), (1, 0)):
            now, first = (
                next(bucket(f"to{b}", rate * wire_share(self.net), 0)).split() for rate in (bandwidth, self.wide)
            )
            # a packet that is queued already, and larger than a smaller bucket, would stay there for ever
            now[now.index("burst") + 1] = first[first.index("burst") + 1]
            subprocess.run(["tc", "-n", self.places[a].argument, "qdisc", "change", *now[2:]], check=True)
        return time.monotonic()

    def step_s(self, since: float) -> list[float]:
        """Seconds of rank 0's steps since a moment."""
        moments = [row[0] for row in self.steps()[0] if row[0] >= since]
        return [b - a for a, b in pairwise(moments)]

    def end(self) -> None:
        Path(self.folder, "stop").touch()
        codes = [w.wait(60) for w in self.workers]
        self.controller.terminate()
        self.controller.wait()
        if any(codes):
            raise SystemExit(f"a rank failed: {codes}")


def running(arguments: argparse.Namespace, folder: str) -> dict:
    """The job under which a link is halved, and the one that is planned for the halved link from the start."""
    from dataclasses import replace

    from stretto import emulator
    from stretto.topologies import load_topology

    spec = f"fullmesh:{arguments.ranks}?bandwidth={arguments.bandwidth:.0f}B/s&latency=0s"
    net, wide = load_topology(spec), arguments.bandwidth
    bandwidth = net.bandwidth.copy()
    for link, ends in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True)):
        bandwidth[link] /= 2 if set(ends) == {0, 1} else 1
    halved = Path(folder, "halved.json")
    halved.write_text(json.dumps(replace(net, bandwidth=bandwidth).to_json()))
    taken_s, after_s, before_s, known = [], [], [], []
    with emulator.built(net) as places:
        site = Site(net, places, folder, arguments, "changing", spec)
        site.await_plan(bool, 0.0, START_S)
        for number in range(arguments.halvings):
            site.await_plan(lambda narrowest: narrowest > 0.95 * wide, time.monotonic(), MISSED_S)
            time.sleep(SETTLE_S)
            began = time.monotonic()
            time.sleep(SETTLE_S)
            before_s += site.step_s(began)
            at = site.widen(wide / 2)
            took = site.await_plan(lambda narrowest: narrowest < 0.75 * wide, at, MISSED_S)
            taken_s.append(math.inf if took is None else took - at)
            time.sleep(SETTLE_S)
            began = time.monotonic()
            time.sleep(SETTLE_S)
            after_s += site.step_s(began)
            known.append(site.steps()[0][-1][1] / (wide / 2))
            print(f"halving {number + 1} of {arguments.halvings}: new plan after {taken_s[-1]:.2f} s, for a link of "
                  f"{known[-1]:.2f} times what it has", file=sys.stderr, flush=True)  # fmt: skip
            site.widen(wide)
        site.end()
        site = Site(net, places, folder, arguments, "planned", str(halved))
        site.widen(wide / 2)
        site.await_plan(bool, 0.0, START_S)
        time.sleep(2 * SETTLE_S)
        began = time.monotonic()
        time.sleep(max(3.0, arguments.halvings * SETTLE_S))
        planned_s = site.step_s(began)
        site.end()
    return {"taken_s": taken_s, "before_s": before_s, "after_s": after_s, "planned_s": planned_s, "known": known}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--bandwidth", type=float, default=20e6, help="bytes/s of each link")
    parser.add_argument("--numbers", type=int, default=250_000, help="parameters of the model")
    parser.add_argument("--halvings", type=int, default=10)
    parser.add_argument("--hold", type=float, default=0.5, help="seconds for which a link must differ")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--folder", help="an empty folder for logs, which is kept")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        found = running(arguments, arguments.folder or stack.enter_context(tempfile.TemporaryDirectory()))
    taken, after, planned = found["taken_s"], statistics.median(found["after_s"]), statistics.median(found["planned_s"])
    print(f"all ranks by the new plan after: median {statistics.median(taken):.2f} s, most {max(taken):.2f} s of "
          f"{len(taken)}")  # fmt: skip
    print(f"the halved link is planned for with {min(found['known']):.2f} to {max(found['known']):.2f} times what it "
          f"has, median {statistics.median(found['known']):.2f}")  # fmt: skip
    before = statistics.median(found["before_s"])
    print(f"a step took {1e3 * before:.1f} ms, with the link halved {1e3 * after:.1f} ms, and {1e3 * planned:.1f} ms "
          f"where it was planned for from the start: {after / planned:.2f}")  # fmt: skip
    OUT.mkdir(exist_ok=True)
    (OUT / "controller_ddp.json").write_text(json.dumps({**vars(arguments), **found}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    else:
        main()

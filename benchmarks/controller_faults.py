"""Two instances of the controller on a PostgreSQL that goes, and leaders that stand still or die: how long each takes.

Starts a PostgreSQL cluster and two `stretto serve` of this machine, with the default of `--gone-after`, and one job
that asks for its plan ten times a second. For each fault it prints how long the fault lasts, how many of the job's
questions were answered meanwhile and how many refused, after what time another instance leads, and how long after that,
or after the fault, a changed job has its new plan. Wall-clock times, so run it on two cores that do nothing else.

    python benchmarks/controller_faults.py [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import stretto as st
from controller_process import Served
from postgres_cluster import Cluster, running
from stretto.model.errors import StrettoError
from stretto.service.client import Controller

ASKS_S = 0.1
"""Seconds from one question of the job to its next."""


class Asking:
    """A job that asks for its plan at a steady rate, and what it was answered."""

    def __init__(self, urls: str) -> None:
        self.answers: Counter[str] = Counter()
        self._client, self._ended = Controller(urls), threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._ended.wait(ASKS_S):
            try:
                self._client.plan("job")
                self.answers["answered"] += 1
            except StrettoError:
                self.answers["refused"] += 1

    def end(self) -> dict[str, int]:
        self._ended.set()
        self._thread.join()
        return {what: self.answers[what] for what in ("answered", "refused")}


def planned_s(client: Controller, weight: int) -> float:
    """How long it takes from now until a changed job has its plan; refused writes are tried again."""
    begun = time.perf_counter()
    job = {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}], "weight": weight}
    version, known = None, None
    while True:
        try:
            version = version or client.put_job("job", job)["version"]
            said = client.plan("job", known=known, wait_s=10)
            if said is not None:
                if said["job_version"] >= version:
                    return time.perf_counter() - begun
                known = said["version"]
        except StrettoError:
            time.sleep(0.05)


@contextmanager
def stopped(postgres: Cluster):
    """Connections are cut, and new ones refused."""
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


@contextmanager
def standing_still(served: Served):
    """The process of an instance stands still."""
    os.kill(served.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(served.process.pid, signal.SIGCONT)


def leader_of(instances: list[Served]) -> Served:
    while True:
        for served in instances:
            try:
                if served.client().health()["leader"]:
                    return served
            except StrettoError:
                pass
        time.sleep(0.1)


def followed_s(others: list[Served], weight: int) -> dict[str, float]:
    """How long it takes from now until another instance leads, and then until a changed job has its plan."""
    begun = time.perf_counter()
    leader = leader_of(others)
    return {"led_after_s": time.perf_counter() - begun, "planned_after_s": planned_s(leader.client(), weight)}


def lasted(fault: AbstractContextManager[None], seconds: float, urls: str, weight: int) -> dict[str, float]:
    """A fault of some seconds: what the job is answered meanwhile, and how soon it has a new plan afterwards."""
    with fault:
        asking = Asking(urls)
        time.sleep(seconds)
        answers = asking.end()
    return {"lasts_s": seconds, **answers, "planned_after_s": planned_s(Controller(urls), weight)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    found = {}
    with running() as postgres:
        instances = [Served(postgres.url) for _ in range(2)]
        urls = ",".join(served.url for served in instances)
        try:
            Controller(urls).put_network("net", st.topology("ring:4").to_json())
            for served in instances:
                planned_s(served.client(), 1)
            found["nothing"] = {"planned_after_s": planned_s(Controller(urls), 2)}
            found["database stands still"] = lasted(postgres.standing_still(), seconds, urls, 3)
            found["database refuses"] = lasted(stopped(postgres), seconds, urls, 4)
            leader = leader_of(instances)
            with standing_still(leader):
                others = [served for served in instances if served is not leader]
                found["leader stands still"] = followed_s(others, 5)
            leader_of(instances).kill()
            left = next(served for served in instances if served.process.poll() is None)
            found["leader is killed"] = followed_s([left], 6)
        finally:
            for served in instances:
                if served.process.poll() is None:
                    served.stop()
    for fault, numbers in found.items():
        print(f"{fault:24}" + "".join(f"  {name} {number:.4g}" for name, number in numbers.items()))
    out = Path(__file__).parent / "out" / "controller_faults.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

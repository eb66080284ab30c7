"""A controller with 100 jobs: how long a GET takes, and whether planning keeps up with jobs that change.

Starts `stretto serve` on this machine, makes one network and the jobs on it, and then, for a minute, changes a job
every few seconds while readers ask for plans at a steady rate. Wall-clock times, so run it on two cores that do nothing
else. Prints the 50th, 99th and largest time of a GET, and the time from PUT to the published plan.

    python benchmarks/controller.py [--jobs 100] [--seconds 60] [--rate 100]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import stretto as st
from stretto.service.client import Controller, ControllerRefused

READERS = 4
"""Connections that ask at the same time."""

CHANGE_S = 5.0
"""Seconds between two changes of a job."""

NETWORK = "sites:3,4"
KINDS = ("allreduce", "allgather", "reducescatter")
SIZES = ("1MB", "16MB", "64MB", "256MB")
NAMES = list(st.topology(NETWORK).names)


def job(number: int, weight: float = 1.0) -> dict[str, object]:
    """One of twelve shapes, on all accelerators or on those of one site."""
    collective = {"kind": KINDS[number % 3], "size": SIZES[number % 4], "times": 1 + number % 5}
    site = [name for name in NAMES if name.startswith(f"s{number % 3}.gpu")]
    ranks = {"ranks": site} if number % 2 else {}
    return {"network": "net", "collectives": [collective], "weight": weight, **ranks}


def published(client: Controller, name: str, job_version: int) -> dict[str, object]:
    """The first plan that serves that version of a job."""
    known = None
    while True:
        try:
            said = client.plan(name, known=known, wait_s=60)
        except ControllerRefused as refused:
            if refused.code != "no_plan_yet":
                raise
            continue
        if said is not None:
            if said["job_version"] >= job_version:
                return said
            known = said["version"]


def read(url: str, jobs: int, rate: float, ends_at: float, times_s: list[float]) -> None:
    """Ask for plans of jobs in turn at a steady rate, and note how long each answer took."""
    client, number, due = Controller(url), 0, time.monotonic()
    while (now := time.monotonic()) < ends_at:
        if now < due:
            time.sleep(due - now)
        begun = time.perf_counter()
        client.plan(f"job{number % jobs}")
        times_s.append(time.perf_counter() - begun)
        number, due = number + 1, due + 1.0 / rate


def share(times_s: list[float], part: float) -> float:
    """The time that this part of all answers does not exceed."""
    return sorted(times_s)[min(len(times_s) - 1, int(part * len(times_s)))]


def measured(url: str, jobs: int, seconds: float, rate: float) -> dict[str, float]:
    """Make the jobs, then change and read."""
    client = Controller(url)
    client.put_network("net", st.topology(NETWORK).to_json())
    begun = time.perf_counter()
    versions = [client.put_job(f"job{number}", job(number))["version"] for number in range(jobs)]
    put_s = time.perf_counter() - begun
    for number, version in enumerate(versions):
        published(client, f"job{number}", version)
    planned_s = time.perf_counter() - begun
    times_s: list[float] = []
    ends_at = time.monotonic() + seconds
    readers = [
        threading.Thread(target=read, args=(url, jobs, rate / READERS, ends_at, times_s)) for _ in range(READERS)
    ]
    for reader in readers:
        reader.start()
    waits_s, number = [], 0
    while time.monotonic() < ends_at:
        begun = time.perf_counter()
        version = client.put_job(f"job{number}", job(number, 2.0 + number))["version"]
        published(client, f"job{number}", version)
        waits_s.append(time.perf_counter() - begun)
        number = (number + 1) % jobs
        time.sleep(max(0.0, CHANGE_S - waits_s[-1]))
    for reader in readers:
        reader.join()
    gets = {"get_p50_s": share(times_s, 0.5), "get_p99_s": share(times_s, 0.99), "get_max_s": max(times_s)}
    changes = {"change_p50_s": share(waits_s, 0.5), "change_max_s": max(waits_s)}
    counts = {"jobs": jobs, "gets": len(times_s), "changes": len(waits_s)}
    return {**counts, "put_s": put_s, "all_planned_s": planned_s, **gets, **changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0, help="GETs a second in all")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "stretto",
            "serve",
            "--data",
            folder,
            "--port",
            "0",
            "--rate",
            "10000",
            "--json",
        ]
        served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            url = json.loads(served.stdout.readline())["url"]
            found = measured(url, given.jobs, given.seconds, given.rate)
        finally:
            served.terminate()
            served.wait()
    for name, value in found.items():
        print(f"{name:15}{value:12.4f}" if name.endswith("_s") else f"{name:15}{value:12}")
    out = Path(__file__).parent / "out" / "controller.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

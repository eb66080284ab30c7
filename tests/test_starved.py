"""The same request gives the same plan, however little of the machine the process that plans gets."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import stretto as st

REQUESTS = (
    ("allreduce", "sites:3,4", {"size": "16MB"}),
    ("allgather", "amd:2", {"shard": "64KB"}),
    ("alltoall", "sites:2,3", {"size": "16MB", "effort": "quick"}),
    ("allgather", "ndv2:2", {"size": "1MB", "planner": "taccl", "effort": "quick"}),
)
SPIN, NICE = "while True: pass", 5
STOP_S, GO_S = 0.1, 0.2
"""The longest time for which a process is stopped at once, and may run between two stops."""

COMMANDS = f"""
import json, os, sys
os.nice({NICE})
from stretto.cli import app
for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
"""


def planning() -> subprocess.Popen[str]:
    """A process of the command line, as nice as its rival: nicer than the tests beside it, which go on."""
    asked = []
    for kind, topology, options in REQUESTS:
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        asked.append(["plan", kind, "-t", topology, *flags, "--json"])
    words = [sys.executable, "-c", COMMANDS, json.dumps(asked)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def digests(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return [json.loads(line)["digest"] for line in out.splitlines()]


@pytest.fixture(scope="module")
def disturbed() -> dict[str, list[str]]:
    """For each way to disturb a process the digests of its plans, one for each request."""
    core = min(os.sched_getaffinity(0))
    starved, stopped = planning(), planning()
    rival = subprocess.Popen(["nice", "-n", str(NICE), sys.executable, "-c", SPIN])
    try:
        for process in (starved, rival):
            os.sched_setaffinity(process.pid, {core})
        draw = random.Random(0)
        while stopped.poll() is None:
            time.sleep(draw.uniform(0, GO_S))
            stopped.send_signal(signal.SIGSTOP)
            time.sleep(draw.uniform(0, STOP_S))
            stopped.send_signal(signal.SIGCONT)
            if starved.poll() is not None:
                rival.kill()
        return {"starved": digests(starved), "stopped": digests(stopped)}
    finally:
        rival.kill()
        rival.wait()


@pytest.mark.parametrize(("number", "request_"), enumerate(REQUESTS), ids=[f"{r[0]}-{r[1]}" for r in REQUESTS])
def test_a_starved_and_a_stopped_process_make_the_same_plan(number, request_, disturbed):
    kind, topology, options = request_
    undisturbed = st.plan(kind, topology, **options).digest()
    assert disturbed["starved"][number] == disturbed["stopped"][number] == undisturbed

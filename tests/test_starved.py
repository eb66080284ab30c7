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
    ("alltoall", "sites:2,3", {"size": "16MB"}),
    ("allgather", "ndv2:2", {"size": "1MB", "planner": "taccl", "effort": "quick"}),
)
SPIN, NICE = "while True: pass", 5
STOP_S, GO_S = 0.1, 0.2
"""The longest time for which a process is stopped at once, and may run between two stops."""


def planning(kind: str, topology: str, options: dict[str, str]) -> subprocess.Popen[str]:
    """A process of the command line, as nice as its rival: nicer than the tests beside it, which go on."""
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    program = f"import os; os.nice({NICE}); from stretto.cli import main; main()"
    words = [sys.executable, "-c", program, "plan", kind, "-t", topology, *flags, "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def digest(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out)["digest"]


@pytest.mark.parametrize(("kind", "topology", "options"), REQUESTS)
def test_a_starved_and_a_stopped_process_make_the_same_plan(kind, topology, options):
    undisturbed = st.plan(kind, topology, **options).digest()
    core = min(os.sched_getaffinity(0))
    starved, stopped = planning(kind, topology, options), planning(kind, topology, options)
    rival = subprocess.Popen(["nice", "-n", str(NICE), sys.executable, "-c", SPIN])
    try:
        for process in (starved, rival):
            os.sched_setaffinity(process.pid, {core})
        draw = random.Random(topology)
        while stopped.poll() is None:
            time.sleep(draw.uniform(0, GO_S))
            stopped.send_signal(signal.SIGSTOP)
            time.sleep(draw.uniform(0, STOP_S))
            stopped.send_signal(signal.SIGCONT)
        assert digest(stopped) == digest(starved) == undisturbed
    finally:
        rival.kill()
        rival.wait()

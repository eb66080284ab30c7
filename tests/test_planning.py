"""The process that makes better plans: what it answers, what is left when it dies, and who ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import pytest

from stretto.choose.kept import Kept, packed, unpacked
from stretto.choose.library import Library
from stretto.choose.planning import MOST_DEATHS, Planner
from stretto.choose.quick import direct_plan, quick_plan
from stretto.choose.requests import Shape
from stretto.schedule.best import completion_s
from stretto.topologies import load_topology
from stretto.verify import verify

NET = load_topology("mesh:2x3?bandwidth=1GB/s")
LIBRARY = Library(NET, range(6), 0, message_s=5e-5)


def request(size: int, **more):
    asked = LIBRARY.request(Shape("broadcast", size, 1))
    return replace(asked, **{"planner": "forest", "effort": "quick", **more})


class Answers:
    """What a planner has answered, in the order of the answers."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.came, self.got = planner, threading.Semaphore(0), []

    def ask(self, asked) -> None:
        def answered(content, reason):
            self.got.append((asked, content, reason))
            self.came.release()

        self.planner.ask(asked, answered)

    def wait(self, count: int) -> list:
        for _ in range(count):
            assert self.came.acquire(timeout=120)
        return self.got


@pytest.fixture
def answers(tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    planner = Planner()
    yield Answers(planner)
    planner.close()


def test_it_plans_once_keeps_the_plan_and_says_why_it_has_none(answers, tmp_path):
    good, known, refused = request(1 << 24), request(1 << 25), request(1 << 26, planner="ring")
    other = packed(known.name, direct_plan(known))
    Kept(tmp_path).keep(known.name, other)
    for asked in (good, good, known, refused):
        answers.ask(asked)
    got = {(asked.name, content, reason) for asked, content, reason in answers.wait(4)}
    assert len(got) == 3 and (known.name, other, "") in got
    (content,) = (content for name, content, _ in got if name == good.name)
    plan = unpacked(content, good.name)
    assert verify(plan).ok and completion_s(plan) < completion_s(quick_plan(good))
    assert Kept(tmp_path).find(good.name) == content
    (reason,) = (reason for name, _, reason in got if name == refused.name)
    assert "ring does not serve broadcast" in reason
    assert os.getpriority(os.PRIO_PROCESS, answers.planner._process.pid) == 19


def test_a_process_that_dies_loses_the_request_that_it_was_at_and_no_other(answers, tmp_path):
    endless = replace(
        Library(load_topology("sites:2,12"), range(24), 0).request(Shape("allreduce", 1 << 24, 0)),
        planner="scale-ccl", effort="thorough",
    )  # fmt: skip
    known = request(1 << 25)
    Kept(tmp_path).keep(known.name, packed(known.name, direct_plan(known)))
    for death in range(1, MOST_DEATHS + 1):
        answers.ask(endless)
        answers.ask(known)
        os.kill(answers.planner._process.pid, signal.SIGKILL)
        two = answers.wait(2)[-2:]
        assert (two[0][1], two[0][2]) == (None, "the planner's process has ended with exit status -9")
        if death < MOST_DEATHS:
            assert unpacked(two[1][1], known.name) is not None
    assert two[1][1] is None
    answers.ask(known)
    assert answers.wait(1)[-1][1:] == (None, f"the planner's process has died {MOST_DEATHS} times")


def test_it_ends_with_the_process_that_asked():
    program = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from test_planning import request
        from stretto.choose.planning import planner
        planner().ask(request(1 << 24), lambda content, reason: None)
        print(planner()._process.pid, flush=True)
        if sys.argv[2] == "killed":
            os.kill(os.getpid(), 9)
    """
    for way in ("killed", "ended"):
        command = [sys.executable, "-c", textwrap.dedent(program), os.path.dirname(__file__), way]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # the planner's process has the other end of the pipe for errors, too: reading ends when both are gone
        assert int(running.communicate(timeout=60)[0]) > 0

"""The handle of the process that plans."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from queue import SimpleQueue

import pytest

pytest.importorskip("sqlalchemy")

from stretto.service import planning_process
from stretto.service.planner import Settings
from stretto.service.planning_process import PlanningProcess

FIRST = "import json, sys; print(json.dumps({'event': 'idle', 'first': sys.stdin.readline()}), flush=True); input()"


def test_its_first_line_says_how_it_is_to_plan_whatever_news_there_is(monkeypatch):
    events, told = [], threading.Event()
    planning = PlanningProcess("sqlite:///x", Settings(), lambda event: (events.append(event), told.set()))

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        write = process.stdin.write

        def with_news(text: str) -> int:
            process.stdin.write = write
            planning.kick()  # a request that comes at this moment
            return write(text)

        process.stdin.write = with_news
        return process

    monkeypatch.setattr(planning_process, "_start", start)
    planning.start(7)
    assert told.wait(30)
    planning.stop()
    assert json.loads(events[0]["first"])["term"] == 7


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch):
    events = SimpleQueue()
    planning = PlanningProcess("sqlite:///x", Settings(), events.put)
    failures = [PermissionError(13, "Permission denied")]

    def start() -> subprocess.Popen[str]:
        if failures:
            raise failures.pop()
        return subprocess.Popen([sys.executable, "-c", FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(planning_process, "_start", start)
    monkeypatch.setattr(planning_process, "AGAIN_S", 0.0)
    planning.start(7)
    assert events.get(timeout=30) == {"event": "died", "reason": "[Errno 13] Permission denied"}
    assert events.get(timeout=30)["event"] == "idle"
    planning.stop()

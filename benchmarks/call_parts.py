"""What the first collective of a process is made of: a stopwatch around the functions that it goes through."""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import Any

PARTS = (
    ("connecting", "stretto.torch.links", "Links.connect"),
    ("loading planners, reading source", "stretto.torch.first_plans", "FirstPlans.load"),
    ("measuring: earlier groups", "stretto.torch.measuring", "Known.agree"),
    ("measuring: pairs", "stretto.measure.survey", "_pairs"),
    ("measuring: connections", "stretto.measure.survey", "_Phases.lanes"),
    ("measuring: between sites", "stretto.measure.survey", "_Phases.between"),
    ("measuring: the rest", "stretto.torch.links", "Links._measure"),
    ("the store", "stretto.torch.meeting", "Meeting._share"),
    ("the store", "stretto.torch.meeting", "Meeting.tell"),
    ("the store", "stretto.torch.meeting", "Meeting.told"),
    ("kept plans", "stretto.torch.first_plans", "FirstPlans._begin"),
    ("planning", "stretto.choose.library", "Library.first_plan"),
    ("waiting for the plan", "stretto.torch.first_plans", "FirstPlans._await"),
    ("giving the plan", "stretto.torch.first_plans", "FirstPlans._make"),
    ("lowering", "stretto.choose.library", "lower_for"),
    ("digest", "stretto.choose.library", "Recipe.digest"),
    ("words for the compiled loop", "stretto.runtime.native.engine", "template_of"),
    ("the call", "stretto.torch.collectives", "Collectives.run"),
)
"""Part, module and function. What a function spends in one of another part counts there alone."""


def holder_of(module, name: str) -> tuple[Any, str]:
    """The module or class that has a function itself, and the function's name there."""
    *outer, last = name.split(".")
    for each in outer:
        module = getattr(module, each)
    return module, last


class Stopwatch:
    """CPU seconds and seconds of each part, over all threads, without the parts inside it; and how often it began."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._lock = threading.Lock()
        self._spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        self._import = builtins.__import__
        for part, module, name in PARTS:
            self._watch(part, importlib.import_module(module), name)
        builtins.__import__ = self._timed_import

    def taken(self) -> dict[str, list[float]]:
        """What has been spent since the last look: part -> CPU seconds, seconds, times."""
        with self._lock:
            spent, self._spent = dict(self._spent), defaultdict(lambda: [0.0, 0.0, 0])
        return spent

    def _watch(self, part: str, module, name: str) -> None:
        holder, last = holder_of(module, name)
        value = holder.__dict__[last]
        if isinstance(value, functools.cached_property):
            value.func = self._timed(part, value.func)
        else:
            setattr(holder, last, self._timed(part, value))

    @contextmanager
    def _span(self, part: str, counts=lambda: True):
        """Count what is done here for a part, without what inner spans count; nothing if ``counts`` then says so."""
        stack = self._own.__dict__.setdefault("stack", [])
        stack.append([0.0, 0.0])
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            yield
        finally:
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
            inner = stack.pop()
            if stack:
                stack[-1][0] += cpu
                stack[-1][1] += wall
            if counts():
                with self._lock:
                    spent = self._spent[part]
                    spent[0] += cpu - inner[0]
                    spent[1] += wall - inner[1]
                    spent[2] += 1

    def _timed(self, part: str, function):
        @functools.wraps(function)
        def timed(*arguments, **named):
            with self._span(part):
                return function(*arguments, **named)

        return timed

    def _timed_import(self, name, globals=None, locals=None, fromlist=(), level=0):
        if name in sys.modules and not fromlist:
            return self._import(name, globals, locals, fromlist, level)
        before = len(sys.modules)
        with self._span("importing", lambda: len(sys.modules) > before):
            return self._import(name, globals, locals, fromlist, level)

"""Ctrl-C ends a command soon, with one word and code 130, whatever it is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from command_line import stretto

SCRIPT = """
import sys
from stretto import cli
from stretto.cli import interrupting, planning
from stretto.model.errors import InputError
interrupting.PATIENCE_S = 0.1

def begun():
    print("begun", flush=True)

def begin(*_, **__):
    {work}

planning.read_request = begin
sys.argv = ["stretto", "plan", "allgather", "-t", "ring:4", "--size", "1MB"]
cli.main()
"""
WORK = {
    "Python": """
    begun()
    while True: pass""",
    "cleaning up, in a second try": """
    try:
        begun()
        while True: pass
    except KeyboardInterrupt:
        import ctypes
        interrupting._hear.__code__ = (lambda number, frame: None).__code__
        print("again", flush=True)
    while True: ctypes.CDLL(None).pause()""",
    "an import that fails then": """
    try:
        begun()
        while True: pass
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None""",
    # the handler is not called, as in a solver; the call itself ends with each signal
    "compiled code": """
    import ctypes
    interrupting._hear.__code__ = (lambda number, frame: None).__code__
    begun()
    while True: ctypes.CDLL(None).pause()""",
}


@pytest.mark.parametrize("what", WORK)
def test_a_command_that_is_interrupted_says_one_word(what):
    command = [sys.executable, "-c", SCRIPT.replace("{work}", WORK[what])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        if "again" in WORK[what]:
            assert process.stdout.readline() == "again\n"
            process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=20)
    assert (process.returncode, out, said) == (130, "", "interrupted\n")


def test_a_command_leaves_signals_as_they_were():
    threads, handler = threading.active_count(), signal.getsignal(signal.SIGINT)
    stretto("plan", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring")
    assert threading.active_count() == threads and signal.getsignal(signal.SIGINT) is handler
    assert signal.set_wakeup_fd(-1) == -1

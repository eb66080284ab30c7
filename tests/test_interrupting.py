"""Ctrl-C ends a command soon, with one word and code 130, whatever it is doing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading

import pytest

from command_line import stretto
from stretto.cli import interrupting

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
    # Python drops what is raised there, and says so
    "a finalizer": """
    class Held:
        def __del__(self):
            begun()
            while True: pass
    Held()
    while True: pass""",
    # the handler is not called, as in a solver; the call itself ends with each signal
    "compiled code": """
    import ctypes
    interrupting._hear.__code__ = (lambda number, frame: None).__code__
    begun()
    while True: ctypes.CDLL(None).pause()""",
}


def ended(process: subprocess.Popen) -> tuple[str, str]:
    """What a process has said that ends; it is killed if it goes on."""
    try:
        return process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@pytest.mark.parametrize("what", WORK)
def test_a_command_that_is_interrupted_says_one_word(what):
    command = [sys.executable, "-c", SCRIPT.replace("{work}", WORK[what])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        if "again" in WORK[what]:
            assert process.stdout.readline() == "again\n"
            process.send_signal(signal.SIGINT)
        out, said = ended(process)
    assert (process.returncode, out, said) == (130, "", "interrupted\n")


RUN = """
import os, signal, sys
from stretto import cli
from stretto.runtime import local

gather = local._gather

def interrupted(plan, pipes, timeout_s, progress, what):
    if "connect" in what:  # all but this process, as the terminal would
        own = signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.killpg(0, signal.SIGINT)
        signal.signal(signal.SIGINT, own)
    return gather(plan, pipes, timeout_s, progress, what)

local._gather = interrupted
sys.argv = "stretto run allgather -t fullmesh:2 --size 64KB -p ring".split()
cli.main()
"""


def test_the_processes_of_a_run_do_not_hear_ctrl_c_and_so_print_no_traces():
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        out, said = ended(process)
    assert (process.returncode, said) == (0, "") and "every byte right" in out


def test_a_command_leaves_signals_as_they_were():
    threads, handler, hook = threading.active_count(), signal.getsignal(signal.SIGINT), sys.unraisablehook
    stretto("plan", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring")
    assert threading.active_count() == threads and signal.getsignal(signal.SIGINT) is handler
    assert signal.set_wakeup_fd(-1) == -1 and sys.unraisablehook is hook


def test_a_server_that_handles_ctrl_c_itself_is_not_cut_off(monkeypatch):
    """As `stretto serve`, whose controller may take more than a second to end."""

    class Heard:
        def wait(self, seconds):
            raise AssertionError("somebody else handles the signal")

    monkeypatch.setattr(interrupting, "_HEARD", Heard())
    told, tell = socket.socketpair()
    with told, tell:
        tell.send(bytes([signal.SIGINT]))
        tell.shutdown(socket.SHUT_WR)
        interrupting._watch(told)
        assert told.recv(1) == b""

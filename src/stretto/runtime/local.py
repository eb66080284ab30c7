"""Run a plan on this machine: a process for every node that takes part, real bytes, the result checked."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from ..lower import Played, Program, circuit_to, lower, node_name, played
from ..model.errors import InputError, PeerFailed, StrettoError
from ..model.plan import Plan
from ..model.progress import Progress, silent
from ..model.symmetric import SymmetricPlan
from . import content
from .channel import Wire
from .circuits import Circuits, Turn
from .connect import Address, join, listen
from .credentials import Credentials, Protection, random_secret
from .execute import execute, prepare
from .native import compiling
from .recorded import Trace, Wait, off_circuits, waits_of
from .switches import Switch, TimedSwitch

__all__ = ["Outcome", "Place", "Played", "played", "run_local"]

MOST_PROCESSES = 256
START_S = 0.05
"""Seconds between the last connection and the common start of a run."""
TELL_S = 0.5
"""Seconds after which a process says again how many transfers have arrived."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        completion_s: seconds from the common start until the last byte that some rank wants had arrived; the mean of
            several runs.
        traces: for each node when its rows began and arrived, seconds from the start of the (last) run.
        wrong: (node, chunk) pairs whose bytes are not what the collective promises.
        turns: the turns of optical planes that changed something, in the order in which they ended.
        waits: of all nodes, the transfers that waited for nothing but their circuits.
        off_circuits: the transfers of which bytes were on a plane that turned.
    """

    completion_s: float
    traces: dict[int, Trace]
    wrong: list[tuple[int, int]]
    turns: list[Turn] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    off_circuits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where a node's process runs.

    Attributes:
        host: the address at which it listens.
        enter: called in the process before it opens a socket, with ``argument`` (as a network namespace needs).
        subflows: for some other nodes the subflows that the network routes apart, each of which gets a connection; only
            0 by default.
        onto: called with the socket of a connection on which the node sends over an optical plane, and with the plane's
            number, so that its packets leave by the node's port there.
    """

    host: str = "127.0.0.1"
    enter: Callable[[Any], None] | None = None
    argument: Any = None
    subflows: Mapping[int, Collection[int]] = field(default_factory=dict)
    onto: Callable[[Wire, int], None] | None = None


def run_local(
    plan: Plan,
    *,
    seed: int = 0,
    pace: float | None = None,
    timeout_s: float = 60.0,
    places: dict[int, Place] | None = None,
    delays: dict[int, float] | None = None,
    runs: int = 1,
    switch: Callable[[], Switch] = TimedSwitch,
    credentials: Credentials | None = None,
    progress: Progress = silent,
) -> Outcome:
    """Run a plan that verifies, with one process for each node.

    Args:
        seed: seed for the random test data.
        pace: real seconds for one second of the plan; None runs as fast as possible.
        places: where each node's process runs; on loopback by default.
        delays: seconds by which the arrival of some transfers is delayed; see :func:`.execute.execute`.
        runs: how often the processes run the plan, one run after the other. Of several the first does not count, and
            the completion is the mean of the others.
        switch: makes what turns optical planes, in the controller's process; by default one without hardware.
        credentials: how processes authenticate; by default by a random secret, and frames are plain, since no packet
            leaves this machine.
        progress: told how many processes are ready, how many transfers have arrived, and how many chunks are checked.
    Raises:
        InputError: too many nodes for one machine, or several runs of a plan that begins with given circuits.
        PeerFailed: a process died, stalled or failed.
    """
    if isinstance(plan, SymmetricPlan):
        _check_count(sum(len(c.ranks) for c in plan.workload.collectives))
    if runs > 1 and plan.turns.count and any((plane.matching >= 0).any() for plane in plan.topology.planes):
        raise InputError("a plan that begins with given circuits finds others when it runs again", "plan")
    programs = lower(plan)
    _check_count(len(programs))
    if os.environ.get("STRETTO_KERNELS") == "compiled" and not compiling.is_compiled():
        compiling.compile_here()  # no process of a run has time for that
    # one server process imports what all processes need, then forks each of them
    context = multiprocessing.get_context("forkserver")
    packages = [name for name in sys.modules if name.startswith("stretto.") and name.count(".") == 1]
    context.set_forkserver_preload(packages)
    _start_server()
    environment = dict(os.environ)  # children have that of the server, which may have begun before it changed
    conditions = {"pace": pace, "delays": delays}
    credentials = credentials or Credentials(random_secret(), frames=Protection.PLAIN)
    pipes: dict[int, Connection] = {}
    children = []
    try:
        for number, (node, program) in enumerate(programs.items()):
            progress(number, len(programs), "starting processes")
            ours, theirs = context.Pipe()
            place = (places or {}).get(node, Place())
            child = context.Process(
                target=_work, daemon=True,
                args=(program, place, credentials, theirs, seed, timeout_s, runs, conditions, switch, environment),
            )  # fmt: skip
            child.start()
            theirs.close()
            pipes[node] = ours
            children.append(child)
        _tell(pipes, _gather(plan, pipes, timeout_s, progress, "preparing to listen"))
        _gather(plan, pipes, timeout_s, progress, "connecting and making test data")
        _tell(pipes, time.monotonic() + START_S)
        results = _gather(plan, pipes, None, progress, "sending")
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join()
    traces = {node: trace for node, (trace, _, _, _) in results.items()}
    digests = {node: digests for node, (_, digests, _, _) in results.items()}
    completion_s = max((max(t.arrived_s.values(), default=0.0) for t in traces.values()), default=0.0)
    if runs > 1:
        ended = [max(moments) for moments in zip(*(moments for _, _, moments, _ in results.values()), strict=True)]
        completion_s = (ended[-1] - ended[0]) / (runs - 1)
    outcome = Outcome(completion_s, traces, content.wrong_by_digest(plan, digests, seed, progress))
    if not plan.turns.count:
        return outcome
    turns = results[plan.topology.node_count][3]
    waits = [wait for node, program in programs.items() for wait in waits_of(program, traces[node], pace)]
    return replace(outcome, turns=turns, waits=waits, off_circuits=off_circuits(plan, traces))


def _check_count(nodes: int) -> None:
    """Refuse more processes than one machine may run."""
    if nodes > MOST_PROCESSES:
        raise InputError(f"{nodes} nodes take part, more than the {MOST_PROCESSES} processes allowed", "plan")


def _start_server() -> None:
    """Start the server process with the import path of this process, which Python before 3.12.4 does not hand over.

    Ctrl-C on a terminal is a signal to all processes. This one ends the others, so they never hear of it.
    """
    resource_tracker.ensure_running()  # before, since it unblocks the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        del os.environ["PYTHONPATH"]
        if path is not None:
            os.environ["PYTHONPATH"] = path


@dataclass(frozen=True)
class _Arrived:
    """How many transfers have arrived at a node, said while it runs."""

    rows: int


def _gather(
    plan: Plan, pipes: dict[int, Connection], timeout_s: float | None, progress: Progress, what: str
) -> dict[int, Any]:
    """One message from every process; raises the first failure that a process reports.

    Args:
        progress: told how many processes have sent theirs, in words, since they work at the same time and the first
            says little of the last; or, of processes that say so, how many transfers have arrived of all.
        what: what processes do until they send their message.
    """
    messages: dict[int, Any] = {}
    missing, arrived = dict(pipes), dict.fromkeys(pipes, 0)
    progress(0, 0, f"{what}, 0 of {len(pipes)} processes done")
    while missing:
        ready = wait(list(missing.values()), timeout_s)
        if not ready:
            late = f"its process has not answered for {timeout_s:g} s, which a longer timeout allows"
            raise PeerFailed(node_name(plan, min(missing)), late)
        for node in [node for node, pipe in missing.items() if pipe in ready]:
            try:
                message = missing[node].recv()
            except (EOFError, ConnectionError):
                raise PeerFailed(node_name(plan, node), "its process died") from None
            if isinstance(message, StrettoError):
                raise message
            if isinstance(message, _Arrived):
                arrived[node] = message.rows
            else:
                messages[node] = message
                del missing[node]
        if any(arrived.values()):
            progress(sum(arrived.values()), int(plan.dst.lengths.sum()), what)
        else:
            progress(0, 0, f"{what}, {len(messages)} of {len(pipes)} processes done")
    return messages


@contextlib.contextmanager
def _telling(pipe: Connection, program: Program, trace: Trace) -> Iterator[None]:
    """Say through a pipe now and then how many transfers have arrived at a node, by the trace of its run."""
    ended = threading.Event()

    def tell() -> None:
        before = 0
        while not ended.wait(TELL_S):
            rows = len(program.steps.receives.keys() & {*[*trace.arrived_s]})
            if rows != before:
                before = rows
                _tell({program.node: pipe}, _Arrived(rows))

    thread = threading.Thread(target=tell, name="stretto-telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(pipes: dict[int, Connection], message: Any) -> None:
    """Send a message to every process; :func:`_gather` says which of them have died."""
    for pipe in pipes.values():
        with contextlib.suppress(ConnectionError):
            pipe.send(message)


def _work(
    program: Program,
    place: Place,
    credentials: Credentials,
    pipe: Connection,
    seed: int,
    timeout_s: float,
    runs: int,
    conditions: dict[str, Any],
    switch: Callable[[], Switch],
    environment: dict[str, str],
) -> None:
    """What the process of one node does; ``conditions`` are options of :func:`.execute.execute`."""
    os.environ.clear()
    os.environ.update(environment)
    plan, circuits = program.plan, None
    try:
        if place.enter is not None:
            place.enter(place.argument)
        listener = listen(place.host)
        pipe.send((place.host, listener.getsockname()[1]))
        addresses: dict[int, Address] = pipe.recv()
        names = {node: node_name(plan, node) for node in addresses}
        mesh = join(program.node, listener, addresses, names, credentials, timeout_s=timeout_s, subflows=place.subflows)
        for c in mesh.connections:
            plane = circuit_to(c.subflow, program.node, c.peer)
            if plane is not None and place.onto is not None:
                place.onto(c.sock, plane)
        if program.turns:
            # the switch must be let go also where another process's failure ends this one
            signal.signal(signal.SIGTERM, _exit)
            circuits = conditions["circuits"] = Circuits(plan.topology.planes, switch())
        prepare(mesh, program)
        steps = program.steps
        inputs = content.inputs(plan, steps.held, program.node, seed)
        outputs = content.outputs(plan, steps.wanted)
        gc.freeze()  # a collection need not look at the plan and the program
        pipe.send(True)
        started_at, ended = pipe.recv(), []
        trace, how = Trace(), {"timeout_s": timeout_s, **conditions}
        with _telling(pipe, program, trace):
            execute(mesh, program, inputs, outputs, started_at=started_at, trace=trace, **how)
        ended.append(time.monotonic())
        for _ in range(runs - 1):
            trace = execute(mesh, program, inputs, outputs, **how)
            ended.append(time.monotonic())
        turns = [] if circuits is None else circuits.turns
        pipe.send((trace, {chunk: content.digest(output) for chunk, output in outputs.items()}, ended, turns))
        mesh.close()
    except (EOFError, ConnectionError):  # the process that asked for the run is gone
        return
    except StrettoError as error:
        _tell({program.node: pipe}, error)
    except OSError as error:  # of the place, as an address that the machine does not have
        _tell({program.node: pipe}, PeerFailed(node_name(plan, program.node), f"its process failed: {error}"))
    finally:
        if circuits is not None:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing is to interrupt what follows
            finally:
                circuits.close()


def _exit(*_: Any) -> NoReturn:
    """End the process after its ``finally`` clauses, which a second signal does not interrupt."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)

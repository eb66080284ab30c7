"""Run one program over a mesh: send what is ready, receive what arrives, and watch the peers.

The loop never blocks on one peer: all sockets are non-blocking and one selector waits for all of them. If a peer is
a run ahead, nothing more is read from it until this process begins that run too. Every process regularly says that it
is alive. A process that has been silent for ``timeout_s`` and has not finished is at fault, however many others wait
for each other because of it; a run that has not ended a little later has failed although all peers are alive. Every
frame carries the code of the call, so whoever calls something else is found out by its first frame.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lower import Program
from ..model.errors import PeerFailed
from .buffers import Array, Buffers
from .circuits import Circuits
from .gate import Gate
from .loop import Run
from .mesh import Mesh
from .native import compiling, engine
from .native.paced import pacing_of
from .pacing import keep_to, planned_rates
from .recorded import Trace
from .switches import TimedSwitch
from .wire import NO_CALL

LOOK_S = 0.25
"""Seconds between two looks at what the compiled loop has received, for the threads that want to know."""


def execute(
    mesh: Mesh,
    program: Program,
    inputs: Mapping[int, Array],
    outputs: Mapping[int, Array],
    *,
    sizes: Mapping[int, int] | NDArray[np.int64] | None = None,
    dtype: Any = np.uint8,
    reduce: Callable[..., Any] = np.add,
    timeout_s: float = 60.0,
    pace: float | None = None,
    started_at: float | None = None,
    delays: Mapping[int, float] | None = None,
    circuits: Circuits | None = None,
    gate: Gate | None = None,
    call: bytes = NO_CALL,
    trace: Trace | None = None,
) -> Trace:
    """Run a program to its end: when this returns, every output is complete.

    Args:
        inputs, outputs: for each chunk that the node holds or wants a contiguous one-dimensional array; an
            input that is not also the output is never written.
        sizes: bytes of chunks by their numbers, the workload's by default; every node must give the same.
        timeout_s: seconds that the run may take, and for which a peer that has not finished may be silent.
        pace: seconds of real time for one second of the plan: starts and rates are kept, scaled by it. None runs
            as fast as dependencies and the network allow.
        started_at: the value of time.monotonic() at the plan's time 0, for which this waits; now by default.
        delays: for some rows the seconds between their last byte and their arrival, on a network without delay.
        circuits: at the controller the optical planes, as the last run left them; by default planes without hardware,
            which are as the plan finds them.
        gate: by which other threads release the rows that wait for them, and learn of arrivals.
        call: the code of what the caller asks for (``CALL_BYTES``); every node must give the same.
        trace: an empty one for other threads to look at: it learns of arrivals while the program runs, and of the rest
            by its end.
    Raises:
        PeerFailed: a peer died, stalled, broke the protocol or gave another call; names the peer and the transfer, or
            both calls. The mesh cannot be used again.
    """
    if mesh.failure is not None:
        raise mesh.failure
    began_cpu_s = time.thread_time()
    loop = engine.for_mesh(mesh) if circuits is None and gate is None and not len(program.events) else None
    if loop is not None:
        how = {"sizes": sizes, "dtype": dtype, "reduce": reduce, "timeout_s": timeout_s, "call": call}
        began_cpu_s += loop.cpu_s
        done = _compiled(loop, mesh, program, inputs, outputs, how, pace, started_at, delays or {}, trace)
        done.cpu_s = time.thread_time() + loop.cpu_s - began_cpu_s
        return done
    mesh.finish()
    mesh.begin(call)
    buffers = Buffers(program.steps, inputs, outputs, sizes, dtype, reduce, mesh.pool)
    start = time.monotonic() if started_at is None else started_at
    own = Circuits(program.plan.topology.planes, TimedSwitch()) if circuits is None and program.turns else None
    run = Run(mesh, program, buffers, timeout_s, pace, start, delays or {}, circuits or own, gate, call)
    if trace is not None:
        run.trace = trace
    if started_at is not None:
        time.sleep(max(0.0, start - time.monotonic()))
    try:
        run.loop()
    except PeerFailed as failure:
        mesh.abort(failure, run.culprit)
        raise
    except BaseException:
        mesh.abort(PeerFailed(mesh.name(mesh.node), "it was interrupted"), mesh.node)
        raise
    finally:
        run.selector.close()
        if own is not None:
            own.close()
    buffers.finish()
    run.trace.cpu_s = time.thread_time() - began_cpu_s
    return run.trace


def prepare(mesh: Mesh, program: Program) -> None:
    """Make what a run of a program over a mesh needs, so that it can begin at once: also the compiled loop, which then
    stays, where it has been compiled and can serve the mesh."""
    if len(program.events) or not engine.can_serve(mesh):
        return
    if compiling.is_compiled():
        engine.hold()
    loop = engine.for_mesh(mesh)
    if loop is not None:
        loop.template(loop.ends_of(mesh), program)


def _compiled(
    loop: engine.Engine,
    mesh: Mesh,
    program: Program,
    inputs: Mapping[int, Array],
    outputs: Mapping[int, Array],
    how: dict[str, Any],
    pace: float | None,
    started_at: float | None,
    delays: Mapping[int, float],
    trace: Trace | None,
) -> Trace:
    """Run a program to its end by the compiled loop."""
    loop.template(loop.ends_of(mesh), program)  # all that takes time is done before the start
    rates = {} if pace is None else planned_rates(mesh, program, pace)
    for c in mesh.connections:
        if pace is not None or c.most_rate == math.inf:
            keep_to(c, rates.get(c, math.inf))
    plain = pace is None and started_at is None and not delays
    pacing = None if plain else pacing_of(program, pace, started_at, delays)
    if started_at is not None:
        time.sleep(max(0.0, started_at - time.monotonic()))
    run = loop.begin(mesh, program, inputs, outputs, pacing=pacing, **how)
    if trace is None:
        return run.result()
    done = run.result(meanwhile=lambda: trace.arrived_s.update(run.arrived_s()), every_s=LOOK_S)
    vars(trace).update(vars(done))
    return trace

"""Run one program over a mesh: send what is ready, receive what arrives, and watch the peers.

The loop never blocks on one peer: all sockets are non-blocking and one selector waits for all of them. If a peer is
a run ahead, nothing more is read from it until this process begins that run too. Every process regularly says that it
is alive. A process that has been silent for ``timeout_s`` and has not finished is at fault, however many others wait
for each other because of it; a run that has not ended a little later has failed although all peers are alive. Every
frame carries the code of the call, so whoever calls something else is found out by its first frame.
"""

from __future__ import annotations

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
from .native import engine
from .recorded import Trace
from .switches import TimedSwitch
from .wire import NO_CALL


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
        trace: an empty one that is filled while the program runs, for other threads to look at.
    Raises:
        PeerFailed: a peer died, stalled, broke the protocol or gave another call; names the peer and the transfer, or
            both calls. The mesh cannot be used again.
    """
    if mesh.failure is not None:
        raise mesh.failure
    began_cpu_s = time.thread_time()
    paced = pace is not None or started_at is not None or bool(delays) or trace is not None
    if not paced and circuits is None and gate is None and not len(program.events):
        loop = engine.for_mesh(mesh)
        if loop is not None:
            begun = loop.begin(
                mesh, program, inputs, outputs, sizes=sizes, dtype=dtype, reduce=reduce, timeout_s=timeout_s, call=call
            )
            done = begun.result()
            done.cpu_s = time.thread_time() - began_cpu_s
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

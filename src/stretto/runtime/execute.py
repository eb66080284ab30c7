"""Run one program over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lower import Program
from ..model.errors import PeerFailed
from .buffers import Array, Buffers
from .mesh import Mesh
from .run import Run
from .trace import Trace


def execute(
    mesh: Mesh,
    program: Program,
    inputs: Mapping[int, Array],
    outputs: Mapping[int, Array],
    *,
    sizes: NDArray[np.int64] | None = None,
    dtype: Any = np.uint8,
    reduce: Callable[..., Any] = np.add,
    timeout_s: float = 60.0,
    pace: float | None = None,
    started_at: float | None = None,
    delays: Mapping[int, float] | None = None,
) -> Trace:
    """Run a program to its end: when this returns, every output is complete.

    Args:
        inputs, outputs: for each chunk that the node holds or wants a contiguous one-dimensional array; an
            input that is not also the output is never written.
        sizes: bytes of each chunk, the workload's by default; every node must give the same.
        timeout_s: seconds for which a peer that has not finished may be silent.
        pace: seconds of real time for one second of the plan: starts and rates are kept, scaled by it. None runs
            as fast as dependencies and the network allow.
        started_at: the value of time.monotonic() at the plan's time 0; now by default.
        delays: for some rows the seconds between their last byte and their arrival, on a network without delay.
    Raises:
        PeerFailed: a peer died, stalled or broke the protocol; names the peer and the transfer. The mesh
            cannot be used again.
    """
    if mesh.failure is not None:
        raise mesh.failure
    chunk_bytes = program.plan.workload.chunk_bytes if sizes is None else sizes
    mesh.runs += 1
    buffers = Buffers(program, inputs, outputs, chunk_bytes, dtype, reduce, mesh.pool)
    run = Run(mesh, program, buffers, timeout_s, pace, started_at, delays or {})
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
    run.buffers.finish()
    return run.trace

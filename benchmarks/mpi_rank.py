"""One rank of Open MPI or MPICH, for library_runs.py: ``mpi_rank.py KIND BYTES REPEATS FOLDER``; needs mpi4py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

kind, size_bytes, repeats, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
world = MPI.COMM_WORLD
shard = size_bytes // 4 // world.size
given, got = np.ones(shard * world.size, np.float32), np.zeros(shard * world.size, np.float32)
part = np.ones(shard, np.float32)
calls = {
    "allreduce": lambda: world.Allreduce(given, got),
    "allgather": lambda: world.Allgather(part, got),
    "reducescatter": lambda: world.Reduce_scatter_block(given, part),
    "alltoall": lambda: world.Alltoall(given, got),
    "broadcast": lambda: world.Bcast(given, 0),
    "reduce": lambda: world.Reduce(given, got, root=0),
    "gather": lambda: world.Gather(part, got, root=0),
    "scatter": lambda: world.Scatter(given, part, root=0),
}
spans = []
for _ in range(1 + repeats):
    world.Barrier()
    begin = time.monotonic()
    calls[kind]()
    spans.append((begin, time.monotonic()))
if kind == "allreduce":
    assert (got == world.size).all(), "it summed wrongly"
Path(folder, f"{world.rank}.json").write_text(json.dumps(spans[1:]))

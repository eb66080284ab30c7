"""Ranks of gloo that run plans by ``stretto.torch.over``, for test_torch_over.py."""

from __future__ import annotations

import pickle
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stretto.model.errors import StrettoError
from stretto.torch import over


def work(rank: int, ranks: int, folder: Path, pipe: Connection) -> None:
    """Run each job in the file ``jobs``: a plan, this rank's input and the shape of its output, or "in place", and an operation."""
    torch.set_num_threads(1)
    init = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": ranks}
    dist.init_process_group("gloo", timeout=timedelta(seconds=60), **init)
    runner, results = over(), []
    for plan, sources, outputs, op in pickle.loads((folder / "jobs").read_bytes()):
        source, output = sources[rank], outputs[rank]
        if isinstance(output, str):
            output = source
        try:
            runner.run(plan, source, output, getattr(dist.ReduceOp, op))
            results.append(output)
        except StrettoError as error:
            results.append(f"{type(error).__name__}: {error}")
    pipe.send([r if r is None or isinstance(r, str) else as_array(r) for r in results])
    dist.barrier()
    dist.destroy_process_group()


def as_array(tensor: torch.Tensor) -> Any:
    """A tensor's numbers, as bits for a type that NumPy lacks."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()

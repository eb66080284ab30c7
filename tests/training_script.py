"""A training script as users write it, for torchrun: ``training_script.py ddp,fsdp,fsdp1 FOLDER``.

Rank 0 saves the parameters after some steps of each way of training. ``dies`` instead of a way of training: the last rank leaves between two
collectives, and the others save what they are told.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

import stretto.torch  # noqa: F401
from stretto.model.errors import PeerFailed

WIDTH, STEPS = 16, 4


def parameters(way: str, ranks: Sequence[int]) -> dict[str, torch.Tensor]:
    """What a small model has learned in a process from the data of these ranks."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, 1)
    )
    if way == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif way == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
    elif way == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generators = [torch.Generator().manual_seed(rank) for rank in ranks]
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.cat([torch.randn(8, WIDTH, generator=g) for g in generators])
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        clip = getattr(model, "clip_grad_norm_", partial(torch.nn.utils.clip_grad_norm_, model.parameters()))
        clip(1.0)
        optimizer.step()
    whole = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in model.state_dict().items()}
    return {k: v.detach().clone() for k, v in whole.items()}


def main() -> None:
    way, folder = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("stretto", timeout=timedelta(seconds=30))
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if way == "dies":
        dist.all_reduce(torch.ones(1000))
        if rank == last:
            os._exit(0)
        try:
            dist.all_reduce(torch.ones(1000))
        except PeerFailed as error:
            torch.save(str(error), f"{folder}/dies.{rank}")
        os._exit(0)
    for each in way.split(","):
        learned = parameters(each, [rank])
        if rank == 0:
            torch.save(learned, f"{folder}/{each}")
    dist.destroy_process_group()
    assert threading.enumerate() == [threading.main_thread()]


if __name__ == "__main__":
    main()

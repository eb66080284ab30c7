"""A training script as users write it, for torchrun: ``training_script.py ddp,fsdp,fsdp1 FOLDER``.

Rank 0 saves the losses of the steps of each way of training, by gloo on the CPU and by stretto, and the parameters after
them. With stretto, ranks train on this machine's GPUs, which they share, if it has any. Then the last rank leaves between
two collectives of stretto, and the others save what they are told.
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
from torch.distributed.device_mesh import init_device_mesh

import stretto.torch  # noqa: F401
from stretto.model.errors import PeerFailed

WIDTH, STEPS = 16, 4
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = {"gloo": "cpu", "cpu:stretto,cuda:stretto" if DEVICE == "cuda" else "cpu:stretto,cuda:nccl": DEVICE}
"""The backends, and the device on which ranks train with each."""
ONE_DATA = ("tp", "pp")
"""Ways in which all ranks work on the data of the first."""


def parameters(
    way: str, ranks: Sequence[int], folder: str = "", device: str = "cpu"
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """What a small model has learned in a process from the data of these ranks, and the losses on the way there."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, 1)
    ).to(device)
    if way == "pp":
        return pipeline(model, device)
    model, optimizer = parallel(way, model, device)
    generators = [torch.Generator().manual_seed(rank) for rank in ranks]
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.cat([torch.randn(8, WIDTH, generator=g) for g in generators]).to(device)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        clip = getattr(model, "clip_grad_norm_", partial(torch.nn.utils.clip_grad_norm_, model.parameters()))
        clip(1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    if way == "dcp":
        restored(model, folder)
    whole = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in model.state_dict().items()}
    return {k.removeprefix("module."): v.detach().cpu().clone() for k, v in whole.items()}, losses


def parallel(way: str, model: torch.nn.Module, device: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model spread over the ranks, and its optimizer."""
    if way in ("ddp", "zero"):
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif way in ("fsdp", "hsdp", "dcp"):
        from torch.distributed.fsdp import fully_shard

        shape = (2, dist.get_world_size() // 2) if way == "hsdp" else (dist.get_world_size(),)
        mesh = init_device_mesh(device, shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif way == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device(device))
    elif way == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh(device, (dist.get_world_size(),))
        model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if way == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def restored(model: torch.nn.Module, folder: str) -> None:
    """Save a model's shards while the process could go on, forget them, and load them again."""
    import torch.distributed.checkpoint as checkpoint

    saving = checkpoint.async_save(model.state_dict(), checkpoint_id=f"{folder}/{dist.get_backend()}")
    saving.result()
    for p in model.parameters():
        p.data.zero_()
    state = model.state_dict()
    checkpoint.load(state, checkpoint_id=f"{folder}/{dist.get_backend()}")
    model.load_state_dict(state)


def pipeline(model: torch.nn.Module, device: str) -> tuple[dict[str, torch.Tensor], list[float]]:
    """A layer of its own for each rank before the last, which has the model, in a pipeline of four microbatches."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, last = dist.get_rank(), dist.get_world_size() - 1
    own = model if rank == last else torch.nn.Linear(WIDTH, WIDTH).to(device)
    optimizer = torch.optim.AdamW(own.parameters(), lr=0.01)
    stage = PipelineStage(own, rank, last + 1, torch.device(device))
    schedule = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
    generator = torch.Generator().manual_seed(0)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, WIDTH, generator=generator).to(device)
        losses: list[torch.Tensor] = []
        schedule.step(
            *([x] if rank == 0 else []),
            **({"target": x.sum(1, keepdim=True), "losses": losses} if rank == last else {}),
        )
        optimizer.step()
        told = torch.stack(losses).detach() if rank == last else torch.empty(4, device=device)
        dist.broadcast(told, last)
        steps.append(float(told.mean()))
    first = {k: v.detach().cpu().clone() for k, v in own.state_dict().items()}
    return first, steps


def dies(folder: str) -> None:
    """The last rank leaves between two collectives; the others save what they are told."""
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1000, device=DEVICE))
    if rank == dist.get_world_size() - 1:
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(1000, device=DEVICE))
    except PeerFailed as error:
        torch.save(str(error), f"{folder}/dies.{rank}")
    os._exit(0)


def main() -> None:
    ways, folder = sys.argv[1].split(","), sys.argv[2]
    torch.set_num_threads(1)
    learned = {}
    for backend, device in BACKENDS.items():
        dist.init_process_group(backend, timeout=timedelta(seconds=30))
        rank = dist.get_rank()
        for way in ways:
            learned[backend.partition(",")[0], way] = parameters(way, [0 if way in ONE_DATA else rank], folder, device)
        dist.destroy_process_group()
    assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
    if rank == 0:
        torch.save(learned, f"{folder}/learned")
    again = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group(backend, timeout=timedelta(seconds=30), **again)
    dies(folder)


if __name__ == "__main__":
    main()

"""One rank of a PyTorch program, for test_torch.py: ``python torch_worker.py RANK SIZE FOLDER``,
by gloo, by stretto, and by stretto on a topology that is named."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import stretto.torch  # noqa: F401


def everything(rank: int, n: int) -> dict[str, torch.Tensor]:
    """The result of every call of the API on numbers that sum without rounding."""
    g = torch.Generator().manual_seed(rank)
    made = {}

    def numbers(*shape: int, dtype=torch.float32) -> torch.Tensor:
        return torch.randint(-50, 50, shape, generator=g).to(dtype)

    for name in ("SUM", "MIN", "MAX"):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            made[f"all_reduce {name} {dtype}"] = t = numbers(17, 3, dtype=dtype)
            dist.all_reduce(t, op=getattr(dist.ReduceOp, name))
    made["large"] = t = numbers(300_001)
    dist.all_reduce(t)
    made["all_gather"] = torch.stack(out := [torch.empty(5) for _ in range(n)])
    dist.all_gather(out, numbers(5))
    made["all_gather"] = torch.stack(out)
    made["all_gather_into_tensor"] = t = torch.empty(n * 4, 2)
    dist.all_gather_into_tensor(t, numbers(4, 2))
    made["reduce_scatter"] = t = torch.empty(7)
    dist.reduce_scatter(t, [numbers(7) for _ in range(n)])
    made["reduce_scatter_tensor"] = t = torch.empty(3, 2)
    dist.reduce_scatter_tensor(t, numbers(3 * n, 2))
    made["all_to_all_single"] = t = torch.empty(2 * n)
    dist.all_to_all_single(t, numbers(2 * n))
    splits, sums = [rank + r for r in range(n)], [r + rank for r in range(n)]
    made["uneven"] = t = torch.empty(sum(sums), 2)
    dist.all_to_all_single(t, numbers(sum(splits), 2), sums, splits)
    made["broadcast"] = t = numbers(9)
    dist.broadcast(t, 1)
    t = numbers(9)
    dist.reduce(t, 1)
    if rank == 1:
        made["reduce"] = t
    out = [torch.empty(3) for _ in range(n)] if rank == 0 else None
    dist.gather(numbers(3), out, dst=0)
    if rank == 0:
        made["gather"] = torch.stack(out)
    made["scatter"] = t = torch.empty(3)
    dist.scatter(t, [numbers(3) for _ in range(n)] if rank == 0 else None, src=0)
    dist.barrier()
    made["recv"] = t = torch.empty(6)
    ops = [dist.P2POp(dist.isend, numbers(6), (rank + 1) % n), dist.P2POp(dist.irecv, t, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert [o["rank"] for o in objects] == list(range(n))
    half = dist.new_group([0, 1])
    made["new_group"] = t = numbers(4)
    if rank < 2:
        dist.all_reduce(t, group=half)
    work = dist.all_reduce(t := numbers(4), async_op=True)
    work.wait()
    made["async"] = t
    return made


def trained(rank: int) -> dict[str, torch.Tensor]:
    """The parameters of a small model after steps of DDP."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        x = torch.randn(4, 8, generator=g)
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
    return {f"ddp {k}": v.detach().clone() for k, v in model.state_dict().items()}


if __name__ == "__main__":
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    for number, (backend, topology) in enumerate((("gloo", ""), ("stretto", ""), ("stretto", f"ring:{size}"))):
        os.environ["STRETTO_TOPOLOGY"] = topology
        dist.init_process_group(
            backend,
            init_method=f"file://{folder}/store{number}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=40),
        )
        torch.save(everything(rank, size) | trained(rank), f"{folder}/{number}.{rank}")
        dist.destroy_process_group()

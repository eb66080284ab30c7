"""One rank of a PyTorch program, for test_torch.py: ``python torch_worker.py RANK SIZE FOLDER``,
by gloo, by stretto, and by stretto on topologies that are named."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import stretto.torch  # noqa: F401
from stretto.model.errors import Unsupported

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OTHERS = (torch.bool, torch.complex64)
CALLS: list[Callable[[Rank], Any]] = []
"""Every call of the API on numbers that sum without rounding; each returns what this rank ends with."""


class Rank:
    """One rank and its numbers, the same in every run."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.generator = torch.Generator().manual_seed(rank)

    def numbers(self, *shape: int, dtype: torch.dtype = torch.float32, low: int = -5) -> torch.Tensor:
        return torch.randint(low, 6, shape, generator=self.generator).to(dtype)

    def room(self, *shape: int) -> list[torch.Tensor]:
        return [torch.empty(shape) for _ in range(self.size)]


def call(function: Callable[[Rank], Any]) -> Callable[[Rank], Any]:
    CALLS.append(function)
    return function


def by_type(op: str, dtype: torch.dtype) -> None:
    def all_reduce(me: Rank) -> Any:
        t = me.numbers(17, 3, dtype=dtype, low=-5 if dtype.is_signed else 0)
        dist.all_reduce(t, op=getattr(dist.ReduceOp, op))
        return t

    all_reduce.__name__ = f"all_reduce {op} of {dtype}"
    call(all_reduce)


for dtype in FLOATS + INTEGERS + OTHERS:
    by_type("SUM", dtype)
for op in ("MIN", "MAX", "PRODUCT", "AVG"):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        by_type(op, dtype)
for op in ("BAND", "BOR", "BXOR"):
    by_type(op, torch.int32)


@call
def large(me: Rank) -> Any:
    dist.all_reduce(t := me.numbers(300_001))
    return t


@call
def sums_that_are_rounded(me: Rank) -> Any:
    given = torch.randn(100_003, generator=me.generator)
    dist.all_gather(parts := me.room(100_003), given)
    made = [given.clone() for _ in range(3)]
    for t in made:
        dist.all_reduce(t)
    assert torch.equal(made[0], made[1]) and torch.equal(made[0], made[2])
    torch.testing.assert_close(made[0], sum(p.double() for p in parts).float())
    dist.all_gather(parts, made[0])
    assert all(torch.equal(p, made[0]) for p in parts)
    return parts[0].shape[0]


@call
def a_number_without_dimensions(me: Rank) -> Any:
    dist.all_reduce(t := me.numbers(1)[0])
    return t


@call
def all_gather(me: Rank) -> Any:
    dist.all_gather(out := me.room(5), me.numbers(5))
    return torch.stack(out)


@call
def all_gather_bool(me: Rank) -> Any:
    out = [torch.empty(5, dtype=torch.bool) for _ in range(me.size)]
    dist.all_gather(out, me.numbers(5, dtype=torch.bool))
    return torch.stack(out)


@call
def all_gather_into_tensor(me: Rank) -> Any:
    dist.all_gather_into_tensor(t := torch.empty(me.size * 4, 2, dtype=torch.bfloat16), me.numbers(4, 2, dtype=t.dtype))
    return t


@call
def reduce_scatter(me: Rank) -> Any:
    dist.reduce_scatter(t := torch.empty(7), [me.numbers(7) for _ in range(me.size)])
    return t


@call
def reduce_scatter_tensor(me: Rank) -> Any:
    dist.reduce_scatter_tensor(t := torch.empty(3, 2), me.numbers(3 * me.size, 2))
    return t


@call
def all_to_all_single(me: Rank) -> Any:
    dist.all_to_all_single(t := torch.empty(2 * me.size), me.numbers(2 * me.size))
    return t


@call
def uneven_splits(me: Rank) -> Any:
    splits = [me.rank * r for r in range(me.size)]  # some are empty
    dist.all_to_all_single(t := torch.empty(sum(splits), 2), me.numbers(sum(splits), 2), splits, splits)
    return t


@call
def all_to_all(me: Rank) -> Any:
    out = [torch.empty(me.rank + r) for r in range(me.size)]
    dist.all_to_all(out, [me.numbers(me.rank + r) for r in range(me.size)])
    return torch.cat(out)


@call
def broadcast(me: Rank) -> Any:
    dist.broadcast(t := me.numbers(9), 1)
    return t


@call
def reduce(me: Rank) -> Any:
    dist.reduce(t := me.numbers(9), 1)
    return t if me.rank == 1 else None


@call
def gather(me: Rank) -> Any:
    out = me.room(3) if me.rank == 0 else None
    dist.gather(me.numbers(3), out, dst=0)
    return out and torch.stack(out)


@call
def scatter(me: Rank) -> Any:
    dist.scatter(t := torch.empty(3), [me.numbers(3) for _ in range(me.size)] if me.rank == 2 else None, src=2)
    return t


@call
def nothing_at_all(me: Rank) -> Any:
    dist.barrier()
    dist.all_reduce(t := torch.empty(0, 3))
    dist.broadcast(t, 0)
    dist.all_gather(out := me.room(0), torch.empty(0))
    return [list(t.shape), *(list(o.shape) for o in out)]


@call
def parts_of_a_tensor(me: Rank) -> Any:
    whole = me.numbers(6, 8)
    part, other = whole[:, ::2].t(), whole[1::2, 1]
    dist.all_reduce(copy := part.contiguous())
    dist.broadcast(told := other.contiguous(), 0)
    if dist.get_backend() == "stretto":  # gloo takes what lies in between
        kept = whole.clone()
        dist.all_reduce(part)
        dist.broadcast(other, 0)
        kept[:, ::2] = copy.t()
        kept[1::2, 1] = told
        assert torch.equal(whole, kept)
    return [copy, told]


@call
def messages(me: Rank) -> Any:
    got, after, before = torch.empty(6), (me.rank + 1) % me.size, (me.rank - 1) % me.size
    ops = [dist.P2POp(dist.isend, me.numbers(6), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got


@call
def messages_by_tag(me: Rank) -> Any:
    if me.rank == 0:
        for work in [dist.isend(torch.full((2,), float(tag)), 1, tag=tag) for tag in (1, 2)]:
            work.wait()
    if me.rank == 1:
        second, first = torch.empty(2), torch.empty(2)
        dist.recv(second, 0, tag=2)
        dist.recv(first, 0, tag=1)
        return torch.cat((first, second))
    return None


@call
def objects(me: Rank) -> Any:
    mine, n = {"rank": me.rank, "text": "x" * me.rank}, me.size
    gathered = [None] * n
    dist.all_gather_object(gathered, mine)
    told = [mine, "more"] if me.rank == 1 else [None, None]
    dist.broadcast_object_list(told, src=1)
    at_root = [None] * n if me.rank == 2 else None
    dist.gather_object(mine, at_root, dst=2)
    own: list[Any] = [None]
    dist.scatter_object_list(own, [[r, "y" * r] for r in range(n)] if me.rank == 0 else [None] * n, src=0)
    passed: list[Any] = [None]
    if me.rank == 0:
        dist.send_object_list([mine], dst=1)
    elif me.rank == 1:
        dist.recv_object_list(passed, src=0)
    return [gathered, told, at_root, own, passed]


@call
def groups_that_overlap_and_groups_that_do_not(me: Rank) -> Any:
    made = []
    for ranks in ([0, 1], [1, 2], [2], [0, 2]):
        group = dist.new_group(ranks)
        if me.rank in ranks:
            dist.all_reduce(t := me.numbers(4), group=group)
            dist.broadcast(u := me.numbers(4), src=ranks[-1], group=group)
            made += [t, u, torch.tensor(dist.get_rank(group))]
            dist.barrier(group)
    return made


@call
def many_at_once(me: Rank) -> Any:
    """Two threads, each with a group of its own and many calls under way."""
    groups = [dist.new_group(list(range(me.size))) for _ in range(2)]
    tensors = [[me.numbers(1000) for _ in range(10)] for _ in groups]

    def stream(group: Any, own: list[torch.Tensor]) -> None:
        for work in [dist.all_reduce(t, group=group, async_op=True) for t in own]:
            work.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(stream, groups, tensors))
    return [t for own in tensors for t in own]


@call
def futures(me: Rank) -> Any:
    work = dist.all_reduce(t := me.numbers(4), async_op=True)
    negated = work.get_future().then(lambda future: -future.value()[0])
    return [negated.wait(), t]


@call
def coalesced(me: Rank) -> Any:
    tensors = [me.numbers(3 + i) for i in range(3)]
    dist.all_reduce_coalesced(tensors)
    with dist._coalescing_manager():
        for t in (managed := [me.numbers(3 + i) for i in range(3)]):
            dist.all_reduce(t)
    return [*tensors, *managed]


@call
def coalesced_lists(me: Rank) -> Any:
    wide, part = me.room(4), [torch.empty(2) for _ in range(2)]
    with dist._coalescing_manager():
        for i, whole in enumerate(gathered := [torch.empty(me.size * 2) for _ in range(2)]):
            dist.all_gather_into_tensor(whole, me.numbers(2 + 0 * i))
    with dist._coalescing_manager():
        for own in part:
            dist.reduce_scatter_tensor(own, me.numbers(me.size * 2))
    dist.all_gather_coalesced([[t] for t in wide], [me.numbers(4)])
    return [*gathered, *part, *wide]


def everything(rank: int, n: int) -> dict[str, Any]:
    """What every call gives; None where it is refused."""
    me, made = Rank(rank, n), {}
    for function in CALLS:
        me.generator.manual_seed(rank)
        try:
            made[function.__name__] = ["is", function(me)]
        except (RuntimeError, ValueError, TypeError, NotImplementedError, Unsupported) as error:
            made[function.__name__] = ["refused", str(error)]
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
    return {f"ddp {k}": ["is", v.detach().clone()] for k, v in model.state_dict().items()}


if __name__ == "__main__":
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    runs = (("gloo", ""), ("stretto", ""), ("stretto", f"ring:{size}"), ("stretto", f"optical:{size},2"))
    for number, (backend, topology) in enumerate(runs):
        if topology.startswith("optical"):  # sums of every type are the same code; a call of one type will do
            CALLS[:] = [function for function in CALLS if not function.__name__.startswith("all_reduce ")]
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
    os._exit(0)  # threads of gloo may outlive its groups; how ours end is in test_torch_group.py

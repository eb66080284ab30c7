"""Collectives and messages of tensors on an accelerator: a GPU where there is one, else a fake one, whose streams are
threads that take their time.

The ranks are objects of one process. Inside a site gloo moves host memory, as it does for GPUs with STRETTO_INNER=gloo.
"""

from __future__ import annotations

import importlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.model.errors import ArgumentError, PeerFailed, Unsupported

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto.runtime import segments  # noqa: E402

accelerator = importlib.import_module("cuda_device" if torch.cuda.is_available() else "fake_device")
dist = torch.distributed
RANKS = 4


def made(ranks: int = RANKS) -> list:
    from stretto.torch.group import StrettoGroup

    store, timeout = dist.HashStore(), timedelta(seconds=60)
    return [StrettoGroup(store, rank, ranks, list(range(ranks)), timeout) for rank in range(ranks)]


def leave(groups: list) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.abort(), groups))


@pytest.fixture(autouse=True, scope="module")
def device():
    """The device, which any of these tests may be the first of its process to use."""
    return accelerator.set_up()


@pytest.fixture(scope="module")
def groups():
    """Two sites of two ranks, whose messages are cut into several segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRETTO_TOPOLOGY", "sites:2,2")
        patch.setenv("STRETTO_INNER", "gloo")
        patch.setattr(segments, "STAGE_BYTES", 256)
        ranks = made()
        yield ranks
        leave(ranks)


def done(works) -> None:
    for work in list(works):
        work.wait()


def rows(count: int, dtype=torch.int64) -> list:
    """What each rank holds, in host memory."""
    return [(torch.arange(count) * (r + 1) % 50).to(dtype) for r in range(RANKS)]


def put(values: list) -> list:
    return [accelerator.on_device(v) for v in values]


def room(*shape: int, dtype=torch.int64) -> list:
    return [accelerator.made(torch.full(shape, 99, dtype=dtype)) for _ in range(RANKS)]


def content(tensors: list) -> list:
    return [accelerator.content_of(t) for t in tensors]


def equal(tensors: list, expected: list) -> bool:
    return all(map(torch.equal, content(tensors), expected))


def reducing(name: str, op):
    options = getattr(dist, f"{name}Options")()
    options.reduceOp = op
    return options


def rooted(name: str, root: int):
    options = getattr(dist, f"{name}Options")()
    options.rootRank = root
    return options


def test_sums_are_those_of_the_host_in_place(groups):
    for count, op, dtype, expected in (
        (1001, "SUM", torch.float32, lambda every: sum(every)),
        (300, "AVG", torch.bfloat16, lambda every: sum(every) / RANKS),
        (7, "MAX", torch.int64, lambda every: torch.stack(every).amax(0)),
        (0, "SUM", torch.int64, lambda every: every[0]),
    ):
        every = rows(count, dtype)
        tensors = put(every)
        options = reducing("Allreduce", getattr(dist.ReduceOp, op))
        done(g.allreduce([t], options) for g, t in zip(groups, tensors))
        assert equal(tensors, [expected(every)] * RANKS), (op, content(tensors)[0])


def test_every_other_collective_is_right(groups):
    n, every = 404, rows(404)
    whole = torch.cat(every)
    gathered = room(n * RANKS)
    done(g._allgather_base(out, t) for g, out, t in zip(groups, gathered, put(every)))
    assert equal(gathered, [whole] * RANKS)
    parts = room(n // RANKS)
    done(g._reduce_scatter_base(out, t, dist.ReduceScatterOptions()) for g, out, t in zip(groups, parts, put(every)))
    assert equal(parts, list(sum(every).chunk(RANKS)))
    copies, sums = put(every), put(every)
    done(g.broadcast([t], rooted("Broadcast", 3)) for g, t in zip(groups, copies))
    assert equal(copies, [every[3]] * RANKS)
    done(g.reduce([t], rooted("Reduce", 2)) for g, t in zip(groups, sums))
    assert torch.equal(accelerator.content_of(sums[2]), sum(every))
    lists = [room(n) if r == 1 else [] for r in range(RANKS)]
    done(g.gather([out], [t], rooted("Gather", 1)) for g, out, t in zip(groups, lists, put(every)))
    assert equal(lists[1], every)
    parts, given = room(n), [[put(every)] if r == 0 else [] for r in range(RANKS)]
    done(g.scatter([t], out, rooted("Scatter", 0)) for g, t, out in zip(groups, parts, given))
    assert equal(parts, every)


def test_each_pair_of_ranks_exchanges_as_much_as_it_wants(groups):
    sizes = [[50 * b + 7 * a for b in range(RANKS)] for a in range(RANKS)]  # one is empty
    sent = [[torch.arange(k) + 1000 * a for k in row] for a, row in enumerate(sizes)]
    came = [[accelerator.made(torch.full((sizes[a][b],), 9)) for a in range(RANKS)] for b in range(RANKS)]
    done(g.alltoall(out, put(given)) for g, out, given in zip(groups, came, sent))
    assert all(equal(came[b], [sent[a][b] for a in range(RANKS)]) for b in range(RANKS))


def test_tensors_with_gaps_and_several_at_once(groups):
    every = [v.view(6, 8) for v in rows(48)]
    wide = put(every)
    other = put(rows(5))
    done(g.allreduce_coalesced([t[:, ::2], u]) for g, t, u in zip(groups, wide, other))
    for got, mine in zip(content(wide), every):
        assert torch.equal(got[:, ::2], sum(every)[:, ::2]) and torch.equal(got[:, 1::2], mine[:, 1::2])
    assert equal(other, [sum(rows(5))] * RANKS)


def test_wait_lets_the_callers_stream_go_on_and_the_host_at_once(groups, monkeypatch):
    every = rows(10)
    tensors = put(every)
    streams = [accelerator.Stream() for _ in groups]
    works = []
    for g, t, stream in zip(groups, tensors, streams):
        ready = accelerator.current().record_event()
        with accelerator.on(stream):  # a stream that is not the one on which the tensor was made
            stream.wait_event(ready)
            t.mul_(2)
            works.append(g.allreduce([t]))
    for work, t, stream in zip(works, tensors, streams):
        with accelerator.on(stream):
            work.wait()
            t.add_(1)
            assert torch.equal(accelerator.content_of(t), 2 * sum(every) + 1)


def test_messages_go_from_device_to_device(groups):
    every, got = rows(300), room(300)
    done(
        work
        for r, (g, t) in enumerate(zip(groups, put(every)))
        for work in (g.recv([got[r]], (r + 1) % RANKS, 5), g.send([t], (r - 1) % RANKS, 5))
    )
    assert equal(got, every[1:] + every[:1])
    (before,), busy = room(300)[:1], accelerator.Stream()
    with accelerator.on(busy):
        accelerator.delay(busy, 0.05)
        before.copy_(got[0])  # the stream has not done that yet when the next message comes
        anyone = groups[0].recv_anysource([got[0]], 6)
    groups[3].send(put(every)[:1], 0, 6).wait()
    with accelerator.on(busy):
        anyone.wait()
        assert anyone._source_rank() == 3 and equal([got[0], before], [every[0], every[1]])


def test_an_input_is_overwritten_only_when_it_has_been_copied_to_the_host(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "sites:2,1")
    ranks = made(ranks=2)
    every = rows(50)[:2]
    done(g.allreduce([t]) for g, t in zip(ranks, put(every)))
    tensors = put(every)
    slow = ranks[0]._serving.accelerator(tensors[0])._staging._stream
    accelerator.delay(slow, 0.1)  # the other rank's numbers are here long before these have left
    done(g.allreduce([t]) for g, t in zip(ranks, tensors))
    assert equal(tensors, [sum(every)] * 2)
    leave(ranks)


def test_what_does_not_fit_is_refused_before_a_byte_moves(groups, device):
    (t,) = put(rows(4)[:1])
    with pytest.raises(ArgumentError, match=f"must be on one device, found {device} and cpu"):
        groups[0]._allgather_base(torch.empty(16, dtype=torch.int64), t)
    with pytest.raises(Unsupported, match=r"tensors on meta: PyTorch has no such accelerator"):
        groups[0].allreduce([torch.empty(3, device="meta")])
    bits, tensors = reducing("Allreduce", dist.ReduceOp.BAND), put(rows(4, torch.float32))
    works = [g.allreduce([t], bits) for g, t in zip(groups, tensors)]
    for work in works:
        with pytest.raises(Unsupported, match=r"does not reduce torch\.float32 by BAND"):
            work.wait()
    done(g.barrier() for g in groups)


def test_plans_that_stay_inside_a_site(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "ring:4")
    monkeypatch.setenv("STRETTO_INNER", "gloo")
    ranks, every = made(), rows(100)
    tensors = put(every)
    done(g.allreduce([t]) for g, t in zip(ranks, tensors))
    assert equal(tensors, [sum(every)] * RANKS)
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.shutdown(), ranks))


def test_a_rank_that_leaves_is_named_where_the_executor_moves_all(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "sites:2,2")
    monkeypatch.delenv("STRETTO_INNER", raising=False)
    ranks = made()
    tensors = put(rows(10))
    done(g.allreduce([t]) for g, t in zip(ranks, tensors))
    assert equal(tensors, [sum(rows(10))] * RANKS)
    works = [g.allreduce([t]) for g, t in zip(ranks[:3], put(rows(5000)))]
    ranks[3].abort()
    for work in works:
        with pytest.raises(PeerFailed, match="rank 3: "):
            work.wait()
    leave(ranks)


def test_each_type_of_devices_has_the_backend_that_the_program_names(device, tmp_path, monkeypatch):
    import torch.distributed.checkpoint as checkpoint

    import stretto.torch

    monkeypatch.setenv("STRETTO_TOPOLOGY", "")
    name = device.type
    for config, on_cpu, on_device in (
        (f"cpu:stretto,{name}:gloo", "stretto", "gloo"),
        (f"{name}:gloo,cpu:stretto", "stretto", "gloo"),
        (f"cpu:gloo,{name}:stretto", "gloo", "stretto"),
        (f"cpu:stretto,{name}:stretto", "stretto", "stretto"),
    ):
        dist.init_process_group(config, store=dist.HashStore(), rank=0, world_size=1)
        try:
            group = dist.group.WORLD
            assert isinstance(group, stretto.torch.StrettoGroup)
            assert sorted(d.type for d in group._device_types) == ["cpu", name]
            served = {"stretto": stretto.torch.StrettoGroup, "gloo": dist.ProcessGroupGloo}
            assert isinstance(group._get_backend(torch.device("cpu")), served[on_cpu])
            assert isinstance(group._get_backend(device), served[on_device])
            dist.all_reduce(t := torch.ones(3))
            assert t.tolist() == [1, 1, 1]
            with pytest.raises(Unsupported, match="moves no tensors on meta: add meta:stretto to its backends"):
                dist.all_reduce(torch.empty(3, device="meta"))
            saved, loaded = {"weight": torch.arange(5.0)}, {"weight": torch.zeros(5)}
            folder = tmp_path / config
            checkpoint.async_save(saved, checkpoint_id=folder).result()
            checkpoint.load(loaded, checkpoint_id=folder)
            assert torch.equal(loaded["weight"], saved["weight"])
            assert {d.type for d in dist.new_group([0])._device_types} == {"cpu", name}
        finally:
            dist.destroy_process_group()


def test_a_backend_that_is_not_there_is_refused_at_its_first_use(monkeypatch):
    import stretto.torch  # noqa: F401

    monkeypatch.setenv("STRETTO_TOPOLOGY", "")
    dist.init_process_group(f"cpu:stretto,{accelerator.NAME}:xccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(Unsupported, match="this PyTorch cannot make a group of the backend 'xccl'"):
            dist.all_reduce(accelerator.on_device(torch.ones(3)))
    finally:
        dist.destroy_process_group()


class Recorder(dist.ProcessGroup):
    """A backend that makes batches one operation, as NCCL does, and says what it was asked."""

    supports_coalescing = True

    def __init__(self, store, rank: int, size: int, timeout) -> None:
        super().__init__(rank, size)
        self.asked: list = []

    def _get_backend(self, device):
        return self

    def _start_coalescing(self, device) -> None:
        self.asked.append("begin")

    def _end_coalescing(self, device) -> str:
        self.asked.append("end")
        return "work"

    def send(self, tensors, to: int, tag: int) -> None:
        self.asked.append(("send", to, tag))

    def recv(self, tensors, source: int, tag: int) -> None:
        self.asked.append(("recv", source, tag))

    def shutdown(self) -> None:
        self.asked.append("shutdown")


def test_a_batch_of_messages_is_one_operation_of_a_backend_beside(monkeypatch):
    import stretto.torch  # noqa: F401

    monkeypatch.setenv("STRETTO_TOPOLOGY", "")
    dist.Backend.register_backend("recorder", Recorder, devices=[accelerator.NAME])
    dist.init_process_group(f"cpu:stretto,{accelerator.NAME}:recorder", store=dist.HashStore(), rank=0, world_size=1)
    tensor = accelerator.on_device(torch.ones(3))
    batch = [dist.P2POp(dist.isend, tensor, 0, tag=4), dist.P2POp(dist.irecv, tensor, 0, tag=5)]
    assert dist.batch_isend_irecv(batch) == ["work"]
    recorder = dist.group.WORLD._get_backend(tensor.device)
    dist.destroy_process_group()
    assert recorder.asked == ["begin", ("send", 0, 4), ("recv", 0, 5), "end", "shutdown"]


def test_a_trace_has_what_crosses_between_sites(monkeypatch, tmp_path):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "sites:2,2")
    monkeypatch.setenv("STRETTO_INNER", "gloo")
    monkeypatch.setenv("STRETTO_TRACE", str(tmp_path))
    monkeypatch.setattr(segments, "STAGE_BYTES", 256)
    ranks = made()
    tensors = put(rows(1001))
    done(g.allreduce([t]) for g, t in zip(ranks, tensors))
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.shutdown(), ranks))
    said = [json.loads((tmp_path / f"rank{r}.jsonl").read_text()) for r in range(RANKS)]
    sent = {(row, r, to) for r, line in enumerate(said) for row, to, *_ in line["sent"]}
    arrived = {(row, source, r) for r, line in enumerate(said) for row, source, *_ in line["arrived"]}
    assert sent == arrived and sent and all((a < 2) != (b < 2) for _, a, b in sent)
    assert all(len(line[side]) == len({row for row, *_ in line[side]}) for line in said for side in ("sent", "arrived"))
    for line in said:
        assert line["kind"] == "allreduce"
        for _, _, first_s, last_s in line["sent"] + line["arrived"]:
            assert line["began_s"] <= first_s <= last_s <= line["ended_s"]

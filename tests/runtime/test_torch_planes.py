"""PyTorch on optical planes: ranks as objects of one process, whose planes a controller turns."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.choose.library import Library
from stretto.model.errors import InputError, PeerFailed, Unsupported
from stretto.topologies import load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

dist = torch.distributed

SPEC, RANKS = "optical:4,2?initial=xor1&reconfiguration=1ms", 4


def group(store, rank: int, size: int = RANKS):
    from stretto.torch.group import StrettoGroup

    return StrettoGroup(store, rank, size, list(range(size)), timedelta(seconds=20))


@pytest.fixture
def groups(monkeypatch, tmp_path):
    monkeypatch.setenv("STRETTO_TOPOLOGY", SPEC)
    monkeypatch.setenv("STRETTO_TRACE", str(tmp_path))
    store = dist.HashStore()
    made = [group(store, rank) for rank in range(RANKS)]
    yield made
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.abort(), made))


def numbers(rank: int, count: int):
    return torch.arange(count, dtype=torch.int64) * (rank + 1)


def done(works) -> None:
    for work in list(works):
        work.wait()


def rooted(name: str, root: int):
    options = getattr(dist, f"{name}Options")()
    options.rootRank = root
    return options


def test_every_collective_is_right_on_planes_that_the_controller_turns(groups, tmp_path):
    from stretto.torch.tensors import OPS

    n, every = 4004, [numbers(r, 4004) for r in range(RANKS)]
    total = sum(every)

    sums = [x.clone() for x in every]
    done(g.allreduce([t], options(OPS.SUM)) for g, t in zip(groups, sums))
    assert all(torch.equal(t, total) for t in sums)

    gathered = [[torch.empty(n, dtype=torch.int64) for _ in every] for _ in every]
    done(g.allgather([out], [x]) for g, out, x in zip(groups, gathered, every))
    assert all(torch.equal(t, x) for out in gathered for t, x in zip(out, every))

    parts = [torch.empty(n // RANKS, dtype=torch.int64) for _ in every]
    opts = dist.ReduceScatterOptions()
    done(g.reduce_scatter([t], [list(x.chunk(RANKS))], opts) for g, t, x in zip(groups, parts, every))
    assert torch.equal(torch.cat(parts), total)

    # each pair of ranks exchanges another number of bytes, which only these two know
    sent = [[numbers(a, 50 * b + 7 * a) for b in range(RANKS)] for a in range(RANKS)]
    came = [[torch.empty(50 * b + 7 * a, dtype=torch.int64) for a in range(RANKS)] for b in range(RANKS)]
    done(g.alltoall(out, given) for g, out, given in zip(groups, came, sent))
    assert all(torch.equal(came[b][a], sent[a][b]) for a in range(RANKS) for b in range(RANKS))

    for root in (0, 3):
        copies = [x.clone() for x in every]
        done(g.broadcast([t], rooted("Broadcast", root)) for g, t in zip(groups, copies))
        assert all(torch.equal(t, every[root]) for t in copies)
        sums = [x.clone() for x in every]
        done(g.reduce([t], rooted("Reduce", root)) for g, t in zip(groups, sums))
        assert torch.equal(sums[root], total)
    done(g.barrier() for g in groups)
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(lambda g: g.shutdown(), groups))
    check_turns([json.loads(line) for line in (tmp_path / "controller.jsonl").read_text().splitlines()])


def options(op):
    made = dist.AllreduceOptions()
    made.reduceOp = op
    return made


def check_turns(lines: list[dict]) -> None:
    """The circuits that break were up, those that are made were not, and a turn takes its time unless it is the first."""
    kinds = ["allreduce", "allgather", "reducescatter", "alltoall", *["broadcast", "reduce"] * 2, "allgather"]
    assert [line["kind"] for line in lines] == kinds
    joined: dict[int, set] = {0: set(), 1: set()}
    until = {0: 0.0, 1: 0.0}
    assert sum(len(line["turns"]) for line in lines) > len(kinds)
    for turn in (turn for line in lines for turn in line["turns"]):
        breaks, makes, keeps = ({tuple(c) for c in turn[name]} for name in ("break", "make", "keep"))
        now = joined[turn["switch"]]
        assert breaks | keeps == now
        assert turn["up_s"] - turn["began_s"] >= (1e-3 if now else 0.0)
        assert turn["began_s"] >= until[turn["switch"]]
        joined[turn["switch"]], until[turn["switch"]] = (now - breaks) | makes, turn["up_s"]


def test_a_rank_that_leaves_is_named_and_the_controller_ends(groups):
    done(g.barrier() for g in groups)
    waiting = [g.allreduce([torch.ones(5000)], options(dist.ReduceOp.SUM)) for g in groups[:3]]
    groups[3].abort()
    for work in waiting:
        with pytest.raises(RuntimeError, match="rank 3: ") as caught:
            work.wait()
        assert isinstance(caught.value, PeerFailed)


def test_a_topology_of_another_size_is_one_line(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", "optical:4,2")
    with pytest.raises(InputError, match=r"STRETTO_TOPOLOGY: optical:4,2 has 4 accelerators, the world 3 ranks"):
        group(dist.HashStore(), 0, 3)


def test_a_second_group_on_the_same_planes_is_refused(monkeypatch):
    monkeypatch.setenv("STRETTO_TOPOLOGY", SPEC)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: RANKS)
    with pytest.raises(Unsupported, match="optical planes serve one group"):
        group(dist.HashStore(), 0, 2)


def test_plans_of_the_library_leave_no_byte_beside_the_planes():
    library = Library(load_topology(SPEC), range(RANKS), 0)
    for kind in ("allreduce", "alltoall", "broadcast", "gather", "scatter", "reduce", "allgather", "reducescatter"):
        for direct in (False, True) if kind == "alltoall" else (False,):
            plan = library.recipe(kind, 1 << 14, 0, direct).program.plan
            assert (plan.plane >= 0).all()
            assert all((plane.matching < 0).all() for plane in plan.topology.planes)
            if direct:
                held, wanted = plan.workload.chunk_holders, plan.workload.chunk_wanted
                assert (plan.src == held.values[held.offsets[plan.chunk]]).all()
                assert (plan.dst.values == wanted.values[wanted.offsets[plan.chunk]]).all()

"""Plans run over gloo by sends and receives give, bit for bit, what the collective's plain definition says."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import pytest

from rounds_worker import work
from stretto.lower import rounds_of
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import StrettoError
from stretto.model.kinds import KINDS
from stretto.model.messages import message_count
from stretto.model.targets import find_target
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.topologies import assume_messages, load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
from stretto.torch.packed import by_message, packed, side_by_side, unpack  # noqa: E402
from stretto.torch.rounds import Execution, Part, RoundProgram  # noqa: E402

RANKS, ROOT, EACH = 4, 1, 12 * 5
NETWORKS = ("ring:4", "star:4")
PLANNERS = ("ring", "forest", "scale-ccl", "shortest-path", "rabenseifner", "pairwise")


def numbers(kind: str, dtype=torch.int64) -> tuple[list, list, list]:
    """What each rank gives, the room for what it gets, and what it must get."""
    g = torch.Generator().manual_seed(0)
    own = [torch.randint(-9, 9, (RANKS, EACH), generator=g).to(dtype) for _ in range(RANKS)]
    total, at_root = sum(own), [r == ROOT for r in range(RANKS)]

    def room(*shape: int) -> list:
        return [torch.full(shape, 99, dtype=dtype) for _ in range(RANKS)]

    def rooted(values: list) -> list:
        return [v if here else None for v, here in zip(values, at_root)]

    one = [t[0].clone() for t in own]
    return {
        "allreduce": (own, room(RANKS, EACH), [total] * RANKS),
        "reduce": (own, rooted(room(RANKS, EACH)), rooted([total] * RANKS)),
        "broadcast": (rooted(own), room(RANKS, EACH), [own[ROOT]] * RANKS),
        "allgather": (one, room(RANKS, EACH), [torch.stack(one)] * RANKS),
        "gather": (one, rooted(room(RANKS, EACH)), rooted([torch.stack(one)] * RANKS)),
        "reducescatter": (own, room(EACH), list(total)),
        "scatter": (rooted(own), room(EACH), list(own[ROOT])),
        "alltoall": (own, room(RANKS, EACH), [torch.stack([t[r] for t in own]) for r in range(RANKS)]),
    }[kind]


def plans():
    """The plans of every kind by every planner that has one whose data stay at the ranks, with its name."""
    for spec in NETWORKS:
        net = load_topology(spec)
        for kind in KINDS:
            c = make_collective(kind, net, 4 * 240, root=ROOT, chunks=3 if kind in ("allreduce", "broadcast") else 1)
            for planner in PLANNERS:
                try:
                    yield kind, f"{kind} on {spec} by {planner}", run_planner(planner, net, Workload((c,)))
                except StrettoError:
                    continue
    steps = {"alltoall": "bruck"} | dict.fromkeys(("allgather", "reducescatter", "allreduce"), "rabenseifner")
    for kind, planner in steps.items():
        net = load_topology("star:4?message=20us")
        c = make_collective(kind, net, 4 * 240, root=ROOT, chunks=3)
        plan = run_planner(planner, net, Workload((c,)))
        assert message_count(plan) < plan.transfer_count
        yield kind, f"{kind} in messages on star:4 by {planner}", plan


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each job what it should give and what the ranks had."""
    jobs, due = [], {}
    for kind, name, plan in plans():
        sources, outputs, expected = numbers(kind)
        due[name] = expected
        jobs.append((plan, sources, outputs, "SUM"))
    net = load_topology("ring:4")
    ring = run_planner("ring", net, Workload((make_collective("allreduce", net, 960),)))
    for op, dtype in (
        ("SUM", torch.float32),
        ("MAX", torch.int64),
        ("AVG", torch.bfloat16),
        ("PRODUCT", torch.float64),
    ):
        sources = numbers("allreduce", dtype)[0]
        due[f"in place {op}"] = sources
        jobs.append((ring, sources, ["in place"] * RANKS, op))
    net = load_topology(f"fullmesh:{RANKS}")
    exchange = run_planner("greedy", net, Workload((make_collective("allreduce", net, 960),)))
    g = torch.Generator().manual_seed(1)
    wild = [torch.randn(RANKS, EACH, generator=g) * 2.0 ** torch.randint(-30, 30, (RANKS, EACH), generator=g)
            for _ in range(RANKS)]  # fmt: skip
    due["exchanged"] = wild
    jobs.append((exchange, wild, [torch.empty(RANKS, EACH) for _ in range(RANKS)], "SUM"))
    strided = [torch.zeros(EACH, RANKS, dtype=torch.int64).t() for _ in range(RANKS)]
    due["strided"] = numbers("allreduce")[2]
    jobs.append((ring, [t.t().contiguous().t() for t in numbers("allreduce")[0]], strided, "SUM"))
    counts = np.array([[0, 16, 8, 0], [8, 0, 0, 24], [0, 0, 0, 8], [40, 8, 0, 0]])
    net = load_topology("fullmesh:4")
    given = [torch.arange(row.sum() // 8) + 100 * r for r, row in enumerate(counts)]
    due["alltoallv"] = [
        torch.cat([given[s][counts[s, :r].sum() // 8 : counts[s, : r + 1].sum() // 8] for s in range(RANKS)])
        for r in range(RANKS)
    ]
    matrix = run_planner("shortest-path", net, Workload((alltoallv(net, counts),)))
    jobs.append((matrix, given, [torch.zeros(int(n) // 8, dtype=torch.int64) for n in counts.sum(axis=0)], "SUM"))
    due["refused"] = None
    jobs.append((ring, [torch.ones(5)] * RANKS, [torch.ones(6)] * RANKS, "SUM"))
    return dict(zip(due, zip(due.values(), run(tmp_path_factory.mktemp("over"), jobs))))


def run(folder, jobs: list) -> list:
    """What each rank has after each job."""
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "stretto.torch"])
    pipes, children = [], []
    for rank in range(RANKS):
        ours, theirs = context.Pipe(duplex=False)
        children.append(context.Process(target=work, args=(rank, RANKS, folder, theirs), daemon=True))
        children[-1].start()
        theirs.close()
        pipes.append(ours)
    ended = [pipe.recv() for pipe in pipes]
    for child in children:
        child.join(60)
    return list(zip(*ended))


def test_plans_of_every_kind_give_what_the_definition_says(results):
    tried = [name for name in results if " on " in name]
    assert {name.split()[0] for name in tried} == {*KINDS} and len({name.split()[-1] for name in tried}) >= 6
    for name in [*tried, "strided", "alltoallv"]:
        due, ended = results[name]
        for rank, (expected, got) in enumerate(zip(due, ended)):
            assert got is None if expected is None else np.array_equal(got, expected.numpy()), (name, rank, got)


def test_a_message_is_one_send_and_one_receive():
    net = load_topology("star:4?message=20us")
    plan = run_planner("bruck", net, Workload((make_collective("alltoall", net, 4 * 240, chunks=3),)))
    programs = [RoundProgram.of(plan, rank, RANKS) for rank in range(RANKS)]
    assert len(programs[0].rounds) == 2, "a round for each step of log2(4)"
    for program in programs:
        for sends, receives in program.rounds:
            for own in (sends, receives):
                assert len(own) > 1 and len({program.message[part.row] for part in own}) == 1


def test_parts_of_a_message_are_one_tensor():
    memory = torch.arange(9)
    a, b, c = memory.split([2, 3, 4])
    parts = [Part(k, tensor, peer, message) for k, (tensor, peer, message) in enumerate(
        [(a, 1, 0), (c, 2, 0), (b, 1, 0), (c, 1, 5), (memory[:0], 1, 7)])]  # fmt: skip
    groups = by_message(parts)
    assert [[part.row for part in own] for own in groups] == [[0, 2], [1], [3]]
    assert packed(groups[0]).data_ptr() == memory.data_ptr() and packed(groups[0]).tolist() == [0, 1, 2, 3, 4]
    apart = [parts[2], parts[0]]
    assert packed(apart).tolist() == [2, 3, 4, 0, 1] and packed(apart).data_ptr() != b.data_ptr()
    assert side_by_side([a, b.clone()]) is None
    unpack(torch.tensor([7, 7, 7, 8, 8]), apart)
    assert memory.tolist() == [8, 8, 7, 7, 7, 5, 6, 7, 8]


def test_sums_in_place_are_those_of_every_operation_and_equal_at_all_ranks(results):
    due, ended = results["in place SUM"]
    assert all(np.array_equal(got, ended[0]) for got in ended)
    assert np.allclose(ended[0], sum(due).numpy())
    due, ended = results["in place MAX"]
    assert np.array_equal(ended[2], torch.stack(due).amax(0).numpy())
    due, ended = results["in place PRODUCT"]
    assert np.array_equal(ended[3], torch.stack(due).prod(0).numpy())
    due, ended = results["in place AVG"]
    assert np.array_equal(ended[1], (sum(t.float() for t in due) / RANKS).bfloat16().view(torch.int16).numpy())


def test_tensors_that_do_not_fit_are_refused(results):
    for got in results["refused"][1]:
        assert "the output of rank" in got and "must have 5 elements, found 6 elements" in got


def test_chunks_follow_one_another_through_a_chain():
    net = load_topology("ring:4")
    plan = run_planner("shortest-path", net, Workload((make_collective("broadcast", net, 4000, chunks=4, root=0),)))
    number = rounds_of(plan)
    assert number.max() < plan.transfer_count - 1
    for k in range(plan.transfer_count):
        assert all(number[j] < number[k] for j in plan.depends[k])
    links = [(int(number[k]), int(link)) for k in range(plan.transfer_count) for link in plan.route[k]]
    assert len({*links}) == len(links)


@pytest.mark.parametrize(
    ("kind", "spec", "planner", "words"),
    [
        ("alltoall", "optical:4,2", "pairwise+swot", "turns optical planes"),
        ("allgather", "sites:2,2", "scale-ccl", "which is no rank; plan for the target nccl-p2p"),
        ("allgather", "ring:3", "ring", "the plan is for 3 ranks, the group has 4"),
    ],
)
def test_what_ranks_cannot_do_by_sends_and_receives_is_refused(kind, spec, planner, words):
    from stretto.torch.sendrecv import RoundProgram

    net = load_topology(spec)
    plan = run_planner(planner, net, Workload((make_collective(kind, net, 4000),)))
    with pytest.raises(StrettoError, match=words):
        RoundProgram.of(plan, 0, 4)


def test_ranks_that_swap_all_contributions_add_them_in_one_order(results):
    own, ended = results["exchanged"]
    total = ((own[0] + own[1]) + own[2]) + own[3]
    assert all(np.array_equal(got, total.numpy()) for got in ended)
    assert not torch.equal(((own[1] + own[0]) + own[3]) + own[2], total)  # these numbers tell


class Handed:
    """A transport among threads: what is sent is handed over."""

    def __init__(self, rank: int, boxes: dict) -> None:
        self.rank, self.boxes = rank, boxes

    def exchange(self, sends, receives) -> None:
        for part in sends:
            self.boxes[part.row].put(part.tensor.clone())
        for part in receives:
            part.tensor.copy_(self.boxes[part.row].get(timeout=20))

    def await_arrival(self, row: int) -> None: ...

    def settle(self) -> None: ...


@pytest.mark.parametrize("spec", ["ring:8", "dgx1"])
def test_ranks_that_forward_sums_end_with_the_same_bits(spec):
    net = costing(assume_messages(load_topology(spec)), find_target("torch").message_s)
    work = Workload((make_collective("allreduce", net, 960),))
    plan = run_planner("greedy", net, work, target=find_target("torch"))
    ranks, g = len(net.accelerators), torch.Generator().manual_seed(2)
    own = [torch.randn(240, generator=g) * 2.0 ** torch.randint(-30, 30, (240,), generator=g) for _ in range(ranks)]
    boxes = {k: SimpleQueue() for k in range(plan.transfer_count)}

    def run(rank: int) -> bytes:
        out, program = torch.empty(240), RoundProgram.of(plan, rank, ranks)
        Execution(
            program, Handed(rank, boxes), {0: own[rank]}, {0: out}, np.array([240]), torch.distributed.ReduceOp.SUM
        ).run()
        assert np.allclose(
            out, torch.stack(own).double().sum(0), rtol=0, atol=float(1e-6 * torch.stack(own).abs().sum())
        )
        return out.numpy().tobytes()

    with ThreadPoolExecutor(ranks) as threads:
        assert len({*threads.map(run, range(ranks))}) == 1

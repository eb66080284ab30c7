"""Programs on real sockets: random plans end with the right bytes, whatever planner made them."""

from __future__ import annotations

import random
import select
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stretto
from examples import examples
from flows import over_routers
from meshes import Threads, wrong
from networks import partial_sums, random_network, ring, unlike_pieces
from stretto.lower import MOST_SUBFLOWS, lower, subflows
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import PeerFailed, Unsupported
from stretto.model.plan import COPY, REDUCE, Plan, make_plan
from stretto.planners import registered, run_planner
from stretto.runtime import content
from stretto.runtime.execute import execute
from stretto.runtime.local import run_local
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.pacing import AHEAD_S
from stretto.runtime.sockets import on_the_way
from stretto.runtime.wire import HEADER, Frame, Kind, encode
from stretto.topologies import load_topology
from stretto.verify import verify

PLANNERS = {e.name: e for e in registered().values() if not e.refines and e.quick is None and e.name != "auto"}
"""Those that answer at once; the plans of auto are theirs."""

OPTIONS = {"greedy": {"parts": 1, "tries": 1}}
BATCHES = 10
PLANS = examples(20)
"""Random plans of each batch; STRETTO_EXAMPLES=200 runs 2,000 in all."""


@pytest.fixture(scope="module")
def threads():
    made = Threads(12, subflows=2, lanes=3)
    yield made
    made.close()


def random_plan(rng: random.Random) -> Plan | None:
    """A plan by a random planner for a random collective on a random network, None if it does not serve that."""
    name = rng.choice(sorted(PLANNERS))
    kind = rng.choice(PLANNERS[name].collectives)
    net = random_network(rng.randrange(10_000)) if rng.random() < 0.9 else load_topology("optical:4,2")
    ranks = len(net.accelerators)
    receivers = rng.sample(range(ranks), rng.randint(1, ranks)) if kind == "multicast" else None
    size = rng.choice([ranks * 4, rng.randint(500, 5000), rng.randint(10**4, 10**6)])
    root, chunks = rng.randrange(ranks), rng.randint(1, 3)
    if kind == "alltoallv":
        matrix = [[rng.choice([0, rng.randint(chunks, size)]) for _ in range(ranks)] for _ in range(ranks)]
        matrix[0][1] = size
        c = alltoallv(net, matrix, chunks=chunks)
    elif kind == "partial-sums":
        c = partial_sums(net, size, chunks)
    elif kind == "remainder":
        c = unlike_pieces(net, max(size, 10 * ranks**2), chunks)
    else:
        c = make_collective(kind, net, size, root=root, receivers=receivers, chunks=chunks)
    try:
        return run_planner(name, net, Workload((c,)), options=OPTIONS.get(name))
    except Unsupported:
        return None


def any_chain(rng: random.Random) -> Plan:
    """Sums that pass through random nodes: each node sends several states of one chunk, some not nested in others."""
    n = rng.randint(3, 5)
    net = load_topology(f"fullmesh:{n}")
    c = make_collective("reduce", net, rng.randint(1, 2000), root=0)
    link = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst))}
    rows: list[tuple[int, int, list[int]]] = []
    into: dict[int, list[int]] = {v: [] for v in range(n)}
    order = rng.sample(range(1, n), n - 1)
    for i, v in enumerate(order):
        to = rng.choice([0, *order[i + 1 :]])
        rows.append((v, to, list(into[v])))
        into[to].append(len(rows) - 1)
    return make_plan(
        net, Workload((c,)), "ready-order", chunk=[0] * len(rows), src=[r[0] for r in rows], op=[REDUCE] * len(rows),
        dst=Ragged.single([r[1] for r in rows]), route=Ragged.of([[link[r[0], r[1]]] for r in rows]),
        depends=Ragged.of([r[2] for r in rows]),
    )  # fmt: skip


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_plans_end_and_end_right(batch, threads):
    rng = random.Random(batch)
    for i in range(PLANS):
        plan = random_plan(rng) if i % 4 else any_chain(rng)
        if plan is not None:
            assert wrong(plan, threads.run(plan, i), i) == []


def test_states_that_do_not_contain_each_other_are_kept_apart(threads):
    # node 3 gets two summands and sends one sum with each: neither state is part of the other
    net = load_topology("fullmesh:4")
    c = make_collective("allreduce", net, 4000)
    link = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst))}
    rows = [(0, 3, REDUCE, []), (1, 3, REDUCE, []), (3, 1, REDUCE, [0]), (3, 0, REDUCE, [1])]
    # 0 has 0+1+3, 1 has 0+1+3; 2 tells both, and is told
    rows += [(2, 0, REDUCE, [3]), (2, 1, REDUCE, [2]), (0, 2, COPY, [3, 4]), (1, 3, COPY, [2, 5, 0, 1])]
    plan = make_plan(
        net, Workload((c,)), "ready-order", chunk=[0] * 8, src=[r[0] for r in rows], op=[r[2] for r in rows],
        dst=Ragged.single([r[1] for r in rows]), route=Ragged.of([[link[r[0], r[1]]] for r in rows]),
        depends=Ragged.of([r[3] for r in rows]),
    )  # fmt: skip
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    assert wrong(plan, threads.run(plan)) == []


def test_routes_are_numbered_for_each_pair_of_nodes():
    assert subflows(over_routers([3, 2, 2, 3], 1000)).tolist() == [0, 1, 1, 0]
    star = load_topology("star:3")
    one = run_planner("ring", star, Workload((make_collective("allreduce", star, 300),)))
    assert set(subflows(one).tolist()) == {0}
    n = MOST_SUBFLOWS + 1
    many = over_routers(range(2, n + 2), 1, bandwidths=[1e6] * n)
    assert subflows(many).tolist() == [*range(MOST_SUBFLOWS), 0]


def test_an_input_is_not_written_unless_it_is_the_output(threads):
    net = ring(4)
    plan = run_planner("ring", net, Workload((make_collective("reducescatter", net, 4000),)))
    programs = lower(plan)
    given = {v: content.inputs(plan, p.steps.held, v) for v, p in programs.items()}
    for some in given.values():
        for array in some.values():
            array.flags.writeable = False

    def one(v):
        program = programs.get(v)
        if program is not None:
            execute(threads.meshes[v], program, given[v], content.outputs(plan, program.steps.wanted))
        else:
            threads.meshes[v].runs += 1

    list(threads.pool.map(one, range(12)))


@pytest.mark.parametrize("spec", ["swot", "rabenseifner+strawman-icr", "ring+one-shot"])
def test_transfers_on_planes_wait_for_their_turns(spec, threads):
    net = load_topology("optical:4,2?reconfiguration=2ms")
    plan = run_planner(spec, net, Workload((make_collective("allreduce", net, 4096),)))
    assert wrong(plan, threads.run(plan)) == []
    assert (net.node_count in lower(plan)) == bool(plan.turns.count or plan.barriers)


@pytest.mark.parametrize(("spec", "turning"), [("swot", "1us"), ("rabenseifner+strawman-icr", "5ms")])
@pytest.mark.parametrize("pace", [None, 1.0], ids=["unpaced", "paced"])
def test_nothing_is_on_a_plane_while_it_turns(spec, turning, pace, threads):
    net = load_topology(f"optical:4,1?reconfiguration={turning}")
    plan = run_planner(spec, net, Workload((make_collective("allreduce", net, 40_000),)))
    threads.run(plan, pace=pace, started_at=time.monotonic())
    turns, controller = plan.turns, threads.traces[net.node_count]
    assert turns.count > 1
    for i in range(turns.count):
        row = plan.transfer_count + i
        began_s, ended_s = controller.sent_s[row], controller.arrived_s[row]
        if turns.plane[i] in turns.plane[:i]:  # the first of a plane takes no time
            assert ended_s - began_s >= net.planes[0].reconfiguration_s
        for k in np.flatnonzero(plan.plane == turns.plane[i]).tolist():
            for v in plan.dst[k].tolist():
                if k < turns.before[i]:
                    assert threads.traces[v].arrived_s[k] <= began_s
                else:
                    assert threads.traces[int(plan.src[k])].sent_s[k] >= ended_s


def test_sums_do_not_depend_on_timing(threads):
    # floating-point sums differ in their last bits by order; each run must choose the same one
    net = load_topology("star:6")
    plan = run_planner("shortest-path", net, Workload((make_collective("allreduce", net, 6 * 800),)))
    programs = lower(plan)

    def one(v):
        if v not in programs:
            threads.meshes[v].runs += 1
            return {}
        data = {
            c: np.random.default_rng((v, c)).standard_normal(int(plan.workload.chunk_bytes[c]) // 8)
            for c in programs[v].steps.held
        }
        out = {c: data[c] for c in programs[v].steps.wanted}
        execute(threads.meshes[v], programs[v], data, out, dtype=np.float64)
        return out

    first, *others = [list(threads.pool.map(one, range(12))) for _ in range(5)]
    for other in others:
        for a, b in zip(first, other):
            assert all(np.array_equal(a[c], b[c]) for c in a)


def test_a_paced_run_keeps_the_times_of_the_plan(threads):
    net = ring(3, bandwidth=1e6, latency_s=0.0)
    plan = run_planner("scale-ccl", net, Workload((make_collective("allgather", net, 300_000),)))
    plan = (
        plan
        if plan.sharing != "ready-order"
        else replace(plan, sharing="rates", rate=np.full(plan.transfer_count, 1e6))
    )
    threads.run(plan, pace=1.0)
    assert max(max(threads.traces[v].arrived_s.values()) for v in range(3)) >= 0.1 - 2 * AHEAD_S


def test_an_empty_transfer_of_a_peer_that_is_ahead_waits_for_this_node_to_begin():
    net = load_topology("fullmesh:2")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 4, chunks=2),)))
    program = lower(plan)[0]
    nothing = {c: np.empty(0, np.uint8) for c in range(2)}
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    first, *others = program.steps.receives
    mesh.connections[0].ahead = Frame(Kind.DATA, 1, first, 0)
    theirs.sendall(b"".join(encode(Kind.DATA, 1, row) for row in others) + encode(Kind.DONE, 1))
    trace = execute(mesh, program, nothing, nothing, sizes=np.zeros(2, np.int64), timeout_s=5)
    assert set(trace.sent_s) == set(program.steps.sends)
    mesh.close()
    theirs.close()


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_what_a_peer_sent_before_it_left_counts(delay_s):
    net = load_topology("fullmesh:2")
    plan = run_planner("shortest-path", net, Workload((make_collective("broadcast", net, 1000, root=1),)))
    row, data = 0, content.initial_bytes(plan, 0, 1)
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    theirs.sendall(encode(Kind.DATA, 1, row, 1000) + data.tobytes() + encode(Kind.DONE, 1))
    theirs.close()
    mesh.connections[0].queue(encode(Kind.PING, 0))  # it cannot be sent any more
    outputs = content.outputs(plan, [0])
    execute(mesh, lower(plan)[0], {}, outputs, timeout_s=5, delays={row: delay_s})
    assert content.wrong_chunks(plan, outputs) == []
    mesh.close()


def test_one_that_says_it_is_done_and_is_not_is_at_fault():
    net = load_topology("fullmesh:2")
    plan = run_planner("shortest-path", net, Workload((make_collective("broadcast", net, 1000, root=1),)))
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    theirs.sendall(encode(Kind.DONE, 1) + encode(Kind.BYE, 1))
    theirs.close()
    with pytest.raises(PeerFailed, match="gpu1: it closed the connection, in transfer 0"):
        execute(mesh, lower(plan)[0], {}, content.outputs(plan, [0]), timeout_s=5)
    mesh.close()


def test_whoever_closes_waits_until_all_that_it_sent_has_come():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours, (theirs, _) = socket.create_connection(listener.getsockname()), listener.accept()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    theirs.sendall(encode(Kind.PING, 1))  # unread, it would make the kernel drop what is under way
    mesh.connections[0].sock.setblocking(True)
    mesh.connections[0].sock.sendall(bytes(100_000))
    mesh.connections[0].sock.setblocking(False)
    mesh.close()
    got = 0
    while some := theirs.recv(1 << 16):
        got += len(some)
    assert got == 100_000 + HEADER.size  # and a goodbye
    theirs.close()


def test_nothing_is_on_its_way_to_whoever_has_closed():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours, (theirs, _) = socket.create_connection(listener.getsockname()), listener.accept()
    theirs.close()
    ours.sendall(b"to nobody")  # answered by a reset, and never acknowledged
    ended = select.poll()
    ended.register(ours, 0)
    assert ended.poll(10_000)
    assert on_the_way(ours) == 0
    ours.close()


def test_processes_of_their_own_end_right():
    net = load_topology("sites:2,2")
    plan = run_planner("scale-ccl", net, Workload((make_collective("alltoall", net, 40_000),)))
    outcome = run_local(plan, timeout_s=30)
    assert outcome.wrong == []
    assert outcome.completion_s > 0


def test_processes_run_a_plan_several_times_and_say_what_one_run_takes():
    net = load_topology("ring:3")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 4000),)))
    outcome = run_local(plan, timeout_s=30, runs=3)
    assert outcome.wrong == []
    assert outcome.completion_s > 0
    assert all(len(trace.arrived_s) == 4 and trace.cpu_s > 0 for trace in outcome.traces.values())


def test_processes_import_the_stretto_of_their_parent(tmp_path):
    (tmp_path / "stretto").symlink_to(Path(stretto.__file__).parent)
    (tmp_path / "check.py").write_text(
        "import stretto\ndef same(path):\n    assert stretto.__file__ == path, stretto.__file__\n"
    )
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import check, stretto
        from stretto.model.collective import Workload, make_collective
        from stretto.planners import run_planner
        from stretto.runtime.local import Place, run_local
        from stretto.topologies import load_topology
        net = load_topology("ring:2")
        plan = run_planner("ring", net, Workload((make_collective("allgather", net, 400),)))
        place = Place(enter=check.same, argument=stretto.__file__)
        print(stretto.__file__, run_local(plan, places={{0: place, 1: place}}).wrong)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert run.stdout == f"{tmp_path}/stretto/__init__.py []\n", run.stderr


def test_one_wrong_byte_is_found_and_where():
    net = load_topology("ring:4")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 4000),)))
    right = {chunk: content.final_bytes(plan, chunk) for chunk in range(plan.workload.chunk_count)}
    digests = {v: {chunk: content.digest(got) for chunk, got in right.items()} for v in range(4)}
    assert content.wrong_by_digest(plan, digests) == []
    right[1][7] ^= 1
    digests[2][1] = content.digest(right[1])
    assert content.wrong_by_digest(plan, digests) == [(2, 1)]

"""The proof that no interleaving of threadblocks gets stuck or races: what holds, and what each planted fault shows."""

from __future__ import annotations

import pytest

from stretto.formats.interleavings import prove
from stretto.formats.mscclpp_of_plan import copied, plan_of
from stretto.formats.mscclpp_program import MEMORY, NOP, PORT, Chunks, ExecutionPlan, Gpu, Operation
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

RANKS = 4


def op(name: str, *channels: int, via: str = MEMORY, **more) -> Operation:
    return Operation(name, channels=channels, via=via, **more)


def ring() -> ExecutionPlan:
    """AllGather around a ring, one threadblock a rank: channel 0 leads to the next rank, channel 1 to the one before."""
    gpus = []
    for r in range(RANKS):
        after = (r + 1) % RANKS
        ops = [op("signal", 1), op("wait", 0), NOP, Operation("copy", (Chunks(r, "i", 0),), (Chunks(r, "o", r),))]
        ops += [op("put", 0, src=(Chunks(r, "i", 0),), dst=(Chunks(after, "o", r),)), NOP, op("signal", 0)]
        for k in range(1, RANKS):
            ops.append(op("wait", 1))
            c = (r - k) % RANKS
            if k < RANKS - 1:
                ops += [NOP, op("put", 0, src=(Chunks(r, "o", c),), dst=(Chunks(after, "o", c),)), NOP, op("signal", 0)]
        gpus.append(Gpu(1, RANKS, 0, [after, (r - 1) % RANKS], blocks=[ops]))
    return ExecutionPlan("ring", "allgather", gpus)


def kinds(plan: ExecutionPlan, **options) -> set[str]:
    return {finding.kind for finding in prove(plan, **options).findings}


def test_a_ring_holds():
    proof = prove(ring())
    assert proof.holds and proof.blocks == 1 and proof.signals == RANKS * RANKS
    assert "no interleaving of threadblocks deadlocks or races" in proof.note()


def test_a_missing_signal_is_found_with_its_place():
    plan = ring()
    del plan.gpus[1].blocks[0][-2]
    proof = prove(plan)
    assert {f.kind for f in proof.findings} == {"stuck"}
    assert (2, 0, len(plan.gpus[2].blocks[0]) - 1) in [f.operations[0] for f in proof.findings]


def test_one_signal_too_many_is_found():
    plan = ring()
    plan.gpus[1].blocks[0].append(op("signal", 0))
    assert kinds(plan) == {"left"}


def test_two_ranks_that_wait_for_each_other_first_are_stuck():
    blocks = [[op("wait", 0), op("signal", 0)]]
    assert kinds(ExecutionPlan("cross", "x", [Gpu(1, 1, 0, [1], blocks=blocks), Gpu(1, 1, 0, [0], blocks=blocks)])) == {
        "stuck"
    }


def test_a_put_before_its_receiver_is_ready_races_with_the_application():
    plan = ring()
    for gpu in plan.gpus:
        del gpu.blocks[0][:2]
    findings = prove(plan).findings
    assert {f.kind for f in findings} == {"race"} and all("application" in f.text for f in findings)


@pytest.mark.parametrize("place", [5, 8, 10])
def test_threads_that_do_not_meet_between_a_copy_and_its_signal_or_wait_race(place):
    plan = ring()
    assert plan.gpus[2].blocks[0][place] == NOP
    del plan.gpus[2].blocks[0][place]
    assert kinds(plan) == {"race"}


def test_a_chunk_sent_on_before_it_came_races():
    plan = ring()
    block = plan.gpus[0].blocks[0]
    block[7:12] = [*block[9:12], *block[7:9]]  # put, nop, signal before wait, nop
    assert "race" in kinds(plan)


def two_blocks(first: list[Operation], second: list[Operation], semaphores: int = 1) -> ExecutionPlan:
    return ExecutionPlan("two", "x", [Gpu(2, 2, 2, semaphores=[0] * semaphores, blocks=[first, second])])


def copy(src: str, dst: str, part: int = 0, parts: int = 1) -> Operation:
    return Operation("copy", (Chunks(0, src, 0),), (Chunks(0, dst, 0),), share=(part, parts))


RELEASE, ACQUIRE = Operation("sem_release", semaphores=(0,)), Operation("sem_acquire", semaphores=(0,))


def test_a_semaphore_orders_two_threadblocks_and_without_it_they_race():
    first, second = [copy("i", "s"), NOP, RELEASE], [ACQUIRE, NOP, copy("s", "o")]
    assert prove(two_blocks(first, second)).holds
    assert kinds(two_blocks(first[:1], second[2:])) == {"race"}
    assert kinds(two_blocks(first[:1], second)) == {"stuck"}
    assert kinds(two_blocks([*first[:1], RELEASE], second)) == {"race"}


def test_threadblocks_that_split_a_chunk_do_not_race_unless_their_parts_overlap():
    assert prove(two_blocks([copy("i", "o", 0, 2)], [copy("i", "o", 1, 2)])).holds
    assert kinds(two_blocks([copy("i", "o", 0, 2)], [copy("i", "o", 1, 3)])) == {"race"}


def test_two_waits_on_one_counter_without_order_are_refused():
    plan = two_blocks([ACQUIRE], [ACQUIRE])
    plan.gpus[0].blocks.append([RELEASE, RELEASE])
    assert "unordered" in kinds(plan)


def test_waits_on_one_counter_that_another_semaphore_orders_are_taken():
    release, acquire = (Operation(n, semaphores=(1,)) for n in ("sem_release", "sem_acquire"))
    plan = two_blocks([ACQUIRE, NOP, release], [acquire, NOP, ACQUIRE], 2)
    plan.gpus[0].blocks.append([RELEASE, RELEASE])
    assert prove(plan).holds


def test_a_counter_raised_by_several_threadblocks_orders_them_once_all_have_raised_it():
    users = [[copy("i", "s", k, 2), NOP, RELEASE] for k in (0, 1)]
    plan = two_blocks(*users)
    plan.gpus[0].blocks.append([ACQUIRE, ACQUIRE, NOP, copy("s", "o")])
    assert prove(plan).holds
    plan.gpus[0].blocks[2] = [ACQUIRE, NOP, copy("s", "o"), NOP, ACQUIRE]
    assert kinds(plan) == {"race"}


def test_a_barrier_orders_those_who_meet_and_must_be_reached_by_all():
    meet = Operation("barrier", barrier=0, blocks=2)
    assert prove(two_blocks([copy("i", "s"), meet], [meet, copy("s", "o")])).holds
    assert kinds(two_blocks([copy("i", "s"), meet], [copy("s", "o")])) >= {"stuck", "barrier"}


def port(flushed: bool, acknowledged: bool = False) -> ExecutionPlan:
    """A put through the CPU, with or without waiting until the source may be used again."""
    put = "pwsf" if flushed else "pws"
    send = [op("wait", 0, via=PORT), op(put, 0, via=PORT, src=(Chunks(0, "i", 0),), dst=(Chunks(1, "o", 0),))]
    get = [op("signal", 0, via=PORT), op("wait", 0, via=PORT)]
    if acknowledged:
        send.append(op("wait", 0, via=PORT))
        get.append(op("signal", 0, via=PORT))
    return ExecutionPlan("port", "x", [Gpu(1, 1, 0, port=[1], blocks=[send]), Gpu(1, 1, 0, port=[0], blocks=[get])])


def test_a_put_through_the_cpu_reads_its_source_until_it_is_flushed_or_acknowledged():
    assert prove(port(flushed=True)).holds and prove(port(False, acknowledged=True)).holds
    assert kinds(port(flushed=False)) == {"race"}


def test_more_threadblocks_than_a_rank_runs_at_once_wait_for_earlier_ones():
    """In this order the first waits for the second, which cannot begin before it has ended."""
    plan = two_blocks([ACQUIRE], [RELEASE])
    assert prove(plan).holds and kinds(plan, resident=1) == {"stuck"}
    plan.gpus[0].blocks.reverse()
    assert prove(plan, resident=1).holds


def packets(double: bool) -> ExecutionPlan:
    """Two ranks exchange packets, which say themselves that they came."""
    gpus = []
    for r in (0, 1):
        send = Operation("ppkt", (Chunks(r, "i", 0),), (Chunks(1 - r, "s", 0),), (), MEMORY)
        gpus.append(
            Gpu(1, 1, 1, [1 - r], blocks=[[send, Operation("upkt", (Chunks(r, "s", 0),), (Chunks(r, "o", 0),))]])
        )
    return ExecutionPlan("packets", "x", gpus, protocol="LL", double_scratch=double)


def test_packets_need_two_halves_of_scratch_because_the_next_run_may_come_early():
    assert prove(packets(double=True)).holds
    assert kinds(packets(double=False)) == {"race"}


def test_packets_that_nobody_sends_are_waited_for_in_vain():
    plan = packets(True)
    del plan.gpus[0].blocks[0][0]
    assert kinds(plan) == {"stuck"}


def test_the_compiled_and_the_interpreted_kernel_find_the_same(monkeypatch):
    plan = ring()
    del plan.gpus[2].blocks[0][8]
    found = []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        found.append(prove(plan))
    assert found[0] == found[1] and not found[0].holds


def exported(net: str, kind: str, planner: str) -> ExecutionPlan:
    topology = load_topology(net)
    collective = make_collective(kind, topology, 64 * len(topology.accelerators))
    return plan_of(simulate(run_planner(planner, topology, Workload((collective,)))))[0]


@pytest.mark.parametrize("name", ["signal", "wait", "sem_release", "sem_acquire"])
def test_each_counting_operation_of_an_exported_program_is_missed(name):
    """Cut out any one: the program gets stuck, races, or leaves a counter as it was not."""
    plan = exported("ring:4", "allreduce", "mtegcca")
    found = 0
    for gpu in plan.gpus:
        for block in gpu.blocks:
            for place, op in enumerate(block):
                if op.name == name:
                    del block[place]
                    assert not prove(plan).holds
                    block.insert(place, op)
                    found += 1
    assert found >= 8 and prove(plan).holds


def test_a_put_that_overtakes_the_wait_before_it_races():
    plan = exported("ring:4", "allgather", "ring")
    block = plan.gpus[1].blocks[0]
    place = max(i for i, op in enumerate(block) if op.name == "put")
    wait = max(i for i in range(place) if block[i].name == "wait")
    block[wait], block[place] = block[place], block[wait]
    assert "race" in kinds(plan)


def test_a_program_that_was_copied_side_by_side_needs_no_order_between_its_copies():
    plan = exported("ring:4", "reducescatter", "ring")
    twice = copied(plan, 2)
    assert prove(twice).holds and prove(twice).operations == 2 * prove(plan).operations
    twice.gpus[0].blocks[1][3] = twice.gpus[0].blocks[0][3]  # a put of the other copy
    assert not prove(twice).holds

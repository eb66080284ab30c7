"""The segments of transfers: both ends cut alike, and the segments of a transfer are its bytes, one after another."""

from __future__ import annotations

from itertools import pairwise

import pytest

from networks import ring
from stretto.lower import Program, lower
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.runtime.segments import ALIGN_BYTES, STAGE_BYTES, Segments, segments_of

RANKS = 4


def site(node: int) -> int:
    return node // 2


def programs(shard_bytes: int) -> tuple[dict[int, Program], dict[int, Segments]]:
    """The programs of an AllGather on a ring, and for each node the segments of what crosses between its two sites."""
    net = ring(RANKS)
    work = Workload((make_collective("allgather", net, RANKS * shard_bytes),))
    whole = lower(run_planner("ring", net, work))
    sizes = dict(enumerate(work.chunk_bytes.tolist()))
    return whole, {
        node: segments_of(program, lambda other, node=node: site(other) != site(node), sizes)
        for node, program in whole.items()
    }


@pytest.mark.parametrize("shard_bytes", [1000, STAGE_BYTES, 2 * STAGE_BYTES + 100])
def test_both_ends_of_a_transfer_cut_it_alike_and_others_are_left_out(shard_bytes):
    whole, cut = programs(shard_bytes)
    sent, received = {}, {}
    for node, program in cut.items():
        steps = program.steps
        for k, send in steps.sends.items():
            sent |= {(k, node, to): send.size_bytes for to in send.to}
        received |= {(k, r.source, node): steps.chunks[k].size_bytes for k, r in steps.receives.items()}
    assert sent == received
    assert all(site(source) != site(to) for _, source, to in sent)
    crossing = sum(site(to) != site(node) for node, p in whole.items() for s in p.steps.sends.values() for to in s.to)
    assert len(sent) == crossing * -(-shard_bytes // STAGE_BYTES) > 0


@pytest.mark.parametrize("shard_bytes", [1000, 2 * STAGE_BYTES + 100])
def test_the_segments_of_a_transfer_are_its_bytes_in_order_and_transfers_do_not_overlap(shard_bytes):
    for program in programs(shard_bytes)[1].values():
        steps = program.steps
        for rows, memory in ((steps.sends, program.sent_bytes), (steps.receives, program.received_bytes)):
            spans = []
            for places in (program.places[k] for k in sorted(rows) if k in program.places):
                edges = [*places.values()]
                assert edges[0][0] % ALIGN_BYTES == 0 and edges[-1][1] - edges[0][0] == shard_bytes
                assert all(a < b <= a + STAGE_BYTES for a, b in edges)
                assert all(before[1] == after[0] for before, after in pairwise(edges))
                spans.append((edges[0][0], edges[-1][1]))
            spans.sort()
            assert all(before[1] <= after[0] for before, after in pairwise(spans))
            assert not spans or spans[-1][1] <= memory

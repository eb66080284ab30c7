"""Trees in rounds become a plan: what goes over one pipe in one round is one message.

In ready-order a message of a late round whose bytes were there at the start goes before one of an early round that is
not ready yet, and all that waits for that one is late. So links also serve messages in the order of their rounds. Those
of one round that share links go side by side: each takes as long as the busiest of its links is busy in that round, and
of each link only the share that this needs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Collective, Workload
from ...model.messages import messages_of, numbered
from ...model.plan import COPY, Plan
from ...schedule.best import best
from ...schedule.moments import settled
from ...schedule.scheduling_problem import LEAST_S, SchedulingProblem
from ...schedule.trees import Trees, lower, split_chunks
from .generation import Solved
from .program import Case, RoundTrees


def plan_of(c: Collective, case: Case, solved: Solved, several_chunks: bool) -> Plan:
    """The plan of trees in rounds: as soon as links serve its messages, or with those of a round side by side.

    Args:
        several_chunks: whether a message may carry several chunks.
    """
    workload, tree = _cut(c, solved.trees.piece, solved.share)
    plan = lower(case.network.topology, workload, tree, *_trees(case, solved.trees))
    plan = _in_rounds(plan, solved.trees, case, tree, several_chunks)
    return best([plan, _timed(plan)])


def _cut(c: Collective, piece: Int64, share: Float64) -> tuple[Workload, Int64]:
    """The collective with chunks cut among the trees of their pieces, and int64[chunks], the tree of each."""
    rows = [np.flatnonzero(piece == k) for k in range(c.piece_count)]
    cuts: list[tuple[int, int, int]] = []
    for chunk, (k, size) in enumerate(zip(c.chunk_piece.tolist(), c.chunk_bytes.tolist(), strict=True)):
        ends = np.cumsum(share[rows[k]])
        begins = np.floor(np.concatenate(([0.0], ends[:-1])) / ends[-1] * size).astype(np.int64)
        cuts += [(chunk, begin, row) for begin, row in zip(begins.tolist(), rows[k].tolist(), strict=True)]
    chunk, begin, row = np.array(cuts, dtype=np.int64).T
    # of parts that begin at the same byte only the last one is not empty
    kept = np.append((np.diff(chunk) != 0) | (np.diff(begin) != 0), True)
    return split_chunks(Workload((c,)), chunk, begin)[0], row[kept]


def _trees(case: Case, trees: RoundTrees) -> tuple[Trees, Trees]:
    """The trees for sums and those for copies, over the nodes of the topology."""
    topology, node, routes, ways = case.network.topology, case.node, case.network.hops, list[Trees]()
    for via, parent in ((trees.up, case.dst), (trees.down, case.src)):
        toward = np.full((len(trees.root), topology.node_count), -1, dtype=np.int64)
        hop = np.full_like(toward, -1)
        toward[:, node] = np.where(via >= 0, node[parent[via]], -1)
        hop[:, node] = via
        ways.append(Trees(node[trees.root], toward, hop, routes))
    return ways[0], ways[1]


def _in_rounds(plan: Plan, trees: RoundTrees, case: Case, tree: Int64, several_chunks: bool) -> Plan:
    """The plan with its transfers in the order of their rounds, and those of a pipe in a round in one message."""
    place = np.full(plan.topology.node_count, -1)
    place[case.node] = np.arange(len(case.node))
    row, copies = tree[plan.chunk], plan.op == COPY
    src, dst = place[plan.src], place[plan.dst.values]
    pipe = np.where(copies, trees.down[row, dst], trees.up[row, src])
    when = np.where(copies, trees.down_round[row, dst], trees.up_round[row, src])
    order = np.lexsort((plan.chunk, pipe, when))
    where = np.empty(len(order), dtype=np.int64)
    where[order] = np.arange(len(order))
    depends, message = plan.depends.take(order), numbered(when[order], pipe[order])
    together = several_chunks and len(message) and int(message[-1]) + 1 < len(message)
    return replace(
        plan, chunk=plan.chunk[order], src=plan.src[order], op=plan.op[order], dst=plan.dst.take(order),
        route=plan.route.take(order), depends=depends.with_values(where[depends.values].astype(np.int32)),
        group=when[order].astype(np.int32), message=message if together else None,
    )  # fmt: skip


def _timed(plan: Plan) -> Plan:
    """The plan with times: a message begins when its bytes are there, and its links are done with earlier rounds."""
    messages = messages_of(plan)
    sent = plan if messages is None else messages.merged
    assert sent.group is not None, "the groups are the rounds"
    problem = SchedulingProblem.of(sent, np.arange(sent.transfer_count))
    when, link, owner = sent.group.astype(np.int64), sent.route.values, sent.route.owners
    busy_s = np.maximum(problem.seconds, LEAST_S)[owner] * problem.hop_share
    use = when[owner] * plan.topology.link_count + link
    load_s = np.bincount(use, busy_s)
    seconds = sent.route.reduced(np.maximum, load_s[use])
    start, free_s = np.zeros(len(seconds)), np.zeros(plan.topology.link_count)
    waits = sent.depends
    for now in range(int(when.max(initial=-1)) + 1):
        due = np.flatnonzero(when[waits.owners] == now)
        awaited = waits.values[due]
        np.maximum.at(start, waits.owners[due], (start + seconds + problem.lag)[awaited])
        hops = np.flatnonzero(when[owner] == now)
        np.maximum.at(start, owner[hops], free_s[link[hops]] - problem.hop_delay[hops])
        np.maximum.at(free_s, link[hops], start[owner[hops]] + problem.hop_delay[hops] + seconds[owner[hops]])
    timed = settled(sent, start, seconds)
    assert timed.start_s is not None and timed.finish_s is not None, "settled"
    of = np.arange(plan.transfer_count) if messages is None else messages.of
    return replace(plan, sharing="timed", start_s=timed.start_s[of], finish_s=timed.finish_s[of])

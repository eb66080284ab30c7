"""Random damages of right plans by symmetry: what the verifier accepts, it accepts expanded, too.

``python tests/mutants/test_mutants_of_symmetry.py 10000`` tries that many, and prints what came of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.collective import Collective, Promised, Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.plan import make_plan
from stretto.model.symmetric import SymmetricPlan
from stretto.simulate import simulate
from stretto.verify import verify
from symmetric_plans import examples

Rng = np.random.Generator
Damage = Callable[[SymmetricPlan, Rng], SymmetricPlan]


def lists(r: Ragged) -> list[list[int]]:
    return [r[i].tolist() for i in range(r.rows)]


def rows_changed(plan: SymmetricPlan, **columns: Any) -> SymmetricPlan:
    """With other columns of its part."""
    part = plan.part
    names = ("chunk", "src", "op", "dst", "route", "depends", "start_s", "finish_s", "other_src")
    given = {name: getattr(part, name) for name in names} | columns
    sharing = given.pop("sharing", "timed")
    return SymmetricPlan(make_plan(part.topology, part.workload, sharing, **given), plan.orbits, {})


def orbits_changed(plan: SymmetricPlan, *, follow: bool = False, **facts: Any) -> SymmetricPlan:
    """With other orbits. ``follow``: the part is about their representatives, as one who meant them would say."""
    orbits = replace(plan.orbits, **facts)
    part = plan.part
    if follow:
        part = replace(part, workload=orbits.representatives)
    return SymmetricPlan(part, orbits, {})


def pick(plan: SymmetricPlan, rng: Rng) -> int:
    return int(rng.integers(plan.part.transfer_count))


def one(column: Any, k: int, value: Any) -> Any:
    out = np.array(column)
    out[k] = value
    return out


def of_list(plan: SymmetricPlan, name: str, k: int, change: Callable[[list[int]], list[int]]) -> SymmetricPlan:
    rows = lists(getattr(plan.part, name))
    rows[k] = change(rows[k])
    return rows_changed(plan, **{name: Ragged.of(rows)})


# --- rows -----------------------------------------------------------------------------------------------------------


def another_chunk(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    return rows_changed(plan, chunk=one(plan.part.chunk, pick(plan, rng), rng.integers(plan.orbits.count)))


def another_source(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    return rows_changed(plan, src=one(plan.part.src, pick(plan, rng), rng.integers(plan.topology.node_count)))


def another_receiver(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    node = int(rng.integers(plan.topology.node_count))
    return of_list(plan, "dst", pick(plan, rng), lambda d: [*d[1:], node])


def another_op(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k = pick(plan, rng)
    return rows_changed(plan, op=one(plan.part.op, k, 1 - plan.part.op[k]))


def another_link(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    link = int(rng.integers(plan.topology.link_count))

    def change(route: list[int]) -> list[int]:
        at = int(rng.integers(len(route)))
        return [*route[:at], link, *route[at + int(rng.integers(2)) :]]

    return of_list(plan, "route", pick(plan, rng), change)


def image_of_a_row(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """One row takes the place of an image: another piece's transfer for the same chunk."""
    k, part, g = pick(plan, rng), plan.part, plan.symmetry
    element = np.array(rng.integers(g.size))
    rows, routes = lists(part.dst), lists(part.route)
    rows[k] = g.image(element, part.dst[k]).tolist()
    routes[k] = g.image_of_links(element, part.route[k]).tolist()
    src = one(part.src, k, g.image(element, part.src[k]))
    return rows_changed(plan, src=src, dst=Ragged.of(rows), route=Ragged.of(routes))


def all_rows_to_images(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """All rows, but not the owners."""
    part, g = plan.part, plan.symmetry
    element = np.array(rng.integers(g.size))
    return rows_changed(
        plan, src=g.image(element, part.src), dst=part.dst.with_values(g.image(element, part.dst.values)),
        route=part.route.with_values(g.image_of_links(element, part.route.values)),
    )  # fmt: skip


def fewer_dependencies(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    return of_list(plan, "depends", pick(plan, rng), lambda d: d[1:])


def another_dependency(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k = pick(plan, rng)
    return of_list(plan, "depends", k, lambda d: [*d[1:], int(rng.integers(max(k, 1)))])


def another_start(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k, start, finish = pick(plan, rng), plan.part.start_s, plan.part.finish_s
    by = (finish[k] - start[k]) * rng.choice([-1, -0.5, -0.01, -1e-5, 1e-5, 0.01, 0.5, 1])
    return rows_changed(plan, start_s=one(start, k, start[k] + by), finish_s=one(finish, k, finish[k] + by))


def another_finish(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k, start, finish = pick(plan, rng), plan.part.start_s, plan.part.finish_s
    return rows_changed(
        plan, finish_s=one(finish, k, finish[k] + (finish[k] - start[k]) * rng.choice([-2, -0.5, -1e-3, 1e-3, 0.5]))
    )


def all_earlier(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Time passes faster."""
    by = rng.choice([0.25, 0.5, 0.9, 0.999])
    return rows_changed(plan, start_s=plan.part.start_s * by, finish_s=plan.part.finish_s * by)


def at_once(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Two rows in the same time."""
    a, b = pick(plan, rng), pick(plan, rng)
    start, finish = plan.part.start_s, plan.part.finish_s
    takes = finish[b] - start[b]
    return rows_changed(plan, start_s=one(start, b, start[a]), finish_s=one(finish, b, start[a] + takes))


def without_a_row(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k, part = pick(plan, rng), plan.part
    keep = np.array([i for i in range(part.transfer_count) if i != k], dtype=np.int64)
    if not len(keep):
        raise Useless
    waits = [[d - (d > k) for d in part.depends[i].tolist() if d != k] for i in keep]
    columns = {name: getattr(part, name)[keep] for name in ("chunk", "src", "op", "start_s", "finish_s")}
    ragged = {name: getattr(part, name).take(keep) for name in ("dst", "route")}
    other = None if part.other_src is None else part.other_src.take(keep)
    return rows_changed(plan, **columns, **ragged, depends=Ragged.of(waits), other_src=other)


def a_row_twice(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    k, part = pick(plan, rng), plan.part
    again = np.append(np.arange(part.transfer_count), k)
    columns = {name: getattr(part, name)[again] for name in ("chunk", "src", "op", "start_s", "finish_s")}
    end = float(part.finish_s.max()) + 1e-3
    columns["start_s"][-1], columns["finish_s"][-1] = end, end + part.finish_s[k] - part.start_s[k]
    waits = [*lists(part.depends), [*part.depends[k].tolist(), *([k] if rng.integers(2) else [])]]
    ragged = {name: getattr(part, name).take(again) for name in ("dst", "route")}
    other = None if part.other_src is None else part.other_src.take(again)
    return rows_changed(plan, **columns, **ragged, depends=Ragged.of(waits), other_src=other)


def fewer_sources(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    if plan.part.other_src is None:
        raise Useless
    return of_list(plan, "other_src", pick(plan, rng), lambda s: s[1:])


def another_sharing(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A part whose times nobody need heed."""
    return rows_changed(another_start(plan, rng), sharing="ready-order")


# --- orbits ---------------------------------------------------------------------------------------------------------


def another_owner(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    owner = np.array(plan.orbits.owner)
    owner[rng.integers(len(owner)), rng.integers(owner.shape[1])] = rng.integers(plan.topology.node_count)
    return orbits_changed(plan, follow=bool(rng.integers(2)), owner=owner)


def image_of_an_owner(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    owner, k = np.array(plan.orbits.owner), rng.integers(plan.orbits.count)
    owner[k] = plan.symmetry.image(np.array(rng.integers(plan.symmetry.size)), owner[k])
    return orbits_changed(plan, follow=bool(rng.integers(2)), owner=owner)


def owners_exchanged(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    owner = np.array(plan.orbits.owner)
    a, b = rng.integers(len(owner), size=2)
    owner[[a, b]] = owner[[b, a]]
    return orbits_changed(plan, follow=bool(rng.integers(2)), owner=owner)


def another_position(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    position = np.array(plan.orbits.position)
    position[rng.integers(len(position))] += rng.choice([-1, 1, 2, 7])
    return orbits_changed(plan, follow=bool(rng.integers(2)), position=position)


def positions_exchanged(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    position = np.array(plan.orbits.position)
    a, b = rng.integers(len(position), size=2)
    position[[a, b]] = position[[b, a]]
    return orbits_changed(plan, follow=bool(rng.integers(2)), position=position)


def another_orbit(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """One orbit less, or one twice."""
    k = int(rng.integers(plan.orbits.count))
    keep = np.arange(plan.orbits.count)
    keep = np.delete(keep, k) if rng.integers(2) else np.append(keep, k)
    return orbits_changed(
        plan, follow=bool(rng.integers(2)), owner=plan.orbits.owner[keep], position=plan.orbits.position[keep]
    )


# --- the group ------------------------------------------------------------------------------------------------------


def group_changed(plan: SymmetricPlan, **facts: Any) -> SymmetricPlan:
    return orbits_changed(plan, symmetry=replace(plan.symmetry, **facts))


def two_nodes_exchanged(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A generator with two images exchanged."""
    images = np.array(plan.symmetry.generators)
    i, (a, b) = rng.integers(len(images)), rng.integers(images.shape[1], size=2)
    images[i, [a, b]] = images[i, [b, a]]
    return group_changed(plan, generators=images)


def another_generator(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A power, a product, the identity, or a random permutation in the place of a generator."""
    images, orders = np.array(plan.symmetry.generators), np.array(plan.symmetry.orders)
    i, j = rng.integers(len(images), size=2)
    images[i] = [images[i][images[i]], images[i][images[j]], np.arange(images.shape[1]), rng.permutation(images[i])][
        rng.integers(4)
    ]
    if rng.integers(2):
        orders[i] = rng.choice([1, orders[i], orders[j]])
    return group_changed(plan, generators=images, orders=orders)


def another_order(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    orders = np.array(plan.symmetry.orders)
    i = rng.integers(len(orders))
    orders[i] = rng.choice([0, 1, orders[i] - 1, orders[i] + 1, 2 * orders[i]])
    return group_changed(plan, orders=orders)


def no_permutation(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    images = np.array(plan.symmetry.generators)
    images[rng.integers(len(images)), rng.integers(images.shape[1])] = rng.integers(-2, images.shape[1] + 2)
    return group_changed(plan, generators=images)


def other_places(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """The generator turned around another way: conjugate by a random permutation of nodes of one kind."""
    kind = plan.topology.kind
    move = np.arange(len(kind))
    for each in np.unique(kind):
        nodes = np.flatnonzero(kind == each)
        move[nodes] = rng.permutation(nodes)
    images = np.empty_like(plan.symmetry.generators)
    images[:, move] = move[plan.symmetry.generators]
    return group_changed(plan, generators=images)


# --- the workload ---------------------------------------------------------------------------------------------------


def work_changed(plan: SymmetricPlan, rng: Rng, number: int | None, **facts: Any) -> SymmetricPlan:
    """With other facts of one collective, or of all."""
    each: list[Collective] = []
    for i, c in enumerate(plan.workload.collectives):
        each.append(replace(c, **facts) if number in (None, i) else c)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def another_size(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """More or fewer bytes, promised as the kind does."""
    of_all = bool(rng.integers(2))
    which = int(rng.integers(len(plan.workload.collectives)))
    factor = rng.choice([0.5, 0.99, 1.001, 2.0])
    each: list[Collective] = []
    for i, c in enumerate(plan.workload.collectives):
        if of_all or i == which:
            size, chunks = max(int(c.size_bytes * factor), 1), c.chunk_count // c.piece_count
            root = max(c.root, 0)
            c = make_collective(c.kind, plan.topology, size, ranks=c.ranks.tolist(), chunks=chunks, root=root)
        each.append(c)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def other_chunks(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Bytes moved from one chunk to the next, in one collective."""
    which = int(rng.integers(len(plan.workload.collectives)))
    c = plan.workload.collectives[which]
    if c.chunk_count < 2:
        raise Useless
    k = int(rng.integers(c.chunk_count - 1))
    sizes, offsets = np.array(c.chunk_bytes), np.array(c.chunk_offset)
    by = int(rng.choice([-1, 1, -sizes[k] // 2, sizes[k + 1] // 2]))
    sizes[k] += by
    sizes[k + 1] -= by
    offsets[k + 1] += by * int(rng.integers(4) > 0)
    return work_changed(plan, rng, which, chunk_bytes=sizes, chunk_offset=offsets)


def another_cut(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Pieces cut into other numbers of chunks, in one collective or all; as many in all, mostly."""
    c = plan.workload.collectives[0]
    which = None if rng.integers(2) else int(rng.integers(len(plan.workload.collectives)))
    if not isinstance(c, Promised) or c.traits.whole:
        raise Useless
    counts = np.array(np.broadcast_to(c.chunks, c.piece_count))
    a, b = rng.integers(len(counts), size=2)
    if rng.integers(2):
        counts[[a, b]] = counts[[b, a]]
    else:
        counts[a] += 1
        counts[b] = max(counts[b] - 1, 1)
    each = [
        Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, counts if which in (None, i) else c.chunks)
        for i, c in enumerate(plan.workload.collectives)
        if isinstance(c, Promised)
    ]
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload(tuple(each)))


def another_rank(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Ranks in another order, another node, or another root."""
    which = int(rng.integers(len(plan.workload.collectives)))
    c = plan.workload.collectives[which]
    ranks = np.array(c.ranks)
    change = rng.integers(3)
    if change == 0 and c.traits.rooted:
        return work_changed(plan, rng, which, root=int(rng.integers(len(ranks))))
    if change == 1:
        a, b = rng.integers(len(ranks), size=2)
        ranks[[a, b]] = ranks[[b, a]]
    else:
        ranks[rng.integers(len(ranks))] = rng.integers(plan.topology.node_count)
    return work_changed(plan, rng, which, ranks=ranks.astype(np.int32))


def another_root(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """The same promise from or to another root."""
    c = plan.workload.collectives[0]
    if not isinstance(c, Promised) or not c.traits.rooted:
        raise Useless
    other = Promised(c.kind, c.ranks, c.size_bytes, int(rng.integers(len(c.ranks))), c.start_s, c.weight, c.chunks)
    return orbits_changed(plan, follow=bool(rng.integers(2)), workload=Workload((other,)))


def another_moment(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    which = None if rng.integers(2) else int(rng.integers(len(plan.workload.collectives)))
    facts = {"start_s": 1e-4} if rng.integers(2) else {"weight": 2.0}
    return work_changed(plan, rng, which, **facts)


def other_sums(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    c = plan.workload.collectives[0]
    if rng.integers(2):
        return work_changed(plan, rng, None, reduces=not c.reduces)
    kind = str(rng.choice(["allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "multicast", "none"]))
    return work_changed(plan, rng, None, kind=kind)


def other_promise(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    c = plan.workload.collectives[0]
    wanted = c.wanted.with_values(np.roll(c.wanted.values, 1))
    return work_changed(plan, rng, 0, wanted=wanted)


def one_collective_less(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    each = plan.workload.collectives
    if len(each) < 2:
        raise Useless
    return orbits_changed(plan, workload=Workload(each[1:] if rng.integers(2) else each[::-1]))


def other_representatives(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """A part about other chunks: smaller ones, or held by more."""
    work = plan.part.workload
    c = work.collectives[0]
    sizes = np.maximum(c.piece_bytes // 2, 1)
    facts: dict[str, Any] = {"piece_bytes": sizes, "chunk_bytes": sizes} if rng.integers(2) else {"wanted": c.holders}
    part = replace(plan.part, workload=Workload((replace(c, **facts), *work.collectives[1:])))
    return SymmetricPlan(part, plan.orbits, {})


# --- the network ----------------------------------------------------------------------------------------------------


def another_network(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """One link, or one of each orbit's, is slower, farther, or costs more a message; what a node does is other."""
    t, links = plan.topology, np.array([rng.integers(plan.topology.link_count)])
    if rng.integers(2):
        links = np.flatnonzero(plan.symmetry.link_orbits == plan.symmetry.link_orbits[links[0]])
    if rng.integers(4):
        name = str(rng.choice(["bandwidth", "latency_s", "message_s"]))
        column = np.array(getattr(t, name))
        column[links] = column[links] * rng.choice([0.5, 0.99, 1.5]) + (1e-6 if name == "message_s" else 0)
    else:
        name = str(rng.choice(["replicates", "transit", "reduces", "kind"]))
        column = np.array(getattr(t, name))
        at = rng.integers(t.node_count)
        column[at] = rng.integers(3) if name == "kind" else not column[at]
    net = replace(t, **{name: column})
    # one of them alone would be two networks in a plan
    both = rng.integers(4)
    part = replace(plan.part, topology=net) if both != 1 else plan.part
    symmetry = replace(plan.symmetry, topology=net) if both != 2 else plan.symmetry
    return SymmetricPlan(part, replace(plan.orbits, symmetry=symmetry), {})


def several(plan: SymmetricPlan, rng: Rng) -> SymmetricPlan:
    """Two or three damages, which might make up for each other."""
    for _ in range(int(rng.integers(2, 4))):
        plan = DAMAGES[int(rng.integers(len(DAMAGES)))](plan, rng)
    return plan


DAMAGES: list[Damage] = [
    another_chunk, another_source, another_receiver, another_op, another_link, image_of_a_row, all_rows_to_images,
    fewer_dependencies, another_dependency, another_start, another_finish, all_earlier, at_once, without_a_row,
    a_row_twice, fewer_sources, another_sharing, another_owner, image_of_an_owner, owners_exchanged, another_position,
    positions_exchanged, another_orbit, two_nodes_exchanged, another_generator, another_order, no_permutation,
    other_places, another_size, other_chunks, another_cut, another_rank, another_root, another_moment, other_sums, other_promise,
    one_collective_less, other_representatives, another_network, several,
]  # fmt: skip


class Useless(Exception):
    """A damage that does not suit a plan."""


def expanded_verdict(plan: SymmetricPlan) -> str:
    """What the plain verifier finds in the expanded plan: a code, "ok", or "form" if there is none."""
    try:
        plain = plan.expand()
    except (StrettoError, LookupError, ValueError, AssertionError, ZeroDivisionError):
        return "form"
    try:
        finding = verify(plain).finding
    except Exception:  # it has no promises, or nodes that are not there
        return "form"
    return finding.code if finding else "ok"


def damaged(plans: list[SymmetricPlan], rng: Rng) -> tuple[str, SymmetricPlan]:
    while True:
        damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
        try:
            return damage.__name__, damage(plans[int(rng.integers(len(plans)))], rng)
        except Useless:
            pass
        except (StrettoError, LookupError, ValueError, KeyError, ZeroDivisionError):  # no plan has that form
            pass


@pytest.fixture(scope="module")
def plans() -> list[SymmetricPlan]:
    return list(examples(1).values())


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_passes(plans, seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        name, plan = damaged(plans, rng)
        ours, theirs = verify(plan), expanded_verdict(plan)
        assert not ours.ok or theirs == "ok", (name, theirs)


def main(trials: int) -> None:
    plans = [plan for seed in range(6) for plan in examples(seed).values()]
    assert all(verify(plan).ok and verify(plan.expand()).ok for plan in plans)
    rng, outcomes, only = np.random.default_rng(20), Counter[tuple[str, str]](), Counter[str]()
    apart = 0.0
    for trial in range(trials):
        name, plan = damaged(plans, rng)
        finding, theirs = verify(plan).finding, expanded_verdict(plan)
        ours = "accepted" if finding is None else "refused"
        outcomes[ours, "accepted" if theirs == "ok" else "refused"] += 1
        if finding is None and theirs != "ok":
            print(f"damage {trial}, {name}: accepted, but expanded {theirs}")
        if finding is not None and theirs == "ok":
            only[f"{finding.code} ({name})"] += 1
        if finding is None and theirs == "ok":
            apart = max(apart, abs(simulate(plan).completion_s / simulate(plan.expand()).completion_s - 1))
    print(f"{trials} damages of {len(plans)} plans")
    for (ours, theirs), number in sorted(outcomes.items()):
        print(f"{number:6} {ours} by symmetry, {theirs} expanded")
    print(f"completions of accepted plans differ by at most {apart:.1e}")
    for what, number in only.most_common():
        print(f"{number:6} refused by symmetry alone: {what}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)

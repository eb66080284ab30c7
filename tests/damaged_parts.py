"""Damages of the part of a plan by symmetry: of its transfers, and of the orbits that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.plan import make_plan
from stretto.model.symmetric import SymmetricPlan

Rng = np.random.Generator
Damage = Callable[[SymmetricPlan, Rng], SymmetricPlan]


class Useless(Exception):
    """A damage that does not suit a plan."""


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


DAMAGES: list[Damage] = [
    another_chunk, another_source, another_receiver, another_op, another_link, image_of_a_row, all_rows_to_images,
    fewer_dependencies, another_dependency, another_start, another_finish, all_earlier, at_once, without_a_row,
    a_row_twice, fewer_sources, another_sharing, another_owner, image_of_an_owner, owners_exchanged,
    another_position, positions_exchanged, another_orbit,
]  # fmt: skip

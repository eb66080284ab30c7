"""Every planner and refiner answers each case of digests.csv as it did.

A change of an answer changes what users get, so a commit that makes one says why. Run as a program,
``python tests/golden/test_digests.py``, this file writes the answers that there are now into the table; to add a
case, append a row whose last column is empty and run it.

The columns are:

- planner: a planner, ``planner+refiner``, or a refiner that may stand alone.
- options: ``name=value``, by space. No case has a time limit; where planners search, options count their work.
- topology: a spec, or a file from the root of the repository.
- collective: a kind; for rooted ones ``kind@ROOT``, for a multicast ``multicast@ROOT>RECEIVER.RECEIVER``, and for one
  that starts later ``kind^SECONDS``. Several by `` + `` are one workload.
- ranks: ``all`` accelerators, or their nodes by space; by `` + `` for each collective of a workload.
- size_bytes, chunks: of each collective. Of an alltoallv it is the number of bytes that scales the matrix.
- answer: the first 16 hexadecimal digits of ``Plan.digest()``, or ``refused`` and the class of the error.
"""

from __future__ import annotations

import csv
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import StrettoError
from stretto.planners import registered, run_planner
from stretto.topologies import load_topology

TABLE = Path(__file__).parent / "digests.csv"
ROOT = Path(__file__).parents[2]
REFUSED = "refused"


class Row(NamedTuple):
    """A row of the table: a case, and the answer to it."""

    planner: str
    options: str
    topology: str
    collective: str
    ranks: str
    size_bytes: str
    chunks: str
    answer: str = ""

    @property
    def name(self) -> str:
        return "-".join(part for part in self[:-1] if part).replace(" ", "_")

    @property
    def is_plan(self) -> bool:
        return not self.answer.startswith(REFUSED)


def read() -> list[Row]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == Row._fields
    return [Row(*row) for row in rows]


def write(rows: list[Row]) -> None:
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])


@cache
def network(spec: str):
    return load_topology(str(ROOT / spec) if spec.endswith(".json") else spec)


def collective(text: str, ranks: str, row: Row):
    """The collective that a part of the column of that name stands for, among such ranks."""
    topology = network(row.topology)
    text, _, start = text.partition("^")
    text, _, receivers = text.partition(">")
    kind, _, root = text.partition("@")
    nodes = None if ranks == "all" else [int(node) for node in ranks.split()]
    common = {"ranks": nodes, "chunks": int(row.chunks), "start_s": float(start or 0)}
    size = int(row.size_bytes)
    if kind == "alltoallv":
        n = len(topology.accelerators if nodes is None else nodes)
        return alltoallv(
            topology, [[(3 * i + 5 * j) % 7 * (i != j) * size for j in range(n)] for i in range(n)], **common
        )
    chosen = [int(rank) for rank in receivers.split(".")] if receivers else None
    return make_collective(kind, topology, size, root=int(root or 0), receivers=chosen, **common)


def answer(row: Row) -> str:
    """What the planner answers now."""
    try:
        kinds, ranks = row.collective.split(" + "), row.ranks.split(" + ")
        if len(ranks) == 1:
            ranks *= len(kinds)
        workload = Workload(tuple(collective(kind, nodes, row) for kind, nodes in zip(kinds, ranks, strict=True)))
        options = dict(option.split("=", 1) for option in row.options.split())
        return run_planner(row.planner, network(row.topology), workload, options=options).digest()[:16]
    except StrettoError as refusal:
        return f"{REFUSED} {type(refusal).__name__}"


ROWS = read()


@pytest.mark.parametrize("row", [pytest.param(r, id=r.name) for r in ROWS])
def test_the_answer_is_what_it_was(row):
    assert answer(row) == row.answer


def test_no_case_is_in_the_table_twice():
    assert len({row[:-1] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", sorted(registered()))
def test_each_planner_and_refiner_has_a_plan_in_the_table(name):
    assert any(name in row.planner.split("+") and row.is_plan for row in ROWS)


def test_the_table_has_many_networks_and_kinds_of_collective():
    plans = [row for row in ROWS if row.is_plan]
    assert len({row.topology for row in plans}) >= 8
    assert {"allgather", "allreduce", "alltoall"} <= {row.collective for row in plans}


if __name__ == "__main__":
    began = time.perf_counter()
    rows = [row._replace(answer=answer(row)) for row in ROWS]
    write(rows)
    for old, new in zip(ROWS, rows, strict=True):
        if old != new:
            print(f"{old.name}: {old.answer or 'new'} -> {new.answer}")
    plans = sum(row.is_plan for row in rows)
    print(f"{plans} plans, {len(rows) - plans} refusals, {time.perf_counter() - began:.0f} s", file=sys.stderr)

"""The best planner for each range of sizes, determined once for a topology and looked up afterwards.

NCCL's tuner does the same for its algorithms and protocols. Candidates (a planner, and the chunks that it cuts a piece
into) are planned, verified and simulated at several sizes. Between two sizes with different winners, the size from
which the second is better is narrowed down. Sizes are full buffers in bytes, as nccl-tests count them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..formats import exporters
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError, StrettoError, Unsupported
from ..model.files import unreadable
from ..model.kinds import KINDS
from ..model.plan import Plan
from ..model.progress import Progress
from ..model.targets import Target, find_target
from ..model.topology import Topology
from ..model.units import format_size
from ..planners import asked_by, find, run_planner
from ..schedule.best import Answer, ask, best_of, completion_s
from ..schedule.fitting import refuse
from ..schedule.kept import Kept
from ..simulate import simulate
from ..topologies import assume_messages, load_topology
from ..topologies.values import parse_json
from ..verify import verify
from .exportable import exportable
from .programs import program_s

VERSION = 1
"""Of the file format."""

CHUNKS = (1, 4)
"""Chunks that a piece is cut into, by default."""

KEPT_WITHIN = 1.01
"""The winner at one size also wins at the next, if it takes at most this many times the least completion there: a table
with fewer ranges is easier to use."""

CROSSING = 1.1
"""The size from which another candidate is better is narrowed down to this ratio."""


@dataclass(frozen=True)
class Range:
    """A range of sizes, and the best planner for them.

    Attributes:
        from_bytes, to_bytes: the first size of the range, and the first size above it; None if there is no size above.
        planner, chunks: the best planner, and the chunks that it cuts a piece into.
        measured: the sizes at which candidates were compared, each with the completion of the best in seconds.
    """

    collective: str
    from_bytes: int
    to_bytes: int | None
    planner: str
    chunks: int
    measured: tuple[tuple[int, float], ...] = ()

    @property
    def middle_bytes(self) -> int:
        """A size that stands for the range: the geometric middle of the sizes at which it was measured."""
        sizes = [size for size, _ in self.measured]
        return round(math.sqrt(sizes[0] * sizes[-1]))


@dataclass(frozen=True)
class Tuning:
    """The table of a topology.

    Attributes:
        spec: the topology, as :func:`stretto.topologies.load_topology` takes it.
        digest: the digest of its nodes and links, see :func:`digest_of`.
        seed: the seed of the planners.
        root: the rank that rooted collectives start from or end at.
        ranks_only: whether only plans were compared that store chunks at no node but the ranks.
        target: what the plans are for (:mod:`stretto.model.targets`), None for none. Plans for a runtime of programs
            were compared by what it takes for their programs.
    """

    spec: str
    digest: str
    seed: int
    root: int
    ranks_only: bool
    ranges: tuple[Range, ...]
    target: str | None = None

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(r.collective for r in self.ranges))
        return f"<Tuning of {self.spec}: {kinds} in {len(self.ranges)} ranges of sizes>"

    def find(self, kind: str, size_bytes: int) -> Range | None:
        """The range of a collective and a size (the full buffer); None if the collective was not tuned."""
        own = (r for r in self.ranges if r.collective == kind and r.from_bytes <= size_bytes)
        return next((r for r in own if r.to_bytes is None or size_bytes < r.to_bytes), None)

    def check(self, topology: Topology, where: str) -> None:
        """Refuse a topology that the table was not made for, or whose links have changed."""
        if digest_of(topology) != self.digest:
            raise InputError(f"was tuned for {self.spec}, which is not {topology.name} as it is now", where)

    def plan(self, topology: Topology, kind: str, size_bytes: int) -> Plan | None:
        """The plan of the best planner; None if the collective was not tuned."""
        best = self.find(kind, size_bytes)
        return None if best is None else self.plan_of(best, topology, size_bytes)

    def plan_of(self, row: Range, topology: Topology, size_bytes: int) -> Plan:
        """The plan of a row's planner for a size, which need not be in the row's range."""
        goal = _target_of(self.target)
        return plan_one(row.planner, topology, self.collective(row, topology, size_bytes), self.seed, target=goal)

    def collective(self, row: Range, topology: Topology, size_bytes: int) -> Collective:
        """The collective of a row, of a size."""
        return make_collective(row.collective, topology, size_bytes, root=self.root, chunks=row.chunks)


def _target_of(name: str | None) -> Target | None:
    """The target of a name, if there is one."""
    return None if name is None else find_target(name)


def digest_of(topology: Topology) -> str:
    """A digest of the nodes, links, changes of bandwidth and planes of a topology."""
    h = hashlib.sha256()
    for column in (topology.kind, topology.src, topology.dst, topology.bandwidth, topology.latency_s):
        h.update(column.tobytes())
    for column in (topology.changes.link, topology.changes.at_s, topology.changes.bandwidth):
        h.update(column.tobytes())
    if topology.reduces.any():
        h.update(topology.reduces.tobytes())
    for plane in topology.planes:
        h.update(repr((plane.bandwidth, plane.latency_s, plane.reconfiguration_s)).encode())
    return h.hexdigest()[:16]


Candidate = tuple[str, int]
"""A planner, and the chunks that it cuts a piece into."""


def tune(
    spec: str,
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    planners: Sequence[str] | None = None,
    chunks: Sequence[int] = CHUNKS,
    root: int = 0,
    seed: int = 0,
    ranks_only: bool = False,
    target: str | None = None,
    progress: Progress | None = None,
) -> Tuning:
    """Determine the best planner for each range of sizes.

    Args:
        sizes: full buffers at which all candidates are compared, bytes.
        planners: the planners to compare. Default: those that are registered for it.
        chunks: numbers of chunks that a piece is cut into. A planner that cuts chunks itself gets the least.
        ranks_only: leave out plans that store chunks at other nodes than the ranks, as PyTorch's backend does.
        target: what shall run the plans. If that is a runtime of programs, plans are compared by what it takes.
    Raises:
        Unsupported: no candidate serves a collective on this topology.
    """
    topology = assume_messages(load_topology(spec))
    names = [entry.name for entry in asked_by("tune")] if planners is None else planners
    cutting = {name for name in names if any(find(stage).cuts for stage in name.split("+"))}
    candidates = [(name, n) for name, n in product(names, chunks) if n == min(chunks) or name not in cutting]
    ordered, goal = sorted(set(sizes)), _target_of(target)
    ranges: list[Range] = []
    for i, kind in enumerate(collectives):
        race = _Race(topology, kind, root, seed, ranks_only, goal)
        if goal is not None:
            refuse(goal, topology, Workload((make_collective(kind, topology, ordered[0], root=root),)))
        for k, size in enumerate(ordered):
            for place, candidate in enumerate(candidates):
                if progress is not None:
                    asked = (i * len(ordered) + k) * len(candidates) + place
                    what = f"{kind} of {format_size(size)} by {candidate[0]}"
                    progress(asked, len(collectives) * len(ordered) * len(candidates), what)
                race.answer(candidate, size)
        ranges += _ranges(race, candidates, ordered)
    return Tuning(spec, digest_of(topology), seed, root, ranks_only, tuple(ranges), target)


@dataclass
class _Race:
    """The answers of candidates for one collective, each asked once for each size."""

    topology: Topology
    kind: str
    root: int
    seed: int
    ranks_only: bool
    target: Target | None
    answers: dict[tuple[Candidate, int], Answer] = field(default_factory=dict)

    def answer(self, candidate: Candidate, size: int) -> Answer:
        """The candidate's answer without its plan, which would take memory."""
        key = candidate, size
        if key not in self.answers:
            planner, chunks = candidate
            answer = ask(f"{planner}, {chunks} chunks", partial(self._plan, planner, chunks, size), self._score_s)
            self.answers[key] = replace(answer, plan=None)
        return self.answers[key]

    def completion_s(self, candidate: Candidate, size: int) -> float:
        """Seconds; infinite where the candidate refuses."""
        return self.answer(candidate, size).score_s

    def _score_s(self, plan: Plan) -> float:
        """Seconds that the target takes for the program of a plan, or else the plan's completion."""
        format = None if self.target is None else exporters().get(self.target.name)
        takes_s = None if format is None else program_s(simulate(plan), format)
        return completion_s(plan) if takes_s is None else takes_s

    def _plan(self, planner: str, chunks: int, size: int) -> Plan:
        collective = make_collective(self.kind, self.topology, size, root=self.root, chunks=chunks)
        plan = plan_one(planner, self.topology, collective, self.seed, self.ranks_only, self.target)
        verdict = verify(plan)
        if verdict.finding is not None:
            raise StrettoError(f"the plan does not verify: {verdict.finding.message}")
        return plan


def plan_one(
    planner: str,
    topology: Topology,
    collective: Collective,
    seed: int,
    ranks_only: bool = False,
    target: Target | None = None,
) -> Plan:
    """The plan of one collective, for a target or for none.

    Raises:
        StrettoError: the planner refuses, or the plan stores chunks outside the ranks although ``ranks_only``.
    """
    work = Workload((collective,))

    def make(goal: Target | None, kept: Kept | None = None) -> Plan:
        return run_planner(planner, topology, work, seed=seed, target=goal, kept=kept)

    plan = make(None) if target is None else exportable(make, target)
    ends = np.concatenate((plan.src, plan.dst.values))
    if ranks_only and not np.isin(ends, collective.ranks).all():
        raise Unsupported(f"the plan of {planner} stores chunks outside the ranks")
    return plan


def _ranges(race: _Race, candidates: list[Candidate], sizes: list[int]) -> Iterator[Range]:
    """The ranges of one collective, from the smallest sizes to the largest."""
    winners = _winners(race, candidates, sizes)
    first = start = 0
    for k in range(1, len(sizes) + 1):
        best, end = winners[first], None
        if k < len(sizes):
            if winners[k] == best:
                continue
            end = _crossing(race, best, winners[k], sizes[k - 1], sizes[k])
        measured = tuple((size, race.completion_s(best, size)) for size in sizes[first:k])
        yield Range(race.kind, start, end, *best, measured)
        first, start = k, end or 0


def _winners(race: _Race, candidates: list[Candidate], sizes: list[int]) -> list[Candidate]:
    """The best candidate at each size; the winner at the size before stays the winner while it is nearly the best."""
    winners: list[Candidate] = []
    for size in sizes:
        answers = {candidate: race.answer(candidate, size) for candidate in candidates}
        best = best_of(answers.values())
        if math.isinf(best.score_s):
            reasons = "; ".join(f"{answer.name}: {answer.refusal}" for answer in answers.values())
            raise Unsupported(f"no planner could {race.kind} {size} bytes: {reasons}")
        if winners and answers[winners[-1]].score_s <= KEPT_WITHIN * best.score_s:
            winners.append(winners[-1])
        else:
            winners.append(next(candidate for candidate in candidates if answers[candidate] is best))
    return winners


def _crossing(race: _Race, a: Candidate, b: Candidate, low: int, high: int) -> int:
    """The least size from which ``b`` is better, to a ratio of ``CROSSING``, between sizes where each of both wins."""
    while high > max(CROSSING * low, low + 1):
        middle = round(math.sqrt(low * high))
        if race.completion_s(a, middle) <= race.completion_s(b, middle):
            low = middle
        else:
            high = middle
    return high


# --- as a file ----------------------------------------------------------------------------------


def to_json(tuning: Tuning) -> dict[str, Any]:
    """A table as plain data."""
    ranges = [
        asdict(r) | {"measured": [{"size_bytes": size, "completion_s": s} for size, s in r.measured]}
        for r in tuning.ranges
    ]
    return {"stretto_tuning": VERSION} | asdict(replace(tuning, ranges=())) | {"ranges": ranges}


def is_tuning(path: str) -> bool:
    """Whether a file begins as a table of ranges does."""
    try:
        with open(path, "rb") as file:
            return b'"stretto_tuning"' in file.read(100)
    except OSError:
        return False


def read_tuning(path: str) -> Tuning:
    """Read a table.

    Raises:
        InputError: the file is no table, or the table of another version; the message says what is wrong.
    """
    try:
        data = parse_json(Path(path).read_text(encoding="utf-8"), path)
        if data["stretto_tuning"] != VERSION:
            raise InputError(f"is a table of version {data['stretto_tuning']!r}; this stretto reads {VERSION}", path)
        ranges = tuple(_range(r) for r in data["ranges"])
        whole = {key: data[key] for key in ("spec", "digest", "seed", "root", "ranks_only")}
        _target_of(target := data.get("target"))
    except OSError as error:
        raise unreadable(path, error) from None
    except KeyError as missing:
        raise InputError(f"is no table of `stretto tune`: {missing} is missing", path) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"is no table of `stretto tune`: {type(error).__name__} {error}", path) from None
    if not all(isinstance(value, kind) for value, kind in zip(whole.values(), (str, str, int, int, bool), strict=True)):
        raise InputError("is no table of `stretto tune`: a value has another type", path)
    return Tuning(**whole, ranges=ranges, target=target)


def _range(data: Mapping[str, Any]) -> Range:
    measured = tuple((int(m["size_bytes"]), float(m["completion_s"])) for m in data["measured"])
    low, high = int(data["from_bytes"]), None if data["to_bytes"] is None else int(data["to_bytes"])
    kind, planner, chunks = data["collective"], data["planner"], int(data["chunks"])
    if kind not in KINDS or not isinstance(planner, str) or chunks < 1 or low < 0 or not measured:
        raise ValueError(f"in a range of {kind!r}")
    if ".py:" in planner:
        # a table is data, and may come from others: reading one must not import a file that it names
        raise InputError(f"names a planner in a file, {planner}: a table can only name planners of packages", kind)
    return Range(kind, low, high, planner, chunks, measured)

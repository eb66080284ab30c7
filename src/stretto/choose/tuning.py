"""The best planner for each range of sizes, found once for a topology and looked up ever after.

As NCCL's tuner does for its algorithms and protocols: candidates (a planner and into how many chunks it cuts
a piece) are planned, verified and simulated over sizes; between two sizes with different winners the size at
which they change places is narrowed down. Sizes are full buffers in bytes, as nccl-tests count them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from ..model.collective import Workload, make_collective
from ..model.errors import InputError, StrettoError
from ..model.kinds import KINDS
from ..model.plan import Plan
from ..model.topology import Topology
from ..planners import Progress, run_planner
from ..simulate import simulate
from ..topologies import load_topology
from ..verify import verify

VERSION = 1
PLANNERS = ("scale-ccl", "mtegcca", "shortest-path", "forest", "ring", "nccl-tree", "pairwise", "swot", "birkhoff")
CHUNKS = (1, 4)
CUTS_ITSELF = ("forest", "swot", "birkhoff")
"""Planners that cut pieces as they need: they are tried with the fewest chunks alone."""
NEARLY = 0.01
"""A candidate that is this little worse than the best goes on where it was the best before."""
CROSSING = 1.1
"""The ratio of sizes within which two candidates change places is narrowed down to this."""


@dataclass(frozen=True)
class Range:
    """Sizes from ``from_bytes`` up to, without, ``to_bytes`` (None: all above), and what is best for them.

    Attributes:
        measured: sizes at which the candidates were compared, with completion in seconds.
    """

    collective: str
    from_bytes: int
    to_bytes: int | None
    planner: str
    chunks: int
    measured: tuple[tuple[int, float], ...] = ()

    @property
    def middle_bytes(self) -> int:
        """A size that stands for the range: the geometric middle of those at which it was measured."""
        sizes = [size for size, _ in self.measured]
        return round(math.sqrt(sizes[0] * sizes[-1]))


@dataclass(frozen=True)
class Tuning:
    """The table of a topology.

    Attributes:
        spec: of the topology, as :func:`stretto.topologies.load_topology` takes it.
        digest: of its nodes and links, see :func:`digest_of`.
        root: the rank that rooted collectives start from or end at.
        ranks_only: whether no plan needs any node but the ranks.
    """

    spec: str
    digest: str
    seed: int
    root: int
    ranks_only: bool
    ranges: tuple[Range, ...]

    def find(self, kind: str, size_bytes: int) -> Range | None:
        """What is best for a collective of this size (the full buffer); None if it was not tuned."""
        for r in self.ranges:
            if r.collective == kind and r.from_bytes <= size_bytes and (r.to_bytes is None or size_bytes < r.to_bytes):
                return r
        return None

    def check(self, topology: Topology, where: str) -> None:
        """Refuse a topology that is not the one that was tuned.

        Raises:
            InputError: it is another.
        """
        if digest_of(topology) != self.digest:
            raise InputError(f"was tuned for {self.spec}, which is not {topology.name} as it is now", where)

    def plan(self, topology: Topology, kind: str, size_bytes: int) -> Plan | None:
        """The plan that the table asks for; None if the collective was not tuned."""
        found = self.find(kind, size_bytes)
        if found is None:
            return None
        return _plan(topology, kind, size_bytes, (found.planner, found.chunks), self.root, self.seed)


def digest_of(topology: Topology) -> str:
    """A digest of what planners see of a topology."""
    h = hashlib.sha256()
    for column in (topology.kind, topology.src, topology.dst, topology.bandwidth, topology.latency_s):
        h.update(column.tobytes())
    for plane in topology.planes:
        h.update(repr((plane.bandwidth, plane.latency_s, plane.reconfiguration_s)).encode())
    return h.hexdigest()[:16]


Candidate = tuple[str, int]
"""A planner's spec and how many chunks a piece is cut into."""


def tune(
    spec: str,
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    planners: Sequence[str] = PLANNERS,
    chunks: Sequence[int] = CHUNKS,
    root: int = 0,
    seed: int = 0,
    ranks_only: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Find the best planner for each range of sizes.

    Args:
        sizes: full buffers at which all candidates are compared, bytes.
        ranks_only: leave out plans in which others than the ranks store or forward, as PyTorch's backend does.
    Raises:
        Unsupported: no candidate serves a collective on this topology.
    """
    topology = load_topology(spec)
    ordered = sorted(set(sizes))
    ranges: list[Range] = []
    for i, kind in enumerate(collectives):

        def tell(done: int, kind: str = kind, i: int = i) -> None:
            if progress is not None:
                progress(i * len(ordered) + done, len(collectives) * len(ordered), kind)

        candidates = [(p, n) for p, n in product(planners, chunks) if p not in CUTS_ITSELF or n == min(chunks)]
        race = _Race(topology, kind, root, seed, ranks_only)
        ranges += _ranges(race, candidates, ordered, tell)
    return Tuning(spec, digest_of(topology), seed, root, ranks_only, tuple(ranges))


class _Race:
    """Completions of candidates on one collective, each computed once."""

    def __init__(self, topology: Topology, kind: str, root: int, seed: int, ranks_only: bool) -> None:
        self.topology, self.kind, self.root, self.seed, self.ranks_only = topology, kind, root, seed, ranks_only
        self.refused: dict[Candidate, str] = {}
        self._known: dict[tuple[Candidate, int], float] = {}

    def completion_s(self, candidate: Candidate, size: int) -> float:
        """Seconds; infinite where the candidate does not serve."""
        key = candidate, size
        if key not in self._known:
            try:
                self._known[key] = self._measured(candidate, size)
            except StrettoError as error:
                self.refused[candidate] = str(error)
                self._known[key] = math.inf
        return self._known[key]

    def _measured(self, candidate: Candidate, size: int) -> float:
        plan = _plan(self.topology, self.kind, size, candidate, self.root, self.seed)
        if self.ranks_only and not needs_ranks_only(plan):
            raise StrettoError("needs nodes that are no ranks")
        verdict = verify(plan)
        if not verdict.ok:
            raise StrettoError(f"the plan does not verify: {verdict.finding.message if verdict.finding else ''}")
        return simulate(plan).completion_s


def needs_ranks_only(plan: Plan) -> bool:
    """Whether all transfers begin and end at ranks of its collectives."""
    ranks = np.concatenate([c.ranks for c in plan.workload.collectives])
    return bool(np.isin(np.concatenate((plan.src, plan.dst.values)), ranks).all())


def _plan(topology: Topology, kind: str, size: int, candidate: Candidate, root: int, seed: int) -> Plan:
    planner, chunks = candidate
    collective = make_collective(kind, topology, size, root=root, chunks=chunks)
    return run_planner(planner, topology, Workload((collective,)), seed=seed)


def _ranges(
    race: _Race, candidates: list[Candidate], sizes: list[int], tell: Callable[[int], None]
) -> Iterator[Range]:  # fmt: skip
    """The ranges of one collective, from nothing to everything."""
    winners: list[Candidate] = []
    for done, size in enumerate(sizes):
        tell(done)
        times = {c: race.completion_s(c, size) for c in candidates}
        best = min(times.values())
        if math.isinf(best):
            reasons = "; ".join(f"{p}, {n} chunks: {why}" for (p, n), why in race.refused.items())
            raise StrettoError(f"no planner could {race.kind} {size} bytes: {reasons}")
        last = winners[-1] if winners else None
        goes_on = last is not None and times[last] <= (1 + NEARLY) * best
        winners.append(last if goes_on and last is not None else min(times, key=lambda c: times[c]))
    edges = [0]
    for (low, a), (high, b) in pairwise(zip(sizes, winners, strict=True)):
        edges.append(low if a == b else _crossing(race, a, b, low, high))
    open_at, measured = 0, [(sizes[0], race.completion_s(winners[0], sizes[0]))]
    for k in range(1, len(sizes)):
        if winners[k] != winners[k - 1]:
            yield Range(race.kind, open_at, edges[k], *winners[k - 1], tuple(measured))
            open_at, measured = edges[k], []
        measured.append((sizes[k], race.completion_s(winners[k], sizes[k])))
    yield Range(race.kind, open_at, None, *winners[-1], tuple(measured))


def _crossing(race: _Race, a: Candidate, b: Candidate, low: int, high: int) -> int:
    """The least size, to a ratio of CROSSING, from which ``b`` is better; ``a`` is at ``low``, ``b`` at ``high``."""
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
    """Whether a file begins like a table of ranges."""
    try:
        with open(path, "rb") as file:
            return b'"stretto_tuning"' in file.read(100)
    except OSError:
        return False


def read_tuning(path: str) -> Tuning:
    """Read a table.

    Raises:
        InputError: it is none, or another version's; names what is wrong.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data["stretto_tuning"] != VERSION:
            raise InputError(f"is a table of version {data['stretto_tuning']!r}; this stretto reads {VERSION}", path)
        ranges = tuple(_range(r) for r in data["ranges"])
        whole = (data["spec"], data["digest"], data["seed"], data["root"], data["ranks_only"])
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is no table of `stretto tune`: {type(error).__name__} {error}", path) from None
    if not all(isinstance(value, kind) for value, kind in zip(whole, (str, str, int, int, bool), strict=True)):
        raise InputError("is no table of `stretto tune`: a value has another type", path)
    return Tuning(*whole, ranges)


def _range(data: Mapping[str, Any]) -> Range:
    measured = tuple((int(m["size_bytes"]), float(m["completion_s"])) for m in data["measured"])
    low, high = int(data["from_bytes"]), None if data["to_bytes"] is None else int(data["to_bytes"])
    kind, planner, chunks = data["collective"], data["planner"], int(data["chunks"])
    if kind not in KINDS or not isinstance(planner, str) or chunks < 1 or low < 0 or not measured:
        raise ValueError(f"in a range of {kind!r}")
    return Range(kind, low, high, planner, chunks, measured)

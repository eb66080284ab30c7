"""What is known of a network at one moment: the network, the jobs on it, and the requests that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import Connection

from ..choose.requests import code_digest
from ..model.collective import Collective
from ..model.errors import StrettoError
from ..model.topology import Topology
from ..schedule.joining import on_planes
from ..topologies.files import topology_from_json
from .documents import planned_network
from .holding import held_jobs
from .jobs import JobVersion, all_jobs
from .networks import NetworkVersion, base_of, network, under
from .planes import Applicant, deal
from .published import planes_of, published_plan, refusal_reasons
from .requests import Alone, digest_of


@dataclass(frozen=True, eq=False)
class Task:
    """A collective of a job, and the requests for its plan alone, by effort."""

    job: str
    collective: Collective
    alone: dict[str, Alone]


@dataclass(frozen=True, eq=False)
class State:
    """A network and its jobs.

    Attributes:
        topology: as it is planned on.
        tasks: of all jobs by name, each job's in its order.
        refused: by job, why it has none.
        held: the jobs that are held, where there are optical planes.
        planes: by job the optical planes that it has, and its tasks are planned on; empty where there are no planes.
    """

    network: NetworkVersion
    jobs: dict[str, JobVersion]
    topology: Topology
    topology_digest: str
    tasks: list[Task]
    refused: dict[str, str]
    digest: str
    held: Set[str]
    planes: dict[str, tuple[int, ...]]

    @property
    def versions(self) -> dict[str, int]:
        """By job its version."""
        return {name: job.version for name, job in self.jobs.items()}

    def without(self, refused: Mapping[str, str]) -> tuple[list[Task], dict[str, str]]:
        """The tasks of jobs that can be planned, and by job why the others cannot: one of its requests is refused.

        Args:
            refused: by digest of a request for a plan alone.
        """
        reasons = dict(self.refused) | refused_jobs(self.tasks, refused)
        return [task for task in self.tasks if task.job not in reasons], reasons


def refused_jobs(tasks: Iterable[Task], refused: Mapping[str, str]) -> dict[str, str]:
    """By job why it cannot be planned, for those of which a request is refused.

    Args:
        refused: by digest of a request for a plan alone.
    """
    reasons: dict[str, str] = {}
    for task in tasks:
        for alone in task.alone.values():
            if alone.digest in refused and task.job not in reasons:
                reasons[task.job] = f"{task.collective.title}: {refused[alone.digest]}"
    return reasons


@dataclass
class States:
    """Reads states, and keeps what was made of documents that have not changed.

    Attributes:
        efforts: with which plans are made, the last one the most.
        planner: what plans each collective.
    """

    efforts: tuple[str, ...]
    planner: str = "auto"
    _networks: dict[str, tuple[object, Topology, str]] = field(default_factory=dict)
    _tasks: dict[str, tuple[object, list[Task] | str]] = field(default_factory=dict)
    _expected: dict[str, tuple[object, list[Task]]] = field(default_factory=dict)

    def read(self, connection: Connection, name: str) -> State:
        """The state of a network."""
        current, known = network(connection, name), all_jobs(connection, name)
        topology, digest = self._network(current, known)
        tasks: list[Task] = []
        refused: dict[str, str] = {}
        for job in known:
            found = self._tasks_of(job, topology, digest)
            if isinstance(found, str):
                refused[job.name] = found
            else:
                tasks += found
        planes: dict[str, tuple[int, ...]] = {}
        held = held_jobs(connection).keys() & {job.name for job in known} if topology.planes else set()
        if topology.planes:
            tasks, planes, without = self._on_own_planes(connection, known, tasks, topology, held)
            refused |= without
        said = [
            name,
            current.version,
            [[job.name, job.version] for job in known],
            self.efforts,
            self.planner,
            code_digest(),
            planes,
        ]
        jobs = {job.name: job for job in known}
        return State(current, jobs, topology, digest, tasks, refused, digest_of(said), held, planes)

    def expected(self, connection: Connection, name: str, overlay: list[dict[str, Any]]) -> list[Task]:
        """The tasks of a network's jobs if telemetry came to change it so; none where there are optical planes.

        Raises:
            InputError: no link would be left.
        """
        current, known = network(connection, name), all_jobs(connection, name)
        key = current.version, current.at, overlay, [(job.name, job.version, job.at) for job in known]
        if self._expected.get(name, (None, []))[0] != key:
            document = under(base_of(connection, current), overlay).to_json()
            changed = topology_from_json(document, f"network {name}")
            topology = planned_network(changed, tuple(job.job.target for job in known))
            digest = digest_of(topology.to_json())
            made = [] if topology.planes else [self._made(job, topology, digest) for job in known]
            self._expected[name] = key, [task for tasks in made if not isinstance(tasks, str) for task in tasks]
        return self._expected[name][1]

    def _on_own_planes(
        self,
        connection: Connection,
        known: Sequence[JobVersion],
        tasks: Sequence[Task],
        topology: Topology,
        held: Set[str],
    ) -> tuple[list[Task], dict[str, tuple[int, ...]], dict[str, str]]:
        """Deal the planes of a network to its jobs.

        Returns:
            the tasks of jobs that have planes, on these alone; the planes by job; and by job why it has none.
        """
        reasons: dict[str, str] = {}
        applicants = []
        for job in sorted(known, key=lambda job: (not job.plan_version, job.at, job.name)):
            collectives = [task.collective for task in tasks if task.job == job.name]
            row = published_plan(connection, job.name)
            has = planes_of(row, len(topology.planes))
            # what its client has changed gets a new plan even where it is held
            keeps = bool(has) and job.name in held and row is not None and row.job_version == job.version
            if collectives or keeps:
                applicants.append(Applicant.of(job.name, collectives, topology, has, keeps))
        while True:
            planes = deal(applicants, len(topology.planes))
            own = [
                _on_planes(task, planes[task.job]) for task in tasks if task.job in planes and task.job not in reasons
            ]
            digests = [alone.digest for task in own for alone in task.alone.values()]
            failed = refused_jobs(own, refusal_reasons(connection, digests))
            if not failed:
                break
            reasons |= failed  # its planes are for others
            applicants = [job for job in applicants if job.keeps or job.name not in failed]
        shown = ", ".join(f"{name!r} ({len(own)})" for name, own in sorted(planes.items()))
        words = (
            f"none of the {len(topology.planes)} optical planes is left for it: a plane serves one job at a time, and "
            f"these have them: {shown}. Give this job a network of its own, with other planes, or end one of those jobs"
        )
        reasons |= {job.name: words for job in applicants if job.name not in planes}
        return own, planes, reasons

    def _network(self, current: NetworkVersion, known: Sequence[JobVersion]) -> tuple[Topology, str]:
        targets = tuple(job.job.target for job in known)
        key = (current.version, current.at, frozenset(t.name if t else None for t in targets))
        kept = self._networks.get(current.name)
        if kept is None or kept[0] != key:
            given = topology_from_json(current.topology, f"network {current.name}")
            topology = planned_network(given, targets)
            kept = key, topology, digest_of(topology.to_json())
            self._networks[current.name] = kept
        return kept[1], kept[2]

    def _tasks_of(self, job: JobVersion, topology: Topology, digest: str) -> list[Task] | str:
        """The tasks of a job, or why it has none."""
        key = (job.version, job.at, digest)
        kept = self._tasks.get(job.name)
        if kept is None or kept[0] != key:
            kept = key, self._made(job, topology, digest)
            self._tasks[job.name] = kept
        return kept[1]

    def _made(self, job: JobVersion, topology: Topology, digest: str) -> list[Task] | str:
        given = job.job
        target = None if given.target is None else given.target.name
        try:
            return [
                Task(job.name, c, {e: Alone(topology, digest, c, target, e, self.planner) for e in self.efforts})
                for c in given.collectives(topology)
            ]
        except StrettoError as error:
            return str(error)


def _on_planes(task: Task, planes: tuple[int, ...]) -> Task:
    """A task on some planes of its network."""
    alone = {}
    for effort, asked in task.alone.items():
        if len(planes) == len(asked.topology.planes):
            return task
        topology, digest = _part(asked.topology, planes)
        alone[effort] = replace(asked, topology=topology, topology_digest=digest)
    return replace(task, alone=alone)


@lru_cache(maxsize=64)
def _part(topology: Topology, planes: tuple[int, ...]) -> tuple[Topology, str]:
    """A network with some of its planes alone, and its digest."""
    part = on_planes(topology, np.array(planes, dtype=np.int32))
    return part, digest_of(part.to_json())

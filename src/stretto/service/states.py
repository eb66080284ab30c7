"""What is known of a network at one moment: the network, the jobs on it, and the requests that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from ..choose.requests import code_digest
from ..model.collective import Collective
from ..model.errors import StrettoError
from ..model.topology import Topology
from ..topologies.files import topology_from_json
from .documents import planned_network
from .jobs import JobVersion, all_jobs
from .networks import NetworkVersion, network
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
    """

    network: NetworkVersion
    jobs: dict[str, JobVersion]
    topology: Topology
    topology_digest: str
    tasks: list[Task]
    refused: dict[str, str]
    digest: str

    def without(self, refused: dict[str, str]) -> tuple[list[Task], dict[str, str]]:
        """The tasks of jobs that can be planned, and by job why the others cannot.

        A job cannot where one of its requests is refused, or where another job has the network's optical planes.

        Args:
            refused: by digest of a request for a plan alone.
        """
        reasons = dict(self.refused)
        for task in self.tasks:
            for alone in task.alone.values():
                if alone.digest in refused and task.job not in reasons:
                    reasons[task.job] = f"{task.collective.title}: {refused[alone.digest]}"
        left = [task for task in self.tasks if task.job not in reasons]
        if self.topology.planes and left:
            # each job turns planes by itself, so two on the same planes would end each other's circuits
            first = min(
                (self.jobs[task.job] for task in left), key=lambda job: (not job.plan_version, job.at, job.name)
            )
            words = (
                f"job {first.name!r} has the optical planes of network {self.network.name!r}, which one job turns at a "
                "time: give this job a network of its own, with other planes, or end that one"
            )
            reasons |= dict.fromkeys((task.job for task in left if task.job != first.name), words)
            left = [task for task in left if task.job == first.name]
        return left, reasons


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
        said = [
            name,
            current.version,
            [[job.name, job.version] for job in known],
            self.efforts,
            self.planner,
            code_digest(),
        ]
        return State(current, {job.name: job for job in known}, topology, digest, tasks, refused, digest_of(said))

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

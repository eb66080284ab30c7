"""Requests for plans, and their digests: a plan is a function of its request, and the store keeps it by that digest.

Three parts follow one another, each a request of its own:

    alone       one collective as if it had the network for itself; jobs that ask the same share it
    together    the plans of all collectives of all jobs on a network, put into one by the planner `jobs`
    job         of that plan, what the collectives of one job do

A request holds the digest of the code that decides plans, too, so another version of stretto plans anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..choose.requests import code_digest
from ..formats.collectives import collective_to_json
from ..model.collective import Collective, Workload
from ..model.topology import Topology

ALONE, TOGETHER, JOB = "alone", "together", "job"
SEED = 0
EFFORTS = ("quick", "normal", "thorough")


def digest_of(document: Any) -> str:
    """SHA-256 of an object as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Alone:
    """A request for the plan of one collective.

    Attributes:
        topology: as it is planned on.
        topology_digest: its digest, of :func:`digest_of`.
        collective: its start and its weight do not matter.
        target: name of what runs the plan; None for none.
        effort: one of :data:`EFFORTS`.
        planner: what plans it.
    """

    topology: Topology
    topology_digest: str
    collective: Collective
    target: str | None
    effort: str
    planner: str = "auto"

    @property
    def work(self) -> Workload:
        """The collective, whenever it starts and whatever it weighs."""
        return Workload((replace(self.collective, start_s=0.0, weight=1.0),))

    @cached_property
    def document(self) -> dict[str, Any]:
        """The request as data; the topology by its digest."""
        return {
            "part": ALONE, "topology": self.topology_digest, "planner": self.planner, "seed": SEED,
            "target": self.target, "effort": self.effort,
            "collective": collective_to_json(self.work.collectives[0], self.topology, None), "code": code_digest(),
        }  # fmt: skip

    @cached_property
    def digest(self) -> str:
        return digest_of(self.document)


def together_document(
    topology_digest: str, collectives: Sequence[Collective], alone: Sequence[str], effort: str,
    numbers: Mapping[str, Sequence[int]],
) -> dict[str, Any]:  # fmt: skip
    """The request to put plans together: the collectives with their starts and weights, and their plans' digests.

    It names the jobs, too (``numbers``: those of each one's collectives), since the plan is cut into their parts.
    """
    moments = [[c.start_s, c.weight] for c in collectives]
    return {
        "part": TOGETHER, "topology": topology_digest, "planner": "jobs", "alone": list(alone), "moments": moments,
        "effort": effort, "jobs": {job: list(of) for job, of in numbers.items()}, "code": code_digest(),
    }  # fmt: skip


def job_document(together: str, numbers: Sequence[int]) -> dict[str, Any]:
    """The request for the part of a plan that one job runs.

    Args:
        numbers: its collectives in the plan of all.
    """
    return {"part": JOB, "of": together, "collectives": list(numbers)}

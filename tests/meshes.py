"""Meshes of threads on loopback, so that thousands of plans run in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stretto.lower import Program, lower, node_name
from stretto.lower.programs import Awaited, Chunks, Events, Receives, Sends
from stretto.model.arrays import Ragged
from stretto.model.errors import PeerFailed
from stretto.model.plan import Plan
from stretto.runtime import content
from stretto.runtime.connect import join, listen
from stretto.runtime.credentials import Credentials
from stretto.runtime.execute import execute
from stretto.runtime.mesh import FIRST_LANE, Mesh
from stretto.runtime.recorded import Trace

CREDENTIALS = Credentials(bytes(range(32)))


def meshes(
    nodes: list[int],
    timeout_s: float = 5.0,
    credentials: dict[int, Credentials] | Credentials = CREDENTIALS,
    subflows: int = 1,
    lanes: int = 1,
) -> dict[int, Mesh | PeerFailed]:
    """Connect these nodes to each other; whoever cannot has the reason in its place.

    Args:
        credentials: of all nodes, or by node where some differ from the others.
        subflows, lanes: connections of each pair, and how many send the transfers of the first one.
    """
    counts = dict.fromkeys(nodes, (*range(subflows), *range(FIRST_LANE, FIRST_LANE + lanes - 1)))
    listeners = {v: listen() for v in nodes}
    addresses = {v: ("127.0.0.1", s.getsockname()[1]) for v, s in listeners.items()}
    names = {v: f"node {v}" for v in nodes}

    def one(v: int) -> Mesh | PeerFailed:
        try:
            own = credentials.get(v, CREDENTIALS) if isinstance(credentials, dict) else credentials
            return join(v, listeners[v], addresses, names, own, timeout_s=timeout_s, subflows=counts)
        except PeerFailed as failure:
            return failure
        finally:
            listeners[v].close()

    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(one, nodes)))


class Threads:
    """A mesh for each of ``count`` nodes, reused from plan to plan; a plan's nodes take the first of them."""

    def __init__(self, count: int, subflows: int, credentials: Credentials = CREDENTIALS, lanes: int = 1) -> None:
        self.count = count
        self.meshes = meshes(list(range(count)), credentials=credentials, subflows=subflows, lanes=lanes)
        self.pool = ThreadPoolExecutor(count)
        self.traces: dict[int, Trace] = {}
        """Of the last plan, by node."""

    def run(self, plan: Plan, seed: int = 0, **how) -> dict[int, dict[int, np.ndarray]]:
        """Run a plan on random bytes; what each node ends with, by node and chunk."""
        programs = lower(plan)
        assert max(programs) < self.count

        def one(v: int) -> dict[int, np.ndarray]:
            mesh, program = self.meshes[v], programs.get(v) or idle(plan, v)
            mesh.names = {w: node_name(plan, w) for w in programs}
            outputs = content.outputs(plan, program.steps.wanted)
            self.traces[v] = execute(mesh, program, content.inputs(plan, program.steps.held, v, seed), outputs, **how)
            return outputs

        return dict(zip(range(self.count), self.pool.map(one, range(self.count))))

    def close(self) -> None:
        self.pool.shutdown()
        for mesh in self.meshes.values():
            mesh.close()


def idle(plan: Plan, node: int) -> Program:
    """The program of a node that takes no part."""
    none, no_lists = np.zeros(0, dtype=np.int64), Ragged.empty(0)
    return Program(
        plan, node, none, Chunks(none, none, none, none, np.zeros(1, dtype=np.int64), none, no_lists),
        Sends(none, none, none, no_lists, *[none] * 6), Receives(*[none] * 5, no_lists, no_lists),
        Events(*[none] * 4, no_lists, no_lists), Awaited(none, none, no_lists),
    )  # fmt: skip


def wrong(plan: Plan, results: dict[int, dict[int, np.ndarray]], seed: int = 0) -> list[tuple[int, int]]:
    """The (node, chunk) pairs with wrong bytes, and those that are missing."""
    bad = [(v, chunk) for v, got in results.items() for chunk in content.wrong_chunks(plan, got, seed)]
    lists = plan.workload.chunk_wanted
    missing = {*zip(lists.values.tolist(), lists.owners.tolist())} - {(v, c) for v, got in results.items() for c in got}
    return bad + sorted(missing)

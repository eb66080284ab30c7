"""The controller of a group's optical planes: a thread of rank 0 with connections of its own to all ranks.

It runs the controller's program of each collective, in the order in which rank 0 calls them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..lower import lower_for
from ..model.errors import PeerFailed, StrettoError
from ..model.plan import Plan
from ..model.topology import Topology
from ..runtime.circuits import Circuits
from ..runtime.execute import execute
from ..runtime.mesh import GRACE_S, Mesh
from ..runtime.switches import COMMAND_VARIABLE, switch_of


class PlaneController:
    """Owns the planes of a topology.

    Args:
        topology: its planes join nothing at first.
        connect: makes the connections; called in the controller's thread.
        timeout_s: seconds for which a rank may be silent, or a switch may turn.
    """

    def __init__(self, topology: Topology, connect: Callable[[], Mesh], timeout_s: float) -> None:
        self._node, self._connect, self._timeout_s = topology.node_count, connect, timeout_s
        self._circuits = Circuits(topology.planes, switch_of(os.environ.get(COMMAND_VARIABLE)))
        self._asked: SimpleQueue[tuple[str, Plan, bytes] | None] = SimpleQueue()
        self._mesh: Mesh | None = None
        self._left = False
        folder = os.environ.get("STRETTO_TRACE")
        self._trace = os.path.join(folder, "controller.jsonl") if folder else None
        self._thread = threading.Thread(target=self._serve, name="controller of optical planes", daemon=True)
        self._thread.start()

    def run(self, kind: str, plan: Plan, call: bytes) -> None:
        """Control the planes for the next collective; every collective of the group is given, in order."""
        self._asked.put((kind, plan, call))

    def close(self) -> None:
        """End when the collectives that were given have ended."""
        self._asked.put(None)
        self._thread.join(self._timeout_s)

    def leave(self) -> None:
        """End at once."""
        self._left = True
        self._asked.put(None)
        if self._mesh is not None:
            self._mesh.leave()
        self._thread.join(GRACE_S)

    def _serve(self) -> None:
        try:
            self._mesh = mesh = self._connect()
            while not self._left and (asked := self._asked.get()) is not None:
                kind, plan, call = asked
                if self._has_part(plan):
                    program = lower_for(plan, self._node)
                    execute(mesh, program, {}, {}, timeout_s=self._timeout_s, circuits=self._circuits, call=call)
                    self._record(kind)
                else:
                    mesh.begin(call)
            mesh.close()
        except StrettoError:
            pass  # all ranks were told, and say so
        except Exception as error:
            if self._mesh is not None:
                failure = PeerFailed("controller", f"{type(error).__name__}: {error}")
                self._mesh.abort(failure, self._node)
            raise
        finally:
            self._circuits.close()

    def _has_part(self, plan: Plan) -> bool:
        """Whether a plan has turns, or barriers that the controller keeps."""
        return bool(plan.turns.count) or plan.barriers

    def _record(self, kind: str) -> None:
        """Add a line to the trace: for each turn its plane, seconds of its begin and end, and its circuits."""
        if self._trace is None:
            return
        turns: list[Any] = [
            {"switch": t.plane, "began_s": t.began_at, "up_s": t.up_at, "break": t.change.breaks,
             "make": t.change.makes, "keep": t.change.keeps}
            for t in self._circuits.turns
        ]  # fmt: skip
        with open(self._trace, "a") as file:
            file.write(json.dumps({"kind": kind, "turns": turns}) + "\n")

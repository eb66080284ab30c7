"""The agent of a group at the controller of its job: two threads of rank 0.

One waits for new versions of the job's plan, by a request that the controller answers when there is one. The other one
tells the controller the network and the collectives of the job, where it does not know them, what links give, and how
long collectives take. No collective ever waits for either. Versions that cannot be used are refused with one line. When
the controller is gone, this is said once, and the group goes on with the plans that it has.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import permutations
from typing import Any

from ..choose.expected import pair_count
from ..choose.given import Given, plans_given
from ..choose.library import Library
from ..choose.requests import Shape
from ..model.errors import StrettoError
from ..model.kinds import BY_NAME
from ..model.topology import Topology
from ..service.client import Controller, ControllerGone, ControllerRefused
from ..topologies.files import topology_from_json
from .job import Job
from .slowness import SLOW

WAIT_S = 25.0
"""Seconds for which a request waits for a new version."""

RETRY_S = 1.0
"""Seconds after which a controller is asked again that was gone, or whose answer could not be used."""

REPORT_S = 5.0
"""Seconds between two reports, if nothing has changed."""

URGENT_S = 0.2
"""Seconds between two reports of links that change."""

SETTLE_S = 0.05
"""Seconds that a report waits after the first link that has changed: both directions of a cable become slow in the same
collective, and other ranks tell of theirs a little later (``benchmarks/controller_ddp.py``)."""

URGENT = 0.15
"""Share by which what a link gives must differ from what was reported last to be reported at once."""

END_S = 2.0
"""Seconds that the threads get to end."""

MOST_TIMES = 10_000
"""Collectives whose times are kept for the next report."""

Link = tuple[int, int]
"""The nodes at a link's ends."""


class Unusable(StrettoError):
    """The controller cannot serve this group."""


class Agent:
    """Speaks with the controller at rank 0. Its callbacks are called in its threads.

    Args:
        changed: called when there are new plans in ``newest``.
        returned: called when the controller is back.
        left: called when it is gone, or cannot serve the group.

    Attributes:
        newest: the plans of the newest version by shape.
        reached: whether the controller plans for this group now; True until something else is known.
    """

    def __init__(
        self, job: Job, library: Library, say: Callable[[str], None], changed: Callable[[], None],
        returned: Callable[[], None], left: Callable[[], None],
    ) -> None:  # fmt: skip
        self._job, self._library, self._say = job, library, say
        self._changed, self._returned, self._left = changed, returned, left
        self.newest: dict[Shape, Given] = {}
        self.reached = True
        self._lock = threading.Lock()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._joined = False  # the controller knows the network,
        self._made = threading.Event()  # and the job
        self._clients = job.controller(), job.controller()
        self._threads: list[threading.Thread] = []
        self._wanted: dict[Shape, None] = {}
        self._added: set[Shape] = set()
        self._base: dict[Link, float] = {}
        self._rates: dict[Link, dict[int, float]] = defaultdict(dict)
        self._sent: dict[Link, float] = {}
        self._numbers: dict[int, tuple[int, int]] = {}
        self._times: list[tuple[tuple[int, int], float]] = []
        self._reported_at, self._changed_at = -REPORT_S, math.inf  # infinite: nothing has changed since the last report
        self._network = ""
        self._said: set[str] = set()
        # links that are dead, which the controller has not been told
        self._dead = [(library.nodes[a], library.nodes[b]) for pair in library.dead for a, b in permutations(pair)]

    # --- what the group says ----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin, when the network is known; later calls do nothing."""
        if not self._threads and not self._ended.is_set():
            for name, work in (("listens", self._listen), ("reports", self._report)):
                self._threads.append(threading.Thread(target=work, name=f"{name} to the controller", daemon=True))
                self._threads[-1].start()

    def want(self, shape: Shape) -> bool:
        """Ask for plans of a shape; False if the controller does not serve the group now."""
        self._wanted[shape] = None
        if shape not in self.newest:
            self._wake.set()
        return self.reached

    @property
    def unserved(self) -> list[Shape]:
        """The shapes for which the controller has given no plan yet."""
        return [shape for shape in [*self._wanted] if shape not in self.newest]

    def gave(self, link: Link, rank: int, rate: float) -> None:
        """What a link gave, as a rank saw it, bytes/s."""
        with self._lock:
            self._rates[link][rank] = rate
        self._wake.set()

    def took(self, digest: int, seconds: float) -> None:
        """A collective by the plan of this digest took so long."""
        number = self._numbers.get(digest)
        if number is not None and len(self._times) < MOST_TIMES:
            self._times.append((number, seconds))
            if len(self._times) == 1:
                self._wake.set()

    def close(self) -> None:
        """Speak no more."""
        self._ended.set()
        self._wake.set()
        self._made.set()
        for client in self._clients:
            client.leave()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(END_S)

    # --- the thread that listens ------------------------------------------------------------------

    def _listen(self) -> None:
        client, known = self._clients[0], None
        self._made.wait()
        while not self._ended.is_set():
            began_s, wait_s = time.monotonic(), WAIT_S if self.reached else 0.0
            said: Any = None
            try:
                said = client.plan(self._job.name, known=known, wait_s=wait_s)
                self._back()
                if said is not None:
                    self._take(client, said)
                    known = said["version"]
                    continue
            except ControllerRefused as refused:
                self._heed(refused)
                if refused.code == "not_found":
                    known = None
            except ControllerGone as error:
                self._gone(str(error))
            except Exception as error:
                self._once(f"the controller's answer makes no sense: {type(error).__name__}: {error}")
                if isinstance(said, dict) and isinstance(said.get("version"), int):
                    known = said["version"]
            if not self.reached or time.monotonic() - began_s < wait_s:
                self._ended.wait(RETRY_S)

    def _take(self, client: Controller, said: dict[str, Any]) -> None:
        """Take the plans of a version, or say why not."""
        version = int(said["version"])
        try:
            plans = plans_given(client.plan_text(said["digest"]), version, self._library, self._job.whole)
        except ControllerRefused as refused:
            self._once(f"version {version} of the plan of job {self._job.name!r} is refused: {refused}")
            return
        except (ControllerGone, KeyError):
            raise
        except Exception as error:
            words = " ".join(str(error).split())
            self._once(f"version {version} of the plan of job {self._job.name!r} is refused: {words}; calls go on as "
                       "before")  # fmt: skip
            return
        for given in plans.values():
            self._numbers[int(given.plan.digest()[:16], 16)] = version, given.number
        if plans:
            self._say(f"takes version {version} of the plan of job {self._job.name!r}: {said.get('why', '')}")
            self.newest = plans
            self._changed()
        self._wake.set()  # shapes that the version lacks may be added now

    def _heed(self, refused: ControllerRefused) -> None:
        """Act on an answer that is an error."""
        if refused.code == "no_plan_yet":
            self._back()
        elif refused.code == "not_found":  # it was ended, or the controller has forgotten it
            self._once(f"{refused}; calls go on, and the job is told again")
            self._added.clear()
            self.newest, self._joined = {}, False
            self._made.clear()
            self._wake.set()
            if not self._ended.is_set():
                self._made.wait()
        elif refused.status >= 500 or refused.status == 429:
            self._gone(str(refused))
        else:
            self._once(f"the controller refuses: {refused}; calls go on by the plans that they have")

    # --- the thread that reports ------------------------------------------------------------------

    def _report(self) -> None:
        client = self._clients[1]
        while not self._ended.is_set():
            try:
                if not self._joined:
                    self._join(client)
                    self._back()
                self._add_wanted(client)
                self._send(client)
            except ControllerGone as error:
                self._gone(str(error))
                self._ended.wait(RETRY_S)
                continue
            except Unusable as error:
                self._once(f"{error}; this group makes its plans without the controller")
                self._lose()
                return
            except ControllerRefused as refused:
                self._once(f"the controller refuses: {refused}; calls go on by the plans that they have")
                self._ended.wait(RETRY_S)
            except Exception as error:
                self._once(f"the controller's answer makes no sense: {type(error).__name__}: {error}")
                self._ended.wait(RETRY_S)
            self._wake.wait(self._due_s())
            self._wake.clear()

    def _join(self, client: Controller) -> None:
        """See to it that the controller knows the network."""
        job, own = _known(client.job, self._job.name), self._library.topology
        self._network = name = self._job.network if job is None else str(job["network"])
        found = _known(client.network, name)
        base = own
        if found is not None:
            whole = client.network(name, found["base"]) if found["base"] != found["version"] else found
            base = topology_from_json(whole["topology"], f"network {name}")
        if found is None or (base.names != own.names and name == self._job.name):
            if not self._job.whole or self._library.nodes != own.accelerators.tolist():
                raise Unusable(f"the controller does not know network {name!r}, and this group has not all ranks of it")
            try:
                client.put_network(name, own.to_json())
            except ControllerRefused as refused:
                raise Unusable(f"the controller does not know network {name!r} and refuses it: {refused}") from None
            base = own
        elif base.names != own.names:
            raise Unusable(f"network {name!r} of the controller has other nodes than this job's")
        self._base, self._joined = _bandwidths(base), True
        if job is not None:
            self._made.set()

    def _add_wanted(self, client: Controller) -> None:
        """Add shapes that are called to the job, which is made if it is not there."""
        missing = [shape for shape in self.unserved if shape not in self._added]
        if not missing:
            return
        job = _known(client.job, self._job.name)
        if job is not None and job["status"] == "waiting" and not self._added:
            return  # its first plan may have them
        document = {"network": self._network, "collectives": []} if job is None else dict(job["job"])
        document["collectives"] = [*document["collectives"], *map(self._collective, missing)]
        try:
            client.put_job(self._job.name, document, 0 if job is None else int(job["version"]))
        except ControllerRefused as refused:
            if refused.code != "conflict":
                self._added.update(missing)  # once is enough
                raise
            self._wake.set()
            return
        self._added.update(missing)
        self._made.set()

    def _collective(self, shape: Shape) -> dict[str, Any]:
        """A shape as an entry of a job."""
        size, nodes = shape.full_bytes(self._library.size), self._library.nodes
        said: dict[str, Any] = {"kind": shape.kind, "size": size}
        if BY_NAME[shape.kind].rooted:
            said["root"] = shape.root
        return said if nodes == self._library.topology.accelerators.tolist() else {**said, "ranks": nodes}

    def _due_s(self) -> float | None:
        """Seconds until the next report is due; None if there is nothing to report."""
        if not self._joined:
            return RETRY_S
        if self._dead:
            return 0.0
        if not self._rates and not self._times:
            return None
        now = time.monotonic()
        if not self._urgent():
            return max(0.0, self._reported_at + REPORT_S - now)
        self._changed_at = min(self._changed_at, now)
        return max(0.0, self._reported_at + URGENT_S - now, self._changed_at + SETTLE_S - now)

    def _urgent(self) -> bool:
        """Whether some link gives something else than was reported last."""
        with self._lock:
            rates = {link: max(seen.values()) for link, seen in self._rates.items()}
        last = {link: self._sent.get(link, self._base.get(link, 0.0)) for link in rates}
        return any(abs(rate - last[link]) > URGENT * last[link] for link, rate in rates.items())

    def _send(self, client: Controller) -> None:
        """Report what is due."""
        if (due_s := self._due_s()) is None or due_s > 0:
            return
        with self._lock:
            # of several ranks that saw a link the one to which it gave most is right: the others were slow themselves
            rates = {link: max(seen.values()) for link, seen in self._rates.items() if link in self._base}
            self._rates.clear()
        times, self._times = self._times, []
        self._reported_at, self._changed_at = time.monotonic(), math.inf
        rates = {link: min(rate, self._base[link]) for link, rate in rates.items()}
        slow = {link for link, rate in rates.items() if rate < SLOW * self._sent.get(link, self._base[link])}
        pairs = max((pair_count(given.plan) for given in self.newest.values()), default=len(rates))
        if 2 * len(slow) > pairs:  # then the machines are slow, not links
            rates = {link: rate for link, rate in rates.items() if link not in slow}
        names = self._library.topology.names
        down = [ends for ends in self._dead if ends in self._base]
        if rates:
            shown = {ends: f"{rate:.6g}B/s" for ends, rate in rates.items()}
            links = [{"src": names[a], "dst": names[b], "bandwidth": rate} for (a, b), rate in shown.items()]
            client.report(self._network, {"links": links})
            self._sent |= rates
        if down:
            client.report(self._network, {"links": [{"src": names[a], "dst": names[b], "down": True} for a, b in down]})
        self._dead = []
        versions: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for (version, number), seconds in times:
            versions[version][number].append(seconds)
        for version, of in versions.items():
            rows = [{"number": n, "calls": len(s), "measured_s": statistics.median(s)} for n, s in of.items()]
            client.report_times(self._job.name, version, rows)

    # --- whether the controller is there ----------------------------------------------------------

    def _gone(self, reason: str) -> None:
        if self.reached and not self._ended.is_set():
            self._say(f"{reason}; calls go on by the plans that they have")
            self._lose()

    def _lose(self) -> None:
        with self._lock:
            was, self.reached = self.reached, False
        if was and not self._ended.is_set():
            self._left()

    def _back(self) -> None:
        with self._lock:
            was, self.reached = self.reached, True
        if not was and not self._ended.is_set():
            self._say("the controller is back")
            self._returned()

    def _once(self, text: str) -> None:
        """Say something that may happen again and again once."""
        if text not in self._said and not self._ended.is_set():
            self._said.add(text)
            self._say(text)


def _known(ask: Callable[[str], Any], name: str) -> Any:
    """What the controller says, None where it knows no such thing."""
    try:
        return ask(name)
    except ControllerRefused as refused:
        if refused.code != "not_found":
            raise
        return None


def _bandwidths(topology: Topology) -> dict[Link, float]:
    """Bytes/s of each link; of parallel links the last, which is what a controller reports."""
    ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    return dict(zip(ends, topology.bandwidth.tolist(), strict=True))

"""How a group goes on when the link between two of its ranks is dead, while both are alive.

Whoever finds a link dead (:mod:`stretto.runtime.reach`) gives up the connections, and tells the others why. So the
collectives under way end with an error at all ranks. Then each rank puts into the store how many collectives it has
begun, and which links it finds dead. When all have, rank 0 says from which collective on the group works again: the
first that no rank has begun, or has been given a result of. That one connects all ranks anew but for the dead pairs,
and its plan needs no link between those. Rank 0 ends the group as before if the links that are left do not join all.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ..choose.dead_links import DeadPairs, connects
from ..model.errors import InputError, PeerFailed
from ..runtime.reach import DEAD
from .collectives import Collectives
from .job import Job
from .links import Links
from .pending import Order
from .stores import set_once

SILENT_VARIABLE, SILENT_S = "STRETTO_DEAD_LINK_S", 5.0
"""Where the seconds are said after which a link without an answer is dead; and how many they are for the group of a
controller's job. TCP sends again after 0.2, 0.6, 1.4, 3 s: a link that loses four such packets in a row is dead."""
FEWEST = 3
"""Ranks of a group that can do without a link."""
FIRST_LOOK_S, LOOK_S = 0.005, 0.1
"""Seconds between two looks into the store: at first, and at most."""
_DECIDED = "stretto/decided"


class Agreement:
    """What the ranks agree on after a failure.

    Attributes:
        met: set when it is known.
        until: the last collective that fails; None if the group does not go on.
        pairs: of ranks whose links are dead.
    """

    def __init__(self) -> None:
        self.met = threading.Event()
        self.until: int | None = None
        self.pairs: DeadPairs = frozenset()


class Mending:
    """Lets the collectives of one rank go on after links have died.

    Args:
        silent_s: seconds without an answer after which a link is dead; None if dead links end the group.
    """

    def __init__(self, links: Links, order: Order, collectives: Collectives, rank: int, size: int,
                 timeout_s: float, silent_s: float | None) -> None:  # fmt: skip
        self._links, self._order, self._collectives = links, order, collectives
        self._rank, self._size, self._timeout_s = rank, size, timeout_s
        self._number, self._agreement = 0, Agreement()
        if silent_s is not None and size >= FEWEST:
            links.silent_s, order.mend, order.failed = silent_s, self._mend, self._failed

    def _failed(self, failure: PeerFailed) -> Callable[[], None]:
        """The group runs no collective any more; returns what meets the other ranks, if that is because of a link."""
        agreement, found = Agreement(), DEAD.match(failure.reason)
        self._agreement = agreement
        if self._links.left:
            agreement.met.set()
            return _nothing
        self._number += 1
        pair = None if found is None else frozenset((int(failure.peer.removeprefix("rank ")), int(found[1])))
        thread = threading.Thread(target=self._meet, args=(agreement, pair), name="meets after a failure", daemon=True)
        return thread.start

    def _mend(self, number: int) -> bool:
        """Whether the collective of this number may run; before the first one the connections are made anew."""
        agreement = self._agreement
        agreement.met.wait()
        if agreement.until is None or number <= agreement.until:
            return False
        self._links.renew(agreement.pairs, self._number)
        self._collectives.renew(agreement.pairs)
        self._order.forget()
        return True

    def _meet(self, agreement: Agreement, pair: frozenset[int] | None) -> None:
        """Agree with the other ranks on what is dead, and from where to go on.

        Args:
            pair: of the link that has failed; None if something else has, after which no rank goes on.
        """
        try:
            decided = self._decided(pair)
            if decided is not None:
                agreement.pairs = frozenset(map(frozenset, decided["pairs"]))
                agreement.until = int(decided["until"])
        except Exception as error:
            if pair is not None:  # the store is gone
                words = f"cannot go on without the link: {type(error).__name__}: {error}"
                print(f"stretto, rank {self._rank}: {words}", file=sys.stderr, flush=True)
        finally:
            agreement.met.set()

    def _decided(self, pair: frozenset[int] | None) -> Any:
        """What rank 0 decides; None if the group does not go on."""
        store, pause_s = self._links.meeting(self._number), FIRST_LOOK_S
        own = None if pair is None else {"next": self._order.last_without_result(), "pairs": self._dead(pair)}
        store.set(f"stretto/rank {self._rank}", json.dumps(own))
        came: dict[int, Any] = {self._rank: own}
        until = time.monotonic() + self._timeout_s
        while not store.check([_DECIDED]) and time.monotonic() < until and not self._links.left:
            for r in range(self._size):
                if r not in came and store.check([f"stretto/rank {r}"]):
                    came[r] = json.loads(store.get(f"stretto/rank {r}"))
            if None in came.values():
                return None
            if self._alone(came):
                set_once(store, _DECIDED, json.dumps(None))  # that rank may only be cut off, and still come
            elif len(came) == self._size and self._rank == 0:
                set_once(store, _DECIDED, json.dumps(self._decide(came)))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return json.loads(store.get(_DECIDED)) if store.check([_DECIDED]) else None

    def _dead(self, pair: frozenset[int]) -> list[list[int]]:
        """The pairs of which this rank knows that their links are dead."""
        own = {frozenset((self._rank, r)) for r in self._links.failing()}
        return sorted(sorted(p) for p in {pair, *own, *self._links.pairs})

    def _decide(self, came: dict[int, Any]) -> Any:
        """The pairs without a link and the last call that fails; None if the links that are left do not join all."""
        pairs = {frozenset(p) for said in came.values() for p in said["pairs"]}
        last = max(int(said["next"]) for said in came.values())
        if not connects(self._size, frozenset(pairs)):
            return None
        return {"until": last, "pairs": sorted(sorted(p) for p in pairs)}

    def _alone(self, came: dict[int, Any]) -> bool:
        """Whether all that have come find the links dead to a rank that has not: then that rank is dead."""
        pairs = {frozenset(p) for said in came.values() for p in said["pairs"]}
        missing = set(range(self._size)) - set(came)
        return any(all(frozenset((r, m)) in pairs for r in came) for m in missing) and len(missing) == 1


def silent_s_of(job: Job | None) -> float | None:
    """Seconds without an answer after which a link is dead; None if dead links end the group.

    Raises:
        InputError: the environment says something else than seconds.
    """
    text = os.environ.get(SILENT_VARIABLE, "")
    if not text:
        return None if job is None else SILENT_S
    try:
        seconds = float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number of seconds", SILENT_VARIABLE) from None
    if not 0 <= seconds < math.inf:
        raise InputError(f"{text!r} is no number of seconds", SILENT_VARIABLE)
    return seconds or None


def _nothing() -> None:
    pass

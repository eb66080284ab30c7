"""Sources of telemetry that the controller asks: what they have in common, and the threads that ask them.

A network's configuration names its sources::

    {"prometheus": [{"url": "http://10.0.0.9:9090", "every_s": 10,
                     "links": [{"src": "a", "dst": "b", "query": "..."}]}],
     "gnmi": [{"target": "leaf1:57400", "ca": "/etc/stretto/ca.pem",
               "links": [{"src": "a", "dst": "b", "interface": "Ethernet0"}]}]}

Secrets are not in it: it names environment variables of the controller, which begin with ``STRETTO_``.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...model.errors import InputError, no_link
from ...model.units import parse_time
from ...topologies.values import check_keys, entry, objects, shown
from .intake import Receipt
from .samples import Link, Sample

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Seconds from one asking to the next. Devices renew their counters every second or less often."""
LEAST_EVERY_S = 0.1
LONGEST_PAUSE_S = 60.0
"""A source that fails is asked half as often after each failure, down to once in this number of seconds."""
TIMEOUT_S = 5.0
"""Seconds in which a source must answer."""


class SourceFailed(Exception):
    """A source could not be asked, or answered nothing that can be used; says why."""


class Reading(NamedTuple):
    """What a source says: its samples, and what is wrong with links that gave none, "" for nothing."""

    samples: list[Sample]
    wrong: str = ""


class Source(Protocol):
    """What is asked for samples, by one thread.

    Attributes:
        name: what logs and metrics call it.
        every_s: seconds from one asking to the next.
    """

    name: str
    every_s: float

    def read(self) -> Reading:
        """What it says now; raises :class:`SourceFailed`."""

    def close(self) -> None:
        """End; called from another thread, it also ends a reading that is under way."""


def sources_of(document: Any, links: Mapping[Link, float], where: str) -> list[Source]:
    """The sources that a network's configuration names.

    Args:
        links: bandwidth of each link of the network, bytes/s.
    Raises:
        InputError: the configuration is wrong, or names a link that the network does not have.
    """
    from .interfaces import interfaces_of
    from .prometheus import prometheus_of

    kinds: dict[str, Callable[[dict[str, Any], Mapping[Link, float], str], Source]]
    kinds = {"prometheus": prometheus_of, "gnmi": interfaces_of}
    check_keys(document, kinds, where)
    sources: list[Source] = []
    for kind, make in kinds.items():
        for i, data in enumerate(objects({kind: document.get(kind, [])}, kind, where)):
            source = make(data, links, f"{where}, {kind} {i}")
            if any(source.name == other.name for other in sources):
                source.name += f" ({kind} {i})"
            sources.append(source)
    return sources


def every_of(data: Mapping[str, Any], where: str) -> float:
    """The ``every_s`` of a source, seconds."""
    value = data.get("every_s", EVERY_S)
    every_s = parse_time(value, where) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
    if every_s < LEAST_EVERY_S:
        raise InputError(f"'every_s' must be a number of seconds from {LEAST_EVERY_S}, not {shown(value)}", where)
    return every_s


def link_of(data: Mapping[str, Any], links: Mapping[Link, float], where: str) -> Link:
    """The link that an object names by ``src`` and ``dst``."""
    link = entry(data, "src", str, where), entry(data, "dst", str, where)
    if link not in links:
        message = f"there is no link {shown(link[0])} to {shown(link[1])}"
        raise InputError(no_link(message, *link, links), where)
    return link


def secret_of(data: Mapping[str, Any], key: str, where: str) -> str:
    """The value of the environment variable that an object names under a key; "" if it names none."""
    name = entry(data, key, str, where, "")
    if not name:
        return ""
    if not re.fullmatch(r"STRETTO_[A-Z0-9_]+", name):
        raise InputError(f"{key!r} must name an environment variable STRETTO_..., not {shown(name)}", where)
    if not os.environ.get(name):
        raise InputError(f"the environment variable {name} is not set where the controller runs", where)
    return os.environ[name]


@dataclass
class Health:
    """How a source fares.

    Attributes:
        reads, failures: how often it was asked, and how often in vain.
        error: why the last reading failed or what it lacks, "" for nothing.
        read_at_s: when it last answered, seconds since 1970.
        kept, refused: its samples (:class:`~.intake.Receipt`).
    """

    reads: int = 0
    failures: int = 0
    error: str = ""
    read_at_s: float | None = None
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Poller:
    """Asks sources in threads of their own, so that one that hangs holds up no other.

    Args:
        take: gets the samples; its answer counts in :attr:`health`.

    Attributes:
        health: by the name of the source.
    """

    def __init__(self, sources: Sequence[Source], take: Callable[[list[Sample]], Receipt]) -> None:
        self.health = {source.name: Health() for source in sources}
        self._take = take
        self._ended = threading.Event()
        self._sources = list(sources)
        self._threads = [
            threading.Thread(target=self._ask, args=(source,), name=f"telemetry of {source.name}", daemon=True)
            for source in sources
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End all sources and threads."""
        self._ended.set()
        for source in self._sources:
            source.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(TIMEOUT_S)

    def _ask(self, source: Source) -> None:
        failed = 0
        while not self._ended.is_set():
            failed = 0 if ask_once(source, self._take, self.health[source.name]) else failed + 1
            self._ended.wait(max(source.every_s, min(LONGEST_PAUSE_S, source.every_s * 2.0 ** min(failed, 10))))


def ask_once(source: Source, take: Callable[[list[Sample]], Receipt], health: Health) -> bool:
    """Ask a source once, and note in ``health`` how it fared; False if it failed."""
    health.reads += 1
    try:
        reading = source.read()
        receipt = take(reading.samples)
    except Exception as error:  # of whatever kind: the source is asked again, and the error is shown
        health.failures += 1
        _note(source, health, str(error) if isinstance(error, SourceFailed) else f"{type(error).__name__}: {error}")
        return False
    _note(source, health, reading.wrong)
    health.read_at_s = time.time()
    health.kept += receipt.kept
    for reason, count in receipt.refused.items():
        health.refused[reason] = health.refused.get(reason, 0) + count
    return True


def _note(source: Source, health: Health, wrong: str) -> None:
    """Note what is wrong with a source, and log it where it has changed."""
    if wrong != health.error:
        log.warning("telemetry of %s: %s", source.name, wrong or "it answers again")
    health.error = wrong

"""Asks the sources of all networks while this instance may write, each through the door of its network.

The sources of each network are an object of a file, by the network's name (:mod:`.sources`)::

    {"wan": {"prometheus": [...], "gnmi": [...]}}

A network that is given anew has a new door, and its sources begin again with its links. One that is not there yet is
looked at again; one whose sources name links that it lacks waits until it is given anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...model.errors import InputError
from ...topologies.values import check_keys, parse_json, read_text
from .intake import Intake
from .sources import Health, Poller, sources_of

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds after which it is looked at again which networks there are, and whether this instance may write."""

KINDS = ("prometheus", "gnmi")


def read_sources(path: str) -> dict[str, Any]:
    """The sources of networks from a file, by name of the network; InputError if it has another form."""
    document = parse_json(read_text(path), path)
    if not isinstance(document, dict):
        raise InputError("must be an object, with the sources of each network by its name", path)
    for name, sources in document.items():
        check_keys(sources, KINDS, f"{path}, {name}")
    return document


class Asking:
    """Asks sources of networks.

    Args:
        documents: by name of the network its sources.
        door: where samples of a network come in; raises while there is no such network, or this instance may not write.

    Attributes:
        waiting: by name why a network's sources are not asked now.
    """

    def __init__(self, documents: Mapping[str, Any], door: Callable[[str], Intake]) -> None:
        self.waiting: dict[str, str] = {}
        self._documents, self._door = dict(documents), door
        self._asked: dict[str, tuple[Intake, Poller | None]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry sources", daemon=True)

    def start(self) -> None:
        """Begin to ask, if there is anything to ask about."""
        if self._documents:
            self._thread.start()

    def close(self) -> None:
        """End all sources."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        for network in list(self._asked):
            self._end(network)

    def health(self) -> dict[str, dict[str, Health]]:
        """By network and by name of the source how each fares."""
        return {name: dict(poller.health) for name, (_, poller) in self._asked.copy().items() if poller is not None}

    def look(self) -> None:
        """Begin to ask for networks that are there, and end it for others."""
        for network, document in self._documents.items():
            try:
                door = self._door(network)
                if network not in self._asked or self._asked[network][0] is not door:
                    self._end(network)
                    self._asked[network] = door, None  # a configuration that does not fit is tried once
                    poller = Poller(sources_of(document, door.links, f"sources of {network}"), door.take)
                    poller.start()
                    self._asked[network] = door, poller
                    self.waiting.pop(network, None)
            except Exception as error:  # of the store, or of the configuration: the others go on
                if network in self._asked and self._asked[network][1] is not None:
                    self._end(network)
                if self.waiting.get(network) != str(error):
                    log.warning("telemetry of network %s: %s", network, error)
                self.waiting[network] = str(error)

    def _run(self) -> None:
        while not self._ends.is_set():
            self.look()
            self._ends.wait(LOOK_S)

    def _end(self, network: str) -> None:
        _, poller = self._asked.pop(network, (None, None))
        if poller is not None:
            poller.close()

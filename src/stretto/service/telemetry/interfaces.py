"""Links as their interfaces count them: gNMI's Get of a counter of bytes, again and again (:mod:`..gnmi`).

The link from ``src`` to ``dst`` is what the interface of ``src`` sends (``out-octets``, the default) or that of ``dst``
receives (``in-octets``). The default path is OpenConfig's; ``path`` names another, with ``$interface`` in it. Where the
target has the status of its ports, a link of which all ports are down is said to be down. Several interfaces of one
link are its ports side by side, and what they carried is added up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...topologies.values import check_keys, count, entry, objects
from ..gnmi import TARGET_ENTRIES, GnmiClient, GnmiFailed, Notice, Target, target_of
from .counters import Counter
from .intake import ABSURD_FACTOR
from .samples import CARRIED, UP, Link, Sample
from .sources import TIMEOUT_S, Reading, SourceFailed, every_of, link_of, secret_of

PATH = "/interfaces/interface[name=$interface]/state/counters"
STATUS = "/interfaces/interface[name=$interface]/state/oper-status"
OCTETS = "out-octets"
SET_TO_ZERO = "last-clear"
"""OpenConfig's leaf that says when the counters were last set to zero."""

ENTRIES = (*TARGET_ENTRIES, "every_s", "path", "status", "links")
LINK_ENTRIES = ("src", "dst", "interface", "counter", "bits")


class Interface(NamedTuple):
    """Where a link is counted: the path of its counters, the name of the one that counts its bytes, and its state.

    ``status`` is the path of the port's status, "" for none.
    """

    link: Link
    path: str
    name: str
    counter: Counter
    status: str


def interfaces_of(data: dict[str, Any], links: Mapping[Link, float], where: str) -> Interfaces:
    """The source that an object of a network's configuration describes."""
    check_keys(data, ENTRIES, where)
    username, password = (secret_of(data, f"{name}_variable", where) for name in ("username", "password"))
    target = target_of(data, username, password, where)
    every_s, path = every_of(data, where), entry(data, "path", str, where, PATH)
    if "$interface" not in path:
        raise InputError("'path' needs $interface, for which each interface's name is put in", where)
    status = entry(data, "status", str, where, STATUS if path == PATH else "")
    if status and "$interface" not in status:
        raise InputError("'status' needs $interface, for which each interface's name is put in", where)
    found = []
    for i, said in enumerate(objects(data, "links", where)):
        place = f"{where}, link {i}"
        check_keys(said, LINK_ENTRIES, place)
        link = link_of(said, links, place)
        counter = Counter(ABSURD_FACTOR * links[link], count(said.get("bits", 64), "'bits'", place, 16, 64))
        counter.check_interval(every_s, place)
        own, port = (p.replace("$interface", entry(said, "interface", str, place)) for p in (path, status))
        found.append(Interface(link, own, entry(said, "counter", str, place, OCTETS), counter, port))
    return Interfaces(target, found, every_s)


class Interfaces:
    """The interfaces of one gNMI target as a source of samples."""

    def __init__(self, target: Target, interfaces: Sequence[Interface], every_s: float) -> None:
        self.name = f"gNMI at {target!r}"
        self.every_s, self.interfaces = every_s, list(interfaces)
        self._client = GnmiClient(target, TIMEOUT_S)
        self._up: dict[Link, bool] = {}  # as it was said last
        self._no_status: set[str] = set()  # paths at which the target has nothing

    def read(self) -> Reading:
        paths = list(dict.fromkeys(interface.path for interface in self.interfaces))
        try:
            notices = self._client.get(paths)
            statuses = self._statuses()
        except GnmiFailed as error:
            raise SourceFailed(str(error)) from None
        now = time.time()
        rates: dict[Link, list[float | None]] = {}
        missing = []
        for interface in self.interfaces:
            leaves = _leaves(notices, interface.path)
            octets = _number(leaves.get(interface.name))
            rate = None
            if octets is None:
                missing.append(interface)
            else:
                rate = interface.counter.rate(octets[1], octets[0] or now, str(leaves.get(SET_TO_ZERO, ("", ""))[1]))
            rates.setdefault(interface.link, []).append(rate)
        carried = {link: [rate for rate in of if rate is not None] for link, of in rates.items()}
        samples = [Sample(*link, CARRIED, sum(of), now) for link, of in carried.items() if len(of) == len(rates[link])]
        wrong = f"it has no {missing[0].name} at {missing[0].path}" if missing else ""
        return Reading([*samples, *self._changed(statuses, now)], wrong)

    def _statuses(self) -> dict[str, bool]:
        """By path whether a port is up, for those of which the target says it."""
        found: dict[str, bool] = {}
        for path in dict.fromkeys(interface.status for interface in self.interfaces):
            if not path or path in self._no_status:
                continue
            try:
                notices = self._client.get([path])
            except GnmiFailed as error:
                if not error.missing:
                    raise
                self._no_status.add(path)
                continue
            for notice in notices:
                if _plain(notice.path) == _plain(path) and isinstance(notice.value, str):
                    found[path] = notice.value.upper() == "UP"
        return found

    def _changed(self, statuses: Mapping[str, bool], now: float) -> list[Sample]:
        """What is to be said of links that are up or down: what is new."""
        ports: dict[Link, list[bool]] = {}
        for interface in self.interfaces:
            if interface.status in statuses:
                ports.setdefault(interface.link, []).append(statuses[interface.status])
        up = {link: any(of) for link, of in ports.items()}
        news = [Sample(*link, UP, float(is_up), now) for link, is_up in up.items() if self._up.get(link) is not is_up]
        self._up |= up
        return news

    def close(self) -> None:
        self._client.close()


Leaf = tuple[float, Any]
"""The moment of a value by the target's clock, 0 if it says none, and the value."""


def _leaves(notices: Sequence[Notice], path: str) -> dict[str, Leaf]:
    """By name the leaves at a path, whether they came one by one or as one object."""
    wanted = _plain(path)
    leaves: dict[str, Leaf] = {}
    for notice in notices:
        at = _plain(notice.path)
        if at == wanted and isinstance(notice.value, dict):
            leaves |= {_plain(name): (notice.at_s, value) for name, value in notice.value.items()}
        elif at.rpartition("/")[0] == wanted:
            leaves[at.rpartition("/")[2]] = notice.at_s, notice.value
    return leaves


def _plain(path: str) -> str:
    """A path without the names of modules, and without slashes around it."""
    inside, parts, part = False, [], ""
    for sign in path.strip("/"):
        inside = sign == "[" or (inside and sign != "]")
        if sign == "/" and not inside:
            parts.append(part)
            part = ""
        elif sign == ":" and not inside:
            part = ""
        else:
            part += sign
    return "/".join([*parts, part])


def _number(leaf: Leaf | None) -> tuple[float, int] | None:
    """A counter's moment and value; JSON writes 64 bits as text (RFC 7951, section 6.1)."""
    if leaf is None:
        return None
    value = leaf[1]
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return leaf[0], value

"""Running jobs as a controller tells of them: telemetry of links, and what collectives took (docs: controller)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..model.errors import StrettoError
from .watched import Collective, Link, Picture

if TYPE_CHECKING:
    from ..service.client import Controller

AGAIN_S = 2.0
"""Seconds after which a controller that has gone is asked again."""


class Told:
    """Follows what a controller shows.

    Args:
        events, networks: two clients of it: one that gets its events, one that asks for networks.
    """

    nothing = "this controller has no network yet; `stretto networks put` and `stretto jobs put` tell it of them"

    def __init__(self, events: Controller, networks: Controller) -> None:
        self._events, self._networks = events, networks
        self._shown: dict[tuple[str, str], Any] = {}
        self._widths: dict[str, tuple[int, dict[tuple[str, str], float]]] = {}  # with the version of the network
        self._changed, self._trouble = threading.Lock(), ""

    def read(self) -> None:
        """Take what is shown now.

        Raises:
            ControllerGone, ControllerRefused: it does not answer, or the token is not enough.
        """
        for kind, data in self._events.events():
            self._take(kind, data)
            if kind == "ready":
                return

    def follow(self) -> None:
        """Take all news from now on, in a thread of its own."""
        threading.Thread(target=self._follow, name="stretto-watch", daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                for kind, data in self._events.events():
                    self._take(kind, data)
            except StrettoError as error:
                self._trouble = str(error)
            threading.Event().wait(AGAIN_S)

    def _take(self, kind: str, data: Any) -> None:
        with self._changed:
            if kind == "hello":
                self._shown.clear()
            elif kind == "gone":
                self._shown.pop((data["kind"], data["name"]), None)
            elif kind == "ready":
                self._trouble = ""
            elif kind == "trouble":
                self._trouble = data["message"]
            else:
                self._shown[kind, data["name"]] = data

    def picture(self) -> Picture:
        """What is known now."""
        with self._changed:
            shown = dict(self._shown)
        links = [link for (kind, name), data in shown.items() if kind == "network" for link in self._of(shown, data)]
        collectives = [c for (kind, _), job in shown.items() if kind == "job" for c in _collectives(job)]
        times = [sample[4] for (kind, _), data in shown.items() if kind == "links" for sample in data["samples"]]
        return Picture(links, collectives, max(times, default=None), self._trouble)

    def _of(self, shown: Mapping[tuple[str, str], Any], network: Mapping[str, Any]) -> Iterator[Link]:
        """The links of a network of which anything is known besides their bandwidth."""
        name = network["name"]
        can = {**self._bandwidths(name, network["version"])}
        can |= {(d["src"], d["dst"]): d["bandwidth_Bps"] for d in network["overlay"] if "bandwidth_Bps" in d}
        carried: dict[tuple[str, str], float] = {}
        for src, dst, kind, rate, _ in shown.get(("links", name), {"samples": ()})["samples"]:
            if kind in ("carried", "capacity"):
                (carried if kind == "carried" else can)[src, dst] = rate
        used = {(src, dst): share for src, dst, share in shown.get(("load", name), {"use": ()})["use"]}
        for src, dst in sorted(carried.keys() | used.keys()):
            wide, share = can.get((src, dst)), used.get((src, dst))
            planned = None if wide is None or share is None else share * wide
            yield Link(src, dst, carried.get((src, dst)), None, planned, wide)

    def _bandwidths(self, name: str, version: int) -> dict[tuple[str, str], float]:
        """The bandwidth of each link of a network, by the names of its nodes; the last ones known while the controller
        does not give them."""
        known_version, known = self._widths.get(name, (-1, {}))
        if known_version != version:
            from ..topologies.files import topology_from_json

            try:
                net = topology_from_json(self._networks.network(name)["topology"], f"network {name}")
            except StrettoError as error:  # the controller or the network may have gone since the event
                self._trouble = str(error)
                return known
            ends = zip(net.src.tolist(), net.dst.tolist(), net.bandwidth.tolist(), strict=True)
            known = {(net.names[a], net.names[b]): width for a, b, width in ends}
            self._widths[name] = version, known
        return known


def _collectives(job: Mapping[str, Any]) -> Iterator[Collective]:
    for each in job["collectives"]:
        yield Collective(
            job["name"], each["kind"], each["size_bytes"], each["times"], each.get("measured_s"), each["completion_s"],
            each["bound_s"],
        )  # fmt: skip

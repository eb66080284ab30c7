"""The file of a measured network, and the telemetry that says what has changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..formats import atomic_file
from ..model.errors import InputError
from ..model.measurements import Measured, Survey
from ..topologies.measured import Link, network_of


def document(survey: Survey, names: Sequence[str], links: Sequence[Link], at: float) -> dict[str, Any]:
    """The object of a topology file, with the range of each value (docs: topology-files).

    Args:
        at: when it was measured, seconds since 1970.
    """
    sites = f" in {len(survey.sites)} sites" if len(survey.sites) > 1 else ""
    title = f"{survey.ranks} hosts{sites}, as measured"
    net = network_of(links, names, survey.sites, title)
    data = net.to_json()
    for entry, link in zip(data["links"], links, strict=True):
        ranges = {"bandwidth_Bps": link.bandwidth, "latency_s": link.latency_s, "message_s": link.message_s}
        entry["measured"] = {name: [m.low, m.high] for name, m in ranges.items() if m is not None}
    data["measured"] = {
        "at": timestamp(at),
        "bytes": survey.moved_bytes,
        "pairs": [
            {"src": names[a], "dst": names[b], **pair.to_json()} for (a, b), pair in survey.pairs.items()
        ],
        "hosts": [
            {"name": name, **_sums({"to_all_Bps": survey.to_all.get(v), "from_all_Bps": survey.from_all.get(v)})}
            for v, name in enumerate(names)
        ],
        "sites": [
            {"hosts": [names[v] for v in members], **_sums({
                "leaving_Bps": survey.leaving.get(s), "entering_Bps": survey.entering.get(s),
                "inside_Bps": survey.inside.get(s),
            })}
            for s, members in enumerate(survey.sites)
        ],
        "between": [
            {"src": a, "dst": b, "together_Bps": list(rate), "alone_Bps": {
                str(count): list(single) for count, single in survey.alone.get((a, b), {}).items()
            }}
            for (a, b), rate in survey.between.items()
        ],
    }  # fmt: skip
    return data


def _sums(rates: Mapping[str, Measured | None]) -> dict[str, list[float | None]]:
    return {name: list(rate) for name, rate in rates.items() if rate is not None}


def timestamp(at: float) -> str:
    """A moment as text: ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def news_of(links: Sequence[Link], at: float) -> dict[str, Any]:
    """Telemetry of links that have changed (docs: replanning)."""
    return {
        "time": timestamp(at),
        "links": [
            {"src": link.src, "dst": link.dst, "bandwidth": link.bandwidth.value, "latency": link.latency_s.value}
            for link in links
        ],
    }


def telemetry_of(data: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Telemetry of all links of a topology file, as they were last measured, for a controller."""
    names = [node["name"] for node in data["nodes"]]
    links = [
        {"src": names[link["src"]], "dst": names[link["dst"]], "bandwidth": link["bandwidth_Bps"],
         "latency": link["latency_s"]}
        for link in data["links"]
    ]  # fmt: skip
    return {"time": datetime.fromtimestamp(at, UTC).isoformat(), "links": links}


def write_topology(path: str, data: Mapping[str, Any]) -> None:
    """Write the file anew; it never is half-written under its name."""
    with atomic_file(path) as file:
        file.write(json.dumps(data, indent=1) + "\n")


def append_news(path: str, news: Mapping[str, Any]) -> None:
    """Append a line of telemetry, in one write.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(handle, (json.dumps(news) + "\n").encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path) from None

"""What the controller counts, for Prometheus at ``/metrics``."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The counters of one instance."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "stretto_requests", "Requests answered", ("method", "route", "status"), registry=registry
        )
        self.seconds = Histogram(
            "stretto_request_seconds", "Time to answer, without waiting for news", ("route",), buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.remembered = Counter(
            "stretto_remembered_answers", "Answers given again while the database was gone", ("route",),
            registry=registry,
        )  # fmt: skip
        self.leader = Gauge("stretto_leader", "1 while this instance is the leader", registry=registry)
        self.waiting = Gauge("stretto_waiting_requests", "Requests that wait for news", registry=registry)
        self.busy = Gauge("stretto_planner_busy", "1 while the planner has work", registry=registry)
        self._published = Counter(
            "stretto_published_plan_versions", "Versions of plans published", ("network",), registry=registry
        )
        self._held = Counter("stretto_held_plans", "New plans that gained too little", ("network",), registry=registry)
        self._proposed = Counter(
            "stretto_proposed_plans", "New plans proposed to jobs that are held", ("network",), registry=registry
        )
        self._planned = Counter("stretto_planned_collectives", "Collectives planned alone", registry=registry)
        self._cpu = Counter("stretto_planning_cpu_seconds", "CPU time of plans", registry=registry)
        self._deaths = Counter("stretto_planner_deaths", "Ends of the planner's process", registry=registry)
        self.samples = Counter(
            "stretto_telemetry_samples", "Samples of links that were kept", ("network",), registry=registry
        )
        self.refused_samples = Counter(
            "stretto_refused_telemetry_samples", "Samples of links that were refused, and requests with bad ones",
            ("network", "reason"), registry=registry,
        )  # fmt: skip
        self._rows = Gauge("stretto_store_rows", "Rows of a table of the store", ("table",), registry=registry)
        self._bytes = Gauge("stretto_store_bytes", "Bytes of the database", registry=registry)
        self._forgotten = Counter(
            "stretto_forgotten_rows", "Rows that were kept long enough", ("table",), registry=registry
        )
        self._changes = Counter(
            "stretto_network_changes", "Versions of networks made by telemetry", ("network",), registry=registry
        )

    def count(self, event: dict[str, Any]) -> None:
        """Count what the planner tells."""
        kind = event["event"]
        self._cpu.inc(event.get("cpu_s", 0.0))
        if kind in ("published", "proposed"):
            self._published.labels(event["network"]).inc(len(event["jobs"]))
            self._proposed.labels(event["network"]).inc(len(event["proposed"]))
        elif kind == "held":
            self._held.labels(event["network"]).inc()
        elif kind == "planned":
            self._planned.inc()
        elif kind == "died":
            self._deaths.inc()
        elif kind == "stored":
            self._bytes.set(event["bytes"])
            for table, rows in event["rows"].items():
                self._rows.labels(table).set(rows)
            for table, rows in event["forgotten"].items():
                self._forgotten.labels(table).inc(rows)
        elif kind == "telemetry" and "version" in event:
            self._changes.labels(event["network"]).inc()

    def page(self) -> bytes:
        """The metrics as text."""
        return bytes(generate_latest(self._registry))

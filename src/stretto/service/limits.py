"""Limits on what one client may ask: the size of a body, and requests per second."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

MOST_CLIENTS = 10_000
"""Clients whose rates are known; those that have not asked for longest are forgotten."""


@dataclass(frozen=True)
class Limits:
    """What is allowed.

    Attributes:
        body_bytes: of a request.
        rate: requests per second of one client, over time.
        burst: requests at once.
        wait_s: seconds that a request may wait for news.
    """

    body_bytes: int = 16_000_000
    rate: float = 100.0
    burst: int = 400
    wait_s: float = 60.0


@dataclass
class Rates:
    """Counts the requests of each client: a bucket of ``burst`` tokens that fills at ``rate``."""

    limits: Limits
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait_s(self, client: str, now: float) -> float:
        """Count a request: 0 if it is allowed, else seconds until the next one is.

        Args:
            now: seconds of any steady clock.
        """
        left, at = self._buckets.pop(client, (float(self.limits.burst), now))
        left = min(float(self.limits.burst), left + (now - at) * self.limits.rate)
        allowed = left >= 1.0
        self._buckets[client] = (left - 1.0 if allowed else left, now)
        while len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self.limits.rate

"""Rates from a counter of bytes, such as the octets that an interface sent.

A counter only grows, but it starts anew when its device does, and a counter of few bits begins again at zero when it is
full. Readings come late, twice, or are wrong. A wrong rate is worse than none: where a reading leaves a doubt, the
counter gives no rate and takes the reading as a new beginning.
"""

from __future__ import annotations

from ...model.errors import InputError

SHORTEST_S = 0.05
"""Readings that are closer together give no rate, and count from the earlier one: a clock of milliseconds would make
the rate wrong by 2 % and more."""


class Counter:
    """One counter of bytes.

    Args:
        most: bytes/s that it can count at most; a higher rate is a mistake.
        bits: of the counter; at 2**bits it begins again at zero.
    """

    def __init__(self, most: float, bits: int = 64) -> None:
        self.most, self.size = most, 1 << bits
        self._value, self._at_s, self._since = -1, 0.0, ""

    def check_interval(self, every_s: float, where: str) -> None:
        """InputError if the counter can go round between two readings: then nobody can tell how often it did."""
        round_s = self.size / self.most
        if every_s >= round_s:
            raise InputError(
                f"a counter of {self.size.bit_length() - 1} bits can go round in {round_s:.3g} s, and is read every "
                f"{every_s:g} s; take one of 64 bits, such as out-octets or ifHCOutOctets", where
            )  # fmt: skip

    def rate(self, value: int, at_s: float, since: str = "") -> float | None:
        """Bytes/s since the reading before, None if the two tell none.

        Args:
            value: what the counter says.
            at_s: when, by the clock of its device, seconds.
            since: when the counter was last set to zero, as the device says it; "" if it does not.
        """
        before, began_s, began = self._value, self._at_s, self._since
        if before >= 0 and since == began and at_s - began_s < SHORTEST_S and at_s >= began_s:
            return None
        if before >= 0 and since == began and at_s < began_s and value <= before:
            return None  # late: the newer reading stands
        self._value, self._at_s, self._since = value, at_s, since
        if before < 0 or since != began or at_s < began_s:
            return None
        grown = value - before if value >= before else value + self.size - before
        rate = grown / (at_s - began_s)
        return rate if rate <= self.most else None

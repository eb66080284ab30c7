"""Pseudo-random numbers for kernels, the same on every machine."""

from __future__ import annotations


def noise(a: int, b: int) -> float:
    """A number from 0 to 1 that looks random, the same for the same two integers."""
    x = (a * 2654435761 + b * 40503 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 73244475) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 73244475) & 0xFFFFFFFF
    return (x ^ (x >> 16)) / 4294967296.0

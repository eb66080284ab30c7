"""Numbers that look random and are the same everywhere, for kernels."""


def noise(a, b):
    """A number from 0 to 1 that looks random, the same for the same two integers."""
    x = (a * 2654435761 + b * 40503 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 73244475) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 73244475) & 0xFFFFFFFF
    return (x ^ (x >> 16)) / 4294967296.0

"""What several kernels call."""


def noise(a, b):
    """A number from 0 to 1 that looks random, the same for the same two integers."""
    x = (a * 2654435761 + b * 40503 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 73244475) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 73244475) & 0xFFFFFFFF
    return (x ^ (x >> 16)) / 4294967296.0


def free_from(pipe, hop_offsets, hop_links, hop_late, free_at):
    """When all links of a pipe are free, each in its turn."""
    t = 0.0
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        t = max(t, free_at[hop_links[i]] - hop_late[i])
    return t

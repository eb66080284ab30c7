"""A program that delays frames, for kernels without netem: both ends of a delayed cable are TAP devices, and it passes
each frame from one end to the other when the latency of that direction has passed.

It reads one line of JSON, ``[[namespace, device, namespace, device, seconds, seconds], ...]`` (the latency from the
first end to the second, and back), makes the devices, writes a line, and works until its input closes. It imports
nothing of stretto, so that it starts at once. A frame has left the token bucket of its link before it comes here, so
bandwidths are the kernel's. Frames are late by about 0.1 ms, and cost about 40 us of CPU each.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import struct
import sys
import time

MOST_FRAME = 1 << 16
_TUNSETIFF = 0x400454CA
_TAP, _NO_HEADER = 0x0002, 0x1000
_NEWNET = 0x40000000
_PR_SET_TIMERSLACK = 29
"""The kernel may wake a process 50 us later than asked, unless this says less."""


def open_tap(namespace: str, device: str) -> int:
    """A new TAP device in a namespace, up; returns its descriptor. The calling thread stays in the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(handle, _NEWNET):
        raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    os.close(handle)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TAP | _NO_HEADER))
    return tap


def pass_frames(other: dict[int, tuple[int, float]]) -> None:
    """Pass frames until standard input closes. ``other`` has for each descriptor the other end's, and the latency."""
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        ready, _, _ = select.select([0, *other], [], [], max(waiting[0][0] - time.monotonic(), 0) if waiting else None)
        now = time.monotonic()
        if 0 in ready:
            return
        for tap in ready:
            to, latency_s = other[tap]
            try:
                while True:
                    number += 1
                    heapq.heappush(waiting, (now + latency_s, number, to, os.read(tap, MOST_FRAME)))
            except BlockingIOError:
                continue
        while waiting and waiting[0][0] <= now:
            _, _, to, frame = heapq.heappop(waiting)
            try:
                os.write(to, frame)
            except OSError:
                continue  # its device is down or full: the frame is lost, as on any link


def main() -> None:
    cables = json.loads(sys.stdin.readline())
    other: dict[int, tuple[int, float]] = {}
    for namespace_a, device_a, namespace_b, device_b, forth_s, back_s in cables:
        a, b = open_tap(namespace_a, device_a), open_tap(namespace_b, device_b)
        other |= {a: (b, forth_s), b: (a, back_s)}
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with contextlib.suppress(OSError):  # other processes must not make frames late
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    pass_frames(other)


if __name__ == "__main__":
    main()

"""A program that delays frames, for kernels without netem, and treats them as clouds and long links do: it drops some
at random, and lets each flow have no more than a cap. Both ends of such a cable are TAP devices, and it passes each
frame from one end to the other when the latency of that direction has passed.

It reads one line of JSON, a list of ``[namespace, device, namespace, device, seconds, seconds, loss, cap, seed]`` (the
latency from the first end to the second, and back; the share of frames that are lost; the bytes/s of each flow, 0 for
no cap; the seed of what is lost), makes the devices, writes a line, and works until its input closes. It imports
nothing of stretto, so that it starts at once. A frame has left the token bucket of its link before it comes here, so
bandwidths are the kernel's. Frames are late by about 0.1 ms, and cost about 40 us of CPU each.

A flow is the IPv4 packets with one source, destination, protocol and pair of ports, in one direction. Its frames leave
at the rate of the cap, one after another; those that would wait for more than ``QUEUE_S`` are dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time

MOST_FRAME = 1 << 16
QUEUE_S = 0.05
"""Seconds that a flow's queue holds, as the queue of a link."""
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


class Way:
    """One direction of a cable.

    Args:
        to: the descriptor at which frames leave.
        loss, cap, seed: see the module.
    """

    def __init__(self, to: int, latency_s: float, loss: float, cap: float, seed: int) -> None:
        self.to, self.latency_s, self.loss, self.cap = to, latency_s, loss, cap
        self.chance = random.Random(seed)
        self.free_at: dict[bytes, float] = {}

    def comes_at(self, frame: bytes, now: float) -> float | None:
        """When a frame comes to the other end; None if it is lost."""
        if frame[12:14] != b"\x08\x00":  # not IPv4: who has which address
            return now + self.latency_s
        if self.loss and self.chance.random() < self.loss:
            return None
        if not self.cap:
            return now + self.latency_s
        ports = 14 + 4 * (frame[14] & 15)
        flow = frame[23:24] + frame[26:34] + frame[ports : ports + 4]
        leaves = max(now, self.free_at.get(flow, 0.0))
        if leaves - now > QUEUE_S:
            return None
        self.free_at[flow] = leaves = leaves + len(frame) / self.cap
        return leaves + self.latency_s


def pass_frames(ways: dict[int, Way]) -> None:
    """Pass frames until standard input closes. ``ways`` has the direction that begins at each descriptor."""
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        ready, _, _ = select.select([0, *ways], [], [], max(waiting[0][0] - time.monotonic(), 0) if waiting else None)
        now = time.monotonic()
        if 0 in ready:
            return
        for tap in ready:
            way = ways[tap]
            try:
                while True:
                    frame = os.read(tap, MOST_FRAME)
                    at = way.comes_at(frame, now)
                    if at is not None:
                        number += 1
                        heapq.heappush(waiting, (at, number, way.to, frame))
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
    ways: dict[int, Way] = {}
    for namespace_a, device_a, namespace_b, device_b, forth_s, back_s, loss, cap, seed in cables:
        a, b = open_tap(namespace_a, device_a), open_tap(namespace_b, device_b)
        ways |= {a: Way(b, forth_s, loss, cap, 2 * seed), b: Way(a, back_s, loss, cap, 2 * seed + 1)}
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with contextlib.suppress(OSError):  # other processes must not make frames late
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    pass_frames(ways)


if __name__ == "__main__":
    main()

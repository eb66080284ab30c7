"""``stretto warm``: compile the kernels once, so that the first plan on a machine is as quick as the next.

Plans small requests with compiled kernels, and Numba keeps the code on disk. ``make setup`` runs this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from ..model.errors import NotInstalled, StrettoError, Unsupported
from . import arguments
from .output import answer
from .progress import REDRAW_S, say, show_progress
from .tables import print_line

LINKS_CHANGE = "links change"
"""Instead of an option: the first link of the topology is faster after a microsecond."""

FIRST_LINK_SLOW = "first link slow"
"""Instead of an option: the first link of the topology has half its bandwidth."""

REQUESTS = (
    ("forest", "allreduce:1MB", "dgx2:2"),
    ("greedy", "alltoall:1MB", "torus:3x3"),
    ("scale-ccl", "allgather:1MB", "sites:2,2"),
    ("wan", "allreduce:1MB", "zoo:Abilene"),
    ("forest", "allgather:1MB", "zoo:Abilene"),
    ("forest", "allreduce:1MB", "dgx2:1"),
    ("mtegcca", "allgather:1MB", "ndv2:2"),
    ("greedy", "allreduce:1MB", "dgx2:2"),
    ("paths", "alltoall:1MB", "ndv2:2"),
    ("switch-trees", "allgather:1MB", "star:4"),
    ("rounds", "allreduce:1MB", "dgx1?message=2us"),
    ("auto", "allreduce:1MB", "dgx1"),
    ("auto", "allreduce:1MB", "sites:2,2"),
    ("jobs", "allreduce:1MB,allreduce:1MB@1us", "ring:4", "online=true"),
    ("greedy", "allreduce:1KB", "ring:4"),
    ("non-concurrent", "allreduce:1MB", "zoo:Abilene"),
    ("tcp-fair", "allreduce:1MB", "zoo:Abilene"),
    ("ring+rate-alloc", "allreduce:1MB", "zoo:Abilene"),
    ("ring", "allreduce:1MB", "dgx1"),
    ("all-pairs", "allgather:1MB", "fattree:4"),
    ("swot", "allreduce:1MB", "optical:4,2"),
    ("scale-ccl", "allgather:1MB", "sites:2,2", "rules=paper"),
    ("mtegcca", "allgather:1MB", "sites:2,2", LINKS_CHANGE),
    ("symmetric", "allreduce:1MB", "h100:2", FIRST_LINK_SLOW),
    ("bundles", "scatter:1KB", "star:4?message=1us"),
    ("symmetric", "alltoall:1MB", "star:8", FIRST_LINK_SLOW),
)
"""Planner, collectives, topology and options; together they call each kernel. A test compares them with the sources."""

ORDERS = (("ndv2:2", "gloo"), ("cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope,aws:ap-south-1", "gloo"))
"""Topology and library; orders of their machines call the kernels of the search for orders."""


def plan_all(requests: tuple[tuple[str, ...], ...], tell: Callable[[], None] = lambda: None) -> None:
    """Plan, verify, simulate, bound and lower each request, as ``stretto plan`` and ``run`` do; then find orders.

    A request that needs an extra which is not installed is left out: nobody here can ask for it.

    Args:
        tell: called before each request, and before the orders.
    """
    import numpy as np

    from .. import face
    from ..formats import exporters
    from ..lower import lower, rounds_of
    from ..model.changes import make_changes
    from ..runtime.native.compiling import compile_here
    from .work import given_options

    for planner, collectives, spec, *options in requests:
        tell()
        net = face.topology(spec)
        if LINKS_CHANGE in options:
            options.remove(LINKS_CHANGE)
            net = replace(net, changes=make_changes([(1e-6, 0, 2 * net.bandwidth[0])], net.link_count))
        if FIRST_LINK_SLOW in options:
            options.remove(FIRST_LINK_SLOW)
            net = replace(net, bandwidth=net.bandwidth / np.where(np.arange(net.link_count) == 0, 2, 1))
        try:
            plan = face.plan(collectives, net, planner=planner, effort="normal", options=given_options(options))
        except NotInstalled:
            continue
        plan.verify()
        plan.simulate()
        plan.bound()
        lower(plan)
        rounds_of(plan)
        for name in ("chakra", "mscclpp"):
            with suppress(Unsupported), TemporaryDirectory() as folder:
                exporters()[name].write(plan.simulate(), f"{folder}/plan")
    tell()
    compile_here()
    for spec, library in ORDERS:
        face.order(spec, library, "allreduce", "1MB")


def _compile(requests: tuple[tuple[str, ...], ...], begun: Any) -> None:
    from ..kernels import announce_nothing

    # set in this process alone: who calls `warm` from a program of their own goes on as they were
    os.environ["STRETTO_KERNELS"] = "compiled"
    announce_nothing()

    def tell() -> None:
        with begun:
            begun.value += 1

    plan_all(requests, tell)


def warm(as_json: arguments.Json = False) -> None:
    """Compile what makes plans, once after an installation: about a minute, or nothing if that was done before."""
    from multiprocessing import Process, Value

    began = time.monotonic()
    say("compiling all kernels, once on this machine: about a minute on two CPUs ...")
    # two processes begin at either end of the list, and neither compiles what the other has
    begun = Value("i", 0)
    processes = [Process(target=_compile, args=(requests, begun)) for requests in (REQUESTS, REQUESTS[::-1])]
    for process in processes:
        process.start()
    for process in processes:
        while process.is_alive():
            done = max(0, begun.value - len(processes))
            show_progress(done, len(processes) * (len(REQUESTS) + 1), "compiling kernels, request by request")
            process.join(REDRAW_S)
    if any(process.exitcode for process in processes):
        raise StrettoError("the kernels could not be compiled; plans are made without, more slowly")
    data = {"wall_s": time.monotonic() - began}
    answer(as_json, data, lambda: print_line(f"all kernels are compiled ({data['wall_s']:.0f} s)"))

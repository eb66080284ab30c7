"""A link that is halved under a job that a controller plans for, on emulated links."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
for module in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client"):
    pytest.importorskip(module)

from controller_process import Served  # noqa: E402
from stretto import emulator  # noqa: E402
from stretto.choose.expected import ends_sooner  # noqa: E402
from stretto.choose.library import Library  # noqa: E402
from stretto.emulator.shaping import bucket, wire_share  # noqa: E402
from stretto.topologies import load_topology  # noqa: E402

RANKS, WIDE, ELEMENTS, MOST_CALLS = 3, 2.5e6, 1 << 17, 120
WITHIN = 0.2
"""Share by which the bandwidth that is planned for may be off what the link has. On a busy machine processes read late."""


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_all_ranks_change_to_the_controllers_plan_for_a_halved_link_which_is_known_as_it_is(tmp_path, monkeypatch):
    from stretto.torch.collectives import Collectives
    from stretto.torch.job import Job
    from stretto.torch.links import Links

    net = load_topology(f"fullmesh:{RANKS}?bandwidth={WIDE:.0f}B/s&latency=0s&message=50us")
    store, barrier = torch.distributed.HashStore(), threading.Barrier(RANKS)
    plans = [[] for _ in range(RANKS)]

    def state():
        """0 before the controller's first plan, 1 with it, 2 with a plan for the halved link."""
        last = plans[0][-1] if plans[0] else None
        if last is None or last.meta.get("made_by") != "stretto serve":
            return 0
        return 1 + (sum(last.topology.bandwidth < 0.75 * WIDE) == 1)

    def rank(r):
        place = places[int(net.accelerators[r])]
        emulator.enter(place.argument)  # a namespace is a thread's own
        links = Links(store, Library(net, range(RANKS), r, effort=None), place.host, measures=False, timeout_s=60)
        collectives = Collectives(links._library, links, Job("train", "train", True))
        look, halved = collectives.plans.look, False

        def noted(kind, size, root, recipe, sizes, trace):
            plans[r].append(recipe.program.plan)
            look(kind, size, root, recipe, sizes, trace)

        collectives.plans.look = noted
        for _ in range(MOST_CALLS):
            barrier.wait(60)
            known = state()
            barrier.wait(60)
            if known == 2:
                break
            if known == 1 and not halved and r == 0:
                (command,) = bucket("to1", WIDE / 2 * wire_share(net), 0)
                change = ["tc", "-n", place.argument, "qdisc", "change", *command.split()[2:]]
                subprocess.run(change, check=True)
                halved = True
            piece = torch.full((ELEMENTS,), float(r))
            collectives.run("allreduce", {0: piece}, {0: piece}, [ELEMENTS], 60.0, op=torch.distributed.ReduceOp.SUM)
            assert bool((piece == sum(range(RANKS))).all())
        collectives.close()
        links.close()

    with emulator.built(net) as places:
        inside = "ip", "netns", "exec", places[0].argument
        served = Served(tmp_path, "--hold", 0.2, "-p", "forest", "--host", places[0].host, "--insecure", inside=inside)
        try:
            monkeypatch.setenv("STRETTO_CONTROLLER", served.url)
            with ThreadPoolExecutor(RANKS) as pool:
                list(pool.map(rank, range(RANKS)))
        finally:
            served.stop()
    used = [[plan.digest() for plan in row] for row in plans]
    assert used == [used[0]] * RANKS
    last, first = plans[0][-1], next(p for p in plans[0] if p.meta.get("made_by") == "stretto serve")
    halved = {(0, 1)}
    for a, b, bandwidth in zip(last.topology.src, last.topology.dst, last.topology.bandwidth, strict=True):
        truth = WIDE / 2 if (int(a), int(b)) in halved else WIDE
        assert bandwidth == pytest.approx(truth, rel=WITHIN)
    assert ends_sooner(last, first)

"""A process that tests run, kill and stop; it imports little, so that it starts at once."""

from __future__ import annotations

import contextlib
import random

from stretto.lower import lower
from stretto.model.errors import PeerFailed
from stretto.model.plan import Plan
from stretto.runtime import content
from stretto.runtime.connect import join, listen
from stretto.runtime.credentials import Credentials
from stretto.runtime.execute import execute

CREDENTIALS = Credentials(bytes(range(32)))


def work(node: int, pipe, plans: list[Plan], timeout_s: float, moment: int | None) -> None:
    """A process that runs random collectives until something fails, and says what.

    Says, too, when it begins the collective of number ``moment``.
    """
    listener = listen()
    pipe.send(listener.getsockname()[1])
    addresses = {v: ("127.0.0.1", port) for v, port in enumerate(pipe.recv())}
    programs = [lower(plan)[node] for plan in plans]
    mesh = join(node, listener, addresses, {v: plans[0].topology.names[v] for v in addresses}, CREDENTIALS)
    rng = random.Random(0)
    pipe.send("ready")
    done = 0
    try:
        for seed in range(1000):
            program = rng.choice(programs)
            plan = program.plan
            out = content.outputs(plan, program.steps.wanted)
            if seed == moment:
                pipe.send("now")
            execute(mesh, program, content.inputs(plan, program.steps.held, node, seed), out, timeout_s=timeout_s)
            if content.wrong_chunks(plan, out, seed):
                pipe.send("wrong bytes")
            done += 1
        pipe.send("ended")
    except PeerFailed as failure:
        pipe.send((failure.peer, failure.transfer, str(failure), done))
    with contextlib.suppress(EOFError):
        pipe.recv()
    mesh.close()

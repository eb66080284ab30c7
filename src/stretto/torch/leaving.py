"""How a group is left that nobody has destroyed: when Python collects it, or when its process ends."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ..runtime.mesh import GRACE_S
from ..runtime.native.engine import running
from ..runtime.switchboard import serves_here
from ..runtime.telling import beside, wait_told

if TYPE_CHECKING:
    from .collectives import Collectives
    from .links import Links
    from .pending import Order
    from .serving import Serving

LEAVE_S = 5.0
"""Seconds that threads get to end when their process ends."""


def leave(links: Links, order: Order, collectives: Collectives, serving: Serving, owner: int) -> None:
    """End a group's threads in the process that started them: a forked process has the sockets, but not the threads.

    Args:
        owner: the number of that process.
    """
    if os.getpid() != owner:
        return
    again, loop = partial(leave, links, order, collectives, serving, owner), running()
    if serves_here():  # Python may collect a group in a thread for which what follows would wait
        beside(again)
    elif loop is None or not loop.defer(again):
        order.stop(GRACE_S)
        links.leave()
        serving.leave(LEAVE_S)
        order.stop(LEAVE_S)
        collectives.close()
        wait_told(LEAVE_S)

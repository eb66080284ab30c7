"""One pattern of messages, run over many sets of routes: what a search asks for each order of ranks.

A pattern says which message waits for which; where they go is given for each run. The run is that of a plan that shares
by ``priorities`` (:mod:`.rates`), without the cost of building a plan each time.
"""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.topology import Topology
from . import kernel_rates
from .rates import STEPS_A_TRANSFER, pipes


class Pattern:
    """Messages from rank to rank, of which earlier rounds are served first."""

    def __init__(self, src: Int64, dst: Int64, depends: Ragged, rounds: Int64, *, runs: int) -> None:
        """Prepare the runs.

        Args:
            src, dst: int64[messages], ranks.
            depends: for each message the earlier ones that it waits for.
            rounds: int64[messages], the lowest is served first.
            runs: how many there will be, about; decides whether they are compiled.
        """
        work = STEPS_A_TRANSFER["priorities"] * len(src) * runs
        self._run = at_speed(kernel_rates.run, work)
        self._ends = Ragged.single(src), Ragged.single(dst)
        self._depends, self._turned = depends, depends.turned()
        self._rounds, self._weight = rounds.astype(np.int64), np.ones(len(src))

    def arrivals_s(self, topology: Topology, route: Ragged, size_bytes: Int64) -> Float64:
        """float64[messages], when each has arrived if it takes this route, as :func:`stretto.simulate.simulate` says.

        Args:
            topology: whose bandwidths do not change.
        """
        used, renamed = np.unique(route.values, return_inverse=True)
        delay_s = topology.route_latency_s(route)
        piped_bytes, load = pipes(topology, route, size_bytes)
        transfers = kernel_rates.Transfers(
            sources=self._ends[0], dst=self._ends[1], route=route.with_values(renamed.ravel().astype(np.int32)),
            depends=self._depends, next_offsets=self._turned.offsets, dependents=self._turned.values.astype(np.int64),
            delay_s=delay_s, size_bytes=piped_bytes, load=load, earliest_s=np.zeros(len(size_bytes)),
        )  # fmt: skip
        widths = kernel_rates.Widths(topology.bandwidth[used], np.zeros(0), np.zeros((0, len(used))))
        _, finish = self._run(transfers, widths, self._rounds, self._weight)
        return finish + delay_s

"""Which ways data goes: by one chain of cosets, by a mix of several, by one for sums and another one for copies."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64
from ...model.errors import Unsupported
from .case import Case
from .chains import Chain, chains_of
from .rates import Columns, mixes
from .routes import Routes
from .times import Table

MOST_CHILDREN = 128
"""Ranks to which an owner copies the sum that it made, beyond which it does so over a tree: each of these transfers
depends on each that brought a summand."""


class Way(NamedTuple):
    """A chain, or two, and the share of the data that goes so."""

    share: float
    inward: Chain | None
    outward: Chain | None


def mixes_of(case: Case, table: Table) -> list[list[Way]]:
    """By which chains the data goes: one for all of it; a mix of several; a mix for sums and one for copies.

    Raises:
        Unsupported: routes through switches and neighbours do not join the ranks.
    """
    traits, ranks = case.first.traits, len(case.first.ranks)
    reduces, copied = traits.reduces, not traits.reduces or traits.reduces_to_all
    most_children = MOST_CHILDREN if reduces and copied else ranks
    chunk_bytes = float(case.first.shard_bytes)
    halves = [r for r, used in ((table.inward, reduces), (table.outward, copied)) if used]
    chains = [chains_of(case.symmetry, case.digits, routes, most_children) for routes in halves]
    if not all(chains):
        raise Unsupported("symmetric does not serve this: no switches or neighbours join the ranks of each coordinate")
    alone = traits.pieces == "pair"
    columns = [
        Columns(
            np.stack([_load_s(chain, routes, chunk_bytes, ranks, alone) for chain in own]),
            np.array([_fill_s(chain, routes, chunk_bytes) for chain in own]),
        )
        for routes, own in zip(halves, chains, strict=True)
    ]
    found = mixes(columns, even=alone)
    if len(found) > 1 and len(columns) > 1:
        found.append([mixes([half])[-1][0] for half in columns])
    return [_laid(chains, shares, reduces, copied) for shares in found]


def _laid(chains: list[list[Chain]], shares: list[Float64], reduces: bool, copied: bool) -> list[Way]:
    """The ways that shares of the chains of each half make."""
    paired = [(share, [own[k] for own, k in zip(chains, choice, strict=True)]) for share, choice in _paired(shares)]
    return [Way(share, own[0] if reduces else None, own[-1] if copied else None) for share, own in paired]


def _load_s(chain: Chain, routes: Routes, chunk_bytes: float, ranks: int, alone: bool) -> Float64:
    """float64[links], for how long one rank's chunks keep each orbit.

    Args:
        alone: whether there is a chunk for each other rank, instead of one for all.
    """
    total, holders = np.zeros(routes.symmetry.topology.link_count), 1
    for phase in chain:
        number = phase.below * (ranks // phase.size) if alone else np.full(phase.size, holders)
        total += routes.load_s(phase.step[1:], number[1:], chunk_bytes)
        holders *= phase.size
    return total


def _fill_s(chain: Chain, routes: Routes, chunk_bytes: float) -> float:
    """Seconds that a message takes to the last rank over links that are idle."""
    hop_s = routes.latency_s + routes.seconds(chunk_bytes)
    return sum(float(hop_s[phase.step].max()) * int(phase.depth.max()) for phase in chain)


def _paired(shares: list[Float64]) -> list[tuple[float, list[int]]]:
    """Shares of the data and, for each half, the chain by which each goes: shares of both halves laid side by side."""
    edges = np.unique(np.concatenate([[0.0], *(np.cumsum(share) for share in shares)]).round(9))
    out: list[tuple[float, list[int]]] = []
    for begin, end in pairwise(edges.tolist()):
        middle = (begin + end) / 2
        choice = [int(np.searchsorted(np.cumsum(share), middle)) for share in shares]
        out.append((end - begin, choice))
    return out

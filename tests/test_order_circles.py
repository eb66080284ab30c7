"""Short circles through all machines, and the bound below which no circle is."""

from itertools import permutations

import numpy as np
import pytest

from stretto.order import kernel_circles


@pytest.mark.parametrize("seed", range(8))
def test_a_circle_is_not_shortened_for_ever_by_what_rounding_leaves(seed):
    # four sites of two machines: exchanges of the machines of a site gain nothing but rounding errors
    rng = np.random.default_rng(seed)
    length = (np.exp(rng.uniform(np.log(0.1), 0, (4, 4))) ** 8).repeat(2, 0).repeat(2, 1)
    length[np.arange(8), np.arange(8) ^ 1] = 1e-9
    length = np.maximum(length, length.T)
    np.fill_diagonal(length, 0)
    near = (length + np.diag(np.full(8, np.inf))).argsort(axis=1, kind="stable")[:, :7]
    order = rng.permutation(8)
    before = length[order, np.roll(order, -1)].sum()
    kernel_circles.shorten(order, length, near)
    assert sorted(order.tolist()) == list(range(8))
    assert length[order, np.roll(order, -1)].sum() <= before


def test_a_shortest_circle_is_bounded_from_below():
    place = np.random.default_rng(0).uniform(0, 1, (7, 2))
    length = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2))
    shortest = min(sum(length[a, b] for a, b in zip(o, (*o[1:], o[0]))) for o in permutations(range(7)))
    assert 0.97 * shortest <= kernel_circles.shortest_circle_bound(length) <= shortest * (1 + 1e-12)

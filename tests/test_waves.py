"""Steps of an algorithm in waves: by what came first from the phase before, or goes first to the next one."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.schedule.algorithms import lower
from stretto.schedule.grid_steps import on_grid
from stretto.schedule.waves import Waves
from stretto.topologies import load_topology

SERVERS, PLACES = 4, 2
NET = load_topology(f"star:{SERVERS * PLACES}")


def waves(kind: str, lines=("ring", "rabenseifner"), inside_first=False) -> Waves:
    """Of a grid with a server in each row, or in each column."""
    rank = np.arange(SERVERS * PLACES).reshape(SERVERS, PLACES)
    rank, lines = (rank.T, lines[::-1]) if inside_first else (rank, lines)
    phased = on_grid(kind, rank.shape, rank.ravel(), 1, lines)
    lowered = lower(phased.algorithm, Workload((make_collective(kind, NET, 64_000),)))
    return Waves.of(lowered, phased.dimension, NET.node_count)


def rows(of: Waves, step: int):
    """wave, server of the sender and server of the block of each transfer of a step."""
    own = np.flatnonzero(of.lowered.group == step)
    sender = np.searchsorted(NET.accelerators, of.lowered.src[own])
    return of.wave[of.jobs.of[own]], sender // PLACES, of.lowered.chunk[own] // PLACES


def test_inside_a_server_blocks_go_by_the_step_that_brought_them_around_the_ring():
    of = waves("allgather")
    wave, server, owner = rows(of, step=SERVERS - 1)
    assert (wave == (server - owner) % SERVERS).all() and of.count == SERVERS


def test_what_is_sent_from_server_to_server_is_one_wave():
    of = waves("allgather")
    assert all((rows(of, step)[0] == 0).all() for step in range(SERVERS - 1))


def test_sums_that_leave_first_are_the_last_wave_as_with_time_reversed():
    gathered, summed = waves("allgather"), waves("reducescatter", inside_first=True)
    last = int(summed.lowered.group.max())
    for step in range(last + 1):
        (forth, *_), (back, *_) = rows(gathered, step), rows(summed, last - step)
        assert sorted(forth) == sorted(back)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_waves_are_joined_to_some_of_about_as_many_blocks(count):
    of = waves("allgather")
    jobs = of.coarser(of.joined(count))
    assert np.bincount(jobs.of).tolist() == [8] * 3 + [32 // count] * count


def test_a_wave_waits_for_the_step_that_brings_it_alone():
    of = waves("allgather")
    jobs = of.coarser(of.joined(SERVERS))
    assert [jobs.depends[job].tolist() for job in range(7)] == [[], [0], [1], [], [0], [1], [2]]


def test_an_allreduce_has_the_waves_of_both_its_halves():
    of = waves("allreduce", inside_first=True)
    inside = (of.step == 0) | (of.step == of.step.max())
    assert sorted(of.wave[inside]) == sorted([*range(SERVERS), *range(SERVERS)])
    assert (of.wave[~inside] == 0).all()

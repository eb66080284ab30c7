"""Samples of links: their telemetry objects, and which of them come in."""

from __future__ import annotations

import math

import pytest

from stretto.formats.telemetry import parse_telemetry
from stretto.service.telemetry.intake import AHEAD_S, OLDEST_S, Intake, links_of
from stretto.service.telemetry.samples import CAPACITY, CARRIED, LATENCY, Sample, telemetry_objects
from stretto.topologies import load_topology

NOW = 1_795_447_321.5


@pytest.fixture
def kept():
    return []


@pytest.fixture
def intake(kept):
    return Intake({("a", "b"): 100.0, ("b", "a"): 100.0}, kept.extend, now=lambda: NOW)


def sample(rate=50.0, at_s=NOW, kind=CARRIED, src="a", dst="b"):
    return Sample(src, dst, kind, rate, at_s)


def test_samples_become_telemetry_objects_one_for_each_moment():
    a, b = load_topology("line:2").names
    samples = [
        Sample(a, b, CARRIED, 0.0, NOW + 1),
        Sample(a, b, CAPACITY, 4e9, NOW),
        Sample(b, a, CAPACITY, 0.0, NOW),
    ]
    assert telemetry_objects(samples) == [
        {
            "time": "2026-11-23T15:22:01.500000+00:00",
            "links": [{"src": a, "dst": b, "bandwidth": 4e9}, {"src": b, "dst": a, "down": True}],
        },
        {"time": "2026-11-23T15:22:02.500000+00:00", "links": [{"src": a, "dst": b, "carried": 0.0}]},
    ]


def test_telemetry_objects_of_samples_are_read_as_what_the_samples_say():
    topology = load_topology("line:2")
    a, b = topology.names
    (only,) = telemetry_objects([Sample(a, b, CARRIED, 0.25, NOW), Sample(b, a, CAPACITY, 4e9, NOW)])
    news = parse_telemetry(only, topology, 0, "the request")
    assert (news.carried, news.bandwidth, news.links_down) == ({0: 0.25}, {1: 4e9}, frozenset())


def test_sound_samples_are_kept_in_the_order_of_their_times(intake, kept):
    older, newer = sample(at_s=NOW - 1), sample(at_s=NOW)
    assert intake.take([newer, older]) == (2, {})
    assert kept == [older, newer]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (sample(src="c"), "unknown link"),
        (sample(-1.0), "absurd"),
        (sample(1001.0), "absurd"),
        (sample(61.0, kind=LATENCY), "absurd"),
        (sample(math.nan), "absurd"),
        (sample(at_s=math.nan), "from the future"),
        (sample(at_s=NOW + AHEAD_S + 1), "from the future"),
        (sample(at_s=NOW - OLDEST_S - 1), "late"),
    ],
)
def test_a_wrong_sample_is_refused_with_its_reason_and_the_others_are_kept(intake, kept, wrong, reason):
    assert intake.take([wrong, sample()]) == (1, {reason: 1})
    assert kept == [sample()]
    assert intake.refused == {reason: 1}


def test_what_comes_late_or_twice_is_refused_for_its_own_link_and_kind_alone(intake, kept):
    intake.take([sample()])
    assert intake.take([sample()]).refused == {"doubled": 1}
    assert intake.take([sample(at_s=NOW - 1)]).refused == {"late": 1}
    others = [sample(at_s=NOW - 1, kind=CAPACITY), sample(at_s=NOW - 1, src="b", dst="a")]
    assert intake.take(others).kept == 2
    assert kept == [sample(), *others]


def test_a_sample_twice_in_one_request_is_kept_once(intake, kept):
    assert intake.take([sample(), sample()]) == (1, {"doubled": 1})


def test_what_was_kept_before_a_restart_is_not_taken_again(kept):
    latest = {(("a", "b"), CARRIED): NOW}
    assert Intake({("a", "b"): 100.0}, kept.extend, latest, lambda: NOW).take([sample()]).refused == {"doubled": 1}


def test_samples_that_could_not_be_kept_can_be_sent_again():
    failures, kept = [OSError("the disk is full")], []

    def keep(samples):
        if failures:
            raise failures.pop()
        kept.extend(samples)

    intake = Intake({("a", "b"): 100.0}, keep, now=lambda: NOW)
    with pytest.raises(OSError, match="full"):
        intake.take([sample(), sample(-1.0)])
    assert not intake.refused
    assert intake.take([sample()]) == (1, {})
    assert kept == [sample()]


def test_links_have_the_names_of_their_nodes():
    topology = load_topology("line:3?bandwidth=2GB/s")
    a, b, c = topology.names
    assert links_of(topology) == dict.fromkeys([(a, b), (b, a), (b, c), (c, b)], 2e9)

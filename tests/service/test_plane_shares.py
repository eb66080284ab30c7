"""Who has which optical planes of a network: each plane one job, planes by load, and jobs keep what they have."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.service.planes import Applicant, deal

ANY = frozenset(range(4))


def job(name, load=1.0, has=(), may=ANY, keeps=False):
    return Applicant(name, may, load, has, keeps)


@pytest.mark.parametrize(
    ("jobs", "dealt"),
    [
        ([job("a")], {"a": (0, 1, 2, 3)}),
        ([job("a"), job("b")], {"a": (0, 2), "b": (1, 3)}),
        ([job("a", 9.0), job("b")], {"a": (0, 2, 3), "b": (1,)}),
        ([job(name) for name in "abcde"], {"a": (0,), "b": (1,), "c": (2,), "d": (3,)}),  # e came last
        ([job("a", has=(2, 3)), job("b")], {"a": (2, 3), "b": (0, 1)}),
        ([job("a", has=(0, 1, 2, 3)), job("b")], {"a": (0, 2), "b": (1, 3)}),
        ([job("a", has=(0, 1, 2), keeps=True), job("b", 99.0)], {"a": (0, 1, 2), "b": (3,)}),
        ([job("a", has=(0, 1, 2, 3), keeps=True), job("b")], {"a": (0, 1, 2, 3)}),
        ([job("a"), job("b", may=frozenset({0}))], {"a": (1, 2, 3), "b": (0,)}),  # a makes room
        ([job("a", may=frozenset({0})), job("b", may=frozenset({0}))], {"a": (0,)}),
        ([job("a", may=frozenset())], {"a": (0, 1, 2, 3)}),  # no plane joins all ranks, so it needs all
        ([job("a", may=frozenset()), job("b")], {"a": (0, 1, 2, 3)}),
        ([job("b"), job("a", may=frozenset())], {"b": (0, 1, 2, 3)}),
        ([job("a", may=frozenset()), job("b", has=(0,), keeps=True)], {"b": (0,)}),
        ([job("a", 10.0), job("b", 9.0, may=frozenset({1, 2}))], {"a": (0, 3), "b": (1, 2)}),  # a leaves 2 to b
        ([], {}),
    ],
)
def test_each_plane_has_one_job_and_the_sum_of_load_over_planes_is_least(jobs, dealt):
    assert deal(jobs, 4) == dealt


@st.composite
def applicants(draw):
    planes = st.frozensets(st.integers(0, 4), min_size=1)
    return [
        job(str(i), draw(st.sampled_from((1.0, 2.0, 7.0))), tuple(sorted(draw(planes))), draw(planes))
        for i in range(draw(st.integers(0, 6)))
    ]


@given(applicants())
def test_jobs_that_have_what_they_were_dealt_keep_it(jobs):
    dealt = deal(jobs, 5)
    assert sum(map(len, dealt.values())) == len({plane for planes in dealt.values() for plane in planes})
    assert all(each.may.issuperset(dealt[each.name]) for each in jobs if each.name in dealt)
    then = [replace(each, has=dealt.get(each.name, ())) for each in jobs]
    admitted_first = sorted(then, key=lambda each: each.name not in dealt)
    assert deal(admitted_first, 5) == dealt


@given(applicants())
def test_no_other_way_to_deal_planes_makes_the_sum_of_load_over_planes_less(jobs):
    dealt = deal(jobs, 5)
    served = [each for each in jobs if each.name in dealt]
    found = sum(each.load / len(dealt[each.name]) for each in served)
    ways = product(*([None, *(each for each in served if plane in each.may)] for plane in range(5)))
    for counts in {tuple(way.count(each) for each in served) for way in ways}:
        if all(counts):
            assert found <= sum(each.load / n for each, n in zip(served, counts, strict=True)) + 1e-9


@given(applicants())
def test_no_plane_is_idle_that_a_job_may_have(jobs):
    dealt = deal(jobs, 5)
    taken = {plane for planes in dealt.values() for plane in planes}
    assert not {plane for each in jobs for plane in each.may} - taken

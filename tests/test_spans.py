"""Cutting a range of sizes where one program stops being about as quick as promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest

from stretto.choose.spans import TOLERANCE, Probe, spans


@dataclass(frozen=True)
class Line:
    """A program that takes a fixed time and one for each byte."""

    start_s: float
    byte_s: float
    most_bytes: float = math.inf

    def run_s(self, size_bytes: int) -> float:
        return self.start_s + self.byte_s * size_bytes if size_bytes <= self.most_bytes else math.inf


def cutting(size: int) -> Line:
    """What a planner does that cuts more finely for larger sizes: each part costs a message, and fills links sooner."""
    parts = max(1.0, math.sqrt(size / 1000.0))
    return Line(1e-6 * (1 + parts), 1e-9 * (1 + 1 / parts))


def asked(make, refused=lambda size: False, promise=None):
    """Probes of a planner, and the sizes that were asked for."""
    sizes: list[int] = []

    def probe(size: int) -> Probe:
        sizes.append(size)
        program = make(size)
        promised = (promise or program.run_s)(size)
        return Probe(size, promised, None, "too large") if refused(size) else Probe(size, promised, program)

    return probe, sizes


def test_one_program_serves_all_sizes_where_it_does():
    probe, sizes = asked(lambda size: Line(1e-6, 1e-9))
    (span,) = spans(1000, 10**9, probe)
    assert (span.low, span.high) == (1000, 10**9) and span.made is not None and len(sizes) == 3


def test_programs_change_where_one_is_no_longer_about_as_quick():
    found = spans(1000, 10**10, asked(cutting)[0])
    assert 2 < len(found) < 12
    assert found[0].low == 1000 and found[-1].high == 10**10
    assert all(a.high == b.low for a, b in pairwise(found))
    for span in found:
        for size in (span.low, span.high, math.isqrt(span.low * span.high)):
            assert span.made.program.run_s(size) <= (1 + TOLERANCE) * cutting(size).run_s(size)


def test_sizes_between_ends_are_powers_of_two():
    found = spans(1000, 10**10, asked(cutting)[0])
    assert all(math.log2(span.high).is_integer() for span in found[:-1])


def test_what_a_format_refuses_is_left_out_from_where_the_last_program_is_too_slow():
    probe, _ = asked(cutting, refused=lambda size: size > 100_000)
    *made, last = spans(1000, 10**9, probe)
    assert all(span.made is not None for span in made)
    assert last.made is None and last.broken is None and last.refusal == "too large"
    assert last.low > 100_000
    assert cutting(100_000).run_s(last.low) == pytest.approx(
        (1 + TOLERANCE) * cutting(last.low).run_s(last.low), rel=0.02
    )


def test_a_promise_that_no_program_keeps_is_broken():
    probe, sizes = asked(lambda size: Line(1e-6, 1e-9), promise=lambda size: 0.9e-6 + 0.9e-9 * size)
    (span,) = spans(1000, 10**9, probe)
    assert span.made is None and span.broken.differs(span.broken.program) == pytest.approx(1 / 9, rel=0.01)
    assert len(sizes) == 3


def test_a_program_that_is_quicker_than_promised_keeps_its_promise():
    probe, _ = asked(lambda size: Line(1e-6, 1e-9), promise=lambda size: 2e-6 + 2e-9 * size)
    assert spans(1000, 10**9, probe)[0].made is not None


def test_where_promises_jump_the_better_program_is_taken():
    """From a megabyte on a planner finds another way, quicker by a third: its program serves a little less, too."""
    edge = 1_000_000
    found = spans(1000, 10**9, asked(lambda size: Line(4e-4, 1e-9) if size >= edge else Line(1e-6, 2e-9))[0])
    assert all(span.made is not None for span in found)
    assert edge / 2.5 < found[-1].low <= edge

"""Reports of how long collectives took."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.service.times import parse_times

ONCE = {"number": 0, "calls": 20, "measured_s": 0.012}


def test_a_collective_that_is_reported_twice_is_refused():
    assert parse_times({"version": 3, "collectives": [ONCE]}).collectives == ((0, 20, 0.012),)
    with pytest.raises(InputError, match="collective 0 is there twice"):
        parse_times({"version": 3, "collectives": [ONCE, ONCE]})

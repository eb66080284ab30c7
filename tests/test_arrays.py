"""Arrays of the model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.arrays import places_of


@given(st.lists(st.integers(-3, 3)) | st.lists(st.floats(0, 1)))
def test_the_places_of_values_are_those_that_numpy_says(values):
    array = np.array(values)
    assert places_of(array).tolist() == np.unique(array, return_inverse=True)[1].tolist()


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_places_are_of_one_type(kind):
    assert places_of(np.array([3, 1, 3], dtype=kind)).dtype == np.int64

"""How the loop adds: by code of its own, or by functions of NumPy and PyTorch that it calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .machine import CALLED, NUMBERS
from .records import memory

_CODES = {np.dtype(kind): i + 1 for i, kind in enumerate(NUMBERS)} | {np.dtype(np.uint8): 3, np.dtype(np.uint16): 4}
_CODES |= {np.dtype(np.uint32): 5, np.dtype(np.uint64): 6}
_FUNCTION = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


class Sums:
    """The reductions of one loop.

    Args:
        failed: called when a reduction has raised its first exception.
    Attributes:
        error: that exception.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._failed = failed
        self._made: dict[Any, tuple[Any, int]] = {}

    def of(self, reduce: Callable[..., Any], kind: np.dtype[Any]) -> tuple[int, int]:
        """The code of a reduction, and the address of a function where Python makes it."""
        code = getattr(reduce, "compiled", None) or (_CODES.get(kind) if reduce is np.add else None)
        if code is not None:
            return code, 0
        if (reduce, kind) not in self._made:
            self._made[reduce, kind] = self._callable(reduce, kind)
        return CALLED, self._made[reduce, kind][1]

    def _callable(self, reduce: Callable[..., Any], kind: np.dtype[Any]) -> tuple[Any, int]:
        """A reduction as a function that compiled code can call."""

        def add(a: int, b: int, out: int, count: int) -> None:
            try:
                x, y, z = (memory(place, count // kind.itemsize, kind) for place in (a, b, out))
                reduce(x, y, out=z)
            except BaseException as error:  # compiled code would go on with what is in ``out``
                if self.error is None:
                    self.error = error
                    self._failed()

        function = _FUNCTION(add)
        return function, int(ctypes.cast(function, ctypes.c_void_p).value or 0)

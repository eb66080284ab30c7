"""Hot loops over arrays: one Python source, two speeds.

Every module of this package holds plain functions over NumPy arrays that Numba can compile.
:func:`load` gives such a module as it is, for small work, or compiled (and cached on disk by
Numba) for large. ``STRETTO_KERNELS=python`` or ``compiled`` forces one; the tests run both and
compare.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ..clock import clock, loading
from ..errors import InputError

COMPILE_FROM = 60_000
"""Inner-loop steps from which compiled code pays for loading it (about a second)."""

COMPILE_COLD_FROM = 1_000_000
"""The same where it has not been compiled on this machine yet (about ten seconds)."""

COMPILE_MORE_FROM = 5_000
"""The same where it has, and others have been loaded in this process: it takes some hundredths of a second."""


WORTH_S = 1.0
"""A function that is interpreted for so many seconds of CPU, in small pieces of work, is compiled after all."""


class _Speeds(NamedTuple):
    """A module whose functions are compiled: all of them, or those alone that need not be compiled now."""

    all: ModuleType
    ready: ModuleType


_COMPILED: dict[str, _Speeds] = {}
_INNER: dict[str, ModuleType] = {}
"""By name, the compiled modules as they are called from outside and as they call each other."""


def load(name: str, work: float) -> Any:
    """The kernel module ``name``, compiled if ``work`` steps of its inner loop make that pay.

    What is compiled is used for any work, since it costs nothing more.
    """
    mode = os.environ.get("STRETTO_KERNELS", "auto")
    if mode not in ("auto", "python", "compiled"):
        raise InputError(f"{mode!r} is neither python nor compiled", "STRETTO_KERNELS")
    if mode == "python" or (mode == "auto" and not _pays(name, work)):
        return importlib.import_module(f".{name}", __name__)
    if name not in _COMPILED:
        with loading():
            _COMPILED[name] = _compiled(name)
    return _COMPILED[name].all if mode == "compiled" or work >= COMPILE_COLD_FROM else _COMPILED[name].ready


def _pays(name: str, work: float) -> bool:
    """Whether compiled code, with what it takes to have it, is the faster way."""
    least = COMPILE_MORE_FROM if _COMPILED else COMPILE_FROM
    return name in _COMPILED or work >= COMPILE_COLD_FROM or (work >= least and _is_cached(name))


def _is_cached(name: str) -> bool:
    """Whether Numba has compiled some of this module before and kept it where it does by default."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    place = Path(folder) if folder else Path(__file__).with_name("__pycache__")
    return place.exists() and _keeps(name, place, place.stat().st_mtime_ns)


@cache
def _keeps(name: str, place: Path, changed_ns: int) -> bool:
    """Whether a folder that was changed then keeps compiled code of this module."""
    return next(place.rglob(f"{name}.*.nbi"), None) is not None


def _compiled(name: str) -> _Speeds:
    """What others call of a kernel module, compiled, announced."""
    inner = _inner(name)
    found = _Speeds(ModuleType(inner.__name__), ModuleType(inner.__name__))
    for key, value in vars(inner).items():
        if getattr(getattr(value, "py_func", None), "__module__", None) == inner.__name__:
            announced = _announced(value, name)
            setattr(found.all, key, announced)
            setattr(found.ready, key, _if_ready(value, announced, name))
    return found


def _inner(name: str) -> ModuleType:
    """A second copy of the module with every function replaced by its compiled form, those of other kernels, too."""
    import numba

    if name in _INNER:
        return _INNER[name]
    path = Path(__file__).with_name(f"{name}.py")
    full_name = f"{__name__}.compiled_{name}"
    spec = importlib.util.spec_from_file_location(full_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    spec.loader.exec_module(module)
    functions = {key: value for key, value in vars(module).items() if isinstance(value, FunctionType)}
    used = {value.__module__.rpartition(".")[2] for value in functions.values() if value.__module__ != full_name}
    stamps = tuple(stamp for other in sorted(used) for stamp in _stamps(other))
    for key, value in functions.items():
        if value.__module__ != full_name:
            setattr(module, key, getattr(_inner(value.__module__.rpartition(".")[2]), key))
            continue
        compiled = numba.njit(cache=True, nogil=True)(value)
        file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if stamps and file is not None:
            # Numba sees changes of a function's own file, but not of those that it calls
            file._source_stamp = file._source_stamp, stamps
        setattr(module, key, compiled)
    _INNER[name] = module
    return module


def _if_ready(compiled: Any, announced: Any, name: str) -> Any:
    """``compiled`` once that is compiled, or kept, or would have been worth it; the interpreted function until then."""
    interpreted = getattr(importlib.import_module(f".{name}", __name__), compiled.__name__)
    kept, spent_s = _cache_is_warm(compiled), 0.0

    def call(*arguments: Any) -> Any:
        nonlocal spent_s
        if kept or compiled.signatures or spent_s > WORTH_S:
            return announced(*arguments)
        began_s = clock()
        found = interpreted(*arguments)
        spent_s += clock() - began_s
        return found

    return call


def _stamps(name: str) -> list[tuple[str, float, int]]:
    """When a kernel's file was last changed, and its size; and so of those that it imports."""
    file = Path(__file__).with_name(f"{name}.py").stat()
    module = importlib.import_module(f".{name}", __name__)
    others = {
        value.__module__.rpartition(".")[2]
        for value in vars(module).values()
        if isinstance(value, FunctionType) and value.__module__ != module.__name__
    }
    return [(name, file.st_mtime, file.st_size), *(stamp for other in sorted(others) for stamp in _stamps(other))]


def _announced(compiled: Any, name: str) -> Any:
    """``compiled``, telling on stderr when its first call on this machine compiles it."""

    import numba

    told = False

    def call(*arguments: Any) -> Any:
        nonlocal told
        if not told and not compiled.signatures:
            with loading():
                if not _cache_is_warm(compiled):
                    print(f"compiling kernel {name}, once on this machine ...", file=sys.stderr, flush=True)
                compiled.compile(tuple(map(numba.typeof, arguments)))
        told = True
        return compiled(*arguments)

    return call


def _cache_is_warm(compiled: Any) -> bool:
    """Whether Numba keeps compiled code of this function as it is now."""
    kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    return bool(getattr(kept, "_load_index", dict)())

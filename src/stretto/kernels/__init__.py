"""Hot loops over arrays: one Python source, two speeds.

A kernel is a plain function over NumPy arrays, typed, that Numba can compile. It lives in a module that holds
kernels alone: here where several parts of stretto use it, else beside the one part that does, in a file
``kernel_*.py``. :func:`at_speed` gives the function as it is for small work, and compiled (Numba keeps the result on
disk) for large work. ``STRETTO_KERNELS=python`` or ``compiled`` forces one speed; the tests run both and compare.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from time import thread_time
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from ..model.errors import InputError
from .loading import LOADING, compile_for, counted, kept, load, numba_without_scipy, one_process, types_of

__all__ = ["LOADING", "announce_nothing", "at_speed", "dispatcher", "interpreted", "keeps", "ready"]

COMPILE_FROM = 300_000
"""Steps of inner loops, those of all kernels together, from which a process loads Numba and compiled code.

That takes 0.3 to 0.4 s of CPU, and an interpreted step 0.1 to 1 microseconds. By then interpreting has taken about as
long. Most processes that get so far go much farther.
"""

COMPILE_MORE_FROM = 5_000
"""The same for the steps of one module, once Numba is loaded: 5 to 20 ms of CPU load the compiled code of a module."""

COMPILE_COLD_FROM = 1_000_000
"""The same for a module that was never compiled on this machine: compiling takes about ten seconds."""

WORTH_S = 1.0
"""CPU seconds after which a function that many small calls interpret is compiled after all."""


Kernel = TypeVar("Kernel", bound=Callable[..., Any])


_COMPILED: dict[str, dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {}
"""By full name of a kernel module and name of a function: the function compiled, where a call compiles it if that was
never done; and the same, but interpreted as long as compiling would have to come first."""

_ASKED: dict[str, float] = {}
"""By full name of a kernel module: the steps for which this process has asked so far."""

_TOLD: set[str] = set()
"""Kernel modules of which somebody has been told that they are compiled: each has several functions."""

_silent = False
"""Whether this process says nothing of what it compiles."""

_INTERPRETED: ContextVar[bool] = ContextVar("interpreted", default=False)
"""Whether this thread is inside :func:`interpreted`."""

_INNER: dict[str, ModuleType] = {}
"""By full name of a kernel module: the copy in which compiled functions call each other."""


def at_speed(kernel: Kernel, work: float) -> Kernel:
    """The function ``kernel``, compiled if ``work`` steps of its inner loop make that pay, with those asked for before.

    Once its module is compiled, the compiled function serves work of any size, since it costs nothing more. As steps of
    earlier calls count, a process loses at most about as much by interpreting as loading or compiling would have cost
    it. A step is counted as what takes an interpreter less than a microsecond.

    Raises:
        InputError: ``STRETTO_KERNELS`` is set to something else than auto, python or compiled.
    """
    if _INTERPRETED.get():
        return kernel
    mode = os.environ.get("STRETTO_KERNELS", "auto")
    if mode not in ("auto", "python", "compiled"):
        raise InputError(f"{mode!r} is neither python nor compiled", "STRETTO_KERNELS")
    module = kernel.__module__
    asked = _ASKED[module] = _ASKED.get(module, 0.0) + work
    if mode == "python" or (mode == "auto" and not _pays(module, asked)):
        return kernel
    if module not in _COMPILED:
        with counted():
            _COMPILED[module] = _compiled(module)
    compiled, if_ready = _COMPILED[module][kernel.__name__]
    return compiled if mode == "compiled" or asked >= COMPILE_COLD_FROM else if_ready  # type: ignore[return-value]


def ready(kernel: Callable[..., Any], *arguments: Any) -> bool:
    """Whether compiled code of a kernel for such arguments is at hand, so that calling it would compile nothing."""
    with counted():
        compiled = getattr(_inner(kernel.__module__), kernel.__name__)
        types = types_of(arguments)
        return types in compiled.overloads or load(compiled, types)


def dispatcher(kernel: Callable[..., Any]) -> Any:
    """Numba's object of a kernel, which has the code that was loaded or compiled."""
    return getattr(_inner(kernel.__module__), kernel.__name__)


def keeps(kernel: Callable[..., Any]) -> bool:
    """Whether compiled code of a kernel would be kept for later processes: not where nobody may write."""
    try:
        with TemporaryFile(dir=getattr(_inner(kernel.__module__), kernel.__name__)._cache.cache_path):
            return True
    except (OSError, RuntimeError):  # RuntimeError: Numba finds no folder at all
        return False


@contextmanager
def interpreted() -> Iterator[None]:
    """Nothing in here is compiled, and Numba is not loaded, whatever the work.

    For counted, small work in a process that has no other use for Numba, which takes a second of CPU to load.
    """
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def announce_nothing() -> None:
    """Let this process say nothing of what it compiles: for one that compiles all kernels, as another process said."""
    global _silent
    _silent = True


def _pays(module: str, asked: float) -> bool:
    """Whether compiled code, loading included, is the faster way for the steps that this process asks of a module."""
    if module in _COMPILED or asked >= COMPILE_COLD_FROM:
        return True
    enough = asked >= COMPILE_MORE_FROM and (bool(_COMPILED) or sum(_ASKED.values()) >= COMPILE_FROM)
    return enough and _is_cached(module)


def _is_cached(module: str) -> bool:
    """Whether Numba has compiled some function of this module before and kept it where it does by default."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    place = Path(folder) if folder else _file(module).with_name("__pycache__")
    return place.exists() and _keeps(_file(module).stem, place, place.stat().st_mtime_ns)


@cache
def _keeps(stem: str, place: Path, changed_ns: int) -> bool:
    """Whether a folder, last changed at ``changed_ns``, keeps compiled code of the file ``stem``."""
    return next(place.rglob(f"{stem}.*.nbi"), None) is not None


def _file(module: str) -> Path:
    return Path(str(sys.modules[module].__file__))


def _compiled(module: str) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """The compiled functions of a kernel module, each announcing its first compilation."""
    inner, speeds = _inner(module), {}
    for name, value in vars(inner).items():
        if getattr(getattr(value, "py_func", None), "__module__", None) == inner.__name__:
            announced = _announced(value, module)
            speeds[name] = announced, _if_ready(value, announced, getattr(sys.modules[module], name))
    return speeds


def _inner(module: str) -> ModuleType:
    """A second copy of the module in which every function is compiled, those that it imports from kernels too."""
    if module in _INNER:
        return _INNER[module]
    numba = numba_without_scipy()
    package, _, name = module.rpartition(".")
    full_name = f"{package}.compiled_{name}"
    spec = importlib.util.spec_from_file_location(full_name, _file(module))
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = copy
    spec.loader.exec_module(copy)
    functions = {name: value for name, value in vars(copy).items() if _is_kernel(value)}
    stamps = tuple(stamp for other in _imported_by(copy) for stamp in _stamps(other))
    for name, value in functions.items():
        if value.__module__ != full_name:
            setattr(copy, name, getattr(_inner(value.__module__), name))
            continue
        setattr(copy, name, kept(numba.njit(nogil=True)(value), stamps))
    _INNER[module] = copy
    return copy


def _is_kernel(value: object) -> bool:
    """Whether a name of a kernel module is a kernel; ``typing.NamedTuple`` is a function, too."""
    return isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in sys.stdlib_module_names


def _if_ready(compiled: Any, announced: Callable[..., Any], interpreted: Callable[..., Any]) -> Callable[..., Any]:
    """``compiled`` once it is compiled, or kept on disk, or worth it; the interpreted function until then."""
    looked, spent_s = False, 0.0

    def call(*arguments: Any) -> Any:
        nonlocal looked, spent_s
        if not looked and not compiled.signatures:
            with counted():
                load(compiled, types_of(arguments))
        looked = True
        if compiled.signatures or spent_s > WORTH_S:
            return announced(*arguments)
        began_s = thread_time()
        result = interpreted(*arguments)
        spent_s += thread_time() - began_s
        return result

    return call


def _stamps(module: str) -> list[tuple[str, bytes]]:
    """What a kernel's file holds, as a digest; and the same of the kernel files that it imports."""
    digest, imported = sha256(_file(module).read_bytes()).digest(), _imported_by(sys.modules[module])
    return [(module, digest), *(stamp for other in imported for stamp in _stamps(other))]


def _imported_by(module: ModuleType) -> list[str]:
    """The modules whose kernels and named tuples a kernel module imports."""
    imported = {v.__module__ for v in vars(module).values() if _is_kernel(v) or hasattr(v, "_fields")}
    return sorted(imported - {module.__name__})


def _announced(compiled: Any, module: str) -> Callable[..., Any]:
    """``compiled``, saying on stderr when its first call on this machine compiles it."""
    told = False

    def call(*arguments: Any) -> Any:
        nonlocal told
        if not told and not compiled.signatures:
            with counted(), one_process(compiled):
                types = types_of(arguments)
                if not load(compiled, types):
                    if module not in _TOLD and not _silent:
                        # with the function: other processes and later commands may compile others of the module
                        name = f"{module.rpartition('.')[2].removeprefix('kernel_')}.{compiled.__name__}"
                        print(f"compiling kernel {name}, once on this machine ...", file=sys.stderr, flush=True)
                    _TOLD.add(module)
                    compile_for(compiled, types)
        told = True
        return compiled(*arguments)

    return call

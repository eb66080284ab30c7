"""Hot loops over arrays: one Python source, two speeds.

A kernel is a plain function over NumPy arrays, typed, that Numba can compile. It lives in a module that holds
kernels alone: here where several parts of stretto use it, else beside the one part that does, in a file
``kernel_*.py``. :func:`at_speed` gives the function as it is for small work, and compiled (Numba keeps the result on
disk) for large work. ``STRETTO_KERNELS=python`` or ``compiled`` forces one speed; the tests run both and compare.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter, process_time, thread_time
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from ..model.errors import InputError

COMPILE_FROM = 60_000
"""Steps of a kernel's inner loop from which loading compiled code (about a second) is quicker than interpreting."""

COMPILE_COLD_FROM = 1_000_000
"""The same for a module that was never compiled on this machine (compiling takes about ten seconds); and for many
calls that each ask for less, together."""

COMPILE_MORE_FROM = 5_000
"""The same once this process has loaded Numba for another kernel: loading one more takes hundredths of a second."""

WORTH_S = 1.0
"""CPU seconds after which a function that many small calls interpret is compiled after all."""


@dataclass
class Loading:
    """Seconds that this process has spent on loading and compiling kernels, by the wall clock and of CPU."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


LOADING = Loading()

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
    earlier calls count, a process loses at most about as much by interpreting as compiling would have cost it.

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
    if mode == "python" or (mode == "auto" and not _pays(module, work, asked)):
        return kernel
    if module not in _COMPILED:
        with _counted():
            _COMPILED[module] = _compiled(module)
    compiled, if_ready = _COMPILED[module][kernel.__name__]
    return compiled if mode == "compiled" or asked >= COMPILE_COLD_FROM else if_ready  # type: ignore[return-value]


def ready(kernel: Callable[..., Any], *arguments: Any) -> bool:
    """Whether compiled code of a kernel for such arguments is at hand, so that calling it would compile nothing."""
    with _counted():
        compiled = getattr(_inner(kernel.__module__), kernel.__name__)
        return _types(arguments) in compiled.overloads or _load(compiled, arguments)


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


def _pays(module: str, work: float, asked: float) -> bool:
    """Whether compiled code, loading included, is the faster way for ``work`` steps, or for all that were asked for."""
    least = COMPILE_MORE_FROM if _COMPILED else COMPILE_FROM
    return module in _COMPILED or asked >= COMPILE_COLD_FROM or (work >= least and _is_cached(module))


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
    numba = _numba()
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
        compiled = _kept(numba.njit(nogil=True)(value))
        file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if file is not None:
            file._load_index = partial(_index_of, file._load_index)
            file._save_index = partial(_write_index, file, file._save_index)
        if stamps and file is not None:
            # Numba notices changes of a function's own file, but not of the files of functions that it calls
            file._source_stamp = file._source_stamp, stamps
        setattr(copy, name, compiled)
    _INNER[module] = copy
    return copy


@cache
def _numba() -> Any:
    """Numba, loaded without SciPy's linear algebra, which takes half as long again.

    No kernel needs that. Other users of Numba in this process still get it: when they compile a call of it.
    """
    import numba

    blas = "scipy.linalg.cython_blas"
    if blas not in sys.modules:
        sys.modules[blas] = None  # type: ignore[assignment]
        try:
            importlib.import_module("numba.np.arraymath")
        finally:
            del sys.modules[blas]
    return numba


def _kept(compiled: Any) -> Any:
    """A function of Numba whose machine code is kept; where nobody may write, the code beside the source is read."""
    try:
        compiled.enable_caching()
    except RuntimeError:  # Numba finds no folder to write to: a service without a home, where root has installed
        compiled._cache = _code_beside(compiled.py_func)
    return compiled


def _code_beside(function: Callable[..., Any]) -> Any:
    """Numba's cache of a function in the folder beside its source, as far as it has been filled; nothing is added."""
    from numba.core import caching

    class Beside(caching.InTreeCacheLocator):  # type: ignore[misc]
        def ensure_cache_path(self) -> None:
            pass

    class Code(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = [Beside]  # noqa: RUF012 (as in Numba)

    class Cache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Code

        def save_overload(self, sig: Any, data: Any) -> None:
            pass

    return Cache(function)  # type: ignore[no-untyped-call]


def _index_of(load: Callable[[], dict[Any, str]]) -> dict[Any, str]:
    """What ``load`` finds of compiled code on disk; nothing where that names a class that no longer exists.

    Numba looks at whether the code is stale only after it has read the types of its arguments, named tuples among them.
    """
    try:
        return load()
    except (AttributeError, ImportError):
        return {}


def _write_index(file: Any, save: Callable[[dict[Any, str]], None], index: dict[Any, str]) -> None:
    """Write the index of kept code; Numba writes the code that it names last after it, and calls it by number.

    Code of an older source may still have that number. Who reads the new index would run it, before it is replaced.
    """
    for name in list(index.values())[-1:]:
        with suppress(FileNotFoundError):
            os.unlink(file._data_path(name))
    save(index)


def _is_kernel(value: object) -> bool:
    """Whether a name of a kernel module is a kernel; ``typing.NamedTuple`` is a function, too."""
    return isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in sys.stdlib_module_names


def _if_ready(compiled: Any, announced: Callable[..., Any], interpreted: Callable[..., Any]) -> Callable[..., Any]:
    """``compiled`` once it is compiled, or kept on disk, or worth it; the interpreted function until then."""
    looked, spent_s = False, 0.0

    def call(*arguments: Any) -> Any:
        nonlocal looked, spent_s
        if not looked and not compiled.signatures:
            with _counted():
                _load(compiled, arguments)
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
            with _counted(), _one_process(compiled):
                if not _load(compiled, arguments):
                    if module not in _TOLD and not _silent:
                        # with the function: other processes and later commands may compile others of the module
                        name = f"{module.rpartition('.')[2].removeprefix('kernel_')}.{compiled.__name__}"
                        print(f"compiling kernel {name}, once on this machine ...", file=sys.stderr, flush=True)
                    _TOLD.add(module)
                    compiled.compile(_types(arguments))
        told = True
        return compiled(*arguments)

    return call


def _types(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    typeof = _numba().typeof
    return tuple(map(typeof, arguments))


def _load(compiled: Any, arguments: tuple[Any, ...]) -> bool:
    """Load the machine code that Numba keeps of this function for such arguments; whether there is any."""
    try:
        return _load_machine_code(compiled, arguments)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError):  # a Numba with other inner parts
        kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if not getattr(kept, "_load_index", dict)():
            return False
        compiled.compile(_types(arguments))
        return True


def _load_machine_code(compiled: Any, arguments: tuple[Any, ...]) -> bool:
    """:func:`_load` by the inner parts of Numba, as they are in version 0.68.

    These are the steps of Numba's ``Dispatcher.compile`` for kept code, without those that only compiling needs: they
    read the types of all functions that Numba knows, and the LLVM code from which the machine code was made, and take
    three times as long as the rest. A caller that is compiled later still finds the LLVM code.
    """
    from llvmlite.binding import parse_assembly, parse_bitcode
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.runtime.nrt import rtsys

    cache, context = compiled._cache, compiled.targetctx
    with global_compiler_lock:
        rtsys.initialize(context)
        kept = cache._cache_file.load(cache._index_key(_types(arguments), context.codegen()))
        if kept is None:
            return False
        (name, kind, (machine_code, llvm_code)), described, *more = kept
        codegen, nothing = context.codegen(), parse_assembly("").as_bitcode()
        # Numba would find this name in the LLVM code
        codegen._engine._defined_symbols.add(described.llvm_cpython_wrapper_name)
        result = cache._impl.rebuild(context, ((name, kind, (machine_code, nothing)), described, *more))
        result.library._get_module_for_linking = partial(parse_bitcode, llvm_code)
        context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        compiled.add_overload(result)
    return True


@contextmanager
def _counted() -> Iterator[None]:
    """Add what is done here to ``LOADING``."""
    wall, cpu = perf_counter(), process_time()
    try:
        yield
    finally:
        LOADING.wall_s += perf_counter() - wall
        LOADING.cpu_s += process_time() - cpu


@contextmanager
def _one_process(compiled: Any) -> Iterator[None]:
    """Let one process at a time compile this function; those that wait then find its code on disk."""
    folder: Any = getattr(getattr(compiled, "_cache", None), "cache_path", None)
    function = compiled.py_func
    with ExitStack() as opened:
        # where nothing can be kept or locked, each process compiles for itself
        with suppress(OSError, TypeError):
            os.makedirs(folder, exist_ok=True)
            file = opened.enter_context(open(f"{folder}/{function.__module__}.{function.__name__}.lock", "w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

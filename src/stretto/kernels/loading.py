"""Compiled code of functions that Numba keeps on disk, and how it is loaded quickly; what that costs is counted."""

from __future__ import annotations

import fcntl
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter, process_time
from typing import Any


@dataclass
class Loading:
    """Seconds that this process has spent on loading and compiling kernels, by the wall clock and of CPU."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


LOADING = Loading()

_COUNTING: ContextVar[bool] = ContextVar("counting", default=False)
"""Whether what this thread does is being added to ``LOADING``."""


@contextmanager
def counted() -> Iterator[None]:
    """Add what is done here to ``LOADING``, once where loading one kernel loads another."""
    if _COUNTING.get():
        yield
        return
    token = _COUNTING.set(True)
    wall, cpu = perf_counter(), process_time()
    try:
        yield
    finally:
        LOADING.wall_s += perf_counter() - wall
        LOADING.cpu_s += process_time() - cpu
        _COUNTING.reset(token)


@cache
def numba_without_scipy() -> Any:
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


def kept(compiled: Any, stamps: tuple[Any, ...] = ()) -> Any:
    """A function of Numba whose machine code is kept; where nobody may write, the code beside the source is read.

    Args:
        stamps: what kept code is stale without, besides the source of the function.
    """
    try:
        compiled.enable_caching()
    except RuntimeError:  # Numba finds no folder to write to: a service without a home, where root has installed
        compiled._cache = _code_beside(compiled.py_func)
    compiled.compile = partial(_load_or_compile, compiled)
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None:
        file._load_index = partial(_index_of, file._load_index)
        file._save_index = partial(_write_index, file, file._save_index)
    if stamps and file is not None:
        # Numba notices changes of a function's own file, but not of the files of functions that it calls
        file._source_stamp = file._source_stamp, stamps
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


def types_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    typeof = numba_without_scipy().typeof
    return tuple(map(typeof, arguments))


def _load_or_compile(compiled: Any, types: tuple[Any, ...]) -> Any:
    """What Numba asks for when a function is called with arguments of other types than before; it would load slowly."""
    with counted():
        known = types in compiled.overloads or load(compiled, types)
        return compiled.overloads[types].entry_point if known else compile_for(compiled, types)


def compile_for(compiled: Any, types: tuple[Any, ...]) -> Any:
    """Numba's own way to load or compile a function; its entry point."""
    return type(compiled).compile(compiled, types)


def load(compiled: Any, types: tuple[Any, ...]) -> bool:
    """Load the machine code that Numba keeps of this function for arguments of these types; whether there is any."""
    try:
        return _load_machine_code(compiled, types)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError):  # a Numba with other inner parts
        file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if not getattr(file, "_load_index", dict)():
            return False
        compile_for(compiled, types)
        return True


def _load_machine_code(compiled: Any, types: tuple[Any, ...]) -> bool:
    """:func:`load` by the inner parts of Numba, as they are in version 0.68.

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
        found = cache._cache_file.load(cache._index_key(types, context.codegen()))
        if found is None:
            return False
        (name, kind, (machine_code, llvm_code)), described, *more = found
        codegen, nothing = context.codegen(), parse_assembly("").as_bitcode()
        # Numba would find this name in the LLVM code
        codegen._engine._defined_symbols.add(described.llvm_cpython_wrapper_name)
        result = cache._impl.rebuild(context, ((name, kind, (machine_code, nothing)), described, *more))
        result.library._get_module_for_linking = partial(parse_bitcode, llvm_code)
        context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        compiled.add_overload(result)
    return True


@contextmanager
def one_process(compiled: Any) -> Iterator[None]:
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

"""The machine code of the loop in a file of its own, so that a process loads it without Numba.

Numba takes 0.15 s of CPU to load, in each of the ranks that share a machine; this takes 0.03 s. The file has the object
that Numba made, and what it must fit: the source, the CPU and the version of LLVM's binding. It lies where Numba keeps
its own code. What does not fit counts as missing, and Numba's own way is taken.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import kernel_engine

Serve = Callable[[int], int]
"""The loop: given the address of its record, it serves until it is told to stop or a group needs Python."""

_MAGIC = b"stretto-loop-1"
_NATIVE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p, ctypes.c_int64)
_HELPERS = ("numba_", "NRT_")
"""What names of Numba's own functions begin with. They are used where Python calls compiled code, which it does not do
here, and where an exception is raised, which the loop does not do."""
_LOADED: list[Serve] = []
"""The loop, once it is loaded."""


def load() -> Serve | None:
    """The loop, loaded from its file; None if there is none that fits."""
    if _LOADED:
        return _LOADED[0]
    try:
        from llvmlite import binding

        content = _own(_path(binding))
    except (OSError, ImportError):
        return None
    magic, _, rest = content.partition(b"\n")
    head, _, code = rest.partition(b"\n")
    digest, _, text = head.partition(b" ")
    if magic != _MAGIC or digest.decode(errors="replace") != _digest(text + code):
        return None
    described = json.loads(text)
    if described["fits"] != _fits(binding):
        return None
    serve = _linked(binding, described, code)
    if serve is not None:
        _LOADED.append(serve)
    return serve


def _own(path: Path) -> bytes:
    """The content of a file that this user or root wrote, and nobody else may write; PermissionError if not."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
            raise PermissionError(f"{path} may be another user's")
        return file.read()


def keep(compiled: Any) -> None:
    """Write the file, for later processes.

    Args:
        compiled: Numba's object of the loop, whose code Numba keeps, too.
    """
    from llvmlite import binding

    with suppress(AttributeError, IndexError, KeyError, OSError, TypeError, ValueError, struct.error):
        # by the inner parts of Numba 0.68; where those of another version differ, nothing is kept
        cache, (arguments,) = compiled._cache, compiled.signatures
        kept = cache._cache_file.load(cache._index_key(arguments, compiled.targetctx.codegen()))
        (_, _, (code, _)), function, *_ = kept
        described = {"fits": _fits(binding), "entry": function.llvm_func_name, "needs": needed(code)}
        text = json.dumps(described).encode()
        path = _path(binding)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(b"\n".join((_MAGIC, _digest(text + code).encode() + b" " + text, code)))
                file.flush()
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise


def needed(code: bytes) -> list[str]:
    """The names that an object file (ELF of 64 bits) needs from elsewhere."""
    if code[:5] != b"\x7fELF\x02":
        raise ValueError("not an object file of 64 bits")
    (table,), (size, count) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HH", code, 0x3A)
    # a section: name, type, flags, address, offset, size, link, info, alignment, size of an entry
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + size * i) for i in range(count)]
    names = []
    for section in sections:
        if section[1] != 2:  # not the symbols
            continue
        strings = sections[section[6]][4]
        for at in range(section[4] + section[9], section[4] + section[5], section[9]):
            name, _, _, home = struct.unpack_from("<IBBH", code, at)
            if home == 0:
                names.append(code[strings + name : code.index(b"\0", strings + name)].decode())
    return names


def _linked(binding: Any, described: dict[str, Any], code: bytes) -> Serve | None:
    """The loop of an object file; None if this process does not have all that the file needs."""
    process = ctypes.CDLL(None)
    nowhere = ctypes.cast(process.abort, ctypes.c_void_p).value
    absent = [name for name in described["needs"] if not hasattr(process, name)]
    missing = [name for name in absent if binding.address_of_symbol(name) is None]
    if not all(name.startswith(_HELPERS) for name in missing):
        return None
    for name in missing:
        binding.add_symbol(name, nowhere)  # Numba puts its own there if it is loaded later
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(jit=True)
    linker = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
    linker.add_object_file(binding.object_file.ObjectFileRef.from_data(code))
    linker.finalize_object()
    function = _NATIVE(linker.get_function_address(described["entry"]))

    def serve(record: int) -> int:
        """Without Python's lock, as ``ctypes`` calls functions."""
        result, raised = ctypes.c_int64(), ctypes.c_void_p()
        if function(ctypes.byref(result), ctypes.byref(raised), record) != 0:
            raise RuntimeError("compiled code has raised an exception")
        assert linker is not None, "it owns the code"
        return result.value

    return serve


def _path(binding: Any) -> Path:
    """The file, for this kind of CPU: several may share a folder."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    place = Path(folder) if folder else Path(__file__).with_name("__pycache__")
    return place / f"kernel_engine.{_digest(_cpu(binding).encode())[:12]}.loop"


def _cpu(binding: Any) -> str:
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


def _fits(binding: Any) -> str:
    """What the code was made from, and for."""
    folder = Path(kernel_engine.__file__).parent
    sources = sorted([*folder.glob("kernel_*.py"), folder / "machine.py", folder / "intrinsics.py"])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    return f"{digest} {binding.llvm_version_info} {os.environ.get('NUMBA_CPU_NAME', '')} {_cpu(binding)}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""Readers of an NCCL pack that are not ours: NCCL's graph code and its example tuner plugin, compiled for a CPU.

Both are built from a checkout of NVIDIA/nccl (the folder that NCCL_SOURCE names). The graph code needs CUDA's
headers: those of CUDA_HOME or /usr/local/cuda, or else of the packages nvidia-cuda-runtime, nvidia-cuda-crt and
nvidia-cuda-cccl, which pip downloads into the folder of the build. Nothing of NCCL or CUDA is part of this repository.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = ("xml", "search", "topo", "paths", "connect", "rings", "trees", "tuning")
PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
DEFINES = (
    "NCCL_OS_LINUX", "NVTX_DISABLE", "NCCL_GIN_PROXY_ENABLE=0", "NCCL_GIN_GDAKI_ENABLE=0", "CUDA_MAJOR=13",
    "CUDA_MINOR=0",
)  # fmt: skip
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
KINDS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
IGNORE = -1.0


class Missing(Exception):
    """A reader cannot be built here; the message says why."""


def checkout(folder: Path) -> Path:
    """The sources of NCCL: those that NCCL_SOURCE names, or a clone of the newest release's branch in a folder.

    Raises:
        Missing: there are none, and GitHub cannot be reached.
    """
    given = os.environ.get("NCCL_SOURCE")
    if given:
        if not (Path(given) / "src" / "graph" / "search.cc").is_file():
            raise Missing(f"NCCL_SOURCE={given} is no checkout of NVIDIA/nccl")
        return Path(given)
    place = folder / "nccl"
    command = ["git", "clone", "-q", "--depth", "1", "https://github.com/NVIDIA/nccl", str(place)]
    if not place.exists() and subprocess.run(command, capture_output=True, timeout=600).returncode:
        raise Missing("NCCL_SOURCE names no checkout of NVIDIA/nccl, and GitHub cannot be reached")
    return place


def cuda_headers(folder: Path) -> list[Path]:
    """Folders with CUDA's headers.

    Raises:
        Missing: there are none, and pip cannot download them.
    """
    for root in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        include = Path(root) / "include"
        if root and (include / "cuda_runtime.h").is_file() and (include / "cccl" / "cuda" / "std").is_dir():
            return [include, include / "cccl"]
    place = folder / "cuda"
    if not place.exists():
        place.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place), *PACKAGES]
        if subprocess.run(pip, capture_output=True).returncode:
            shutil.rmtree(place)
            raise Missing(f"no headers of CUDA in CUDA_HOME, and pip cannot download {', '.join(PACKAGES)}")
        for wheel in place.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(place)
    found = next(place.rglob("cuda_runtime.h"), None)
    if found is None:
        raise Missing(f"no cuda_runtime.h in {', '.join(PACKAGES)}")
    return [found.parent, found.parent / "cccl"]


def _compile(compiler: str, *arguments: str) -> None:
    if shutil.which(compiler) is None:
        raise Missing(f"no {compiler} here")
    done = subprocess.run([compiler, "-w", *arguments], capture_output=True, text=True)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        raise Missing(f"{compiler} cannot build NCCL's code: {first}")


def version(source: Path) -> dict[str, str]:
    """Major, minor and patch of a checkout."""
    text = (source / "makefiles" / "version.mk").read_text()
    return {name: re.search(rf"NCCL_{name}\s*:=\s*(\d+)", text)[1] for name in ("MAJOR", "MINOR", "PATCH")}


def build_graph_reader(source: Path, folder: Path) -> Path:
    """NCCL's src/graph with our stubs and driver, as a program; built once in a folder."""
    program = folder / "nccl_graph"
    own = [HERE / "stubs.cc", HERE / "main.cc"]
    if program.exists() and program.stat().st_mtime > max(file.stat().st_mtime for file in own):
        return program
    folder.mkdir(parents=True, exist_ok=True)
    numbers = version(source)
    major, minor, patch = (int(numbers[name]) for name in ("MAJOR", "MINOR", "PATCH"))
    header = (source / "src" / "nccl.h.in").read_text()
    known = {
        "Major": major,
        "Minor": minor,
        "Patch": patch,
        "Suffix": "",
        "Version": major * 10000 + minor * 100 + patch,
    }
    for name, value in known.items():
        header = header.replace(f"${{nccl:{name}}}", str(value))
    (folder / "nccl.h").write_text(header)
    src = source / "src"
    places = [folder, src / "include", src / "include" / "plugin", src, src / "graph", *cuda_headers(folder)]
    flags = ["-std=c++17", "-O1", *(f"-D{d}" for d in DEFINES), *(f"-I{p}" for p in places)]
    objects = []
    for file in (*(src / "graph" / f"{name}.cc" for name in SOURCES), *own):
        objects.append(str(folder / f"{file.stem}.o"))
        _compile("g++", *flags, "-c", str(file), "-o", objects[-1])
    # what the stubs leave out is never called; a call would crash, and the check fail
    _compile("g++", "-no-pie", *objects, "-Wl,--unresolved-symbols=ignore-all", "-ldl", "-lpthread", "-o", str(program))
    return program


def read_graphs(
    program: Path, topology: Path, graph: Path | None, servers: int, sizes: Sequence[int] = ()
) -> dict[str, Any]:
    """What NCCL's graph code makes of the files; without a graph file it searches by itself.

    Raises:
        ValueError: it refuses a file; with what it says.
    """
    words = [str(program), str(topology), str(graph or "-"), str(servers), *map(str, sizes)]
    plain = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_") or k == "NCCL_CROSS_NIC"}
    done = subprocess.run(words, capture_output=True, text=True, env=plain)
    if done.returncode:
        raise ValueError(f"NCCL refuses {topology} and {graph}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


# --- the tuner plugin -------------------------------------------------------------------------------


class _Tuner(ctypes.Structure):
    """ncclTuner_v5_t, with which v6 begins: its last two functions stand in another order."""

    _fields_ = (("name", ctypes.c_char_p), ("init", ctypes.c_void_p), ("get_coll_info", ctypes.c_void_p))


_INIT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p,
    ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_GET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
)  # fmt: skip


def build_tuner(source: Path, folder: Path) -> Path:
    """The example tuner plugin."""
    library = folder / "libnccl-tuner-example.so"
    plugin = source / "plugins" / "tuner" / "example"
    if not (plugin / "plugin.c").is_file():
        raise Missing(f"{source} has no plugins/tuner/example")
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(
            "gcc",
            "-O1",
            "-fPIC",
            "-shared",
            f"-I{plugin}/nccl",
            f"-I{plugin}",
            str(plugin / "plugin.c"),
            "-o",
            str(library),
        )
    return library


class Tuner:
    """The plugin, started for a communicator as NCCL does."""

    def __init__(
        self, library: Path, table: Path, servers: int, ranks: int, symbol: str = "ncclTunerPlugin_v6"
    ) -> None:
        plugin = _Tuner.in_dll(ctypes.CDLL(str(library)), symbol)
        before = os.environ.get("NCCL_TUNER_CONFIG_FILE")
        os.environ["NCCL_TUNER_CONFIG_FILE"] = str(table)
        self.context = ctypes.c_void_p()
        try:
            if _INIT(plugin.init)(ctypes.byref(self.context), 1, ranks, servers, None, None, None):
                raise ValueError(f"the plugin refuses {table}")
        finally:
            del os.environ["NCCL_TUNER_CONFIG_FILE"]
            if before is not None:
                os.environ["NCCL_TUNER_CONFIG_FILE"] = before
        self.get = _GET(plugin.get_coll_info)

    def ask(self, kind: str, size: int, without: Sequence[str] = ()) -> tuple[str, str, int] | None:
        """The algorithm, protocol and channels that it answers; None if it chooses nothing.

        Args:
            without: algorithms that NCCL does not offer.
        """
        costs = ((ctypes.c_float * len(PROTOCOLS)) * len(ALGORITHMS))()
        for a, algorithm in enumerate(ALGORITHMS):
            for p in range(len(PROTOCOLS)):
                costs[a][p] = IGNORE if algorithm in without else 100.0
        channels = ctypes.c_int(0)
        status = self.get(
            self.context, KINDS.index(kind), size, 1, ctypes.cast(costs, ctypes.c_void_p), len(ALGORITHMS),
            len(PROTOCOLS), 0, ctypes.byref(channels),
        )  # fmt: skip
        if status:
            raise ValueError(f"the plugin fails at {kind} of {size} bytes: {status}")
        chosen = [(a, p) for a in range(len(ALGORITHMS)) for p in range(len(PROTOCOLS)) if costs[a][p] == 0]
        if not chosen:
            return None
        ((a, p),) = chosen
        return ALGORITHMS[a], PROTOCOLS[p], channels.value

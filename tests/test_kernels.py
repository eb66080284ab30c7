"""Which speed a kernel runs at."""

from __future__ import annotations

import importlib.util
import operator
import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import stretto
from stretto import kernels
from stretto.cli.compiling import REQUESTS, plan_all
from stretto.kernels import at_speed, loading, matching, paths
from stretto.model.errors import InputError
from stretto.planners.greedy import kernel_translations
from stretto.runtime.native import engine


def said_by(program, folder, *arguments):
    """What a process says that runs ``program`` and keeps compiled kernels in ``folder``."""
    environment = {**os.environ, "STRETTO_KERNELS": "compiled", "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, text=True, capture_output=True)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """As in a new process on a new machine."""
    monkeypatch.setattr(kernels, "_COMPILED", {})
    monkeypatch.setattr(kernels, "_INNER", {})
    monkeypatch.setattr(kernels, "_ASKED", {})
    monkeypatch.setattr(kernels, "_TOLD", set())
    monkeypatch.delenv("STRETTO_KERNELS", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def compiled(work: float) -> bool:
    return at_speed(paths.all_pairs, work) is not paths.all_pairs


def test_small_work_is_interpreted(fresh):
    assert not compiled(1000)


def test_middling_work_is_interpreted_until_it_was_compiled_once(fresh):
    assert not compiled(400_000)
    (fresh / "paths.all_pairs-1.py311.nbi").touch()
    assert compiled(1)


def test_many_calls_that_each_ask_for_little_are_compiled_in_the_end(fresh):
    asked = [compiled(100_000) for _ in range(12)]
    assert asked == [False] * 9 + [True] * 3


def test_numba_is_loaded_once_all_kernels_together_have_interpreted_about_as_long_as_that_takes(fresh):
    for module in ("paths", "matching"):
        (fresh / f"{module}.any-1.py311.nbi").touch()
    interpreted = [at_speed(matching.components, 100_000) is matching.components for _ in range(2)]
    assert interpreted == [True, True]
    assert not compiled(4000)  # 204,000 steps in all
    assert not compiled(900) and not kernels._COMPILED
    assert compiled(100_000)
    assert at_speed(matching.components, 1) is not matching.components


def test_once_numba_is_loaded_a_module_is_loaded_after_little_work(fresh):
    for module in ("paths", "matching"):
        (fresh / f"{module}.any-1.py311.nbi").touch()
    assert compiled(400_000)
    interpreted = [at_speed(matching.components, 2000) is matching.components for _ in range(3)]
    assert interpreted == [True, True, False]


def test_large_work_is_compiled_and_then_all_of_it(fresh):
    assert compiled(10_000_000)
    assert compiled(1)


def test_either_speed_can_be_forced(fresh, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    assert compiled(1)
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    assert not compiled(1e9)
    monkeypatch.setenv("STRETTO_KERNELS", "fast")
    with pytest.raises(InputError, match="neither python nor compiled"):
        at_speed(paths.all_pairs, 1)


def test_small_work_compiles_no_function_that_was_not_compiled_before(fresh, monkeypatch, capfd):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(fresh))
    path = np.array([0, 1, 2]), np.array([0, 1], dtype=np.int32), np.array([1, 0]), np.ones(2)
    starts = np.arange(3), np.arange(2)
    far = at_speed(paths.distances, 10_000_000)(*path, *starts)
    assert "compiling kernel paths.distances, once on this machine" in capfd.readouterr().err
    for made in (kernels._COMPILED, kernels._INNER, kernels._ASKED):  # as in the next process
        made.clear()
    assert at_speed(paths.distances, 400_000)(*path, *starts).tolist() == far.tolist()
    assert at_speed(paths.all_pairs, 1000)(*path).tolist() == far.tolist()
    assert not capfd.readouterr().err
    at_speed(paths.all_pairs, 10_000_000)(*path)
    assert not capfd.readouterr().err  # of this module it was said above


def test_whether_a_kernel_is_ready_is_found_out_without_compiling_it(fresh, monkeypatch, capfd):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(fresh))
    edges = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32), 2
    assert not kernels.ready(matching.components, *edges)
    assert not kernels.ready(matching.components, *edges) and not capfd.readouterr().err
    at_speed(matching.components, 10_000_000)(*edges)
    assert kernels.ready(matching.components, *edges)
    for made in (kernels._COMPILED, kernels._INNER, kernels._ASKED):  # as in the next process
        made.clear()
    assert kernels.ready(matching.components, *edges)
    assert not kernels.ready(matching.components, edges[0].astype(np.int64), *edges[1:])


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    program = (
        "import numpy as np\n"
        "from stretto.kernels import at_speed, matching\n"
        "edges = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32)\n"
        "print(at_speed(matching.components, 1)(*edges, 2))"
    )
    environment = {**os.environ, "STRETTO_KERNELS": "compiled", "NUMBA_CACHE_DIR": str(tmp_path)}
    start = partial(subprocess.Popen, [sys.executable, "-c", program], env=environment, text=True)
    both = [start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [out for out, _ in said] == ["[0 0]\n"] * 2
    assert "".join(err for _, err in said).count("compiling kernel matching.components") == 1


def test_a_process_that_compiles_all_kernels_announces_none_and_counts_requests(tmp_path):
    """Two processes of `stretto warm` compile functions of the same kernels: both said so."""
    program = (
        "import multiprocessing, numpy as np\n"
        "from stretto.cli import compiling\n"
        "from stretto.kernels import at_speed, matching\n"
        "def plan_all(requests, tell):\n"
        "    edges = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32)\n"
        "    tell()\n"
        "    print(at_speed(matching.components, 1)(*edges, 2))\n"
        "compiling.plan_all = plan_all\n"
        "compiling._compile((), begun := multiprocessing.Value('i', 0))\n"
        "print(begun.value)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[0 0]\n1\n", "")
    assert [*tmp_path.rglob("matching.components*.nbi")]


def test_a_kernel_that_is_compiled_later_may_call_one_that_was_kept(tmp_path):
    program = (
        "import sys, numpy as np\n"
        "from stretto.kernels import at_speed, paths\n"
        "path = np.array([0, 1, 2, 2]), np.array([0, 1]), np.array([1, 2]), np.ones(2)\n"
        "each = np.arange(4)\n"
        "if 'distances' in sys.argv:\n"
        "    print(at_speed(paths.distances, 1)(*path, each, each[:-1])[0, 2])\n"
        "if 'all_pairs' in sys.argv:\n"
        "    print(at_speed(paths.all_pairs, 1)(*path)[0, 2])\n"
    )
    said = [
        said_by(program, tmp_path, *called) for called in (["distances"], ["distances", "all_pairs"], ["all_pairs"])
    ]
    assert [process.stdout.split() for process in said] == [["2.0"], ["2.0", "2.0"], ["2.0"]]
    assert [process.stderr.count("compiling") for process in said] == [1, 1, 0]


def test_code_for_other_arguments_is_loaded_as_quickly_and_counted(tmp_path):
    """Numba would load it in its own way, in 0.2 s of CPU."""
    program = (
        "import numpy as np\n"
        "from stretto.kernels import LOADING, at_speed, dispatcher, matching\n"
        "edges = np.array([[0, 1], [1, 2]])\n"
        "print(at_speed(matching.components, 1)(*edges.copy(), 3))\n"
        "before_s = LOADING.cpu_s\n"
        "print(at_speed(matching.components, 1)(*edges.T, 3), LOADING.cpu_s > before_s)\n"
        "print(sum(dispatcher(matching.components).stats.cache_hits.values()))\n"
    )
    said = [said_by(program, tmp_path).stdout.splitlines() for _ in range(2)]
    assert said == [["[0 0 0]", "[0 0 0] True", "0"]] * 2


def test_what_is_kept_of_a_kernel_is_stale_when_one_changes_that_it_calls(monkeypatch):
    stamps = []
    for size in (1, 2):
        monkeypatch.setattr(kernels, "_INNER", {})
        monkeypatch.setattr(kernels, "_stamps", lambda name, size=size: [(name, bytes([size]))])
        module = kernels._inner(kernel_translations.__name__)
        stamps.append(module.match._cache._cache_file._source_stamp)
        assert module.noise.py_func.__module__.endswith("compiled_draws")
    assert stamps[0] != stamps[1]


def test_code_of_an_older_source_is_gone_before_an_index_names_the_newer(fresh, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(fresh))
    monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    edges = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32)
    at_speed(matching.components, 1)(*edges, 2)
    (code,) = fresh.rglob("matching.components*.nbc")
    kernels._COMPILED.clear()
    kernels._INNER.clear()
    file = kernels._inner(matching.__name__).components._cache._cache_file
    file._source_stamp = "of a newer source"
    there = []
    monkeypatch.setattr(file, "_save_data", lambda *_: there.append(code.exists()))  # where a reader could come between
    assert at_speed(matching.components, 1)(*edges, 2).tolist() == [0, 0]
    assert there == [False] and file._load_index()


def test_compiled_code_that_names_a_class_that_is_gone_is_compiled_anew(fresh, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(fresh))
    monkeypatch.setenv("STRETTO_KERNELS", "compiled")
    edges = np.array([0], dtype=np.int32), np.array([1], dtype=np.int32)
    assert at_speed(matching.components, 1)(*edges, 2).tolist() == [0, 0]
    (index,) = fresh.rglob("matching.components*.nbi")
    version = pickle.dumps(pickle.loads(index.read_bytes()))
    index.write_bytes(version + b"cstretto.kernels.chunks\nGone\n.")
    kernels._COMPILED.clear()
    kernels._INNER.clear()
    assert at_speed(matching.components, 1)(*edges, 2).tolist() == [0, 0]


def test_a_kernel_is_compiled_anew_when_the_fields_of_a_named_tuple_change():
    module = kernels._inner(matching.__name__)
    stamps = dict(module.match._cache._cache_file._source_stamp[1])
    assert "stretto.kernels.chunks" in stamps


def test_a_numba_with_other_inner_parts_loads_its_code_by_itself(tmp_path):
    program = (
        "import sys, numpy as np\n"
        "from stretto import kernels\n"
        "from stretto.kernels import loading\n"
        "if 'other' in sys.argv:\n"
        "    loading._load_machine_code = lambda *_: loading.no_such_part\n"
        "path = np.array([0, 1, 2, 2]), np.array([0, 1]), np.array([1, 2]), np.ones(2)\n"
        "from stretto.kernels import paths\n"
        "print(kernels.at_speed(paths.all_pairs, 1)(*path)[0, 2])\n"
    )
    said = [said_by(program, tmp_path, *how) for how in ([], ["other"])]
    assert [process.stdout.split() for process in said] == [["2.0"], ["2.0"]]
    assert [process.stderr.count("compiling") for process in said] == [1, 0]


def test_warming_asks_for_every_kernel(monkeypatch):
    asked, named = set(), set()

    def noted(kernel, work):
        asked.add(kernel)
        return at_speed(kernel, work)

    for file in Path(stretto.__file__).parent.rglob("*.py"):
        names = re.findall(r"\bat_speed\(\s*([\w.]+),", file.read_text())
        if names and file.parent.name != "kernels":
            path = file.relative_to(Path(stretto.__file__).parents[1]).with_suffix("")
            module = importlib.import_module(".".join(path.parts).removesuffix(".__init__"))
            named |= {operator.attrgetter(name)(SimpleNamespace(**vars(module))) for name in names}
            monkeypatch.setattr(module, "at_speed", noted)
    monkeypatch.setattr(engine, "_ENGINE", None)  # a group that other tests have left may still hold the loop
    monkeypatch.setattr(engine, "_USERS", 0)
    monkeypatch.setattr(engine.machine_code, "load", lambda: None)
    monkeypatch.setattr(engine.compiling, "ready", lambda *_: True)
    plan_all(REQUESTS)
    assert {f"{kernel.__module__}.{kernel.__name__}" for kernel in named - asked} == set()


def test_kept_code_is_read_where_nobody_may_write(fresh, monkeypatch):
    """As a service without a home finds what root has compiled."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    source = fresh / "adding.py"
    source.write_text("def add(a, b):\n    return a + b\n")
    spec = importlib.util.spec_from_file_location("adding", source)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "adding", module)
    spec.loader.exec_module(module)

    def made():
        return loading.kept(numba.njit(nogil=True)(module.add))

    made()(1, 2)

    def refused(_):
        raise PermissionError

    monkeypatch.setattr(numba.core.caching._CacheLocator, "ensure_cache_path", refused)
    before = sorted((fresh / "__pycache__").iterdir())
    add = made()
    assert loading.load(add, loading.types_of((1, 2))) and not loading.load(add, loading.types_of((1.0, 2.0)))
    assert add(1, 2) == 3 and add(1.0, 2.0) == 3.0  # compiled, and not kept
    assert sorted((fresh / "__pycache__").iterdir()) == before != []

"""Do PyTorch's own tests of ``torch.distributed`` pass by stretto?

Runs ``torch.testing._internal.distributed.distributed_test``, which comes with PyTorch, at 3 and at 4 ranks: first by
gloo, then by stretto those that gloo passes. The tests skip by the backend's name, so groups of stretto are made under
the name gloo; the events of PyTorch's profiler, which a backend in Python cannot give their shapes, are not compared.
Prints each test that gloo passes and stretto does not, and whether it is one of the exceptions that this file names;
exits with 1 if there is another one, or if a named exception passes. Writes benchmarks/out/torch_own_tests.json. Needs
the package expecttest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "compares the name of the backend with gloo",
    "test_monitored_barrier_gloo": "asks for gloo's words at a rank that came; ours name who did not",
}
"""Tests that gloo passes and stretto does not, and why."""
LIMIT_S = 120
"""Seconds that one test may take."""


def tests_of(module: Any) -> type[unittest.TestCase]:
    """PyTorch's tests, whose ranks are forked instead of started anew, which would import PyTorch for each."""
    import torch

    class OwnTests(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OwnTests


def name_stretto_gloo(ranks: int) -> None:
    """Let every group that is asked for by the name gloo be one of stretto."""
    import torch.distributed.distributed_c10d as c10d

    import stretto.torch  # noqa: F401
    from stretto.choose.library import Library

    made = c10d._new_process_group_helper

    def make(group_size: int, group_rank: int, members: Any, backend: Any, store: Any, *more: Any, **named: Any) -> Any:
        named_gloo = str(backend) in ("gloo", "undefined", "cpu:gloo")
        group, known = made(
            group_size, group_rank, members, c10d.Backend("stretto") if named_gloo else backend, store, *more, **named
        )
        if named_gloo and group in c10d._world.pg_map:
            c10d._world.pg_map[group] = ("gloo", c10d._world.pg_map[group][1])
        return group, known

    c10d._new_process_group_helper = make
    library = Library(None, range(ranks), 0)  # compiled kernels are loaded once, before the ranks are forked
    for kind in ("allreduce", "allgather", "broadcast"):
        library.recipe(kind, 4096)


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Everything that the ranks print goes into a file."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, saved in zip((1, 2), kept):
                os.dup2(saved, number)
                os.close(saved)


def run_here(ranks: int, backend: str, names: Sequence[str]) -> dict[str, Any]:
    """Run tests in this process; for each "passed", "skipped", or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir", "init_dir"):
            Path(folder, part).mkdir()
        os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(ranks), "TEMP_DIR": folder, "GLOO_SOCKET_IFNAME": "lo",
                       "INIT_METHOD": f"file://{folder}/init_dir/shared", "OMP_NUM_THREADS": "1",
                       "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(LIMIT_S)}  # fmt: skip
        import torch
        from torch.testing._internal.distributed import distributed_test

        torch.set_num_threads(1)
        distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()
        if backend == "stretto":
            name_stretto_gloo(ranks)
        case = tests_of(distributed_test)
        chosen = names or unittest.TestLoader().getTestCaseNames(case)
        OUT.mkdir(exist_ok=True)
        ended: dict[str, Any] = {}
        with quiet(OUT / f"torch_own_tests_{backend}_{ranks}.log"):
            for name in chosen:
                result = unittest.TestResult()
                unittest.TestSuite([case(name)]).run(result)
                wrong = [*result.failures, *result.errors]
                ended[name] = wrong[0][1] if wrong else "skipped" if result.skipped else "passed"
    return ended


def run(ranks: int, backend: str, names: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Run tests in a process of their own; what became of each, and CPU seconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "--here", backend, "--ranks", str(ranks), "--out", file.name]
        subprocess.run([*command, *names], check=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(Path(file.name).read_text()), cpu_s


def last_line(text: str) -> str:
    """The last line of a traceback that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line or "Failed: " in line or "Unsupported: " in line]
    return (errors or lines)[-1][:200]


def judge(name: str, ended: str, exceptions: Mapping[str, str]) -> int:
    """Print what is to be said of a test that stretto ran and gloo passes; returns 1 if that is not as it should be."""
    if ended == "passed" and name in exceptions:
        print(f"  {name} passes; it is named as an exception")
        return 1
    if ended in ("passed", "skipped"):
        return 0
    print(f"  {name}: {exceptions.get(name) or 'NO EXCEPTION: ' + last_line(ended)}")
    return int(name not in exceptions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="tests, all by default")
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--only-stretto", action="store_true", help="do not ask first which of the tests gloo passes")
    parser.add_argument("--here", choices=["gloo", "stretto"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT / "torch_own_tests.json")
    arguments = parser.parse_args()
    if arguments.here:
        ended = run_here(arguments.ranks[0], arguments.here, arguments.names)
        arguments.out.write_text(json.dumps(ended))
        return
    bad, rows, table = 0, [], ["| ranks | tests that gloo passes | stretto | CPU seconds |", "|---|---|---|---|"]
    for ranks in arguments.ranks:
        names, gloo_cpu_s = arguments.names, 0.0
        if not arguments.only_stretto:
            by_gloo, gloo_cpu_s = run(ranks, "gloo", names)
            names = [name for name, ended in by_gloo.items() if ended == "passed"]
        by_stretto, cpu_s = run(ranks, "stretto", names)
        passed = [name for name, ended in by_stretto.items() if ended == "passed"]
        asked = "not asked" if arguments.only_stretto else f"{len(names)}"
        table.append(f"| {ranks} | {asked} | {len(passed)} | {gloo_cpu_s:.0f} and {cpu_s:.0f} |")
        print(f"{ranks} ranks: stretto passes {len(passed)} of {len(by_stretto)}", flush=True)
        for name, ended in by_stretto.items():
            rows.append({"ranks": ranks, "test": name, "ended": ended, "exception": EXCEPTIONS.get(name)})
            bad += judge(name, "not run" if ended == "skipped" else ended, EXCEPTIONS)
    print("\n" + "\n".join(table))
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

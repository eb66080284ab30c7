"""Do torchft's own tests pass with the process group of stretto?

Runs the tests that come with torchft and use its process group of gloo (``process_group_test``, ``manager_integ_test``,
``local_sgd_integ_test``, ...), first as they are and then with ``stretto.torchft.ProcessGroupStretto`` under that name,
and, for stretto alone, the collectives that these tests leave out for gloo. Prints each test that passes by gloo and
not by stretto, and whether it is one of the exceptions that this file names; exits with 1 if there is another one, or
if a named exception passes. Writes benchmarks/out/torchft_own_tests.json. Needs the packages torchft and parameterized.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch_own_tests import judge, quiet

OUT = Path(__file__).parent / "out"
MODULES = (
    "process_group_test", "manager_integ_test", "local_sgd_integ_test", "ddp_test", "fsdp_test", "lighthouse_test",
    "parameter_server_test", "checkpointing.pg_transport_test",
)  # fmt: skip
"""The modules of torchft's tests that use the process group of gloo."""
NEVER = ("Baby", "NCCL", "Nccl", "nccl", "dummy", "DummyWork", "CreateStoreClient", "fsdp_tp")
"""Parts of names of tests of other process groups."""
EXCEPTIONS: dict[str, str] = {}
"""Tests that pass by gloo and not by stretto, and why."""


def put_stretto_for_gloo() -> None:
    """Let whoever asks torchft for its process group of gloo get stretto's."""
    import torchft
    import torchft.process_group

    from stretto.torchft import ProcessGroupStretto

    torchft.process_group.ProcessGroupGloo = torchft.ProcessGroupGloo = ProcessGroupStretto


def suite_of(backend: str) -> dict[str, unittest.TestCase]:
    """The tests by name."""
    cases = []
    for name in MODULES:
        module = importlib.import_module(f"torchft.{name}")
        cases += list(_flat(unittest.defaultTestLoader.loadTestsFromModule(module)))
    if backend == "stretto":
        cases += list(_flat(unittest.defaultTestLoader.loadTestsFromTestCase(_left_out())))
    return {case.id().removeprefix("torchft."): case for case in cases if not any(part in case.id() for part in NEVER)}


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flat(test)
        else:
            yield test


def _left_out() -> type[unittest.TestCase]:
    """The tests of collectives that torchft leaves out for gloo, which does not have them."""
    from torchft.process_group_test import _ALL_COLLECTIVES, MultiPgBaseTest, NormalGlooMultiPgTest

    def of(name: str, run: str) -> Any:
        return lambda self: getattr(self, run)(name, device="cpu")

    missing = sorted(set(_ALL_COLLECTIVES) - set(NormalGlooMultiPgTest.COLLECTIVES))
    tests = {f"test_collective_{name}": of(name, "_run_parallel") for name in missing}
    tests |= {f"test_resiliency_{name}": of(name, "_run_with_resiliency") for name in missing}
    return type("LeftOut", (MultiPgBaseTest,), {"BACKEND": "gloo", "WORLD_SIZE": 3, **tests})


def run_here(backend: str, names: Sequence[str]) -> dict[str, Any]:
    """Run tests in this process; for each "passed", "skipped", or what went wrong."""
    import torch

    torch.set_num_threads(1)
    if backend == "stretto":
        put_stretto_for_gloo()
    cases = suite_of(backend)
    chosen = [name for name in cases if not names or any(part in name for part in names)]
    OUT.mkdir(exist_ok=True)
    ended: dict[str, Any] = {}
    with quiet(OUT / f"torchft_own_tests_{backend}.log"):
        for name in chosen:
            result = unittest.TestResult()
            unittest.TestSuite([cases[name]]).run(result)
            wrong = [*result.failures, *result.errors]
            ended[name] = wrong[0][1] if wrong else "skipped" if result.skipped else "passed"
            print(name, ended[name], flush=True)
    return ended


def run(backend: str, names: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Run tests in a process of their own; what became of each, and CPU seconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "--here", backend, "--out", file.name]
        # the tests number what they take from a set
        subprocess.run([*command, *names], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(Path(file.name).read_text()), cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of tests, all by default")
    parser.add_argument("--only-stretto", action="store_true", help="do not ask first which of the tests gloo passes")
    parser.add_argument("--here", choices=["gloo", "stretto"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT / "torchft_own_tests.json")
    arguments = parser.parse_args()
    if arguments.here:
        ended = run_here(arguments.here, arguments.names)
        arguments.out.write_text(json.dumps(ended))
        sys.stdout.flush()
        os._exit(0)  # torchft's servers leave threads
    by_gloo, gloo_cpu_s = ({}, 0.0) if arguments.only_stretto else run("gloo", arguments.names)
    by_stretto, cpu_s = run("stretto", arguments.names)
    passed = [name for name, ended in by_stretto.items() if ended == "passed"]
    both = [name for name in passed if by_gloo.get(name) == "passed"]
    asked = "" if arguments.only_stretto else (
        f", {len(both)} of the {sum(e == 'passed' for e in by_gloo.values())} that pass by gloo ({gloo_cpu_s:.0f} s)"
    )  # fmt: skip
    print(f"stretto passes {len(passed)} tests of {len(by_stretto)}{asked}, {cpu_s:.0f} CPU s")
    bad = 0
    rows = []
    for name, ended in by_stretto.items():
        rows.append({"test": name, "ended": ended, "gloo": by_gloo.get(name), "exception": EXCEPTIONS.get(name)})
        if by_gloo.get(name, "passed") == "passed":
            bad += judge(name, ended, EXCEPTIONS)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

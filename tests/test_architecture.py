"""Imports go downward only (docs/decisions/0005-rooms.md): each part knows those below it, and no planner another planner's room."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stretto.model.kinds import BY_NAME

SOURCE = Path(__file__).parents[1] / "src" / "stretto"

KNOWS = {
    "model": set(),
    "kernels": {"model"},
    "verify": {"model", "kernels"},
    "simulate": {"model", "kernels"},
    "topologies": {"model"},
    "solvers": {"model"},
    "symmetry": {"model", "kernels"},
    "bounds": {"model", "kernels", "solvers", "symmetry"},
    "schedule": {"model", "kernels", "simulate"},
    "planners": {"model", "kernels", "solvers", "simulate", "bounds", "schedule", "symmetry"},
    "choose": {
        "model",
        "kernels",
        "schedule",
        "simulate",
        "verify",
        "bounds",
        "lower",
        "topologies",
        "planners",
        "formats",
    },
    "order": {"model", "kernels", "simulate", "schedule", "topologies", "formats"},
    "nccl": {"model", "schedule", "topologies", "planners", "formats", "order"},
    "lower": {"model", "kernels", "simulate"},
    "runtime": {"model", "kernels", "lower"},
    "measure": {"model", "topologies", "formats", "runtime"},
    "torch": {"model", "choose", "lower", "topologies", "runtime", "measure"},
    "torchft": {"model", "runtime", "torch"},
    "emulator": {"model", "lower", "runtime", "simulate"},
    "formats": {"model", "kernels", "topologies"},
    "studies": {"model", "bounds", "simulate", "verify", "topologies", "schedule", "planners", "formats", "emulator"},
    "report": {"model", "bounds", "formats"},
    "service": {"model", "lower", "runtime", "simulate", "topologies", "planners", "choose", "verify", "formats"},
}
"""What each part may import besides itself; the command line and the face of the package may import all."""

KERNEL_IMPORTS = {"__future__", "heapq", "math", "typing", "numpy"}
"""What a module of kernels may import besides other kernels: they are compiled whole."""


def module_of(file: Path) -> tuple[str, ...]:
    """The dotted path of a file below stretto, as a tuple: ("planners", "forest", "planner")."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {module_of(file): file for file in sorted(SOURCE.rglob("*.py"))}


@cache
def imports_of(file: Path) -> set[tuple[str, ...]]:
    """The modules below stretto that a file imports; names that are no modules count as the module that has them."""
    package = file.relative_to(SOURCE).parent.parts
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
            elif (node.module or "").split(".")[0] == "stretto":
                base = ()
            else:
                continue
            module = (node.module or "").split(".") if node.module else []
            path = (*base, *(module if node.level else module[1:]))
            for alias in node.names:
                found.add((*path, alias.name) if (*path, alias.name) in MODULES else path)
        elif isinstance(node, ast.Import):
            found |= {tuple(a.name.split(".")[1:]) for a in node.names if a.name.startswith("stretto.")}
    return found


MACHINE = ("runtime", "native", "machine")
"""Loads, stores and system calls of compiled code: by ctypes for the interpreter, by intrinsics for Numba."""


def is_kernel(module: tuple[str, ...]) -> bool:
    """Whether a module holds nothing but kernels."""
    return module == MACHINE or module[-1].startswith("kernel_") or (module[0] == "kernels" and len(module) > 1)


@pytest.mark.parametrize("part", KNOWS)
def test_a_part_knows_only_what_is_below_it(part):
    for module, file in MODULES.items():
        if module and module[0] == part:
            assert {path[0] for path in imports_of(file) if path} - {part} <= KNOWS[part], file


def test_every_part_has_its_place_in_the_order():
    assert {module[0] for module in MODULES if module} - {"__main__", "cli", "face"} == set(KNOWS)


def test_no_planner_imports_another_planners_room():
    for module, file in MODULES.items():
        if module[:1] == ("planners",) and len(module) > 1:
            rooms = {path[1] for path in imports_of(file) if path[:1] == ("planners",) and len(path) > 1}
            assert rooms <= {module[1], "registry", "run"}, file


def test_the_verifier_and_the_simulator_share_only_the_nouns_and_the_loader_of_kernels():
    for module, file in MODULES.items():
        if module[:1] in (("verify",), ("simulate",)):
            others = {path for path in imports_of(file) if path[:1] not in (module[:1], ("model",))}
            assert others <= {("kernels",)}, file


@pytest.mark.parametrize("module", [".".join(m) for m in MODULES if m and m != MACHINE and is_kernel(m)])
def test_a_kernel_imports_nothing_but_kernels(module):
    file = MODULES[tuple(module.split("."))]
    assert all(is_kernel(path) for path in imports_of(file))
    tree = ast.parse(file.read_text())
    outside = {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level}
    outside |= {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert outside <= KERNEL_IMPORTS


@pytest.mark.parametrize("module", [".".join(m) for m in MODULES if m and m[-1].startswith("kernel_")])
def test_a_kernel_is_imported_from_its_own_room_only(module):
    kernel = tuple(module.split("."))
    room = kernel[: 2 if kernel[0] == "planners" else 1]
    for user, file in MODULES.items():
        if kernel in imports_of(file):
            assert user[: len(room)] == room, file


def test_help_imports_nothing_that_is_slow():
    program = (
        "import sys\nfrom stretto.cli import app\n"
        "print([m for m in ('numpy', 'numba', 'pyarrow', 'topohub', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_of_the_library_do_not_speak_of_flags():
    for module, file in MODULES.items():
        if module[:1] != ("cli",):
            raised = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise)]
            texts = [
                n.value for r in raised for n in ast.walk(r) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            assert not [text for text in texts if re.search(r"(^|\s)--[a-z]", text)], file


@pytest.mark.parametrize("part", ["planners", "schedule", "bounds", "choose"])
def test_no_clock_is_read_where_plans_are_decided(part):
    """``planners/run.py`` alone looks at clocks: it notes what planning took."""
    clocks = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "clock"}
    for module, file in MODULES.items():
        if module[:1] == (part,) and module != ("planners", "run"):
            imported = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ImportFrom | ast.Import)]
            names = {alias.name for n in imported for alias in n.names}
            assert not names & clocks, file


def test_only_the_table_of_kinds_knows_kinds_of_collectives_by_name():
    """Formats translate names of their own; everyone else asks a kind's row (:mod:`stretto.model.kinds`)."""
    for module, file in MODULES.items():
        if module[:1] == ("formats",) or module == ("model", "kinds"):
            continue
        for n in ast.walk(ast.parse(file.read_text())):
            if isinstance(n, ast.Compare):
                words = {c.value for c in ast.walk(n) if isinstance(c, ast.Constant)}
                assert not words & {*BY_NAME}, f"{file}:{n.lineno}"


OWN_PROCESSES = {("runtime", "local"), ("studies", "engines"), ("cli", "compiling")}
"""What starts processes and speaks to them through pipes, which carry pickles; nobody else can write to those."""


RUNS_CODE = re.compile(r"""
    ^\s*(?:import|from)\s+(?:_?pickle|cPickle|marshal|shelve|dill|cloudpickle|joblib)\b
    | (?<![\w."'])(?:eval|exec)\( | \byaml\.(?!safe_load|YAMLError) | \btorch\.load\( | allow_pickle | pickle\.loads?\(
""", re.M | re.X)  # fmt: skip


def test_nothing_that_comes_over_a_network_or_from_a_file_can_run_code():
    for sample in ("import pickle\n", "x = eval(text)", "yaml.load(text)", "np.load(file, allow_pickle=True)"):
        assert RUNS_CODE.search(sample)
    for module, file in MODULES.items():
        text = file.read_text()
        assert not RUNS_CODE.search(text), file
        assert module in OWN_PROCESSES or not re.search(
            r"^\s*(?:import|from) multiprocessing(?!.connection import wait$)", text, re.M
        ), file

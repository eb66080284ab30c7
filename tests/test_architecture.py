"""Imports go downward only: each part knows those below it, and no planner another planner's room.

Why: docs/contributors/decisions/0005-rooms.md.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    "schedule": {"model", "kernels", "simulate", "lower", "solvers"},
    "planners": {"model", "kernels", "lower", "solvers", "simulate", "bounds", "schedule", "symmetry"},
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
    "torch": {"model", "choose", "lower", "topologies", "runtime", "measure", "service"},
    "torchft": {"model", "choose", "runtime", "torch"},
    "emulator": {"model", "lower", "runtime", "simulate"},
    "formats": {"model", "kernels", "topologies"},
    "studies": {
        "model",
        "bounds",
        "simulate",
        "verify",
        "topologies",
        "schedule",
        "planners",
        "formats",
        "emulator",
        "report",
    },
    "report": {"model", "bounds", "formats"},
    "service": {
        "model",
        "bounds",
        "lower",
        "runtime",
        "schedule",
        "simulate",
        "topologies",
        "planners",
        "choose",
        "verify",
        "formats",
        "report",
        "face",
    },
}
"""What each part may import besides itself; the command line and the face of the package may import all."""

KERNEL_IMPORTS = {"__future__", "heapq", "math", "typing", "numpy"}
"""What a module of kernels may import besides other kernels: they are compiled whole."""


def module_of(file: Path) -> tuple[str, ...]:
    """The dotted path of a file below stretto, as a tuple: ("planners", "forest", "planner")."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {module_of(file): file for file in sorted(SOURCE.rglob("*.py"))}


class Facts(NamedTuple):
    """What a file says that these tests ask for, from one reading.

    Attributes:
        imports: the modules below stretto; names that are no modules count as the module that has them.
        outside: the packages that are named in full.
        names: the names that are imported.
        raised: the texts of what is raised.
        compared: for each comparison its line and the constants in it that can be words.
    """

    imports: set[tuple[str, ...]]
    outside: set[str]
    names: set[str]
    raised: list[str]
    compared: list[tuple[int, set[object]]]


@cache
def facts_of(file: Path) -> Facts:
    package = file.relative_to(SOURCE).parent.parts
    facts = Facts(set(), set(), set(), [], [])
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            facts.names.update(alias.name for alias in node.names)
            module = (node.module or "").split(".") if node.module else []
            if not node.level:
                facts.outside.add(module[0])
                if module[0] != "stretto":
                    continue
            path = (*package[: len(package) - node.level + 1], *module) if node.level else tuple(module[1:])
            facts.imports.update(
                (*path, alias.name) if (*path, alias.name) in MODULES else path for alias in node.names
            )
        elif isinstance(node, ast.Import):
            facts.names.update(alias.name for alias in node.names)
            facts.outside.update(alias.name.split(".")[0] for alias in node.names)
            facts.imports.update(tuple(a.name.split(".")[1:]) for a in node.names if a.name.startswith("stretto."))
        elif isinstance(node, ast.Raise):
            facts.raised.extend(
                n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )
        elif isinstance(node, ast.Compare):
            facts.compared.append((node.lineno, {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}))
    return facts


def imports_of(file: Path) -> set[tuple[str, ...]]:
    return facts_of(file).imports


MACHINE = ("runtime", "native", "machine")
"""Loads, stores and system calls of compiled code: by ctypes for the interpreter, by intrinsics for Numba."""

LOADING = ("kernels", "loading")
"""Loads compiled kernels, and holds none."""


def is_kernel(module: tuple[str, ...]) -> bool:
    """Whether a module holds nothing but kernels."""
    beside_others = module[0] == "kernels" and len(module) > 1 and module != LOADING
    return module == MACHINE or module[-1].startswith("kernel_") or beside_others


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
    assert facts_of(file).outside <= KERNEL_IMPORTS


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


SLOW = ("scipy.sparse", "stretto.report.drawing", "stretto.order")
"""What takes 0.02 to 0.3 s of CPU to load, and the common commands do without."""


@pytest.mark.parametrize(
    ("command", "slow"),
    [
        ("topologies dgx1", ("scipy.sparse", "numba", "stretto.planners")),
        ("bound allreduce -t ring:3 --size 1MB", (*SLOW, "numba", "stretto.planners")),
        ("plan allgather -t ring:3 --size 1MB -p ring", (*SLOW, "numba", "stretto.planners.forest")),
        ("plan allreduce -t ring:3 --size 1MB --effort quick", SLOW),
    ],
)
def test_a_command_loads_nothing_slow_that_it_does_not_need(command, slow):
    program = (
        "import atexit, sys\nfrom stretto.cli import main\n"
        f"atexit.register(lambda: print([m for m in {slow} if m in sys.modules], file=sys.stderr))\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_errors_of_the_library_do_not_speak_of_flags():
    for module, file in MODULES.items():
        if module[:1] != ("cli",):
            assert not [text for text in facts_of(file).raised if re.search(r"(^|\s)--[a-z]", text)], file


@pytest.mark.parametrize("part", ["planners", "schedule", "bounds", "choose"])
def test_no_clock_is_read_where_plans_are_decided(part):
    """``planners/run.py`` alone looks at clocks: it notes what planning took."""
    clocks = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "clock"}
    for module, file in MODULES.items():
        if module[:1] == (part,) and module != ("planners", "run"):
            assert not facts_of(file).names & clocks, file


def test_only_the_table_of_kinds_knows_kinds_of_collectives_by_name():
    """Formats translate names of their own; everyone else asks a kind's row (:mod:`stretto.model.kinds`)."""
    for module, file in MODULES.items():
        if module[:1] == ("formats",) or module == ("model", "kinds"):
            continue
        for line, words in facts_of(file).compared:
            assert not words & {*BY_NAME}, f"{file}:{line}"


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

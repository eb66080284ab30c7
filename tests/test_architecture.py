"""Imports go downward only (docs: design): each layer knows those before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "stretto"

KNOWS = {
    "errors": set(),
    "units": {"errors"},
    "topology": {"errors"},
    "collective": {"errors", "topology"},
    "reach": {"collective", "topology"},
    "demand": {"errors", "topology", "collective"},
    "plan": {"errors", "topology", "collective"},
    "two_trees": set(),
    "algorithms": {"collective", "plan", "two_trees"},
    "grid_steps": {"algorithms"},
    "timeline": {"plan", "collective"},
    "clock": set(),
    "kernels": {"errors", "clock"},
    "verify_planes": {"units", "plan"},
    "verify_promises": {"collective"},
    "verify": {"errors", "units", "topology", "collective", "plan", "kernels", "verify_planes", "verify_promises"},
    "simulate_planes": {"collective", "plan"},
    "simulate": {"errors", "topology", "collective", "plan", "timeline", "kernels", "simulate_planes"},
    "solvers": {"errors", "clock"},
    "workloads": {"errors", "topology", "collective"},
    "bounds": {"errors", "units", "topology", "collective", "kernels", "solvers"},
    "topologies": {"errors", "units", "topology"},
    "optics": {"solvers"},
    "telemetry": {"errors", "topology"},
    "lower": {"collective", "plan", "simulate", "simulate_planes"},
    "runtime": {"errors", "topology", "plan", "lower"},
    "planners": {
        *(
            "clock",
            "errors",
            "units",
            "topology",
            "collective",
            "reach",
            "demand",
            "plan",
            "algorithms",
            "two_trees",
            "grid_steps",
        ),
        *("simulate", "bounds", "kernels", "solvers", "optics"),
    },
    "emulator": {"errors", "topology", "collective", "plan", "runtime", "simulate"},
    "tuning": {"errors", "topology", "collective", "plan", "simulate", "verify", "planners", "topologies"},
    "library": {
        *("errors", "topology", "collective", "plan", "simulate", "lower", "planners", "topologies", "tuning"),
    },
    "torch": {"errors", "topology", "collective", "library", "lower", "topologies", "runtime"},
    "formats": {"errors", "units", "topology", "collective", "plan", "timeline", "topologies", "telemetry"},
    "replan": {"errors", "topology", "collective", "reach", "plan", "simulate", "planners", "telemetry"},
    "studies": {
        "errors",
        "units",
        "topology",
        "collective",
        "plan",
        "bounds",
        "simulate",
        "verify",
        "topologies",
        "algorithms",
        "optics",
        "planners",
        "formats",
        "workloads",
    },
    "report": {"errors", "units", "topology", "collective", "plan", "timeline", "bounds", "formats"},
}


def imported(file: Path) -> set[str]:
    """The parts of stretto that a file imports."""
    package = ("stretto", *file.relative_to(SOURCE).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                names = [node.module] if node.module else [alias.name for alias in node.names]
                paths = [(*base, *name.split(".")) for name in names]
            else:
                paths = [tuple((node.module or "").split("."))]
            found |= {path[1] for path in paths if path[0] == "stretto" and len(path) > 1}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("stretto.")}
    return found


@pytest.mark.parametrize("part", KNOWS)
def test_a_part_knows_only_what_is_below_it(part):
    place = SOURCE / part
    files = [SOURCE / f"{part}.py"] if not place.is_dir() else sorted(place.rglob("*.py"))
    for file in files:
        assert imported(file) - {part} <= KNOWS[part], file.name


def test_every_part_has_its_place_in_the_order():
    parts = {p.stem for p in SOURCE.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists())}
    assert parts - {"__init__", "cli"} == set(KNOWS)


def test_the_simulator_and_the_verifier_share_no_kernel():
    assert '"engine"' in (SOURCE / "simulate.py").read_text()
    assert '"engine"' not in (SOURCE / "verify.py").read_text()
    assert '"referee"' not in (SOURCE / "simulate.py").read_text()


def test_help_imports_nothing_that_is_slow():
    program = (
        "import sys\nfrom stretto.cli import app\n"
        "print([m for m in ('numpy', 'numba', 'pyarrow', 'topohub', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

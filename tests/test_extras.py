"""What an installation without extras does, and the one line that names the extra where it cannot."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from command_line import stretto
from stretto import __version__ as stretto_version
from stretto.choose import requests
from stretto.cli.compiling import REQUESTS, plan_all
from stretto.model.errors import Unsupported
from stretto.model.extras import require

ROOT = Path(__file__).parents[1]
LEFT_OUT = ("ortools", "pandas", "pyarrow", "topohub")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder, in an installation without extras."""
    for name in LEFT_OUT:
        monkeypatch.setitem(sys.modules, name, None)
    return tmp_path


def test_without_extras_the_commands_of_the_readme_work(folder):
    for line in (
        "plan allgather -t ring:4 --size 1MB -o plan.parquet",
        "verify plan.parquet",
        "simulate plan.parquet",
        "show plan.parquet --transfers 3",
        "bound allgather -t zoo:Abilene --size 1MB",
        "compare allreduce -t ring:4 --size 1MB -p ring,auto",
        "report plan.parquet -o page.html",
        "export plan.parquet --to perfetto -o trace.json",
        "topologies zoo:Abilene",
        "topologies zoo",
    ):
        assert stretto(*line.split(), cwd=folder).stderr == "", line


def test_without_extras_warming_compiles_what_can_be_asked_for(folder, monkeypatch):
    monkeypatch.setattr("stretto.cli.compiling.ORDERS", ())
    plan_all(tuple(request for request in REQUESTS if request[0] in ("non-concurrent", "swot")))


def test_without_extras_a_request_has_a_digest_and_another_one_than_with_them(monkeypatch):
    found, version = requests.code_digest(), metadata.version

    def lacking(package):
        if package == "ortools":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", lacking)
    assert requests.code_digest.__wrapped__() == (*found[:3], "none", found[4])


@pytest.mark.parametrize(
    ("line", "package", "extra"),
    [
        ("plan allgather -t ring:3 --size 3KB -p milp-allgather", "ortools", "solvers"),
        ("plan allgather -t ring:3 --size 3KB -p teccl", "ortools", "solvers"),
        ("plan alltoall -t optical:4,1 --size 1MB -p pairwise+swot-milp --option solver=cbc", "ortools", "solvers"),
        ("topologies zoo:Geant2012", "topohub", "zoo"),
        ("study swot -o out", "ortools, pyarrow", "studies"),
    ],
)
def test_what_needs_an_extra_says_so_in_one_line(folder, line, package, extra):
    done = stretto(*line.split(), code=2, cwd=folder)
    err = done.stderr
    assert done.stdout == ""
    assert f"needs {package}, which" in err and f"pip install 'stretto[{extra}]'\n" in err
    assert err.count("\n") == 1


def test_every_extra_that_a_message_names_is_one_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in ("gnmi", "pandas", "parquet", "ray", "service", "solvers", "studies", "zoo"):
        assert extras[name]
        with pytest.raises(Unsupported, match=rf"a table needs nowhere, .*\[{name}\]"):
            require(name, "a table", "sys", "nowhere")


def test_the_version_is_the_same_wherever_it_stands():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == stretto_version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()

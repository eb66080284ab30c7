"""What the commands that ask a controller print on a terminal of 60 columns, and names that are misspelt."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

from command_line import stretto
from controller_process import Served
from test_command_tree import COLUMNS, COMMANDS, GROUPS, on_terminal

JOB = {"network": "ring-of-four", "collectives": [{"kind": "allreduce", "size": "4MB"}]}
WAIT_S = 120
ASKED = {
    "networks put": "ring-of-four -t ring:4",
    "networks list": "",
    "networks report": "ring-of-four news.json",
    "networks show": "ring-of-four",
    "jobs put": "training-of-the-large-model job.json",
    "jobs plan": f"training-of-the-large-model --wait {WAIT_S} -o plan.parquet",
    "jobs show": "training-of-the-large-model",
    "jobs hold": "training-of-the-large-model",
    "jobs list": "",
    "jobs accept": "training-of-the-large-model",
    "jobs delete": "training-of-the-large-model",
    "networks delete": "ring-of-four",
}
"""A request to each command that asks a controller, in the order in which they make sense."""


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("controller") / "data")
    yield served
    served.stop()


@pytest.fixture
def folder(controller, tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_CONTROLLER", controller.url)
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "news.json").write_text(json.dumps({"links": []}))
    return tmp_path


def test_what_these_commands_print_fits(folder, monkeypatch):
    assert ASKED.keys() == {name for name in COMMANDS if name.partition(" ")[0] in GROUPS[1:]}
    for path, words in ASKED.items():
        lines = on_terminal(path, words, COLUMNS, folder, monkeypatch).splitlines()
        assert lines and [line for line in lines if len(line) > COLUMNS] == [], path


def test_a_misspelt_network_or_job_is_answered_with_the_one_that_was_meant(folder):
    stretto("networks", "put", "backbone", "-t", "ring:4")
    (folder / "job.json").write_text(json.dumps({**JOB, "network": "backbone"}))
    stretto("jobs", "put", "training", folder / "job.json")
    for words in ("networks show bakbone", "networks delete backbon", "jobs show trainign", "jobs hold trainings"):
        said = stretto(*words.split(), code=2).stderr
        assert re.search(r"there is no (network|job) '\w+'; did you mean (backbone|training)\?", said), said
    (folder / "job.json").write_text(json.dumps({**JOB, "network": "backbon"}))
    assert "did you mean backbone?" in stretto("jobs", "put", "other", folder / "job.json", code=2).stderr
    assert "; did" not in stretto("jobs", "show", "anything", code=2).stderr

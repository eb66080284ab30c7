"""The notebooks run from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_holds_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def test_there_is_a_notebook_for_each_user():
    assert [p.stem for p in NOTEBOOKS] == ["comparing_algorithms", "optical_fabric", "training_across_datacenters"]

"""The picture: what the repository shows is what its command draws."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from stretto.cli import app
from stretto.model.errors import InputError
from stretto.report.picture import LETTER, MAP_RIGHT, MOST_TITLE, round_step

ROOT = Path(__file__).parent.parent


def test_make_picture_draws_the_picture_of_the_readme(tmp_path, monkeypatch):
    recipe = re.search(r"^picture:.*\n\t\S+/stretto (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert recipe is not None
    command = shlex.split(recipe[1])
    shown, command[-1] = ROOT / command[-1], str(tmp_path / "picture.svg")
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "picture.svg").read_text() == shown.read_text()
    assert f"]({shown.relative_to(ROOT)})" in (ROOT / "README.md").read_text()


def test_the_picture_is_small_and_for_light_and_dark():
    path = ROOT / "docs" / "pictures" / "picture.svg"
    ElementTree.parse(path)
    text = path.read_text()
    assert len(text) < 16_000
    assert "prefers-color-scheme:dark" in text
    used = set(re.findall(r'class="(\w+)"', text)) - {"stretto"}
    light, dark = text[text.index("<style>") : text.index("</style>")].split("@media")
    assert all(f".{name}{{" in light and f".{name}{{" in dark for name in used)


def test_plans_of_different_requests_are_no_picture(tmp_path):
    done = CliRunner().invoke(
        app, ["compare", "allgather", "-t", "ring:4", "--size", "1KB,1MB", "-p", "ring", "-o", str(tmp_path / "x.svg")]
    )
    assert isinstance(done.exception, InputError)
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize(("longest", "step"), [(0.718, 0.2), (1.0, 0.2), (0.11, 0.05), (3e-6, 1e-6), (0.0, 0.0)])
def test_steps_of_time_are_round(longest, step):
    assert round_step(longest, 5) == pytest.approx(step)


def test_long_names_are_beside_the_map_and_a_long_heading_beside_the_legend(tmp_path):
    site = {name: f"{name}-datacenter-of-the-north" for name in "ab"}
    nodes = [{"id": name, "name": f"{site[name]}.accelerator0"} for name in "ab"]
    links = [{"src": a, "dst": b, "bandwidth_GBps": 1, "latency_us": 1} for a, b in ("ab", "ba")]
    (tmp_path / "n.json").write_text(json.dumps({"name": "network " * 20, "nodes": nodes, "links": links}))
    out = tmp_path / "x.svg"
    words = ["compare", "allgather", "-t", str(tmp_path / "n.json"), "--size", "1MB", "-p", "ring", "-o", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    labels = re.findall(r'x="(\d+)" y="\d+" text-anchor="end" font-size="11">([^<]*)<', out.read_text())
    assert labels
    assert all(int(x) - LETTER * len(text) >= MAP_RIGHT for x, text in labels)
    heading = re.search(r'font-size="15"[^>]*>([^<]*)<', out.read_text())
    assert heading is not None
    assert len(heading[1]) <= MOST_TITLE

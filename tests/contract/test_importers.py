"""What every importer of topology files must keep: a file is known by its content, and serves like any network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json
from stretto.topologies.importers import COMMON, FORMATS, SETTINGS, Content
from stretto.verify import verify
from test_foreign_topologies import FILES
from test_topology_files import equal
from test_topology_fuzz import RICH

SAMPLES = FILES | RICH | {"own.json": json.dumps(load_topology("star:4").to_json())}
SETTING_VALUES = {
    "unit": "GB/s", "directed": "true", "nodes": "none.csv", "gpus": "8", "inside": "450GB/s", "hosts": "a*", "nic": "1GB/s",
    "nics": "4", "oversubscription": "2", "blocks": "nvlink", "linkspeed": "1Gbit/s", "topology": "a", "pcie": "5", "nvlink": "25GB/s",
}  # fmt: skip


def read(folder: Path, name: str, text: str, query: str = "") -> Topology:
    path = folder / name
    path.write_text(text)
    return load_topology(f"{path}{query}")


def taken_for(name: str, text: str | None = None) -> str:
    content = Content(SAMPLES[name] if text is None else text, name)
    return next((format.name for format in FORMATS if format.fits(content)), "nothing")


def test_every_format_has_a_sample():
    assert {format.name for format in FORMATS} == {taken_for(name) for name in SAMPLES}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("ending", [".dat", ".csv", ".xml", ".txt"])
def test_the_content_says_what_a_file_is(name, ending, tmp_path):
    whole = read(tmp_path, name, SAMPLES[name])
    renamed = read(tmp_path, Path(name).stem + ending, SAMPLES[name])
    assert equal(renamed, whole)


@pytest.mark.parametrize("name", SAMPLES)
def test_lines_may_end_as_on_windows_and_begin_with_a_mark(name, tmp_path):
    whole = read(tmp_path, name, SAMPLES[name])
    (tmp_path / name).write_bytes(("\ufeff" + SAMPLES[name]).replace("\n", "\r\n").encode())
    assert equal(load_topology(str(tmp_path / name)), whole)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_read_survives_our_own_json(name, tmp_path):
    net = read(tmp_path, name, SAMPLES[name])
    assert equal(topology_from_json(json.loads(json.dumps(net.to_json())), name), net)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_plan_on_it_verifies(name, tmp_path):
    net = read(tmp_path, name, SAMPLES[name])
    plan = run_planner(
        "shortest-path", net, Workload((make_collective("allgather", net, 1000 * len(net.accelerators)),))
    )
    assert verify(plan).ok
    assert simulate(plan).completion_s > 0


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("setting", [s.name for s in SETTINGS[COMMON:]])
def test_an_option_of_another_format_is_refused(name, setting, tmp_path):
    format = next(f for f in FORMATS if f.name == taken_for(name))
    if setting not in format.settings:
        with pytest.raises(InputError, match=f"taken for {format.name}; the option {setting} is for"):
            read(tmp_path, name, SAMPLES[name], f"?{setting}={SETTING_VALUES[setting]}")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_wrong_entry_says_what_the_file_was_taken_for(name, tmp_path):
    """Words are replaced, one at a time from the middle on, until the file is refused for an entry."""
    words = [*re.finditer(r"[\w.]+", SAMPLES[name])]
    for found in words[len(words) // 2 :] + words[: len(words) // 2]:
        text = SAMPLES[name][: found.start()] + "-7e99" + SAMPLES[name][found.end() :]
        try:
            read(tmp_path, name, text)
        except InputError as error:
            if f"(taken for {taken_for(name)})" in str(error):
                assert str(error).startswith(str(tmp_path / name)) and "\n" not in str(error)
                return
    pytest.fail("no word of the sample matters")


@pytest.mark.parametrize(
    ("name", "text"), [("a.dat", "hello\nworld\n"), ("a.dat", "<a/>"), ("a.dat", ""), ("a.xls", "a,b\n1,2\n")]
)
def test_a_file_that_fits_nothing_lists_the_formats(name, text, tmp_path):
    with pytest.raises(InputError) as error:
        read(tmp_path, name, text)
    assert all(format.name in str(error.value) for format in FORMATS)


def test_bandwidth_and_latency_of_every_link_can_be_set(tmp_path):
    for name, text in SAMPLES.items():
        net = read(tmp_path, name, text, "?bandwidth=1GB/s&latency=1us")
        assert set(np.unique(net.bandwidth)) == {1e9} and set(np.unique(net.latency_s)) == {1e-6}

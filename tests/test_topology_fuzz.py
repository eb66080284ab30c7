"""Topology files that are damaged, changed or random: read, or refused in words."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.model.errors import StrettoError
from stretto.model.topology import Topology
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json
from test_topology_files import GML, GRAPHML, equal, gml, graphml, set_, small, with_planes

ZOO = Path(__file__).parents[2] / "shared" / "topologies" / "zoo"


def loads_or_says_why(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        assert isinstance(load_topology(str(path)), Topology)
    except StrettoError as error:
        assert str(error)


RICH = {
    "f.graphml": graphml(
        '<edge source="0" target="1" latency="1ms"><data key="b">5e9</data></edge>',
        '<key id="b" for="edge" attr.name="bandwidth"><default>1GB/s</default></key>',
    ),
    "f.gml": gml("bandwidth 5e9 latency_us 3", "Longitude 4.5 Latitude 51", 'x 1 y 2 kind gpu label "A b" site "s"'),
}
damage = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)


@pytest.mark.parametrize("name", ["f.json", "f.graphml", "f.gml"])
@given(changes=damage, keep=st.floats(0.3, 1))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path_factory, name, changes, keep):
    valid = {"f.json": json.dumps(random_network(3).to_json()), "f.graphml": GRAPHML, "f.gml": GML}[name]
    content = bytearray(valid.encode()[: max(1, round(len(valid) * keep))])
    for at, value in changes:
        content[at % len(content)] = value
    loads_or_says_why(tmp_path_factory.mktemp("fuzz") / name, bytes(content))


@pytest.mark.parametrize("name", ["f.json", "f.graphml", "f.gml"])
@given(content=st.binary(max_size=200))
def test_random_bytes_never_end_in_a_traceback(tmp_path_factory, name, content):
    loads_or_says_why(tmp_path_factory.mktemp("fuzz") / name, content)


MANY = 100_000
PORT = '1 1[ ] ==( 4X 25.78125 Gbps Active/ LinkUp)==> 2 17[ ] "N"\n'
NODE = 'Switch 40 "S-1" # "a"\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("links.txt", PORT + "1 1[ ] ==( x)" + " " * MANY + "==x\n"),
        ("links.txt", PORT + "==(Down" * (MANY // 7)),
        ("links.txt", PORT + "Switch: " + " " * MANY + "x\n"),
        ("links.txt", "a " + "]==()" * (MANY // 5)),
        ("links.txt", "a " + "]==()(HOQ)" * (MANY // 10)),
        ("net.txt", NODE + "[1]" + " " * MANY + "x"),
        ("report.txt", "CA 1 1 0x1 4x HDR - SW 2 2 0x2 ( '" + "' - '" * (MANY // 5)),
        ("f.yaml", "\n" * MANY + "x: 1"),
        ("topology.conf", "SwitchName=a Nodes=b" + " " * MANY + "c"),
        ("smi.txt", "GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1 X\n" + "\n" * MANY + "z"),
    ],
)
def test_long_lines_take_no_more_time_than_their_length(tmp_path, name, text):
    began = time.process_time()
    loads_or_says_why(tmp_path / name, text.encode())
    assert time.process_time() - began < 1.5, "the square of the length would take 5 s or more"


@pytest.mark.parametrize("name", ["f.graphml", "f.gml"])
@given(
    data=st.data(),
    value=st.text(max_size=8) | st.sampled_from(["1e308", "-1", "nan", "inf", "[", "]", '"', "&#0;", "<"]),
)
def test_a_changed_word_never_ends_in_a_traceback(tmp_path_factory, name, data, value):
    words = re.split(r"([\s<>\"=]+)", RICH[name])
    words[data.draw(st.integers(0, len(words) - 1))] = value
    text = "".join(words).encode("utf-8", "surrogatepass")
    loads_or_says_why(tmp_path_factory.mktemp("fuzz") / name, text)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "links", "id", "kind", "src", "dst", "bandwidth_GBps", "latency_us", "planes", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def paths(value: object, path: tuple = ()) -> list[tuple]:
    """Where in a JSON value something can be replaced."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in inner for p in paths(item, (*path, key)))][0 if path else 1 :]


odd_values = json_values | st.sampled_from([10**400, 10**5000, -1, 1e308, float("nan"), "\ud800", "a\nb", [[]], {}])


@given(data=st.data(), value=odd_values)
def test_a_changed_value_is_a_topology_or_refused(data, value):
    document = data.draw(st.sampled_from([with_planes().to_json(), small(), load_topology("sites:2,1").to_json()]))
    path = data.draw(st.sampled_from(paths(document)))
    try:
        net = topology_from_json(set_([*path], value)(document), "f.json")
    except StrettoError as error:
        assert "f.json" in str(error) and "\n" not in str(error)
    else:
        assert equal(net, topology_from_json(json.loads(json.dumps(net.to_json())), "f.json"))


@given(value=json_values)
def test_any_json_is_a_topology_or_refused(value):
    try:
        topology_from_json(value, "f.json")
    except StrettoError as error:
        assert str(error)


@pytest.mark.skipif(not ZOO.is_dir(), reason="the Topology Zoo's files are not here")
def test_the_whole_zoo_is_read_or_refused_with_a_reason():
    files = sorted(ZOO.glob("*.graphml"))
    reasons = []
    for file in files:
        try:
            load_topology(str(file))
        except StrettoError as error:
            reasons.append(str(error))
    assert len(files) == 276
    assert all("not connected" in reason for reason in reasons)
    assert len(reasons) == 23


@given(spec=st.text(st.sampled_from("ringtosze:x?&=,0123456789.-/%Ab"), max_size=24) | st.text(max_size=12))
def test_any_spec_is_a_topology_or_refused(spec):
    try:
        load_topology(spec)
    except StrettoError as error:
        assert str(error)


@given(
    family=st.sampled_from(["ring", "torus", "mesh", "sites", "ndv2", "dgx2", "amd", "fattree", "hypercube", "zoo"]),
    arguments=st.text(st.sampled_from("0123456789x,:tecl-"), max_size=6),
    query=st.sampled_from(
        ["", "?bandwidth=1", "?latency=1us", "?latency=-1", "?km=x", "?seed=1&routers=2", "?=", "?a=b"]
    ),
)
def test_any_arguments_of_a_family_are_a_topology_or_refused(family, arguments, query):
    try:
        load_topology(f"{family}:{arguments}{query}")
    except StrettoError as error:
        assert str(error)

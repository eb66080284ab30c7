"""What a user writes in files and of files, misspelt: nodes, columns of a CSV, and names of files."""

from __future__ import annotations

import json

import pytest

import stretto as st
from command_line import stretto
from stretto.model.errors import InputError, no_link, no_node
from stretto.model.units import parse_bandwidth, parse_size
from stretto.topologies import load_topology
from stretto.topologies.pairs import OF_NODES, OF_PAIRS
from stretto.topologies.tables import misspelt


@pytest.mark.parametrize(
    ("header", "wrong", "meant"),
    [
        ("src,dst,bandwidht,latency", "bandwidht", "bandwidth"),
        ("src,dst,bandwidth_Gbps,latnecy_ms", "latnecy_ms", "latency_ms"),
        ("src,dst,Troughput (MB/s)", "Troughput (MB/s)", "throughput (MB/s)"),
        ("soruce,dst,bandwidth_Gbps", "soruce", "source"),
        ("scr,dst,bandwidth_Gbps", "scr", "src"),
    ],
)
def test_a_misspelt_column_of_a_csv_is_answered_with_the_one_that_was_meant(header, wrong, meant, tmp_path):
    path = tmp_path / "links.csv"
    path.write_text(f"{header}\na,b,1,1\n")
    with pytest.raises(InputError, match="is not known; did you mean") as said:
        load_topology(str(path))
    assert f"the column {wrong!r} is not known; did you mean {meant!r}?" in str(said.value)


def test_columns_of_the_users_own_are_left_out_as_before():
    own = "src,dst,bandwidth_Gbps,date,state,loss,note,samples,latitude,direction,jitter,plan,rack,p99,comment"
    near = "dist_km,resource,received,names,nodes,hosts,servers,speeds,rates_max,sites"  # words that are almost known
    assert misspelt(f"{own},{near}".split(","), OF_PAIRS) is None
    assert misspelt(["node", "uplink_Gbps", "dist_km", "names", "rates", "delays", "resource"], OF_NODES) is None


def test_a_misspelt_column_of_a_table_of_nodes_is_refused(tmp_path):
    (tmp_path / "links.csv").write_text("src,dst,bandwidth_Gbps,rtt_ms\na,b,1,1\n")
    (tmp_path / "nodes.csv").write_text("node,uplinks_Gbps\na,1\nb,1\n")
    with pytest.raises(InputError, match=r"nodes\.csv: the column 'uplinks_Gbps' .* did you mean 'uplink_Gbps'\?"):
        load_topology(f"{tmp_path}/links.csv?nodes={tmp_path}/nodes.csv")


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("verify pln.parquet", "plan.parquet"),
        ("plan allgather -t ntework.csv --size 1MB", "network.csv"),
        ("plan allreduce -t ring:4 --size 1MB --tuning tabel.json", "table.json"),
        ("replan plan.parquet --telemetry newz.json", "news.json"),
        ("plan -t ring:4 --jobs jbos.json", "jobs.json"),
        ("study grid gird.toml", "grid.toml"),
        ("order -t sites:2,4 --library gloo --groups gruops.json", "groups.json"),
    ],
)
def test_a_misspelt_file_is_answered_with_the_one_beside_it(words, there, tmp_path):
    st.plan("allgather", "ring:4", "1KB", planner="ring").save(tmp_path / "plan.parquet")
    (tmp_path / there).touch()
    said = stretto(*words.split(), code=2, cwd=tmp_path).stderr
    assert f"cannot be read: No such file or directory; did you mean {there}?" in said and said.count("\n") == 1


def test_a_file_that_is_like_none_is_said_to_be_missing_and_no_more(tmp_path):
    (tmp_path / "plan.parquet").touch()
    (tmp_path / "pln.parquets").mkdir()
    said = stretto("verify", "elsewhere.json", code=2, cwd=tmp_path).stderr
    assert said == "error: elsewhere.json: cannot be read: No such file or directory\n"
    assert "did you mean" not in stretto("verify", "none/plan.parquet", code=2, cwd=tmp_path).stderr


def test_a_misspelt_node_is_answered_with_the_one_that_was_meant_but_another_number_is_another_node(tmp_path):
    names = ["berlin0", "berlin1", "paris0"]
    assert no_node("pariss0", names) == "there is no node 'pariss0'; did you mean paris0?"
    assert no_node("berlin7", names, "eu") == "there is no node 'berlin7' in eu"
    plan = st.plan("allgather", "zoo:Abilene", "1MB", planner="ring")
    plan.save(tmp_path / "plan.parquet")
    (tmp_path / "news.json").write_text(json.dumps({"links": [{"src": "Chicgo", "dst": "Denver", "down": True}]}))
    said = stretto("replan", "plan.parquet", "--telemetry", "news.json", code=2, cwd=tmp_path).stderr
    assert said == "error: news.json, link 0: there is no node 'Chicgo'; did you mean Chicago?\n"
    with pytest.raises(InputError, match="ranks: there is no node 'Denvr' in zoo:Abilene; did you mean Denver"):
        st.plan([{"collective": "allgather", "size": "1MB", "ranks": ["Denvr", "Chicago"]}], "zoo:Abilene")


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (parse_size, "1MX", "'1MX' has an unknown unit 'MX'; did you mean MB or MiB?"),
        (parse_size, "5Gigabytes", "did you mean GB or GiB?"),
        (parse_size, "1XB", "there are KB, MB, GB, TB, KiB, MiB, GiB, TiB, B"),
        (parse_bandwidth, "25GB/x", "did you mean GB/s or Gbit/s or Gbps?"),
        (parse_bandwidth, "25/x", "there are GB/s, MB/s, Gbit/s, Mbit/s, Gbps, Mbps"),
    ],
)
def test_a_misspelt_unit_is_answered_with_those_of_its_prefix(parse, text, says):
    with pytest.raises(InputError) as said:
        parse(text)
    assert str(said.value).endswith(says)


LINKS = (("oslo", "rome"), ("rome", "oslo"), ("oslo", "bern"), ("n1", "n2"))


@pytest.mark.parametrize(
    ("pair", "hint"),
    [
        (("olso", "rome"), "; did you mean oslo?"),
        (("oslo", "rmoe"), "; did you mean rome?"),
        (("bern", "oslo"), "; there is oslo→bern"),
        (("oslo", "n1"), "; links from oslo lead to rome, bern"),
        (("bern", "rome"), ""),
        (("n3", "n2"), ""),  # another number is another node
    ],
)
def test_a_link_that_is_not_there_is_answered_with_what_was_meant(pair, hint):
    assert no_link("there is none", *pair, LINKS) == f"there is none{hint}"
    many = [("a", f"b{k}") for k in range(9)]
    assert no_link("none", "a", "a", many) == "none; links from a lead to b0, b1, b2, b3, b4 and 4 more"


def test_misspelt_links_of_files_and_machines_of_an_order_are_answered_on_the_command_line(tmp_path):
    ends = ("oslo", "rome"), ("rome", "oslo"), ("oslo", "bern"), ("bern", "oslo"), ("rome", "bern")
    link = {"bandwidth_GBps": 1, "latency_us": 1}
    net = {"nodes": [{"id": city, "site": city} for city in ("oslo", "rome", "bern")],
           "links": [{"src": a, "dst": b, **link} for a, b in ends]}  # fmt: skip

    def refused(command, **files):
        for name, data in {"net": net, **files}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(data))
        return stretto(*command.split(), code=2, cwd=tmp_path).stderr

    misspelt = {**net, "links": [*net["links"], {"src": "bern", "dst": "rmoe", **link}]}
    assert "dst 'rmoe' is no node; did you mean rome?" in refused("topologies other.json", other=misspelt)
    changes = {"changes": [{"at_s": 1, "src": "bern", "dst": "rome", "bandwidth_GBps": 1}]}
    assert "no link from 'bern' to 'rome'; there is rome→bern" in refused(
        "topologies other.json", other={**net, **changes}
    )
    refused_order = refused("order -t net.json --library gloo --collective allreduce --size 1MB --order oslo,rmoe,bern")
    assert "net.json has no machine 'rmoe'; did you mean rome?" in refused_order
    stretto("plan", "allgather", "-t", "net.json", "--size=1KB", "-p", "forest", "-o", "plan.parquet", cwd=tmp_path)
    news = {"links": [{"src": "bern", "dst": "rome", "down": True}]}
    said = refused("replan plan.parquet --telemetry news.json", news=news)
    assert "there is no link bern→rome; there is rome→bern" in said
    said = refused("simulate plan.parquet --changes steps.json", steps=changes)
    assert "there is no link from 'bern' to 'rome'; there is rome→bern" in said

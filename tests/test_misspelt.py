"""What a user writes in files and of files, misspelt: nodes, columns of a CSV, and names of files."""

from __future__ import annotations

import json

import pytest

import stretto as st
from command_line import stretto
from stretto.model.errors import InputError, no_node
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

"""The command line as scripts use it: exit codes, JSON on stdout, one line on stderr.

Commands run in this process, where kernels are loaded once; some run in a process of their own.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from command_line import COMMAND, answer, stretto
from stretto import __version__ as stretto_version
from stretto.model.targets import MESSAGE_S
from tls_files import OPTIONS

PLAN_KEYS = {
    "planner", "topology", "collective", "ranks", "size_bytes", "shard_bytes", "chunks", "transfers", "completion_s",
    "bound_s", "completion_over_bound", "algorithm_bandwidth", "planning_s", "planning_cpu_s", "verified",
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "p.parquet"
    stretto("plan", "allgather", "-t", "ndv2:2", "--shard", "1MB", "-o", path, apart=True)
    return path


def test_plan_answers_with_all_its_keys(file):
    data = answer("plan", "allgather", "-t", "ndv2:2", "--shard", "1MB", "-p", "mtegcca")
    assert set(data) >= PLAN_KEYS
    assert (data["ranks"], data["size_bytes"], data["shard_bytes"], data["verified"]) == (16, 16 * 10**6, 10**6, True)
    assert data["completion_over_bound"] == data["completion_s"] / data["bound_s"] >= 1
    assert data["algorithm_bandwidth"] == data["size_bytes"] / data["completion_s"]


def test_it_says_which_version_it_is():
    assert stretto("--version", apart=True).stdout == f"stretto {stretto_version}\n"


def test_plan_counts_sizes_as_nccl_tests_do():
    assert answer("plan", "allgather", "-t", "ring:4", "--size", "4KB")["shard_bytes"] == 1000
    assert answer("plan", "broadcast", "-t", "ring:4", "--size", "4KB")["size_bytes"] == 4000


def test_a_solver_writes_nothing_beside_the_answer():
    # solvers write to file descriptors, which only a process of its own shows
    words = ("plan", "allgather", "-t", "ring:3", "--size", "3KB", "-p", "teccl", "--json")
    data = json.loads(stretto(*words, apart=True).stdout)
    assert (data["planner"], data["verified"], data["proven"]) == ("teccl", True, True)


def test_several_collectives_have_their_own_completions():
    data = answer("plan", "broadcast,allgather", "-t", "ring:4", "--size", "4KB")
    assert len(data["completions_s"]) == 2
    assert data["mean_completion_s"] == sum(data["completions_s"]) / 2
    assert data["collective"] == "broadcast,allgather"


def test_plan_prints_a_summary_for_people():
    text = stretto("plan", "allgather", "-t", "ring:4", "--size", "4KB").stdout
    assert all(word in text for word in ("completion / bound", "lower bound", "verified"))


def test_a_plan_can_be_verified_simulated_and_shown(file):
    assert answer("verify", file)["verified"] is True
    simulated = answer("simulate", file)
    assert simulated["completion_s"] == answer("show", file)["completion_s"]
    assert {"src", "dst", "bytes", "use"} <= set(simulated["links"][0])
    assert len(answer("show", file, "--transfers", "3")["transfer_rows"]) == 3
    for words in ("verify", "simulate", "show"):
        assert stretto(words, file).stdout.strip()


def test_a_plan_is_simulated_on_a_network_that_changes(file, tmp_path):
    changes = tmp_path / "changes.csv"
    changes.write_text("at_s,link,bandwidth_GBps\n0,0,0\n1,0,1\n")
    assert answer("simulate", file, "--changes", changes)["completion_s"] > 1 > answer("simulate", file)["completion_s"]
    changes.write_text("at_s,link,bandwidth_GBps\n0,9999,0\n")
    done = stretto("simulate", file, "--changes", changes, code=2)
    assert "change 0: 'link' must be a whole number from 0 to" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_matrix_says_who_has_how_much_for_whom(tmp_path):
    matrix, path = tmp_path / "d.csv", tmp_path / "p.parquet"
    matrix.write_text("0,4MB,1MB\n2MB,0,\n,3MB,0\n")
    made = answer("plan", "alltoallv", "-t", "optical:3,2", "--demand", matrix, "-p", "birkhoff", "-o", path)
    assert made["verified"] and made["size_bytes"] == 5_000_000
    assert answer("simulate", path)["completion_s"] == made["completion_s"]
    # 7 MB into one rank over 100 GB/s, and 20 us
    assert answer("bound", "alltoallv", "-t", "optical:3,2", "--demand", matrix)["bound_s"] == pytest.approx(90e-6)
    rows = answer("compare", "alltoallv", "-t", "optical:3,2", "--demand", matrix, "-p", "birkhoff,swot")["rows"]
    assert [row["planner"] for row in rows] == ["birkhoff", "birkhoff+swot"]


def test_a_plan_that_is_wrong_is_a_no(tmp_path):
    path = tmp_path / "p.json"
    stretto("plan", "broadcast", "-t", "ring:4", "--size", "4KB", "-o", path)
    data = json.loads(path.read_text())
    data["transfers"].pop()
    path.write_text(json.dumps(data))
    done = stretto("verify", path, "--json", code=1)
    finding = json.loads(done.stdout)
    assert finding["verified"] is False
    assert finding["finding"]["code"] == "incomplete"
    for words in (
        ("verify",),
        ("simulate",),
        ("export", "--to", "csv", "-o", tmp_path / "x"),
        ("report", "-o", tmp_path / "x"),
    ):
        assert "never gets" in stretto(words[0], path, *words[1:], code=1).stdout
    assert not (tmp_path / "x").exists()


def test_bound_names_its_witnesses():
    data = answer("bound", "allgather", "-t", "ndv2:4", "--shard", "31.25MB")
    assert data["bound_s"] == pytest.approx(0.060, rel=1e-3)
    assert {"bound_s", "kind", "witness", "nodes", "links"} <= set(data["bounds"][0])
    assert "chassis" in stretto("bound", "allgather", "-t", "ndv2:4", "--shard", "31.25MB").stdout
    whole = answer("bound", "allgather", "-t", "ndv2:4", "--shard", "31.25MB", "--chunks", "1")
    assert whole["bound_s"] > data["bound_s"]


def test_compare_has_a_row_for_each_size_planner_and_chunk_count(tmp_path):
    page = tmp_path / "c.html"
    data = answer(
        "compare", "allgather", "-t", "dgx1", "--size", "1MB,8MB", "-p", "mtegcca", "--chunks", "1,2", "-o", page
    )
    assert [(r["size_bytes"], r["chunks"]) for r in data["rows"]] == [
        (10**6, 1),
        (10**6, 2),
        (8 * 10**6, 1),
        (8 * 10**6, 2),
    ]
    assert page.read_text().startswith("<!doctype html>")


def test_compare_says_what_a_planner_cannot_do():
    done = stretto("compare", "allreduce", "-t", "dgx1", "--size", "1MB", "-p", "milp-allgather", code=2)
    assert "does not serve allreduce" in done.stderr


def test_replan_plans_what_is_left_and_names_what_is_lost(tmp_path):
    plan, news, rest = tmp_path / "p.parquet", tmp_path / "n.json", tmp_path / "r.parquet"
    stretto("plan", "allgather", "-t", "sites:2,2?routers=2", "--shard", "250MB", "-p", "scale-ccl", "-o", plan)
    news.write_text('{"links": [{"src": "s0.router0", "dst": "s1.router0", "down": true}]}')
    data = answer("replan", plan, "--telemetry", news, "--at", "10ms", "-o", rest)
    assert set(data) >= {"planner", "completion_s", "bound_s", "verified", "delivered", "left", "lost_count", "lost"}
    assert (data["verified"], data["lost"], data["lost_count"]) == (True, [], 0)
    assert data["delivered"] + data["left"] == 16
    assert answer("verify", rest)["verified"] is True
    news.write_text('{"down": ["s0.router0", "s0.router1"]}')
    done = stretto("replan", plan, "--telemetry", news, "--json", code=1)
    assert json.loads(done.stdout)["lost_count"] == 8
    assert "lost" in stretto("replan", plan, "--telemetry", news, code=1).stdout
    news.write_text('{"down": ["s9"]}')
    assert "no node 's9'" in stretto("replan", plan, "--telemetry", news, code=2).stderr


def test_report_and_exports_are_written(file, tmp_path):
    assert answer("report", file, "-o", tmp_path / "p.html")["plans"] == 1
    for name in ("json", "csv", "trace", "perfetto", "parquet"):
        answer("export", file, "--to", name, "-o", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0
    assert answer("verify", tmp_path / "json")["digest"] == answer("verify", file)["digest"]


def test_some_ranks_are_exported_by_their_numbers(tmp_path):
    file = tmp_path / "p.parquet"
    stretto("plan", "allgather", "-t", "ndv2:2", "--shard", "1MB", "--for", "chakra", "-o", file)
    exported = answer("export", file, "--to", "chakra", "--ranks", "1-2,0", "-o", tmp_path / "t")
    assert exported["ranks"] == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("t.")) == [
        "t.0.et", "t.1.et", "t.2.et"
    ]  # fmt: skip
    answer("export", file, "--to", "csv", "--ranks", 1, "-o", tmp_path / "csv")
    for ranks, words in (
        ("1-x", "must be a rank or a range"),
        ("²", "must be a rank"),
        ("2-1", "within 0 to"),
        ("99", "within 0 to"),
    ):
        done = stretto("export", file, "--to", "csv", "--ranks", ranks, "-o", tmp_path / "x", code=2)
        assert words in done.stderr and "--ranks" in done.stderr
    done = stretto("export", file, "--to", "msccl", "--ranks", "1", "-o", tmp_path / "x", code=2)
    assert "a file of msccl holds all ranks; some are written of a plan as trace, csv, chakra" in done.stderr
    assert not (tmp_path / "x").exists()


def test_topologies_and_planners_are_listed(tmp_path):
    assert {"ndv2:CHASSIS[:teccl]", "zoo:NAME"} <= {r["spec"] for r in answer("topologies")["topologies"]}
    assert answer("topologies", "ndv2:4")["nodes"] == {"accelerator": 32, "switch": 1}
    assert "zoo" in answer("topologies", "zoo")
    files = {row["file"]: row["options"] for row in answer("topologies", "files")["files"]}
    assert "gpus" in files["ibnetdiscover"] and "gpus" not in files["hwloc's XML"]
    assert (tmp_path / "n.svg").exists() is False
    stretto("topologies", "zoo:Abilene", "--plot", tmp_path / "n.svg")
    assert (tmp_path / "n.svg").read_text().startswith("<svg")
    planners = answer("planners")["planners"]
    assert {"name", "collectives", "topologies", "paper", "exact", "options"} <= set(planners[0])
    for words in (("topologies",), ("topologies", "ndv2:2"), ("planners",)):
        assert stretto(*words).stdout.strip()


def test_a_cluster_is_composed_written_drawn_and_planned(tmp_path):
    server = tmp_path / "server.txt"
    server.write_text(
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\tX\tNV4\tPXB\t0\nGPU1\tNV4\tX\tPXB\t0\nNIC0\tPXB\tPXB\tX\n"
    )
    fabric = ("--servers", 4, "--fabric", "rails?spines=2", "--nics", "1x200Gbit/s")
    net, picture = tmp_path / "cluster.json", tmp_path / "c.svg"
    made = answer("topologies", "compose", server, *fabric, "-o", net, "--plot", picture)
    assert made["nodes"] == {"accelerator": 8, "switch": 4 * 2 + 1 + 2}
    assert answer("topologies", net)["link_kinds"] == made["link_kinds"]
    assert picture.read_text().startswith("<svg")
    assert answer("plan", "allgather", "-t", net, "--shard", "1MB", "-p", "ring")["verified"] is True
    listed = answer("topologies")
    assert {"rails", "wan"} <= {f["fabric"] for f in listed["fabrics"]}
    assert "8x400Gbit/s" in {f.get("nics") for f in listed["topologies"]}
    assert "server0, server1" in stretto("topologies", "compose", "h100", "--servers", 64).stdout


def test_the_cheapest_plan_and_the_plan_for_a_budget_are_of_one_front(tmp_path):
    net = "cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope"
    request = ("plan", "allgather", "-t", net, "--size", "30MB", "-p", "forest", "--points", 2)
    cheapest = answer(*request, "--objective", "cost", "-o", tmp_path / "p.parquet")
    costs = [row["cost_usd"] for row in cheapest["front"]]
    assert cheapest["cost_usd"] == min(costs) >= cheapest["least_usd"] > 0
    assert answer("verify", tmp_path / "p.parquet")["digest"] == cheapest["front"][0]["digest"] == cheapest["digest"]
    fastest = answer(*request, "--budget", 1)
    assert fastest["cost_usd"] == max(costs) and fastest["completion_s"] <= cheapest["completion_s"]
    assert "no plan costs less than" in stretto(*request, "--objective", "cost").stdout
    assert len(answer("topologies", "cloud")["cloud"]) == 63


def test_options_and_seeds_reach_the_planner():
    data = answer(
        *("plan", "allgather", "-t", "dgx1", "--shard", "1MB", "-p", "mtegcca"),
        *("--option", "tree=nearest", "--option", "order=rank"),
    )
    other = answer("plan", "allgather", "-t", "dgx1", "--shard", "1MB", "-p", "mtegcca", "--option", "tree=earliest")
    assert data["digest"] != other["digest"]


def test_an_order_is_found_written_and_drawn(tmp_path):
    (tmp_path / "hosts").write_text("# as started today\ngpu2 slots=1\ngpu0\ngpu3\ngpu1\n")
    words = ["order", "-t", "ring:4", "--library", "gloo", "--collective", "allreduce", "--size", "1MB"]
    data = json.loads(
        stretto(*words, "--order", tmp_path / "hosts", "-o", tmp_path / "h", "--to", "slurm", "--plot",
                tmp_path / "p.svg", "--json").stdout
    )  # fmt: skip
    assert data["before"] == ["gpu2", "gpu0", "gpu3", "gpu1"]
    assert data["proven"]
    assert data["after_s"] < data["before_s"]
    assert (tmp_path / "h").read_text().split() == data["order"]
    assert (tmp_path / "p.svg").exists()
    shown = stretto(*words).stdout
    assert "no order ends sooner" in shown
    assert shown.splitlines()[-4:] == ["0\tgpu0", "1\tgpu1", "2\tgpu2", "3\tgpu3"]


def test_one_planner_is_shown_with_its_options():
    shown = stretto("planners", "swot").stdout
    assert "--option mode=fast" in shown
    assert "pairwise" not in shown
    assert [row["name"] for row in answer("planners", "swot")["planners"]] == ["swot"]


def test_planes_are_described():
    assert "3 optical planes of 8 ports" in stretto("topologies", "optical:8,3").stdout
    assert answer("topologies", "optical:8,3")["plane_kinds"][0]["reconfiguration_s"] == 200e-6


def test_comparing_says_under_the_table_who_could_not(tmp_path):
    shown = stretto("compare", "broadcast", "-t", "ring:4", "--size", "1KB", "-p", "mtegcca,ring").stdout
    assert shown.rstrip().endswith("no plan by ring: ring does not serve broadcast; it serves allreduce, reducescatter, "
                                   "allgather")  # fmt: skip


def test_an_unknown_format_names_those_there_are(file, tmp_path):
    assert "csv" in stretto("export", file, "--to", "pdf", "-o", tmp_path / "x", code=2).stderr


@pytest.mark.parametrize(("device", "code"), [("/dev/null", 0), ("/dev/full", 2)])
def test_a_device_is_written_to_and_stays_a_device(device, code):
    done = stretto("plan", "allgather", "-t", "ring:3", "--size", "3KB", "-p", "ring", "-o", device, code=code)
    assert done.stderr == ("" if code == 0 else f"error: {device}: cannot be written: No space left on device\n")
    assert Path(device).is_char_device()


def test_a_reader_that_goes_away_is_no_error(file):
    show = shlex.join([*COMMAND, "show", str(file), "--transfers", "240", "--json"])
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {show} | head -c 10"], capture_output=True)
    assert done.returncode == 0
    assert done.stderr == b""


def test_completion_offers_what_there_is():
    from stretto.cli import arguments

    assert ("ndv2:4" in dict(arguments.complete_topology("nd"))) and (
        "mtegcca" in dict(arguments.complete_planner("m"))
    )
    assert arguments.complete_collective("all") == ["allgather", "allreduce", "alltoall", "alltoallv"]
    assert "csv" in arguments.complete_format("c")


def test_a_plan_runs_on_real_bytes(tmp_path):
    path = tmp_path / "p.json"
    stretto("plan", "allreduce", "-t", "ring:4", "--size", "40KB", "-p", "ring", "-o", path)
    data = answer("run", path, "--timeout", "30")
    assert data["correct"] is True
    assert (data["processes"], data["transfers"], data["wrong"]) == (4, 24, [])
    assert "every byte right" in stretto("run", path, *OPTIONS).stdout
    assert "--tls-key: TLS needs --tls-cert, --tls-key and --tls-ca" in stretto("run", path, OPTIONS[0], code=2).stderr
    assert (
        "'signed' is none of plain, authenticated, encrypted"
        in stretto("run", path, "--frames", "signed", code=2).stderr
    )
    assert "/nowhere: the secret cannot be read" in stretto("run", path, "--secret-file", "/nowhere", code=2).stderr


def test_a_request_runs_as_planned_for_the_processes_and_a_file_for_cheaper_messages_says_so(tmp_path):
    data = answer("run", "allgather", "-t", "ring:3?message=0", "--size", "3KB", "-p", "ring")
    assert (data["correct"], data["planner"], data["file"], "note" in data) == (True, "ring", None, False)
    assert data["message_s"] == [MESSAGE_S, MESSAGE_S]
    path = tmp_path / "p.json"
    stretto("plan", "allgather", "-t", "ring:3?message=1us", "--size", "3KB", "-p", "ring", "-o", path)
    assert answer("run", path)["note"].startswith("planned for messages that cost 1 us; here one costs 50 us")
    assert "-t" in stretto("run", "allgather", "--size", "3KB", code=2).stderr
    assert answer("run", "broadcast", "-t", "star:4", "--size", "3KB")["transfers"] >= 3  # the switch copies nothing


def test_an_emulation_that_would_leave_a_chunk_without_bytes_is_refused(tmp_path):
    path = tmp_path / "p.json"
    stretto("plan", "allreduce", "-t", "ring:4", "--size", "40KB", "-p", "ring", "-o", path)
    said = stretto("emulate", path, "--shrink", "10001", code=2).stderr
    assert "--shrink" in said and "10000 bytes" in said


def test_what_killed_emulations_left_can_be_removed():
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is missing")
    assert isinstance(answer("emulate", "--clean")["removed"], list)
    assert "FILE" in stretto("emulate", code=2).stderr


def test_export_to_nccl_writes_a_folder_for_a_topology_or_the_network_of_a_plan(file, tmp_path):
    of_topology = answer("export", "-t", "ndv2:2", "--to", "nccl", "-o", tmp_path / "p")
    of_plan = answer("export", file, "--to", "nccl", "-o", tmp_path / "q")
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == sorted(of_topology["files"])
    assert (of_topology["servers"], of_topology["gpu"], of_topology["ordering"]["proven"]) == (2, "v100", True)
    assert of_plan["graphs"] == of_topology["graphs"] and "no plan" in of_plan["notes"][0]
    assert "wrote 9 files" in stretto("export", "-t", "ndv2:2", "--to", "nccl", "-o", tmp_path / "r").stdout

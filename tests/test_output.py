"""What the command line prints fits the terminal, and what it writes is what the file's name says."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios

import pytest

import stretto as st
from command_line import answer, stretto
from stretto.cli import output
from stretto.cli.tables import to_terminal
from stretto.model.units import format_time
from stretto.topologies import load_topology


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.parquet"
    stretto("plan", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring", "-o", path)
    return path


ORDERED = ["order", "-t", "sites:2,4", "--library", "gloo", "--collective", "allreduce", "--size", "1GB"]


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "allgather", "-t", "ring:4", "--size", "1MB", "-o", "plan.csv"),
        ("compare", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring", "-o", "page.json"),
        ("topologies", "ring:4", "--to", "json", "-o", "net.csv"),
        ("topologies", "ring:4", "--to", "astra-sim", "-o", "net.json"),
        ("topologies", "ring:4", "--plot", "net.html"),
        ("tune", "allreduce", "-t", "ring:4", "-p", "ring", "--sizes", "1MB", "-o", "table.csv"),
        (*ORDERED, "-o", "order.yaml"),
        (*ORDERED, "--plot", "o.html"),
        ("measure", "--hosts", "a,b", "-o", "measured.csv"),
        ("run", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring", "--trace", "trace.csv"),
        ("import", "x.xml", "--from", "msccl", "-t", "ring:4", "--size", "1MB", "-o", "plan.xml"),
    ],
)
def test_a_name_that_promises_another_format_is_refused(command, tmp_path):
    said = stretto(*command, code=2, cwd=tmp_path).stderr
    assert said.startswith(f"error: {command[-1]}: what is written is .") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("plan allgather -t ring:4 --size 1MB -o plan.paquet", "plan.parquet"),
        ("compare allgather -t ring:4 --size 1MB -p ring -o page.htlm", "page.html"),
        ("export plan.parquet -o plan.xlm", "plan.xml"),
    ],
)
def test_a_misspelt_ending_is_answered_with_the_one_that_was_meant(command, meant, plan, tmp_path):
    there = sorted(tmp_path.iterdir())
    assert f"did you mean {meant}?" in stretto(*command.split(), code=2, cwd=tmp_path).stderr
    assert sorted(tmp_path.iterdir()) == there
    stretto(*["plan", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring", "-o", "plan.v2"], cwd=tmp_path)


def test_the_format_is_told_from_the_ending(plan, tmp_path):
    for ending, name in (("csv", "csv"), ("json", "json"), ("xml", "msccl"), ("py", "mscclpp-dsl")):
        assert answer("export", plan, "-o", tmp_path / f"out.{ending}")["format"] == name
    assert (tmp_path / "out.csv").read_text().count("\n") == 13
    for ending, name in (("json", "json"), ("graphml", "graphml"), ("yml", "astra-sim"), ("topology", "json")):
        assert answer("topologies", "ring:4", "-o", tmp_path / f"net.{ending}")["format"] == name
        assert load_topology(str(tmp_path / f"net.{ending}")).node_count == 4
    said = stretto("export", plan, "-o", tmp_path / "out", code=2).stderr
    assert "does not say which format; there are parquet, json" in said
    said = stretto("export", plan, "--to", "trace", "-o", tmp_path / "trace.csv", code=2).stderr
    assert said.endswith("trace.csv: what is written is .json\n") and not (tmp_path / "trace.csv").exists()


HEADER = ("planner", "size", "completion", "algorithm bandwidth")
ROWS = [("ring", "1 MB", "8.686 ms", "14.24 GB/s"), ("forest", "64 MB", "791.7 us", "80.84 GB/s")]


def printed(monkeypatch, capsys, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    output.print_table("two plans", HEADER, ROWS)
    return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)


def test_a_table_that_fits_has_a_line_for_each_row(monkeypatch, capsys):
    wide = printed(monkeypatch, capsys, 90)
    assert [line.split() for line in wide.splitlines() if "MB" in line] == [" ".join(row).split() for row in ROWS]


@pytest.mark.parametrize("columns", [36, 44])
def test_a_table_that_does_not_fit_is_turned_and_breaks_no_word(columns, monkeypatch, capsys):
    narrow = printed(monkeypatch, capsys, columns)
    lines = [line.split() for line in narrow.splitlines() if line.strip()]
    expected = [["two", "plans"]] + [f"{name} {cell}".split() for row in ROWS for name, cell in zip(HEADER, row)]
    assert lines == expected and max(map(len, narrow.splitlines())) <= columns


def test_the_plan_that_ends_soonest_is_marked():
    said = stretto("compare", "allreduce", "-t", "dgx1", "--size", "1KB,64MB", "-p", "ring,recursive-doubling").stdout
    marked = [line.split()[0] for line in said.splitlines() if " * " in line]
    assert marked == ["recursive-doubling", "ring"] and "* ends soonest" in said
    alone = stretto("compare", "allreduce", "-t", "dgx1", "--size", "1KB,64MB", "-p", "ring").stdout
    assert "*" not in alone


def test_of_several_collectives_the_least_mean_completion_is_marked():
    comparison = st.compare("allreduce:64MB,allreduce:1MB@1ms", "dgx1", planner=["ring", "recursive-doubling", "jobs"])
    assert comparison.header[-1] == "mean completion" and "* has the least mean completion" in comparison.notes
    best = min(comparison, key=lambda row: row["mean_completion_s"])
    assert [row[0] for row in comparison.cells if row[0].endswith(" *")] == [best["planner"] + " *"]
    assert [row[-1] for row in comparison.cells] == [format_time(row["mean_completion_s"]) for row in comparison]


def test_two_bounds_of_a_plan_over_planes_say_which_one_counts_turns():
    asked = ("allreduce", "-t", "optical:8,2", "--size", "40MB")
    said = stretto("plan", *asked, "-p", "rabenseifner+swot").stdout
    assert "420 us (node ingress: 40 MB over 100 GB/s into gpu0; turns not counted)" in said
    assert "1.32 ms, turns counted (reached: no schedule of them is faster)" in said
    slower = stretto("plan", *asked, "-p", "rabenseifner+strawman-icr").stdout
    assert "1.32 ms, turns counted (18.52 % below the completion)" in slower
    for shown in (stretto("bound", *asked), stretto("compare", *asked, "-p", "rabenseifner+swot")):
        assert "\nbounds do not count the turns of planes\n" in shown.stdout


@pytest.mark.parametrize("network", ["ring:8", "optical:8,2?reconfiguration=0us"])
def test_where_nothing_turns_no_bound_speaks_of_turns(network):
    planner = "rabenseifner+swot" if network.startswith("optical") else "ring"
    asked = ("allreduce", "-t", network, "--size", "40MB")
    for command in (("plan", *asked, "-p", planner), ("bound", *asked), ("compare", *asked, "-p", planner)):
        assert "turns" not in stretto(*command).stdout
    assert answer("bound", *asked)["bound_counts_turns"]


def test_names_are_printed_as_they_are(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "90")
    output.print_table("of :star: and [bold]", ("a :star:", "b [red]", "c"), [(":star:", "[bold]x", "8")])
    said = capsys.readouterr().out
    assert said.count(":star:") == 3 and "b [red]" in said and "[bold]x" in said


def test_an_error_fits_the_terminal_that_stderr_is_though_stdout_is_another(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    text = "error: a message of more words than a line of forty columns has room for"
    with os.fdopen(theirs, "w") as terminal:
        lines = to_terminal(text, terminal).split("\n")
    os.close(ours)
    assert len(lines) == 2 and max(map(len, lines)) <= 40

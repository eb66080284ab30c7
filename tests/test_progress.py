"""Progress on a terminal: what is being done, the time left where it is counted, and nothing anywhere else."""

from __future__ import annotations

import io
import json
import sys

import pytest

from stretto import cli
from stretto.cli import progress
from stretto.cli.progress import Progress, fitting, rounded


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def last(terminal: Terminal) -> str:
    """What the last line drawn says."""
    return terminal.getvalue().rpartition("\033[K")[2]


@pytest.fixture
def line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal, clock = Terminal(), Clock()
    return Progress(terminal, clock), terminal, clock


def test_nothing_is_drawn_within_the_first_second(line):
    shown, terminal, clock = line
    shown.tell(0, 0, "reading")
    clock.now_s = 0.9
    shown.tell(1, 4, "ring")
    assert terminal.getvalue() == ""
    clock.now_s = 3.0
    shown.draw()
    assert last(terminal) == "ring (1/4, 3 s)"
    shown.clear()
    assert last(terminal) == ""


def test_the_time_left_is_counted_from_what_was_done_here(line):
    shown, terminal, clock = line
    shown.tell(40, 100, "found")  # parts that an earlier run did say nothing about the speed
    assert shown.left_s() is None
    clock.now_s = 10.0
    shown.tell(50, 100, "a cell")
    assert shown.left_s() == 50.0 and last(terminal) == "a cell (50/100, 10 s, about 50 s left)"
    clock.now_s = 12.0  # no news, and two seconds less
    shown.draw()
    assert last(terminal) == "a cell (50/100, 12 s, about 48 s left)"
    shown.tell(100, 100, "done")
    assert last(terminal) == ""


def test_a_part_that_takes_longer_than_those_before_it_is_not_nearly_done(line):
    """As a planner of `auto` that takes 9 s after one that took 0.3 s."""
    shown, terminal, clock = line
    shown.tell(0, 5, "shortest-path")
    clock.now_s = 1.0
    shown.tell(1, 5, "forest")
    clock.now_s = 4.0
    shown.draw()
    assert last(terminal) == "forest (1/5, 4 s, about 1 s left)"
    clock.now_s = 8.0  # four parts like two that take 8 s
    shown.draw()
    assert last(terminal) == "forest (1/5, 8 s, about 12 s left)"
    shown.tell(4, 5, "greedy")
    clock.now_s = 15.0  # two seconds a part before
    shown.draw()
    assert last(terminal) == "greedy (4/5, 15 s)"


def test_what_is_waited_for_has_the_time_that_was_said(line):
    shown, terminal, clock = line
    clock.now_s = 2.0
    shown.wait("running", 10.0)
    assert last(terminal) == "running (2 s, about 10 s left)"
    clock.now_s = 11.6
    shown.draw()
    assert last(terminal) == "running (12 s, nearly done)"
    clock.now_s = 13.0  # longer than was said
    shown.draw()
    assert last(terminal) == "running (13 s)"
    shown.tell(0, 0, "simulating")
    assert last(terminal) == "simulating (13 s)"
    shown.wait("running", 10.0)
    shown.tell(0, 0, "simulating")  # before the time that was said
    assert last(terminal) == "simulating (13 s)"


def test_of_what_ends_after_a_known_effort_the_most_time_that_is_left_is_said(line):
    shown, terminal, clock = line
    clock.now_s = 2.0
    shown.wait("a program of 40 columns", 60.0, at_most=True)
    assert last(terminal) == "a program of 40 columns (2 s, at most about 60 s left)"
    clock.now_s = 22.0
    shown.wait("at least 3 slots", None, at_most=True)  # news of the same work
    assert last(terminal) == "at least 3 slots (22 s, at most about 40 s left)"
    shown.tell(0, 0, "verifying")
    assert last(terminal) == "verifying (22 s)"


def test_of_many_parts_the_percentage_is_said(line):
    shown, terminal, clock = line
    shown.tell(0, 2_000_000, "exchanging machines")
    clock.now_s = 6.0
    shown.tell(500_000, 2_000_000, "exchanging machines")
    assert last(terminal) == "exchanging machines (25 %, 6 s, about 18 s left)"


def test_parts_that_a_kernel_counts_are_looked_at_when_the_line_is_drawn(line):
    shown, terminal, clock = line
    counted = [0]
    shown.watch(lambda: 40 + counted[0], 100, "nearest trees")
    clock.now_s, counted[0] = 10.0, 20
    shown.draw()
    assert last(terminal) == "nearest trees (60/100, 10 s, about 20 s left)"
    shown.tell(0, 0, "verifying")
    counted[0] = 30
    shown.draw()
    assert last(terminal) == "verifying (10 s)"


def test_parts_whose_number_is_not_known_have_no_time_left(line):
    shown, terminal, clock = line
    for tried in range(4):
        clock.now_s += 5.0
        shown.tell(tried, tried + 1, "epochs")
    assert "left" not in terminal.getvalue()


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_the_line_is_cut_to_the_terminal(columns):
    said = fitting("allreduce of 256 MB by multilevel+rate-alloc", "3/10, 12 s", columns)
    assert len(said) <= columns and "3/10, 12 s" in said


def test_times_are_for_people():
    assert [rounded(s) for s in (0.2, 12.4, 99.6, 5000, 7200)] == ["0 s", "12 s", "2 min", "83 min", "2.0 h"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a plan, a table, and news."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run("plan allgather -t ring:4 --size 1MB -p ring -o plan.parquet", patch)
        run("tune allreduce -t ring:4 --size 1MB -p ring --chunks 1 --for msccl -o table.json", patch)
        run("plan allreduce -t ring:4 --size 1MB -p ring --for msccl -o sum.parquet", patch)
        run("export sum.parquet -o plan.xml", patch)
    (folder / "news.json").write_text(json.dumps({"at": "1us", "links": []}))
    return folder


def run(words: str, patch) -> str:
    """What a command draws on a terminal that it has kept waiting."""
    patch.setattr(sys, "argv", ["stretto", *words.split()])
    patch.setattr(sys, "stderr", terminal := Terminal())
    patch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, terminal.getvalue()
    lines = terminal.getvalue().splitlines(keepends=True)
    return "".join(line for line in lines if "compiling kernel" not in line)  # said once on a machine


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan allgather -t ring:4 --size 1MB -p ring", ["the network ring:4", "planning", "verifying", "simulating"]),
        (
            "plan allgather -t ring:4 --size 1MB -p ring --effort 15",
            ["planning by ring (", "at most about 15 s left"],
        ),
        (
            "plan allgather -t dgx1 --size 1MB -p forest",
            [
                "counting the trees that fill the links (",
                "packing trees (0/",
                "growing trees for numbers of parts (",
                "a plan of 16 parts (1/10, ",
                "plans of more parts (",
            ],
        ),
        (
            "plan allgather -t dgx1?message=0 --size 64MB -p forest --effort thorough",
            ["packing trees (", "a plan of 3,000 transfers (0 %, ", "a plan of 12,000 transfers (1 %, "],
        ),
        ("compare allgather -t ring:4 --size 1KB,1MB -p ring", ["ring, 1KB", "ring, 1MB (1/2"]),
        (
            "bound allgather -t ring:4 --size 1MB",
            ["lower bounds", "narrowest cut", "prices of crossings", "links to widen (0/"],
        ),
        ("bound allgather,allreduce -t ring:4 --size 1MB", ["of the allgather (0/2", "of the allreduce (1/2"]),
        (
            "run plan.parquet",
            [
                "starting processes (1/4",
                "connecting and making test data, 0 of 4 processes done (",
                "sending, 0 of 4 processes done (",
                "checking chunks (3/4",
            ],
        ),
        ("plan allgather -t ring:4 --size 1MB -p teccl", ["planning by teccl", "columns (", "at most about"]),
        ("plan allgather -t ndv2:1 --size 1MB -p taccl", ["scheduling, a program of", "at most about 5 min left"]),
        ("plan allgather -t ring:4 --size 1MB -p milp-allgather", ["a program of", "at most about 10 min left"]),
        ("tune allgather -t ring:4 --size 1KB,1MB -p ring --chunks 1", ["allgather of 1 MB by ring (1/2"]),
        ("order -t ring:4 --library gloo --collective allreduce --size 1MB", ["searching the order"]),
        (
            "order -t ring:6?bandwidth=1GB/s --library gloo --collective allreduce --size 1MB --machines gpu",
            ["before", "exchanging machines (", " %, ", "simulating the best orders (1/"],
        ),
        ("replan plan.parquet --telemetry news.json -p ring", ["reading plan.parquet", "what is left"]),
        ("verify plan.parquet", ["verifying"]),
        ("simulate plan.parquet", ["simulating", "lower bounds"]),
        ("show plan.parquet", ["reading plan.parquet", "simulating"]),
        ("report plan.parquet -o page.html", ["drawing page.html"]),
        ("export plan.parquet -o plan.csv", ["writing plan.csv"]),
        ("export table.json --to msccl -o programs", ["allreduce from"]),
        ("import plan.xml --from msccl -t ring:4 --size 1MB", ["reading plan.xml", "verifying"]),
    ],
)
def test_a_command_says_what_it_does_on_a_terminal_alone(words, said, files, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    drawn = run(words, monkeypatch)
    assert [part for part in said if part not in drawn] == []
    assert drawn.endswith("\r\033[K")  # the line is away when the answer is there
    assert run(words + " --json", monkeypatch) == ""


def test_what_a_long_command_says_first_fits_the_terminal_and_is_whole_in_a_log(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = "results, tables and page go to a-folder-with-a-name/that-is-long/"
    for stream, lines in ((Terminal(), ["results, tables and page go to", text.split()[-1]]), (io.StringIO(), [text])):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.shown([]):
            progress.say(text)
        assert stream.getvalue().splitlines() == lines
        with progress.shown(["--json"]):
            progress.say(text)
        assert stream.getvalue().splitlines() == lines

"""What the command line refuses: exit code 2, one line on stderr that names what is wrong, and nothing is written."""

from __future__ import annotations

import pytest

from command_line import stretto

GLOO_ORDER = ["order", "-t", "ring:4", "--library", "gloo", "--collective", "allreduce", "--size", "1MB"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "allgather", "-t", "rign:4", "--size", "1KB"], "did you mean ring"),
        (["plan", "allgatter", "-t", "ring:4", "--size", "1KB"], "no collective"),
        (["plan", "allgather", "-t", "ring:4"], "either --size or --shard"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--shard", "1KB"], "either --size or --shard"),
        (["plan", "allgather", "-t", "ring:4", "--size", "much"], "not a size"),
        (["plan", "allgather", "-t", "ring:4", "--size", "2"], "raise the size"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "oracle"], "no planner 'oracle'"),
        (["plan", "alltoall", "-t", "ring:4", "--size", "1KB", "-p", "mtegcca"], "does not serve alltoall"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--option", "x=1"], "no option 'x'"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--option", "x"], "name=value"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-o", "none/p.parquet"], "cannot be written"),
        (["compare", "allgather", "-t", "ring:4", "--size", "1KB", "-o", "none/p.html"], "cannot be written"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-o", "."], "is a folder"),
        (["verify", "none.parquet"], "cannot be read"),
        (["show", "dgx2:2"], "is a network, not a plan file; `stretto topologies dgx2:2` shows it"),
        (["export", "none.parquet", "--to", "csv", "-o", "x"], "cannot be read"),
        (["report", "none.parquet", "-o", "x.html"], "cannot be read"),
        (["topologies", "ring:4", "--plot", "x.png"], "svg"),
        (["topologies", "cloud:aws:us-est-1"], "did you mean aws:us-"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1MB", "--objective", "cost"], "no link has a price"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1MB", "--objective", "price"], "none of time, cost"),
        (["topologies", "compose"], "give at least one SERVER"),
        (["topologies", "compose", "none.txt", "--servers", "2"], "none.txt: cannot be read"),
        (["topologies", "compose", "h100", "--servers", "0"], "--servers: '0' is not a whole number of at least 1"),
        (["topologies", "compose", "h100", "--fabric", "rials"], "rials: is no fabric; did you mean rails?"),
        (["topologies", "compose", "h100", "--nics", "some"], "'some'"),
        (["topologies", "ring:4", "--servers", "2"], "--servers"),
        (["topologies", "ring:4", "ring:5"], "give one topology"),
        (["compare", "allgather", "-t", "ring:4", "--size", "1KB", "--chunks", "some"], "number of chunks"),
        (["plan", "alltoallv", "-t", "ring:4", "--size", "1KB"], "alltoallv needs a matrix"),
        (["plan", "allgather", "-t", "ring:4", "--demand", "none.csv"], "allgather has no matrix"),
        (["plan", "alltoallv", "-t", "ring:4", "--demand", "none.csv"], "none.csv: cannot be read"),
        (["plan", "alltoallv", "-t", "ring:4", "--demand", "none.csv", "--size", "1KB"], "leave out --size"),
        (["plan", "allgather"], "missing option '-t'"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--chunk", "2"], "--chunks"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--chunks", "0"], "greater than or equal to 1"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "forrest"], "did you mean forest?"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "swot"], "it has no optical planes"),
        (
            ["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--effort", "hard"],
            "there are quick, normal, thorough",
        ),
        (
            ["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "mine.py:star"],
            "mine.py: there is no such file",
        ),
        (["compare", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "ring,mine.py"], "name a planner in it"),
        (["plan", "allgather:1KB,allreduce", "-t", "ring:4"], "allreduce says no size; write allreduce:SIZE"),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "forest", "--option", "parts=x"], "no integer"),
        (["measure", "--hosts", "a"], "1 host is given"),
        (["planners", "forrest"], "did you mean forest?"),
        (["draw"], "no such command"),
        (
            ["plan", "allgather", "-t", "ring:4", "--size", "1KB,1MB"],
            "`stretto compare` and `stretto tune` take several",
        ),
        (
            ["plan", "allgather", "-t", "ring:4", "--size", "1KB", "-p", "ring,forest"],
            "'ring,forest' is not one planner",
        ),
        (["plan", "allgather", "-t", "ring:4", "--size", "1KB", "--seed", "-1"], "greater than or equal to 0"),
        (["plan", "algather", "-t", "ring:4", "--size", "1KB"], "did you mean allgather?"),
        (
            ["plan", "scatter", "-t", "ring:4", "--size", "1KB", "--for", "mscl"],
            "error: --for: there is no target 'mscl'",
        ),
        (["tune", "allgatter", "-t", "ring:4"], "did you mean allgather?"),
        (["tune", "scatter", "-t", "ring:4", "--for", "msccl"], "error: msccl does not run scatter"),
        (["export", "x.json", "-t", "h100:2", "--to", "nccl", "-o", "pack"], "--topology: is given beside x.json"),
        (["order", "-t", "ring:4", "--library", "glue"], "no library 'glue'; there are nccl"),
        (
            ["plan", "allreduce", "-t", "ring:4", "--size", "1MB", "--for", "msccl2"],
            "--for: there is no target 'msccl2'",
        ),
        (["order", "-t", "ring:4", "--library", "glo"], "no library 'glo'; did you mean gloo?"),
        (["order", "-t", "ring:4", "--library", "gloo", "--collective", "allreduce"], "give a collective and its size"),
        ([*GLOO_ORDER, "--to", "slurm"], "--to: give a file with -o"),
        ([*GLOO_ORDER, "-o", "x", "--to", "post"], "no format 'post'"),
    ],
)
def test_bad_input_gets_one_line_and_writes_nothing(arguments, words, tmp_path):
    done = stretto(*arguments, code=2, cwd=tmp_path)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("-t ndv2:2 --to nccl -o {}", "there already"),
        ("-t mi300x:2 --to nccl -o new", "NVIDIA"),
        ("-t ndv2:2 --to nccl --gpu z80 -o new", "--gpu: there is no GPU 'z80'"),
        ("--to nccl -o new", "give a topology"),
        ("-t ndv2:2 --to nccl --ranks 0 -o new", "hold all ranks"),
        ("-t ndv2:2 --to csv -o new", "--to nccl"),
        ("--to csv -o new", "name the plan or table"),
        ("-t ndv2:2 --to nothing -o new", "cross-connects-csv, sonic-patches, nccl"),
    ],
)
def test_what_export_to_nccl_refuses_is_one_line(words, why, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    done = stretto("export", *words.format(tmp_path / "full").split(), code=2, cwd=tmp_path)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and why in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        "verify FILE", "plan allreduce -t FILE --size 1MB", "plan -t ring:4 --jobs FILE",
        "plan allreduce -t ring:4 --size 1MB --tuning FILE", "plan alltoallv -t ring:4 --demand FILE",
        "import FILE --from msccl -t ring:4 --size 1MB", "import FILE --from teccl -t ring:4 --size 1MB",
    ],
)  # fmt: skip
def test_of_an_empty_file_it_is_said_that_it_is_empty(words, tmp_path):
    (tmp_path / "empty.json").touch()
    assert (
        "error: empty.json: is empty"
        in stretto(*words.replace("FILE", "empty.json").split(), code=2, cwd=tmp_path).stderr
    )


def test_what_is_named_where_a_folder_must_be_or_at_a_moment_is_said(tmp_path):
    (tmp_path / "file").touch()
    said = stretto("study", "swot", "-o", "file", code=2, cwd=tmp_path).stderr
    assert said == "error: file: is a file or lies below one, and must be a folder\n"
    stretto("plan", "allgather", "-t", "ring:4", "--size=1KB", "-p", "ring", "-o", "plan.parquet", cwd=tmp_path)
    (tmp_path / "news.json").write_text("{}")
    said = stretto("replan", "plan.parquet", "--telemetry=news.json", "--at", "1x", code=2, cwd=tmp_path).stderr
    assert said.startswith("error: --at: '1x' has an unknown unit")

"""Every command of the tree, as a user with a terminal of 60 columns meets it: what it prints fits, and a name that is
misspelt anywhere is answered with the one that was meant."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from command_line import stretto
from stretto import cli
from stretto.cli.help import METAVARS, SUBJECTS
from stretto.model.errors import StrettoError
from stretto.planners import run

COLUMNS = 60


def leaves(command, path: tuple[str, ...] = ()) -> dict:
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    return {name: leaf for n, c in command.commands.items() for name, leaf in leaves(c, (*path, n)).items()}


ROOT = typer.main.get_command(cli.app)
COMMANDS = leaves(ROOT)
GROUPS = ["", *(name for name, command in ROOT.commands.items() if hasattr(command, "commands"))]
SERVICE = (*(name for name in COMMANDS if name.partition(" ")[0] in GROUPS[1:]), "serve")
"""Commands that ask a controller, or are one: what they print is tested in tests/service/test_narrow.py."""
ELSEWHERE = {
    "emulate": "needs namespaces: test_emulator.py",
    "measure": "needs hosts: test_measure_launch.py",
    "warm": "compiles all kernels: test_kernels.py",
    **dict.fromkeys(SERVICE, "needs a controller"),
}
REQUESTS = {
    "topologies": ["", "zoo", "cloud", "files", "h100:8?pod=4&spines=4", "cloud:aws:us-east-1,gcp:us-central1"],
    "planners": ["", "forest", "--targets"],
    "plan": [
        "allreduce -t h100:2 --size 64MB --effort quick",
        "allreduce:64MB,allgather:1GB@2s -t zoo:Abilene --effort quick",
        "allreduce -t cloud:aws:us-east-1,gcp:us-central1,aws:ap-northeast-1 --size 100TB --effort quick",
        "allreduce -t cloud:aws:us-east-1,gcp:us-central1 --size 1GB --objective cost --points 2 --effort quick",
    ],
    "replan": ["plan.parquet --telemetry news.json"],
    "verify": ["plan.parquet"],
    "simulate": ["plan.parquet"],
    "run": ["allreduce -t fullmesh:2 --size 64KB -p ring"],
    "show": ["plan.parquet"],
    "bound": ["allreduce -t zoo:Abilene --size 1GB"],
    "compare": ["allgather -t dgx2:2 --size 1MB,1GB -p ring,shortest-path", "allreduce -t dgx1 --size 1MB -p ring,nccl"],
    "tune": ["allreduce,allgather -t dgx1 -p ring,recursive-doubling --chunks 1"],
    "order": ["-t sites:2,4 --library gloo --collective allreduce --size 1GB"],
    "watch": ["traces --once"],
    "study": ["grid grid.toml -o study{columns}"],
    "report": ["plan.parquet -o page.html"],
    "export": ["plan.parquet --to perfetto -o out.json", "-t ndv2:2 --to nccl -o pack{columns}", "table.json --to msccl -o xml{columns}"],
    "import": ["sum.xml --from msccl -t ring:4 --size 1MB"],
}  # fmt: skip
"""What is asked of each command."""

GRID = 'topologies = ["ring:4"]\nsizes = ["1MB"]\nplanners = ["ring", "shortest-path"]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the files that the requests name."""
    home = tmp_path_factory.mktemp("files")
    stretto("plan", "allreduce", "-t", "sites:2,4", "--size", "64MB", "-p", "ring", "-o", "plan.parquet", cwd=home)
    words = "-t ring:4 --size 1MB -p ring --for msccl"
    stretto("plan", "allreduce", *words.split(), "-o", "sum.parquet", cwd=home)
    stretto("tune", "allreduce", *words.split(), "--chunks", "1", "-o", "table.json", cwd=home)
    stretto("export", "sum.parquet", "-o", "sum.xml", cwd=home)
    stretto("export", "-t", "ndv2:2", "--to", "nccl", "-o", "pack", cwd=home)
    (home / "news.json").write_text(json.dumps({"at": "1ms", "links": []}))
    (home / "grid.toml").write_text(GRID)
    return home


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(path: str, words: str, columns: int, home: Path, patch) -> str:
    """What a command prints on a terminal, without its colours."""
    patch.setenv("COLUMNS", str(columns))
    patch.chdir(home)
    patch.setattr(sys, "argv", ["stretto", *path.split(), *shlex.split(words.format(columns=columns))])
    out, err = Terminal(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None, 1), err.getvalue()
    return re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())


@contextlib.contextmanager
def planned_once(patch):
    """Within this, what a command plans is planned by the first call of it and given to the second one."""
    plan, plans, inside, given = run._by_stages, [], [], itertools.count()

    def remembered(*asked):
        if inside:  # a planner asks another one
            return plan(*asked)
        if (number := next(given)) == len(plans):
            inside.append(asked)
            try:
                plans.append(plan(*asked))
            except StrettoError as refusal:
                plans.append(refusal)
            inside.clear()
        if isinstance(plans[number], StrettoError):
            raise plans[number]
        return plans[number]

    def again():
        nonlocal given
        given = itertools.count()

    patch.setattr(run, "_by_stages", remembered)
    yield again
    assert next(given) == len(plans), "the second call plans something else"


def test_every_command_is_asked():
    assert REQUESTS.keys() | ELSEWHERE.keys() == COMMANDS.keys()
    assert sorted(name for names in SUBJECTS.values() for name in names) == sorted(ROOT.commands)


UNIT = r"(?:[KMGT]?B|[KMGT]?bit|[KMGT]?B/s|[mun]?s|h|%|USD)"
NUMBER = r"\d[\d.,]*"


@pytest.mark.parametrize(
    ("path", "words"), [(path, words) for path, requests in REQUESTS.items() for words in requests]
)
def test_what_is_printed_fits_and_breaks_no_word_and_no_number(path, words, folder, monkeypatch):
    with planned_once(monkeypatch) as again:
        narrow = on_terminal(path, words, COLUMNS, folder, monkeypatch)
        again()
        wide = on_terminal(path, words, 400, folder, monkeypatch).replace("study400", "study60")
    lines = [line.rstrip() for line in narrow.splitlines()]
    assert lines and [line for line in lines if len(line) > COLUMNS] == []
    # numbers for people: no exponent, and a unit on the line of its number
    assert re.findall(r"\d[eE][+-]?\d+ ", narrow) == []
    halves = [(a, b) for a, b in itertools.pairwise(lines) if re.search(rf"(?:^|\s){NUMBER}$", a) and
              re.match(rf"\s+{UNIT}(?:[\s,;):]|$)", b)]  # fmt: skip
    assert halves == []
    # a word that is printed is one that a wide terminal shows, or a part of it that ends where parts of words end
    known = set(re.findall(r"\S+", wide)) | set(SAID_ONCE.split())
    parts = {part for word in known for part in re.split(r"(?<=[→,=&?])", word)}
    strange = {w for w in re.findall(r"\S+", narrow) if w not in known and not _of_parts(w, parts) and not _varies(w)}
    assert strange == set()


SAID_ONCE = (
    "left out here: (a wider terminal or --json shows all) options, measured, paper, kind after, chunk chunk, start "
    "planning, messages, algorithm bandwidth, chunks, bound planned on, over least, bound at that cost "
    "proven, verified, reported, planning (CPU), chunks, / bound, collective <= 1.15, <= 1.10, most, planning: median "
    "of CPU), after loading code of CPU) pack60 xml60"
)
"""Words of the columns that are left out, of what is said when code is loaded, and names of folders."""


def _of_parts(word: str, parts: set[str]) -> bool:
    pieces = [piece for piece in re.split(r"(?<=[→,=&?])", word) if piece]
    return all(piece in parts for piece in pieces)


def _varies(word: str) -> bool:
    """Whether a word is a number or a rule: what planning took is another number each time."""
    return bool(re.fullmatch(r"\(?[\d.,]+\)?|[─━╌]+|[mun]?s\)?|\(?[KMGT]?B(/s)?\)?", word))


@pytest.mark.parametrize("group", GROUPS)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(group):
    command = ROOT.commands[group] if group else ROOT
    for name in command.commands:
        wrong = name[:-1] + "qq" if len(name) > 3 else name + "q"
        said = stretto(*group.split(), wrong, code=2).stderr
        assert f"no such command '{wrong}'; did you mean" in said and said.count("\n") == 1
        assert re.search(r"did you mean [a-z]+\?; see `stretto", said), said


@pytest.mark.parametrize("path", COMMANDS)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(path):
    flags = {flag: p.opts for p in COMMANDS[path].params for flag in p.opts if flag.startswith("--") and len(flag) > 5}
    for flag, same in flags.items():
        wrong = f"--{flag[3]}{flag[2]}{flag[4:]}"
        said = stretto(*path.split(), wrong, "1", code=2).stderr
        assert any(f"no such option: {wrong}; did you mean {each}?" in said for each in same), said
        assert said.count("\n") == 1


@pytest.mark.parametrize("path", COMMANDS)
def test_a_missing_argument_is_said_with_what_it_is(path):
    wanted = [p for p in COMMANDS[path].params if p.param_type_name == "argument" and p.required]
    if wanted:
        said = stretto(*path.split(), code=2).stderr
        assert f"missing argument {wanted[0].name.upper()}: {wanted[0].help.rstrip('.')}" in said


NAMES = {
    "planner": ("forrest", "forest"),
    "planners": ("forrest", "forest"),
    "effort": ("quik", "quick"),
    "target": ("torhc", "torch"),
    "objective": ("tme", "time"),
    "engine": ("locl", "local"),
    "frames": ("plan", "plain"),
    "library": ("glo", "gloo"),
    "collective": ("allredce", "allreduce"),
    "collectives": ("allredce", "allreduce"),
    "machines": ("sit", "site"),
    "gpu": ("h10", "h100"),
    "source": ("mscl", "msccl"),
    "fabric": ("rials", "rails"),
    "topology": ("rign:4", "ring"),
    "option": ("part=1", "parts"),
    "name": ("forrest", "forest"),
}
"""For arguments that are a name of something: a misspelt one, and what was meant."""
OTHERS = {
    "topologies": {"to": ("jsn", "json")}, "order": {"to": ("slrm", "slurm")},
    "export": {"to": ("perfeto", "perfetto")}, "study": {"name": ("swat", "swot")},
}  # fmt: skip
ASKED = {
    **{path: requests[0] for path, requests in REQUESTS.items()},
    "topologies": "ring:4 -o out", "planners": "", "plan": "allgather -t ring:4 --size 1MB", "study": "grid grid.toml",
    "export": "-t ndv2:2 --to nccl -o other", "serve": "--port 0 --data data", "compare": "allgather -t ring:4 --size 1MB",
    "emulate": "allgather -t ring:4 --size 1MB", "run": "allgather -t ring:4 --size 1MB", "tune": "allreduce -t ring:4",
    "order": "-t sites:2,4 --library gloo --collective allreduce --size 1GB -o order",
    "networks put": "wan -t ring:4 --controller http://127.0.0.1:1",
}  # fmt: skip
"""A request to each command with names, in which one name after the other is misspelt."""
NOT_NAMES = {("run", "subject"), ("emulate", "subject"), ("watch", "job"), ("order", "present")}
"""Arguments that a file or a list of one's own is given for, and whose metavar is that of a name."""


def _misspellings():
    kinds = {"PLANNER", "PLANNER,...", "LEVEL", "TARGET", "FORMAT", "ENGINE", "LIBRARY", "COLLECTIVE", "GPU", "KIND",
             "time|cost", "site|gpu", "FABRIC", "SPEC|FILE", "NAME=VALUE"}  # fmt: skip
    for path, command in COMMANDS.items():
        for param in command.params:
            takes_name = METAVARS.get(param.name) in kinds or param.name in ("name", "collectives")
            if (takes_name and path not in SERVICE) or (path, param.name) in (
                ("serve", "planner"),
                ("serve", "effort"),
            ):
                yield path, param


@pytest.mark.parametrize(("path", "param"), [pytest.param(p, q, id=f"{p} {q.name}") for p, q in _misspellings()])
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(path, param, folder, monkeypatch):
    wrong, meant = OTHERS.get(path, {}).get(param.name) or NAMES[param.name]
    words = shlex.split(ASKED[path])
    if param.param_type_name == "argument":
        words = [wrong, *words[1:]]
    else:
        for flag in param.opts:
            if flag in words:
                del words[words.index(flag) : words.index(flag) + 2]
        words += [param.opts[-1], wrong]
    if path == "topologies" and param.name == "fabric":
        words = ["compose", "h100", "--fabric", wrong]
    if param.name == "option":
        words += ["-p", "forest"] if "--planner" in {f for q in COMMANDS[path].params for f in q.opts} else []
    if path == "study" and param.name in ("name", "topology"):
        words = [wrong] if param.name == "name" else ["swot", "-t", wrong]
    if path == "import" and param.name == "collective":
        words = ["pack/graph.xml", "--from", "nccl-graph", "-t", "ndv2:2", "--size", "1MB", "--collective", wrong]
    if path == "export" and param.name != "gpu" and param.name != "topology":
        words = ["plan.parquet", "-o", "other", "--to", wrong]
    said = stretto(*path.split(), *words, code=2, cwd=folder).stderr
    assert said.startswith("error: ") and said.count("\n") == 1
    assert re.search(rf"did you mean (?:\S+ or )*{meant}\b", said), said

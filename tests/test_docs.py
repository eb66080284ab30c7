"""What the documentation shows does what it shows, and its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ports import free_port
from stretto import planners
from stretto.cli import app
from stretto.planners import registered

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]

LEFT_OUT = {
    ("study",): "minutes; tests/test_studies.py runs a part of each",
    ("emulate",): "needs root; tests/test_emulator.py",
    ("measure",): "needs hosts; tests/test_measure.py",
    ("warm",): "a minute of compiling; tests/test_kernels.py",
    ("ui",): "serves until it is stopped",
    ("serve",): "serves until it is stopped; tests/service/test_controller.py",
    ("watch",): "watches until it is stopped; tests/test_watch.py",
    ("networks",): "asks a controller; tests/service/test_controller.py",
    ("jobs",): "asks a controller; tests/service/test_controller.py",
    ("verify", "plan.parquet"): "a plan that a controller has made; tests/service/test_controller.py",
}
"""Commands that are shown and not run here, by how they begin, and why."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """(language, text, the line of prose before it) of each code block of a page, the indented ones as console."""
    fenced = r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$"
    indented = r"(?:(?:^ {4}[^\n]*|^)\n)+"
    prose = ""
    for found in re.finditer(rf"{fenced}|({indented})|^([^\n]*)\n", text, flags=re.M | re.S):
        indent, language, inside, console, line = found.groups()
        if inside is not None:
            yield language, re.sub(rf"^{indent}", "", inside, flags=re.M), prose
        elif console is not None and console.strip():
            yield "console", console, prose
        elif line:
            prose = line


def commands(console: str) -> list[tuple[list[str], int]]:
    """The stretto commands of a block and the exit codes that they promise (``# exits with 1``), without the prompt."""
    joined = console.replace("\\\n", " ")
    lines = [re.sub(r"^\s*(\$ )?", "", line) for line in joined.splitlines()]
    return [
        (shlex.split(line, comments=True)[1:], int(code[1]) if (code := re.search(r"# exits with (\d)", line)) else 0)
        for line in lines
        if re.match(r"stretto [a-z]", line)
    ]


def outputs(console: str) -> list[list[str]]:
    """What a block says that each of its stretto commands prints, as lines without what varies; ``...`` is left out."""
    found: list[list[str]] = []
    for line in console.replace("\\\n", " ").splitlines():
        if re.match(r"\s*(\$ )?stretto [a-z]", line):
            found.append([])
        elif found and "$ stretto" in console and (said := unvarying(line)) and not re.match(r"\.\.\.$|# ", said):
            found[-1].append(said)
    return found


def unvarying(line: str) -> str:
    """A printed line without its layout, the times of planning and the lines below headings."""
    line = " ".join(line.split())
    line = re.sub(r"\d[\d.]* (s|ms|us)$", "TIME", line) if re.search(r" (GB|MB|KB)/s ", line) else line
    return re.sub(r"^planning .*", "planning", line).strip("─")


def shown(page: Path) -> list[tuple[str, str, str]]:
    return list(blocks(page.read_text()))


def uses_stretto(language: str, text: str) -> bool:
    return language == "python" and ("from stretto" in text or "st." in text)


WITH_COMMANDS = [
    p
    for p in PAGES
    if p.name != "my-planner.md"
    and any((k in ("console", "sh", "bash") and commands(t)) or uses_stretto(k, t) for k, t, _ in shown(p))
]


def test_the_blocks_of_a_page_are_found():
    text = "Save this as `a.json`:\n\n```json\n{}\n```\n\n    $ stretto x \\\n      -t ring:3  # why\n    printed\n\nEnd.\n"
    found = list(blocks(text))
    assert found[0] == ("json", "{}\n", "Save this as `a.json`:")
    assert commands(found[1][1]) == [(["x", "-t", "ring:3"], 0)]
    assert outputs(found[1][1]) == [["printed"]]
    assert {"README.md", "docs/start/tutorial.md", "docs/reference/api.md"} <= {named(p) for p in WITH_COMMANDS}


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_the_commands_of_a_page_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    if ".figure(" in page.read_text():
        pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install 'stretto[figures]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    names: dict[str, object] = {"__name__": "shown"}
    python_says = ""
    for language, text, prose in shown(page):
        saved = re.search(r"as `([\w.-]+)`", prose)
        if saved and language != "console" and (language != "python" or saved[1].endswith(".py")):
            Path(saved[1]).write_text(text)
        elif uses_stretto(language, text):
            with redirect_stdout(StringIO()) as written:
                exec(compile(text, named(page), "exec"), names)
            python_says = written.getvalue()
        elif prose.startswith("It prints") and language == "console":
            printed = iter([unvarying(line) for line in python_says.splitlines()])
            assert [line for line in map(unvarying, text.splitlines()) if line and line not in printed] == []
        elif language in ("console", "sh", "bash"):
            for (arguments, code), said in zip(commands(text), outputs(text), strict=True):
                if not any(tuple(arguments[: len(k)]) == k for k in LEFT_OUT):
                    printed = iter([unvarying(line) for line in _run(arguments, code, page).splitlines()])
                    assert [line for line in said if line not in printed] == [], shlex.join(arguments)
    for kept in re.findall(r"\]\((\S*pictures/planners/\S+)\)", page.read_text()):
        drawn = tmp_path / Path(kept).name
        assert not drawn.exists() or drawn.read_text() == (page.parent / kept).read_text(), (
            f"{drawn.name}: make picture"
        )


RANKS_OF_ONE_MACHINE = """
import os, runpy, sys
import numba, scipy.optimize, torch._dynamo, torch.nn.parallel, stretto.planners, stretto.torch
children = []
for rank in range(3):
    if not (child := os.fork()):
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        sys.stdout = open(f"rank{rank}.txt", "w")
        runpy.run_path("train.py")
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
"""
"""What torchrun does, but that the ranks import what they use once."""


def test_the_training_script_of_the_page_learns_on_three_ranks(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
    page = ROOT / "docs" / "howto" / "ddp-three-sites.md"
    script = next(text for _, text, prose in shown(page) if "as `train.py`" in prose)
    (tmp_path / "train.py").write_text(script)
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
    run = [sys.executable, "-c", RANKS_OF_ONE_MACHINE]
    done = subprocess.run(run, cwd=tmp_path, env=os.environ | store, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "stretto" in script
    for rank in range(3):
        assert re.fullmatch(rf"rank {rank}: loss \d\.\d{{4}}\n", printed := (tmp_path / f"rank{rank}.txt").read_text())
        assert f"    {printed}" in page.read_text()


def _run(arguments: list[str], code: int, page: Path) -> str:
    before = dict(os.environ)
    result = CliRunner().invoke(app, arguments)
    assert dict(os.environ) == before, f"stretto {shlex.join(arguments)} changes the environment of its caller"
    assert result.exit_code == code, f"{named(page)}: stretto {shlex.join(arguments)}\n{result.output}"
    return result.output


def test_a_planner_is_added_as_the_page_says(tmp_path, monkeypatch):
    page = ROOT / "docs" / "howto" / "my-planner.md"
    monkeypatch.chdir(tmp_path)
    before = set(registered())
    monkeypatch.setattr(planners.registry, "_ENTRIES", dict(planners.registry._ENTRIES))
    monkeypatch.setattr(planners.registry, "_FILES", {})
    saved = next(text for language, text, prose in shown(page) if language == "python" and "as `star.py`" in prose)
    Path("star.py").write_text(saved)
    run = [command for language, text, _ in shown(page) if language == "console" for command in commands(text)]
    for arguments, code in run:
        _run(arguments, code, page)
    assert len(run) == 2
    assert set(registered()) - before == {"star"}


@pytest.mark.parametrize("page", LINKING, ids=named)
def test_links_inside_the_repository_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve()
        assert there.exists(), f"{named(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), flags=re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}, target


READERS_FILES = {"star.py", "mine.py", "FILE.py"}
"""Files that pages ask the reader to write."""


@cache
def source_files() -> list[str]:
    folders = ("src", "tests", "benchmarks", "examples")
    return [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_source_files_that_a_page_names_are_there(page):
    text = page.read_text()
    mentions = re.findall(r"`((?:[\w.-]+/)*\w+\.py)\b", text) + re.findall(r"python ([\w/]+\.py)", text)
    wanted = set(mentions) - READERS_FILES
    assert not {name for name in wanted if not any(file.endswith(f"/{name}") for file in source_files())}


def test_the_glossary_explains_each_word_once_and_the_words_of_the_model():
    text = (ROOT / "docs" / "understand" / "glossary.md").read_text()
    cells = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, flags=re.M)
    words = [word for cell in cells if cell not in ("word", "---") for word in cell.split(", ")]
    assert len(words) == len(set(words))
    model = {"topology", "link", "node", "accelerator", "router", "switch", "site", "rank", "collective", "chunk"}
    model |= {"workload", "algorithm", "step", "transfer", "route", "flow", "plane", "circuit", "reconfiguration"}
    model |= {"plan", "timeline", "completion", "bound", "planning time", "message", "effort", "target", "order"}
    model |= {"symmetry", "controller", "planner", "refiner", "verifier", "simulator", "lowering", "telemetry"}
    model |= {"spec", "turn", "baseline", "bound of these steps", "lower bound", "WAN", "shard", "digest"}
    assert not model - set(words)


SAME_WORDS = 14
"""Words in a row that two pages may not both have."""

CLOSING = "How it works in detail, its options, and what was tried: [research notes]"
"""What each planner's page ends with."""


def test_no_page_says_what_another_says():
    said: dict[tuple[str, ...], str] = {}
    repeated = []
    for page in PAGES:
        text = re.sub(
            r"```.*?```|<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", page.read_text().replace(CLOSING, ""), flags=re.S
        )
        prose = "\n".join(line for line in text.splitlines() if not line.startswith(("    ", "|")))
        words = re.findall(r"[a-z'+-]{2,}|\d[\d.,]*", prose.lower())
        for i in range(len(words) - SAME_WORDS + 1):
            run = tuple(words[i : i + SAME_WORDS])
            if said.setdefault(run, named(page)) != named(page):
                repeated.append(f"{said[run]}, {named(page)}: {' '.join(run)}")
    assert repeated == []


def test_the_numbers_of_the_readme_s_picture_and_example_are_those_of_today():
    text = (ROOT / "README.md").read_text()

    def milliseconds(command: str) -> list[float]:
        arguments = shlex.split(command)[1:]
        result = CliRunner().invoke(app, [*arguments, "--json"])
        rows = json.loads(result.output)["rows"]
        return [1e3 * row["completion_s"] for row in rows] + [1e3 * rows[-1]["bound_s"]]

    request = re.search(r"`(stretto compare allreduce -t examples/three_sites.json [^`]+)`", text)
    assert request
    drawn = milliseconds(request[1].replace("examples/", f"{ROOT}/examples/"))
    assert f"| {', '.join(f'{ms:.0f}' for ms in drawn)} ms |" in text
    ring, _, plan, bound = drawn
    assert f"a ring takes {ring:.0f} ms, the plan {plan:.0f} ms, no plan less than {bound:.0f} ms" in text

    example = re.search(r"^ +\$ (stretto compare allreduce -t sites:3,4 .*)$", text, flags=re.M)
    assert example
    ring, plan, _ = milliseconds(example[1])
    assert f"the plan takes {plan:.1f} ms, the ring {ring:.0f} ms" in text

    example = re.search(r"^ +\$ (stretto compare alltoall -t optical:.*)$", text, flags=re.M)
    assert example
    pairwise, bruck, plan, _ = milliseconds(example[1])
    assert f"take {pairwise:.2f} and {bruck:.2f} ms if all switches turn together" in text
    assert f"The plan takes {plan:.2f} ms" in text


PLANNER_PAGES = sorted(set((ROOT / "docs" / "understand" / "planners").glob("*.md")))


@pytest.mark.parametrize("page", [p for p in PLANNER_PAGES if p.stem != "index"], ids=named)
def test_a_planner_is_explained_by_one_picture_and_what_a_reader_asks(page):
    text = page.read_text()
    assert len(re.findall(r"^!\[[^]]+\]\(\S+\.svg\)$", text, flags=re.M)) == 1
    picture = re.search(r"\((\S+\.svg)\)", text)
    assert picture
    drawn = (page.parent / picture[1]).read_text()
    asked_of = re.search(r"-p (\S+)", text)
    assert asked_of and all(f">{name}:" in drawn or f">{name}: " in drawn for name in asked_of[1].split(","))
    asked = [f"**{words}.**" in text for words in ("When to use it", "What it costs", "Source", "Limits")]
    assert all(asked)
    assert f"]({page.name})" in page.with_name("index.md").read_text()


def test_each_planner_and_refiner_is_named_on_a_planners_page():
    text = "\n".join(page.read_text() for page in PLANNER_PAGES)
    assert [name for name in registered() if not re.search(f"[`,+ ]{name}[`,+ ]", text)] == []


HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))
NEWCOMERS = [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md")), *HOW_TO]
ELSEWHERE = {
    "make setup": ".ci/run",
    "make test": ".ci/run",
    "make demo": "tests/test_docs.py",
    "pip install": ".ci/wheels",
    "pipx install": ".ci/wheels",
    "uvx --from dist/": ".ci/wheels",
    ". .venv/bin/activate": ".ci/run",
    'torch.distributed.init_process_group("stretto")': "tests/test_docs.py",
    "torchrun --nproc-per-node 3 train.py": "tests/test_docs.py",
    "STRETTO_SITE=paris torchrun": "tests/test_docs.py",
}
"""Commands of other programs, by how they begin, and what runs the same in CI."""


def lines_to_type(text: str, prose: str) -> list[str]:
    """The commands of a console block: its lines with a prompt, or all lines if there is none and it is no output."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or ([] if prose.startswith("It prints") else lines)


@pytest.mark.parametrize("page", NEWCOMERS, ids=named)
def test_every_command_that_a_newcomer_reads_is_run_by_ci(page):
    typed = [line for kind, text, prose in shown(page) if kind == "console" for line in lines_to_type(text, prose)]
    others = [line for line in typed if not line.startswith("stretto ")]
    assert [line for line in others if not any(line.startswith(beginning) for beginning in ELSEWHERE)] == []
    named_files = {*ELSEWHERE.values(), *re.findall(r"tests/\S+\.py", " ".join(LEFT_OUT.values()))}
    assert [file for file in named_files if not (ROOT / file).exists()] == []


def test_the_demo_draws_its_page(tmp_path, monkeypatch):
    make = (ROOT / "Makefile").read_text()
    demo = re.search(r"^demo: .*\n((?:\t.*\n)+)", make, flags=re.M)
    regions = re.search(r"^REGIONS := (.*)$", make, flags=re.M)
    assert demo and regions
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    lines = demo[1].replace("$(REGIONS)", regions[1]).replace("$(BIN)/stretto", "stretto")
    run = [arguments for arguments, _ in commands(lines)]
    assert len(run) == 2
    for arguments in run:
        assert "auto *" in _run([*arguments, "--effort", "quick"], 0, ROOT / "Makefile")
    assert Path("demo/index.html").stat().st_size > 100_000


@pytest.mark.parametrize("page", HOW_TO, ids=named)
def test_a_how_to_page_begins_with_its_question(page):
    title, _, first, *_ = page.read_text().splitlines()
    assert title.endswith("?") or re.match(r"Your? ", first) or "This page" in first


@pytest.mark.parametrize("page", LINKING, ids=named)
def test_no_page_installs_what_no_index_has(page):
    fetched = re.findall(r"git clone \.\.\.|pip install '?stretto\b.*", page.read_text())
    assert page.name in ("CHANGELOG.md", "install.md") or fetched == []

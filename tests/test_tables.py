"""Every table of measurements names its command, the command exists, and its benchmark prints such a table."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from statistics import geometric_mean, median

import pytest
from typer.main import get_command

import grid
import heldout
import tables
from stretto.cli import app
from stretto.cli.tables import markdown, paragraph
from stretto.studies import find_study
from tables import ROOT, Table, chosen, pages, printed_tables, rewritten, tables_of

NOT_MEASURED = {
    "| what | result | command |": "each row names its command",
    "| paper | command | claims |": "written by benchmarks/claims.py; each row names its command",
    "| section | claim | printed |": "written by benchmarks/claims.py; each row names its command",
    "| option | what | default |": "what options do",
    "| option | values | default |": "what options do",
    "| microseconds | ring LL |": "constants in NCCL's source",
    "| reading | Q1 | Q2 |": "queues of the paper's figure; tests/papers/test_scale_ccl.py holds them",
    "| schedule | epochs x length |": "tests/test_imports.py holds the last column",
    "| planner | collectives | ranks | steps |": "steps of algorithms, by definition",
    "| verdict | plans |": "the command stands above it, in a block",
}
"""Tables with numbers that no benchmark measures, by how they begin, and why."""

NUMBER = re.compile(r"[\s*]*-?\d[\d.,]*\s?(%|s|ms|us|µs|MB|GB)?[\s*]*(\(.*\))?")
MEASURING = [p for p in pages() if p.name == "README.md" or "contributors" in p.parts]
ROOMS = {"study": "studies", "compare": "face", "plan": "cli"}
"""The rooms whose modules make the tables of a command of `stretto`."""
SHOWN = [(page, t) for page in pages() for t in tables_of(page.read_text().splitlines()) if t.command]


def place(value: object) -> str | None:
    if isinstance(value, Path):
        return str(value.relative_to(ROOT))
    return str(value.first + 1) if isinstance(value, Table) else None


def words_of(command: str) -> list[str]:
    return [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word)]


def texts_of(script: Path) -> frozenset[str]:
    """All constants in a script, in the scripts beside it that it imports, and in the studies if it imports these."""
    found: frozenset[str] = frozenset()
    seen, left = {script}, [script]
    while left:
        texts, beside = read(left.pop())
        found |= texts
        left += [path for path in beside if path not in seen]
        seen |= set(beside)
    return found


@cache
def read(script: Path) -> tuple[frozenset[str], tuple[Path, ...]]:
    """The constants in a script, and the scripts and modules of studies that it imports."""
    tree = ast.parse(script.read_text())
    nodes = list(ast.walk(tree))
    texts = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    texts |= {word.arg for node in nodes if isinstance(node, ast.Call) for word in node.keywords if word.arg}
    names = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    beside = [path for name in names if (path := script.with_name(f"{name}.py")).exists()]
    beside += [path for name in names if name == "stretto.studies" for path in in_room("studies")]
    return frozenset(texts), tuple(dict.fromkeys(beside))


def in_room(room: str) -> list[Path]:
    return sorted((ROOT / "src" / "stretto" / room).glob("*.py"))


def sources_of(command: str) -> list[Path]:
    """The modules that print a command's tables."""
    program, first, *_ = words_of(command)
    if program != "python":
        return in_room(ROOMS[first])
    script = ROOT / first
    return [script, *(in_room("studies") if "stretto.studies" in script.read_text() else [])]


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def flags_of(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}


@pytest.mark.parametrize("page", MEASURING, ids=place)
def test_a_table_of_measurements_names_its_command(page):
    lines = page.read_text().splitlines()
    for table in tables_of(lines):
        header, rows = lines[table.first], lines[table.first + 2 : table.last]
        numbers = [cell for row in rows for cell in row.strip("|").split("|") if NUMBER.fullmatch(cell)]
        if len(numbers) > 1 and not any(header.startswith(beginning) for beginning in NOT_MEASURED):
            assert table.command, f"{place(page)}:{table.first + 1}: see benchmarks/tables.py"


@pytest.mark.parametrize("page", pages(), ids=place)
def test_the_benchmarks_that_a_page_names_exist_with_their_flags(page):
    text = page.read_text()
    tables = [table.command for table in tables_of(text.splitlines()) if table.command]
    for command in [*tables, *re.findall(r"`(python\s+benchmarks/[^`]+)`", text)]:
        program, *words = words_of(command)
        if program == "python":
            assert (ROOT / words[0]).exists(), command
            assert flags_of(words[1:]) <= texts_of(ROOT / words[0]), command
        else:
            assert program == "stretto"
            known = get_command(app).commands[words[0]].params
            assert flags_of(words[1:]) <= {option for p in known for option in (*p.opts, *p.secondary_opts)}, command


@pytest.mark.parametrize(("page", "table"), SHOWN, ids=place)
def test_a_benchmark_prints_the_columns_of_its_table(page, table):
    columns = cells_of(page.read_text().splitlines()[table.first].replace("`", ""))
    texts = {text for source in sources_of(table.command) for text in texts_of(source)}
    said = " ".join(texts).lower() + table.command
    named = [column for column in columns if not NUMBER.fullmatch(column)]
    assert [c for c in named if not all(word.lower() in said for word in re.split(r"[\s=,:]+", c))] == []


@pytest.mark.parametrize("page", pages(), ids=place)
def test_every_row_has_as_many_cells_as_its_table_has_columns(page):
    lines = page.read_text().splitlines()
    for table in tables_of(lines):
        columns = len(cells_of(lines[table.first]))
        assert [row for row in lines[table.first : table.last] if len(cells_of(row)) != columns] == []


def test_no_table_is_arranged_by_hand():
    assert [place(page) for page in pages() if "<!-- numbers:" in page.read_text()] == []


def test_tables_of_the_command_line_are_printed_in_markdown():
    assert markdown("two|", ("", "a"), [("x|y", "1\n2")]) == "**two|**\n\n|  | a |\n|---|---|\n| x\\|y | 1<br>2 |\n\n"
    assert markdown("", ("a",), [("b",)]) == "\n| a |\n|---|\n| b |\n\n"
    printed = tables.run("stretto compare allgather -t ring:3 --size 1MB -p ring,shortest-path")
    (made,) = printed_tables(printed)
    assert printed.startswith("**allgather among 3 ranks of ring:3**")
    assert cells_of(made[0])[:2] == ["planner", "size"]
    assert [cells_of(row)[0] for row in made[2:]] == ["ring", "shortest-path *"]
    assert printed.endswith("\n\n\\* ends soonest\n\na message costs 1 us (assumed; ?message=0 for none)\n\n")


@pytest.mark.parametrize("line", ["* ends soonest", "- 2 links", "# 3", "> 0.7 of the plan", "+ a ring"])
def test_a_line_below_a_table_in_markdown_is_no_list_or_heading(line):
    assert paragraph(line) == f"\\{line}\n\n"
    assert paragraph("ends soonest: *") == "ends soonest: *\n\n"


def test_a_study_runs_in_a_new_folder_and_variables_are_replaced(monkeypatch):
    monkeypatch.setenv("SOMEWHERE", "/a/b")
    assert tables._words("python x.py --source $SOMEWHERE", "new")[1:] == ["x.py", "--source", "/a/b"]
    assert tables._words("stretto study swot", "new")[1:] == ["-m", "stretto", "study", "swot", "-o", "new"]


ROW = {
    "kind": "allgather", "size_bytes": 4096, "ranks": 4, "by": "ring", "bound": "cut", "ratio": 1.5, "cpu_s": 0.25,
    "transfers": 12,
}  # fmt: skip
MEASURED = [
    ROW | {"topology": f"leaves:{seed}", "size": f"{size} a rank", "planner": planner}
    for seed in (1, 2)
    for size in ("1KB", "1MB")
    for planner in ("auto", "ring")
]


def test_the_grid_and_held_out_networks_print_the_tables_that_pages_name(capsys):
    grid.summarise(MEASURED)
    grid.by_network(MEASURED)
    grid.show_worst(MEASURED, 1)
    summary, auto, ring, worst = printed_tables(capsys.readouterr().out)
    assert cells_of(summary[0])[:4] == ["planner", "cells", "number", "completion / bound, mean"]
    assert len(summary) == 2 + 2 * 6, (
        "all, those below 64 MB, of two sizes, of a collective, of few ranks, by two planners"
    )
    assert auto == ring
    assert auto[0] == "| network | allgather 1KB | allgather 1MB | CPU s at most |"
    assert auto[2:] == [f"| leaves:{seed} | 1.500 | 1.500 | 0.25 |" for seed in (1, 2)]
    assert worst[2:] == ["| auto: ring | leaves:1 | allgather | 1KB | 1.500 | 0.25 | 12 | cut |"]
    heldout.report(MEASURED, [])
    tables_printed = printed_tables(capsys.readouterr().out)
    assert tables_printed[1] == tables_printed[2], "by kind, of each planner"
    assert tables_printed[1][0] == "| network | cells | 1KB | 1MB | worst | CPU s at most |"
    assert tables_printed[3][0] == "| network | collective | size | auto | ring |"
    assert tables_printed[3][2] == "| leaves:1 | allgather | 1KB | 1.500 (0.25 s) | 1.500 (0.25 s) |"


def test_the_study_of_mtegcca_prints_what_schemes_take_and_report():
    row = {
        "figures": ("6",), "scheme": "mtegcca", "topology": "dgx1", "completion_over_bound": 1.714,
        "planning_cpu_s": 0.04, "completion_s": 0.01, "reported_s": 0.011, "planner": "mtegcca",
    }  # fmt: skip
    not_built = row | {"topology": "amd:2:teccl", "contends": False}
    other = row | {"topology": "dgx2:2", "scheme": "taccl", "planner": "taccl"}
    near, times = find_study("mtegcca").tables([row, other, not_built])
    assert near.columns == ("scheme", "dgx1", "dgx2:2") and times.columns == ("scheme", "dgx1")
    assert near.rows == [("mtegcca", "1.714, 0.04 s", ""), ("taccl", "", "1.714, 0.04 s")]
    assert times.rows == [("mtegcca", "10 ms (11 ms)")]


def test_the_study_of_the_wan_writes_sizes_for_people():
    row = {
        "figures": ("6",), "scheme": "wan", "planner": "ring+wan", "where": "zoo:Abilene", "topology": "zoo:Abilene",
        "completion_s": 0.5, "completion_s_spread": 0.1, "by_seed": {"completion_s": [0.5], "bound_s": [0.4]},
    }  # fmt: skip
    times, *_ = find_study("wan").tables([row | {"size_bytes": 5_500_000}, row | {"size_bytes": 22_000_000}])
    assert times.columns == ("size", "5.5 MB", "22 MB")
    assert times.rows == [("wan", "0.50 ± 0.10", "0.50 ± 0.10")]


def test_a_table_is_replaced_by_what_its_command_prints():
    page = """# A page

<!-- table 2: python benchmarks/grids.py -->

| x |
|---|
| 1 |

<!-- table: python benchmarks/grids.py -->

| z |
|---|
| 2 |

| no command |
|---|
| 3 |

```text
<!-- table: python benchmarks/grids.py -->
| an example |
```
"""
    printed = printed_tables("warming up\n| y |\n|---|\n| 8 |\nand\n| x |\n|---|\n| 9 |\n")
    assert printed == [["| y |", "|---|", "| 8 |"], ["| x |", "|---|", "| 9 |"]]
    command = "python benchmarks/grids.py"
    both = page.replace("| 1 |", "| 9 |").replace("| z |\n|---|\n| 2 |", "| y |\n|---|\n| 8 |")
    assert rewritten(page, {command: printed}) == both
    empty = [["| y |", "|---|"], ["| x |", "|---|"]]
    assert rewritten(page, {command: empty}) == page, "a table without rows replaces nothing"
    tables = list(tables_of(page.splitlines()))
    assert [(t.command, t.number) for t in tables] == [(command, 2), (command, 1), (None, 1)]
    assert chosen(tables, ["grids"], False) == chosen(tables, [], True) == [command]
    with pytest.raises(ValueError, match=r"the word 'grids\.py'; did you mean grids\?$"):
        chosen(tables, ["grids.py"], False)


# --- the README's numbers are those of the pages ------------------------------------------------

TABLE = re.compile(r"^\| (?P<what>.+?) \| (?P<result>.+?) \| `(?P<command>.+?)` \|$", flags=re.M)
RESULTS = {found["what"]: found for found in TABLE.finditer((ROOT / "README.md").read_text())}
"""Of each row of the README's table its words, its result and its command."""


def rows_of(command: str, **cells: str) -> list[dict[str, str]]:
    """The rows of the tables of a command that have these cells, by the names of their columns."""
    rows = []
    for page, table in SHOWN:
        if table.command == command:
            lines = page.read_text().splitlines()[table.first : table.last]
            header, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            rows += [dict(zip(header, row, strict=True)) for row in body]
    return [row for row in rows if all(row.get(column) == cell for column, cell in cells.items())]


def of_allgather(command: str) -> str:
    rows = rows_of(command, topology="ndv2:10")
    most_ms = max(float(row["planning, 1 chunk"]) for row in rows)
    return f"{most_ms:.0f} ms of CPU (MTEGCCA's paper: {rows[0]['published']})"


def of_scaling(command: str) -> str:
    (row,) = rows_of(command, torus="32x32")
    return ", ".join(f"{float(row[part]):.1f}" for part in ("planning, CPU s", "verifying", "simulating")) + " s of CPU"


def of_clusters(command: str) -> str:
    (row,) = rows_of(command, GPUs="16384", collective="allreduce", size="1GB")
    return f"{float(row['completion / bound']):.3f}; {cpu_s(row):.1f} s of CPU"


def of_messages_in_clusters(command: str) -> str:
    rows = [
        row for size in ("64MB", "1GB") for row in rows_of(command, GPUs="16384", collective="allreduce", size=size)
    ]
    ratios = ", ".join(f"{float(row['completion / bound']):.2f}" for row in rows)
    return f"{ratios}; {min(map(cpu_s, rows)):.1f} to {max(map(cpu_s, rows)):.1f} s of CPU"


def cpu_s(row: dict[str, str]) -> float:
    """Planning, verifying and simulating together."""
    return float(row["CPU s (plan, verify, simulate)"].partition(" ")[0])


def of_grid(command: str) -> str:
    rows = [[*row.values()] for row in rows_of(command)]
    ratios = [float(cell) for _, *cells, _ in rows for cell in cells]
    return f"{geometric_mean(ratios):.3f} in the mean, {max(ratios):.2f} at worst"


def of_wire(command: str) -> str:
    ratios = [float(row["measured / simulated"]) for row in rows_of(command)]
    return f"{median(ratios):.3f} in the median, {max(ratios):.2f} at worst"


def of_order(command: str) -> str:
    (row,) = rows_of(command, library="gloo", size="1GB")
    return f"{row['median']} in the median of {row['proven'].rpartition(' ')[2]} sets, {row['most']} at most"


def of_wan(command: str) -> str:
    asked = {*command.partition("--only ")[2].split(",")}
    (run,) = {t.command for _, t in SHOWN if "wan.py --only 4," in str(t.command)}
    assert asked <= {*run.partition("--only ")[2].split(",")}
    rows = [row for row in rows_of(run, collectives="wan") if set("2345678") <= row.keys()]
    ratios = [float(row[count].partition(" ")[0]) for row in rows for count in "2345678"]
    assert len(rows) == len(asked), "a table for each figure that the command names"
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def of_swot(command: str) -> str:
    (row,) = (row for row in rows_of(command, collective="allreduce") if "mean of cells" in row)
    mean, cases = row["mean of cells"].split(" of ")
    return f"{mean} in the mean of {cases} cases, {row['at most']} at most ({row['at (ranks/planes)']})"


@pytest.mark.parametrize(
    ("what", "result"),
    [
        ("AllGather, ReduceScatter, AllReduce by the default planner on 19 networks", of_grid),
        ("AllGather among 80 GPUs", of_allgather),
        ("a plan of a million transfers", of_scaling),
        ("AllReduce of 1 GB among 16,384 GPUs", of_clusters),
        ("AllReduce of 64 MB and of 1 GB among the same GPUs", of_messages_in_clusters),
        ("30 plans by the default planner", of_wire),
        ("2 to 8 AllReduces at a time", of_wan),
        ("AllReduce of 1 GB by gloo", of_order),
        ("AllReduce on optical switches", of_swot),
    ],
)
def test_a_result_in_the_readme_is_that_of_its_commands_table(what, result):
    (row,) = (row for words, row in RESULTS.items() if words.startswith(what))
    assert row["result"] == result(row["command"])

"""Every table of measurements names its command, the command exists, and its benchmark prints such a table."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from stretto.cli import app
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
    "| cell | of the bound | why |": "remarks on cells of the table above",
    "| verdict | plans |": "the command stands above it, in a block",
}
"""Tables with numbers that no benchmark measures, by how they begin, and why."""

NUMBER = re.compile(r"[\s*]*-?\d[\d.,]*\s?(%|s|ms|us|µs|MB|GB)?[\s*]*(\(.*\))?")
MEASURING = [p for p in pages() if p.name == "README.md" or "contributors" in p.parts]
SHOWN = [(page, t) for page in pages() for t in tables_of(page.read_text().splitlines()) if t.command]


def place(value: object) -> str | None:
    if isinstance(value, Path):
        return str(value.relative_to(ROOT))
    return str(value.first + 1) if isinstance(value, Table) else None


def words_of(command: str) -> list[str]:
    return [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word)]


def texts_of(script: Path, seen: set[Path]) -> set[str]:
    """All constants in a script and in the scripts beside it that it imports."""
    seen.add(script)
    tree = ast.parse(script.read_text())
    texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    texts |= {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg}
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        beside = [script.with_name(f"{name}.py") for name in names if name]
        texts |= {text for path in beside if path.exists() and path not in seen for text in texts_of(path, seen)}
    return texts


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
            assert flags_of(words[1:]) <= texts_of(ROOT / words[0], set()), command
        else:
            assert program == "stretto"
            known = get_command(app).commands[words[0]].params
            assert flags_of(words[1:]) <= {option for p in known for option in (*p.opts, *p.secondary_opts)}, command


@pytest.mark.parametrize(("page", "table"), [(p, t) for p, t in SHOWN if not t.by_hand], ids=place)
def test_a_benchmark_prints_the_columns_of_its_table(page, table):
    columns = [cell.strip() for cell in page.read_text().splitlines()[table.first].strip("|").split("|")]
    said = " ".join(texts_of(ROOT / words_of(table.command)[1], set())).lower() + table.command
    assert [c for c in columns if not all(word.lower() in said for word in re.split(r"[\s=,]+", c))] == []


def test_a_table_is_replaced_by_what_its_command_prints():
    page = """# A page

<!-- table 2: python benchmarks/a.py -->

| x |
|---|
| 1 |

<!-- numbers: python benchmarks/a.py -->

| by hand |
|---|
| 2 |

| no command |
|---|
| 3 |

```text
<!-- table: python benchmarks/a.py -->
| an example |
```
"""
    printed = printed_tables("warming up\n| y |\n|---|\n| 8 |\nand\n| x |\n|---|\n| 9 |\n")
    assert printed == [["| y |", "|---|", "| 8 |"], ["| x |", "|---|", "| 9 |"]]
    command = "python benchmarks/a.py"
    assert rewritten(page, {command: printed}) == page.replace("| 1 |", "| 9 |")
    assert rewritten(page, {command: [printed[0], ["| x |", "|---|"]]}) == page, "a table without rows replaces nothing"
    tables = list(tables_of(page.splitlines()))
    assert [(t.command, t.number, t.by_hand) for t in tables] == [
        (command, 2, False),
        (command, 1, True),
        (None, 1, False),
    ]
    assert chosen(tables, ["a"], False) == chosen(tables, [], True) == [command]
    assert chosen(tables, ["b"], False) == []

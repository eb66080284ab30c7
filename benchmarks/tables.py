"""Which benchmark makes which table of the documentation? Runs benchmarks, and writes what they print into the pages.

    python benchmarks/tables.py                     # list the tables: page, line, last change, command
    python benchmarks/tables.py allgather swot      # run what names these scripts or studies, and write their tables
    python benchmarks/tables.py --all               # all of them: hours

A table stands below a comment that names its command. What the comment begins with says where the numbers come from:

    <!-- table: python benchmarks/allgather.py -->       the table that the command prints; this script writes it
    <!-- table 2: python benchmarks/baselines.py -->     the second table that it prints

A command with several tables runs once. A table keeps its rows if its command fails or prints no such table. Tables of
`stretto` are those that it prints with STRETTO_TABLES=markdown; a study runs anew, in a new folder. Variables,
such as $TACOS_SOURCE, say where things are that only some machines have.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stretto.model.errors import nearest

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- table(?: (?P<number>\d+))?: (?P<command>.+?) -->$")

EMPTY = 2
"""Lines of a table without rows: its header and the line below. Such a table replaces nothing."""

QUIET = 0.25
"""Load average of each core up to which a machine counts as quiet when the first benchmark begins."""


@dataclass(frozen=True)
class Table:
    """A table of a page: its lines from ``first`` up to ``last``, and where its numbers come from."""

    first: int
    last: int
    command: str | None = None
    number: int = 1


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def tables_of(lines: list[str]) -> Iterator[Table]:
    """All tables of a page outside of code, with the comment above each."""
    mark, first, fenced = None, None, False
    for i, line in enumerate([*lines, ""]):
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("|") and not fenced:
            first = i if first is None else first
        elif first is not None:
            yield Table(first, i, *_origin(mark))
            mark, first = None, None
        if found := MARK.match(line):
            mark = found
        elif line and not line.startswith("|"):
            mark = None


def _origin(mark: re.Match[str] | None) -> tuple[str | None, int]:
    return (None, 1) if mark is None else (mark["command"], int(mark["number"] or 1))


def printed_tables(output: str) -> list[list[str]]:
    """The tables that a benchmark prints, as lines."""
    lines = output.splitlines()
    return [[each.rstrip() for each in lines[t.first : t.last]] for t in tables_of(lines)]


def rewritten(text: str, printed: Mapping[str, list[list[str]]]) -> str:
    """The page with the tables of these commands."""
    lines = text.splitlines()
    for table in reversed(list(tables_of(lines))):
        made = printed.get(table.command or "", [])
        if table.number <= len(made) and len(made[table.number - 1]) > EMPTY:
            lines[table.first : table.last] = made[table.number - 1]
    return "\n".join(lines) + "\n"


def chosen(tables: Iterable[Table], names: list[str], everything: bool) -> list[str]:
    """The commands to run, each once: those in which a script or another word has one of these names.

    Raises:
        ValueError: no command has a word of such a name; says which are alike.
    """
    words = {t.command: {Path(word).stem for word in shlex.split(t.command)} for t in tables if t.command}
    known = set().union(*words.values())
    for name in [] if everything else names:
        if name not in known:
            raise ValueError(f"no table's command has the word {name!r}; {nearest(name, known, '--help says more')}")
    return [command for command in words if everything or words[command] & {*names}]


def changed(page: Path, table: Table) -> str:
    """The day on which a row of a table last changed, by git; where git does not know, nothing."""
    lines = f"{table.first + 3},{table.last}"
    blame = ["git", "blame", "--line-porcelain", "-L", lines, "--", str(page)]
    done = subprocess.run(blame, cwd=ROOT, capture_output=True, text=True, check=False)
    moments = [int(at) for at in re.findall(r"^author-time (\d+)$", done.stdout, flags=re.M)]
    return datetime.fromtimestamp(max(moments), UTC).strftime("%Y-%m-%d") if moments else ""


def busy() -> str | None:
    """What to say if other processes use the machine, since CPU seconds are larger then."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return (
        f"note: a load of {load:.1f} on {cores} cores: CPU seconds will be too large" if load > QUIET * cores else None
    )


def run(command: str) -> str:
    """What a command prints, shown as it comes."""
    print(f"$ {command}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        return _printed(_words(command, folder))


def _words(command: str, folder: str) -> list[str]:
    """The command as it is run: by this Python, with variables replaced, and a study with its results in ``folder``."""
    program, *words = shlex.split(os.path.expandvars(command))
    if program == "python":
        return [sys.executable, *words]
    study = words[:1] == ["study"]
    return [sys.executable, "-m", program, *words, *(["-o", folder] if study else [])]


def _printed(words: list[str]) -> str:
    """What is printed with the exit code 0; nothing with another."""
    shown = []
    environment = os.environ | {"STRETTO_TABLES": "markdown"}
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            shown.append(line)
    if process.returncode:
        print(f"exit code {process.returncode}: its tables stay as they are")
    return "" if process.returncode else "".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", help="words of commands, such as allgather; without any, the list")
    parser.add_argument("--all", action="store_true", help="run every command that makes a table")
    given = parser.parse_args()
    found = [(page, t) for page in pages() for t in tables_of(page.read_text().splitlines()) if t.command]
    if not given.scripts and not given.all:
        for page, t in found:
            words = f"{changed(page, t)} {t.command}"
            print(f"{page.relative_to(ROOT)}:{t.first + 1}: {words}")
        return
    try:
        commands = chosen((t for _, t in found), given.scripts, given.all)
    except ValueError as wrong:
        parser.error(str(wrong))
    if note := busy():
        print(note, file=sys.stderr)
    for command in commands:
        made = {command: printed_tables(run(command))}
        for page in pages():
            text = page.read_text()
            if (new := rewritten(text, made)) != text:
                page.write_text(new)
                print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

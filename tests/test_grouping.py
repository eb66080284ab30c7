"""Which tests one process runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from grouping import BY_FIRST_WORD, BY_LAST_WORD, LONG, SPREAD, TOGETHER, WAITING, group_of, places

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/test_units.py::test_sizes[1-KB]", "tests/test_units.py"),
        ("tests/test_report_look.py::test_it", "test_report and other pages"),
        ("tests/service/test_page_browser.py::test_it", "test_report and other pages"),
        ("tests/contract/test_cli.py::test_it", "clean"),
        (
            "tests/contract/test_planners.py::test_it[star:4-ring-allreduce]",
            "tests/contract/test_planners.py allreduce",
        ),
        ("tests/golden/test_digests.py::test_it[ring+swot-star:4]", "tests/golden/test_digests.py ring+swot"),
        ("tests/golden/test_digests.py::test_no_case_is_in_the_table_twice", "tests/golden/test_digests.py"),
        ("tests/test_docs.py::test_it[a.md]", "tests/test_docs.py::test_it[a.md]"),
    ],
)
def test_a_group_is_a_file_or_what_shares_something(test, group):
    assert group_of(test) == group


def test_the_files_that_are_named_are_there():
    files = [path.relative_to(HERE.parent).as_posix() for path in HERE.rglob("test_*.py")]
    named = [*SPREAD, *WAITING, *BY_FIRST_WORD, *BY_LAST_WORD, *(part for parts in TOGETHER.values() for part in parts)]
    assert [name for name in named if not any(name in file for file in files)] == []
    texts = "".join(f"{file}\n{(HERE.parent / file).read_text()}" for file in files)
    pages = "".join(path.name for path in (HERE.parent / "docs").rglob("*.md")) + "README"
    assert [part for part in LONG if part not in texts + pages] == []


def test_what_waits_is_spread_among_what_computes_and_the_longest_come_first():
    tests = [
        f"tests/{file}::test_{n}" for file in ("test_a.py", "test_b.py", "test_fuzz.py", "test_z.py") for n in range(3)
    ]
    tests += [f"tests/runtime/{file}::test_it" for file in ("test_a.py", "test_survey.py")]
    place = places(tests)
    assert sorted(place, key=place.__getitem__) == [
        "tests/runtime/test_survey.py", "tests/test_fuzz.py", "tests/test_a.py", "tests/runtime/test_a.py", "tests/test_b.py",
        "tests/test_z.py",
    ]  # fmt: skip


def test_one_process_runs_all_tests_of_a_group():
    pytest.importorskip("xdist")
    files = ["tests/test_grouping.py::test_a_group_is_a_file_or_what_shares_something", "tests/test_spans.py"]
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", *files]
    said = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True).stdout
    ran = re.findall(r"\[(gw\d)\].* PASSED (tests/\w+\.py)", said)
    assert len(ran) > 12 and len({*ran}) == len({file for _, file in ran}) == 2

"""Which tests one process runs, one after another, where several processes share the tests (``pytest -n``).

A file is a group: its tests share what it makes once, and run in the order of the file, as they do alone. Pytest's marks
for groups are of no use for that: pytest-xdist 3.8 writes them into the names of tests, and pytest 9.2 does not heed it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

LONG = (
    "test_example_training", "test_torchrun", "test_mtegcca_is_within_5_percent", "test_torch_stress",
    "test_a_killed_study_resumes", "test_torch.py", "test_generated_cells_have", "test_examples", "README", "test_emulator",
    "test_survey", "test_lanes", "test_measuring", "test_torchft", "test_torch_own_tests", "targets.md", "test_sums_go_on",
    "test_report", "test_failures", "test_execute", "test_fuzz", "test_starved", "test_ray_loses",
)  # fmt: skip
"""Parts of the names of tests that take longest; their groups are begun first, so that no process is still at one when
the others have ended."""

WAITING = (
    "tests/runtime/", "tests/service/", "test_emulat", "test_study_engines.py", "test_starved.py", "test_measure", "test_watch.py",
    "test_report", "test_study_page.py", "test_interrupting.py", "test_planning.py",
)  # fmt: skip
"""Parts of the names of files whose tests wait for links, time-outs, browsers or processes: their groups are spread
among the others, which need all of a core."""

SPREAD = (
    "test_docs.py", "test_refiners.py", "test_swot.py", "test_almost_symmetric.py", "test_bound_gathering.py", "test_targets.py",
    "test_scale_ccl.py", "test_teccl.py", "test_study_engines.py", "test_bound_parts.py", "test_examples.py",
)  # fmt: skip
"""Files whose tests share nothing and take more than 10 s together: each test is a group."""

BY_LAST_WORD, BY_FIRST_WORD = ("contract/test_planners.py",), ("golden/test_digests.py",)
"""Files whose tests of one kind of collective, or of one planner, share networks, bounds and plans: the last, or the
first, of the words joined by hyphens that say a test's case."""

TOGETHER = {
    "test_report and other pages": ("test_report", "test_study_page.py", "test_page_browser.py"),  # one browser
    "clean": ("test_emulator.py", "contract/test_cli.py"),  # which remove what any killed emulation has left
}  # fmt: skip
"""Groups of several files, by parts of their names."""


def group_of(test: str) -> str:
    """The group of a test, by its name."""
    file, _, name = test.partition("::")
    case = re.findall(r"[^\[\]-]+", name.partition("[")[2])
    for group, parts in TOGETHER.items():
        if any(part in file for part in parts):
            return group
    if case and file.endswith(BY_LAST_WORD):
        return f"{file} {case[-1]}"
    if case and file.endswith(BY_FIRST_WORD):
        return f"{file} {case[0]}"
    return test if file.endswith(SPREAD) else file


def places(tests: Sequence[str]) -> dict[str, float]:
    """For each group when it is begun, as a share of the tests of groups that wait, or of the others."""
    counts = Counter(map(group_of, tests))
    long = {group_of(test) for test in tests if any(part in test for part in LONG)}
    found: dict[str, float] = {}
    for waits in (True, False):
        groups = [group for group in counts if any(part in group for part in WAITING) == waits]
        groups.sort(key=lambda group: group not in long)
        before = list(accumulate((counts[group] for group in groups), initial=0))
        found |= {group: count / before[-1] for group, count in zip(groups, before)}
    return found


def scheduler(config: Any, log: Any) -> Any:
    """What gives groups to processes, in the order in which the tests were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)

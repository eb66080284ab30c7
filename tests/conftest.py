"""Settings that all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from examples import ASKED

# groups of PyTorch begin with quick plans and stay with them, and leave nothing on disk; who tests more says so
os.environ |= {"STRETTO_EFFORT": "none", "STRETTO_CACHE": ""}

settings.register_profile(
    "stretto",
    deadline=None,
    max_examples=ASKED,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("stretto")

LONG = (
    "test_example_training", "test_torchrun", "test_mtegcca_is_within_5_percent", "test_torch_stress",
    "test_a_killed_study_resumes", "test_torch.py", "test_generated_cells_have", "test_examples", "README", "test_emulator",
    "test_survey", "test_lanes", "test_measuring", "test_torchft", "test_torch_own_tests", "targets.md", "test_sums_go_on",
)  # fmt: skip
"""Parts of the names of tests that take longest: each runs alone for 5 to 30 s."""

SHARED = (
    "test_torchrun.py", "test_torch_over.py", "test_front.py", "test_nccl_pack.py", "test_exports.py", "test_prometheus.py",
    "test_store.py", "test_controller.py", "test_controller_faults.py", "test_narrow.py", "test_torch.py",
    "test_torch_controller.py", "test_torch_shared.py", "test_watch.py", "test_resizing.py", "test_sizing.py",
)  # fmt: skip
"""Files whose tests share something that takes seconds to make: one process runs each, so that it is made once."""


@pytest.hookimpl(optionalhook=True)  # so that pytest runs without xdist, too
def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores: some tests wait for slow links, for time-outs, or for processes."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    """Put the longest tests first, so that no process is still at one when the others have ended, and together what
    shares something."""
    for item in items:
        if item.path.name in SHARED:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONG))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser, for all tests of pages."""
    from page_browser import started

    driver = started(tmp_path_factory.mktemp("browser"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """The browser, at its own width; a page that writes an error to its log fails the test."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.get("about:blank")
    chromium.get_log("browser")
    yield chromium
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


@pytest.fixture(scope="session")
def network_page(tmp_path_factory):
    """A page with plans of six kinds of networks."""
    from drawn_pages import written_page

    return written_page(tmp_path_factory.mktemp("networks"))


@pytest.fixture(scope="session")
def study_page(tmp_path_factory):
    """A page of a study with lines, bars and boxes."""
    from drawn_pages import written_study

    return written_study(tmp_path_factory.mktemp("study"))

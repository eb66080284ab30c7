"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from examples import ASKED
from grouping import group_of, places, scheduler

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


def pytest_collection_finish():
    """Search for unused cycles as rarely as the command does, and never among what has been imported."""
    gc.set_threshold(50_000, 20, 100)
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # so that pytest runs without xdist, too
def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores: some tests wait for slow links, for time-outs, or for processes."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return scheduler(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items):
    place = places([item.nodeid for item in items])
    items.sort(key=lambda item: (place[group := group_of(item.nodeid)], group))


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

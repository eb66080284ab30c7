"""Size of a page, and what drawing a frame of it takes in a browser, for plans of 10^5 and 10^6 transfers.

    python benchmarks/report_page.py [--large] [--json FILE]

The plans are AllGathers on 12 x 12 and 24 x 24 tori by ``mtegcca``. For each: transfers, the page's MB, CPU seconds
that writing it took, and CPU time of the browser's main thread: seconds for reading the page, and milliseconds for a
frame of the whole page (network, curve and timeline), of 60, at three depths: the whole run with the clock moving, and
two windows that move, of 4 % and of 0.05 % of the run. 60 frames a second leave 16.7 ms for a frame. Chromium runs
headless without a GPU. Needs ``chromium``, ``chromedriver`` and selenium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.report import write_page
from stretto.simulate import simulate
from stretto.topologies import load_topology

CASES = (("torus:12x12", 5), ("torus:24x24", 3))
"""Networks and chunks a shard: about 10^5 and 10^6 transfers."""
FRAMES = 60
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,1600")
READY = (
    "const done = arguments[0], wait = () => document.body.dataset.ready === 'yes' ? done(performance.now() / 1000) "
    ": setTimeout(wait, 10); wait();"
)
MOVE = (
    "const [key, frames, done] = arguments, e = document.getElementById('scroller'); let n = 0;"
    "const step = () => { if (n++ >= frames) return done();"
    "e.dispatchEvent(new KeyboardEvent('keydown', {key: key === 'pan' ? (n % 2 ? 'ArrowRight' : 'ArrowLeft') : key}));"
    "requestAnimationFrame(() => requestAnimationFrame(step)); }; step();"
)


def measure(spec: str, chunks: int, folder: str) -> dict[str, Any]:
    """One page: written, opened, moved."""
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=10**6, chunks=chunks),))
    timeline, limits = simulate(run_planner("mtegcca", net, work)), bounds(net, work)
    path = Path(folder) / "page.html"
    write_page(str(path), [timeline], [limits])  # loads and compiles
    began = time.process_time()
    write_page(str(path), [timeline], [limits])
    transfers, size = timeline.plan.transfer_count, os.path.getsize(path) / 1e6
    row = {"topology": spec, "transfers": transfers, "MB": size}
    return row | {"writing_cpu_s": time.process_time() - began} | in_browser(path, folder)


def in_browser(path: Path, folder: str) -> dict[str, Any]:
    """CPU seconds of reading the page, and CPU milliseconds of a frame."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    found: dict[str, Any] = {}
    try:
        for place, window in (("whole", ""), ("middle", "#from=0.4&to=0.44"), ("single", "#from=0.5&to=0.5005")):
            driver.get("about:blank")
            began = busy(driver)
            driver.get(path.as_uri() + window)
            driver.execute_async_script(READY)
            found.setdefault("reading_cpu_s", busy(driver) - began)
            for frames in (10, FRAMES):  # the first ones are interpreted
                began = busy(driver)
                # a whole run has nowhere to move: its frames move the clock
                driver.execute_async_script(MOVE, "pan" if window else ".", frames)
            found[f"{place}_cpu_ms"] = 1000 * (busy(driver) - began) / FRAMES
    finally:
        driver.quit()
    return found


def busy(driver: Any) -> float:
    """CPU seconds of the page's main thread."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def main() -> None:
    """Measure each case and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also 10^6 transfers")
    parser.add_argument("--json", help="write the rows to this file")
    given = parser.parse_args()
    rows = []
    print("| plan | transfers | page | writing | reading | a frame, whole run | 4 % of it | 0.05 % of it |")
    print("|---" * 8 + "|")
    for spec, chunks in CASES if given.large else CASES[:1]:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(spec, chunks, folder)
        rows.append(row)
        frames = " | ".join(f"{row[place]:.1f} ms" for place in ("whole_cpu_ms", "middle_cpu_ms", "single_cpu_ms"))
        print(f"| AllGather on {spec} | {row['transfers']:,} | {row['MB']:.1f} MB | {row['writing_cpu_s']:.2f} s "
              f"| {row['reading_cpu_s']:.2f} s | {frames} |", flush=True)  # fmt: skip
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What tests of pages in a browser share: opening a page, waiting until it is drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1300,1600",
)  # fmt: skip


def available() -> bool:
    """Whether chromium and its driver are installed."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


def started(folder: Path):
    """A new browser with its profile in a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(30)
    return driver


def visit(driver, page: Path, address: str = "") -> None:
    """Open a page, as an address's part after # has it, and wait until all of its plan has been read and drawn."""
    driver.get("about:blank")  # what differs after # alone is no new page
    driver.get(page.as_uri() + (f"#{address}" if address else ""))
    driver.execute_async_script(
        "const done = arguments[0], wait = () => document.body.dataset.ready === 'yes' ? done() : setTimeout(wait, 20);"
        "wait();"
    )
    drawn(driver)


def drawn(driver) -> None:
    """Wait until what was asked for has been drawn."""
    driver.execute_async_script("const d = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(d));")

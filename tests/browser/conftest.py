"""Tests of the report page in Chromium.

The browser is that of the process: with pytest-xdist each worker that takes such a test starts one, once. Pages are
written once for all workers. Without a browser the tests are deselected, and a single skipped test reports the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import profiles
from browser import Open, Page, axe_script, driver, why_no_browser
from helpers.once import Once

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reason = why_no_browser()
    here = [item for item in items if "browser" in item.path.parts]
    if reason and here:
        first, *rest = here
        first.add_marker(pytest.mark.skip(reason=f"this and {len(rest)} more tests of tests/browser: {reason}"))
        config.hook.pytest_deselected(items=rest)
        deselected = set(rest)
        items[:] = [item for item in items if item not in deselected]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with driver(tmp_path_factory.mktemp("chromium")) as started:
        started.set_script_timeout(60)
        yield started


@pytest.fixture
def open_report(chromium: WebDriver, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens a file, or the page of results. In the end the page must have had no problem."""
    pages: list[Page] = []

    def open_file(path: Any, fragment: str = "", *, dark: bool = False) -> Page:
        if not isinstance(path, Path):
            path.write_report(tmp_path / "report.html")
            path = tmp_path / "report.html"
        pages.append(Page(chromium, path, fragment, dark=dark))
        return pages[-1]

    yield open_file
    if pages:
        assert pages[-1].problems() == []


@pytest.fixture(scope="session")
def report(once: Once) -> Callable[[str], Path]:
    """Return a function of the name of a profile that returns its page."""

    def page_of(name: str) -> Path:
        make = profiles.PROFILES[name]
        return once(f"report-{name}", lambda folder: make(folder / "report.html")) / "report.html"

    return page_of


@pytest.fixture(scope="session")
def axe() -> str:
    script = axe_script()
    if script is None:
        pytest.skip("axe-playwright-python, which contains axe-core, is not installed")
    return script

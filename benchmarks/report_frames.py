"""The report page in headless Chromium: the time to its first paint, and the frames of its timeline while it moves.

Used by report.py where Selenium, Chromium and its driver are installed. The frames are those of requestAnimationFrame,
at most 60 a second, while a script zooms in, pans and zooms out again; each shows another part of the time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Frames", "why_no_browser"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = 1280, 900
OPENED = 5  # times that a page is opened for its first paint
READY = "typeof flopscope === 'object' && flopscope.timelineView !== undefined"
WAIT = f"""
    const done = arguments[0];
    const look = () => ({READY} ? done(performance.now()) : setTimeout(look, 5));
    look();
"""
MOVE = """
    const done = arguments[0], view = flopscope.timelineView, {from, to} = view.whole, times = [], costs = [];
    const paint = view.paint.bind(view);
    view.paint = () => {
        const began = performance.now();
        paint();
        costs.push(performance.now() - began);
    };
    let last = performance.now();
    const step = (now) => {
        times.push(now - last);
        last = now;
        if (times.length <= 80) view.zoom(0.9, from + 0.4 * (to - from));
        else if (times.length <= 160) view.pan(0.05);
        else if (times.length <= 240) view.zoom(1 / 0.9);
        else {
            view.paint = paint;
            done([times.slice(1), costs]);
            return;
        }
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
"""


def why_no_browser() -> str:
    """Return what is missing to measure frames, "" if nothing is."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "Selenium is not installed"
    if not any(map(shutil.which, BROWSERS)):
        return f"none of {', '.join(BROWSERS)} is installed"
    return "" if shutil.which("chromedriver") else "chromedriver is not installed"


class Frames:
    """Raw samples of a page in ms: ``paints`` to the first paint of each opening, ``frames`` between two frames of the
    moving timeline, ``costs`` of painting each, and ``ready`` until the timeline was there."""

    def __init__(self, page: Path) -> None:
        self.paints: list[float] = []
        with _driver() as browser:
            for _ in range(OPENED):
                browser.get("about:blank")
                browser.get(page.as_uri())
                self.paints.append(_first_paint(browser))
            browser.get("about:blank")
            browser.get(f"{page.as_uri()}#timeline")
            browser.set_script_timeout(120)
            self.ready: float = browser.execute_async_script(WAIT)
            self.frames, self.costs = browser.execute_async_script(MOVE)

    @property
    def rate(self) -> float:
        """Frames a second."""
        return 1000 * len(self.frames) / sum(self.frames)


def _first_paint(browser: Any) -> float:
    script = """
        const done = arguments[0], found = () => performance.getEntriesByName('first-contentful-paint')[0];
        const look = () => (found() ? done(found().startTime) : setTimeout(look, 5));
        look();
    """
    return float(browser.execute_async_script(script))


@contextmanager
def _driver() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(prefix="flopscope-chromium-", ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.add_argument(f"--window-size={SIZE[0]},{SIZE[1]}")
        options.add_argument(f"--user-data-dir={folder}")
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            browser.set_script_timeout(120)
            yield browser
        finally:
            browser.quit()

"""A page in headless Chromium: what it shows, what it logs, what it asks for, and what keys and clicks do to it."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

try:
    from selenium.webdriver.common.keys import Keys
except ImportError:  # then no test runs
    Keys = None

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

__all__ = ["Keys", "Open", "Page", "Report", "axe_script", "driver", "ready", "whole", "why_no_browser"]

PATIENCE = 20.0  # seconds that a condition may take on a busy machine
INSIDE = ("file:", "blob:", "data:", "about:", "chrome-error:")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = 1280, 900


def why_no_browser() -> str:
    """Return what is missing to run Chromium, "" if nothing is."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    if not any(map(shutil.which, BROWSERS)):
        return f"no browser: none of {', '.join(BROWSERS)} is on the PATH"
    return "" if shutil.which("chromedriver") else "chromedriver is not on the PATH (Debian: chromium-driver)"


def axe_script() -> str | None:
    """Return the source of axe-core, which axe-playwright-python contains; None if that is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        return None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def driver(folder: Path) -> Iterator[WebDriver]:
    """Yield a driver of a browser of its own. folder: for its profile and its downloads."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    arguments = ["--headless=new", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run"]
    arguments += ["--hide-scrollbars", "--force-color-profile=srgb", "--disable-component-update"]
    arguments += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--user-data-dir={folder / 'profile'}"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium refuses to run its sandbox as root
    for argument in arguments:
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield started
    finally:
        started.quit()


class Page:
    """A file that is open in the browser. ``problems()`` lists what it must not have done."""

    def __init__(self, browser: WebDriver, path: Path, fragment: str = "", *, dark: bool = False) -> None:
        self.browser = browser
        browser.get("about:blank")
        self.problems()  # drop what an earlier page logged
        self.resize(*SIZE)
        self.media(dark=dark)
        browser.get(f"{path.as_uri()}{fragment}")
        self.until("document.readyState === 'complete'")

    # What it shows ----------------------------------------------------------------------------------------------------

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript: the body of a function, whose arguments are ``arguments[0]``, …"""
        return self.browser.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; that of a promise once it is fulfilled."""
        script = "const done = arguments[0]; Promise.resolve(EXPR).then(done, (e) => done({error: `${e} ${e.stack}`}));"
        script = script.replace("EXPR", f"({expression})")
        found = self.browser.execute_async_script(script)  # type: ignore[no-untyped-call]
        assert not (isinstance(found, dict) and set(found) == {"error"}), found
        return found

    def all(self, selector: str) -> list[WebElement]:
        from selenium.webdriver.common.by import By

        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        found = self.all(selector)
        assert found, f"there is no {selector}"
        return found[0]

    def text(self, selector: str) -> str:
        """Return the text of an element, visible or not."""
        return str(self.one(selector).get_property("textContent"))

    def texts(self, selector: str) -> list[str]:
        return [str(one.get_property("textContent")) for one in self.all(selector)]

    def until(self, condition: str, what: str = "") -> None:
        """Wait until an expression of JavaScript is true."""
        self.wait(lambda: bool(self.run(f"return Boolean({condition})")), what or condition)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE:.0f} s for {what}; problems: {self.problems()}"
            time.sleep(0.02)

    # What is done to it -----------------------------------------------------------------------------------------------

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the Chrome DevTools Protocol."""
        return self.browser.execute_cdp_cmd(name, parameters)  # type: ignore[no-untyped-call]

    def resize(self, width: int, height: int) -> None:
        """Set the size of what shows the page, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def media(self, *, dark: bool = False, medium: str = "", calm: bool = False) -> None:
        """Set what the user prefers. medium: "print" for paper. calm: as little motion as possible."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        self.command("Emulation.setEmulatedMedia", media=medium, features=features)

    def keys(self, *pressed: str) -> None:
        """Press keys, whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.browser)
        for key in pressed:
            chain.send_keys(key)
        chain.perform()

    def click(self, selector: str) -> None:
        """Click an element in the middle of the window; again if the page draws it anew meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        def clicked() -> bool:
            try:
                element = self.one(selector)
                self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
                element.click()
            except StaleElementReferenceException:
                return False
            return True

        self.wait(clicked, f"a click on {selector}")

    # What it did ------------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return the errors and warnings on the console and the requests that left the page, since the last call."""
        found = [
            f"{entry['level']}: {entry['message']}"
            for entry in self.browser.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["level"] in ("SEVERE", "WARNING")
        ]
        for entry in self.browser.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url, page = message["params"]["request"]["url"], message["params"]["documentURL"]
                if not url.startswith(INSIDE) and not page.startswith("chrome:"):  # the first tab of the browser
                    found.append(f"request: {url[:200]}")
        return found

    def violations(self, script: str) -> list[str]:
        """Return what axe-core finds serious or critical, each with its first elements. script: axe_script()."""
        self.run(f"{script}\nwindow.axe = axe;")
        options = {
            "resultTypes": ["violations"],
            "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
        }
        found = cast("dict[str, Any]", self.value(f"axe.run(document, {json.dumps(options)})"))
        return [
            f"{rule['id']} ({rule['impact']}): {rule['help']}: "
            + "; ".join(f"{node['html'][:160]} [{node.get('failureSummary', '')[:300]}]" for node in rule["nodes"][:4])
            for rule in found["violations"]
            if rule["impact"] in ("serious", "critical")
        ]

    def paper(self) -> bytes:
        """Return the page as printed: a PDF."""
        return base64.b64decode(self.command("Page.printToPDF", printBackground=True)["data"])


Open = Callable[..., Page]
"""Open a file, or the page of results: its path, the fragment of the address, and dark=True for the dark theme."""


Report = Callable[[str], Path]
"""Return the page of a profile of profiles.py."""


def ready(page: Page) -> Page:
    page.until("document.documentElement.dataset.ready === 'true'")
    return page


def whole(page: Page) -> Page:
    """Draw all sections."""
    ready(page).value("flopscope.page.mountAll().then(() => true)")
    return page

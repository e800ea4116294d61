"""The tests' own browser: a page that does what a report must not do is found out."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Open, Page

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver


def written(folder: Path, body: str, head: str = "") -> Path:
    path = folder / "page.html"
    text = f'<!doctype html><html lang="en"><head><title>t</title>{head}</head><body>{body}</body></html>'
    path.write_text(text, encoding="utf-8")
    return path


def test_a_quiet_page_has_no_problem(tmp_path: Path, open_report: Open, axe: str) -> None:
    page = open_report(written(tmp_path, "<main><h1>Title</h1><p>text</p></main>"))
    assert page.text("h1") == "Title"
    assert page.violations(axe) == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("console.error('broken')", "broken"),
        ("setTimeout(() => { throw new Error('later'); }, 0)", "later"),
        ("Promise.reject(new Error('unhandled'))", "unhandled"),
        ("document.body.append(Object.assign(document.createElement('img'), {src: 'data:image/png;base64,AA'}))", ""),
    ],
)
def test_errors_are_found(tmp_path: Path, chromium: WebDriver, script: str, expected: str) -> None:
    page = Page(
        chromium, written(tmp_path, f"<script>{script}; setTimeout(() => document.title = 'done', 50)</script>")
    )
    page.until("document.title === 'done'")
    problems = page.problems()
    assert (len(problems) == 1 and expected in problems[0]) if expected else problems == []
    assert page.problems() == []


def test_requests_and_violations_of_a_policy_are_found(tmp_path: Path, chromium: WebDriver) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/pixel"
        page = Page(chromium, written(tmp_path, f'<img src="{url}" alt="">'))
        assert f"request: {url}" in page.problems()
        policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
        page = Page(chromium, written(tmp_path, "<script>1</script>", policy))
        assert any("Content Security Policy" in problem for problem in page.problems())
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_not_accessible_is_found(tmp_path: Path, chromium: WebDriver, axe: str) -> None:
    page = Page(chromium, written(tmp_path, '<p style="color: #ccc; background: #fff">pale</p><img src="data:,">'))
    found = "\n".join(page.violations(axe))
    assert "color-contrast" in found and "image-alt" in found

"""The tests' own browser: a page that does what a report must not do is found out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Page

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver


def written(folder: Path, body: str, head: str = "") -> Path:
    path = folder / "page.html"
    text = f'<!doctype html><html lang="en"><head><title>t</title>{head}</head><body>{body}</body></html>'
    path.write_text(text, encoding="utf-8")
    return path


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
    page = Page(chromium, written(tmp_path, f"<script>{script}; setTimeout(() => document.title='done', 50)</script>"))
    page.until("document.title === 'done'")
    problems = page.problems()
    assert (len(problems) == 1 and expected in problems[0]) if expected else problems == []
    assert page.problems() == []


def test_what_is_not_accessible_is_found(tmp_path: Path, chromium: WebDriver, axe: str) -> None:
    page = Page(chromium, written(tmp_path, '<p style="color: #ccc; background: #fff">pale</p><img src="data:,">'))
    found = "\n".join(page.violations(axe))
    assert "color-contrast" in found and "image-alt" in found

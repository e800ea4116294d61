"""Pages checked as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser import Page

Report = Callable[[str], Path]


def ready(page: Page) -> None:
    page.until("document.documentElement.dataset.ready === 'true'")


def whole(page: Page) -> None:
    """Draw all sections."""
    ready(page)
    page.value("flopscope.page.mountAll().then(() => true)")

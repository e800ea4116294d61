"""Progress bars on a terminal and without one; and bars of elapsed time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from flopscope.support import progress


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The titles and shares that are drawn."""
    found: list[tuple[str, float]] = []

    @contextmanager
    def bar(title: str) -> Iterator[Callable[[float], object]]:
        yield lambda share: found.append((title, share))

    monkeypatch.setattr(progress, "_on_terminal", bar)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    return found


def test_a_nested_bar_is_not_shown(drawn: list[tuple[str, float]]) -> None:
    with progress.progress_bar("outer", 1) as advance:
        with progress.progress_bar("inner", 1) as inner:
            inner()
        advance()
    assert drawn == [("outer", 0.0), ("outer", 1.0)]
    with progress.progress_bar("inner", 1), progress.progress_bar("unwanted", 1, wanted=False):
        pass
    assert drawn[2:] == [("inner", 0.0)]


def test_a_time_bar_appears_after_two_seconds(drawn: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    with progress.time_bar("measuring", 10.0) as look:
        look()
        now = 1.9
        look()
        assert drawn == []
        now = 5.0
        look()
        now = 12.0
        look()
    assert [share for _, share in drawn] == [0.5, 1.0]


def test_updates_of_a_bar_are_rate_limited(drawn: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 3600.0)
    with progress.progress_bar("x", 1000) as advance:
        for _ in range(1000):
            advance()
    assert drawn == [("x", 0.0)]


def test_no_bar_is_shown_without_a_terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.progress_bar("x", 1) as advance:
        advance()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("title", ["reading run[/1].json.gz", "[bold]x[/bold]", "reading a\x1b[31m.json"])
def test_a_title_is_shown_literally(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.progress_bar(title, 1) as advance:
        advance()
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capfd.readouterr().err)
    assert title.replace("\x1b", r"\x1b") in shown

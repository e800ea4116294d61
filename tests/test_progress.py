"""Progress bars: on a terminal, in a notebook, nowhere; and those of time."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flopscope.support import progress


class Front:
    """IPython in a kernel, and what its front end was given to show."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.display = SimpleNamespace(HTML=str, display=self._display)

    def get_ipython(self) -> Any:
        return SimpleNamespace(kernel=object())

    def _display(self, html: str, display_id: bool) -> Any:
        self.seen.append(html)
        return SimpleNamespace(update=self.seen.append)


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    found = Front()
    monkeypatch.setitem(sys.modules, "IPython", found)
    monkeypatch.setitem(sys.modules, "IPython.display", found.display)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    return found


def test_a_notebook_shows_html_and_then_nothing(front: Front) -> None:
    with progress.progress_bar("reading <b>", 4) as advance:
        for _ in range(4):
            advance()
    assert [text.rpartition("> ")[2] for text in front.seen[1:-1]] == ["0%", "25%", "50%", "75%", "100%"]
    assert "reading &lt;b&gt;" in front.seen[0] and front.seen[-1] == ""


def test_what_fails_takes_its_bar_along(front: Front) -> None:
    with pytest.raises(ZeroDivisionError), progress.progress_bar("x", 4):
        raise ZeroDivisionError
    assert front.seen[-1] == ""


def test_a_bar_within_a_bar_is_not_shown(front: Front) -> None:
    with progress.progress_bar("outer", 1) as advance:
        with progress.progress_bar("inner", 1) as inner:
            inner()
        advance()
    assert front.seen and not any("inner" in text for text in front.seen)
    with progress.progress_bar("inner", 1):
        pass
    assert "inner" in front.seen[-2]


def test_no_bar_where_none_is_wanted(front: Front) -> None:
    with progress.progress_bar("x", 1, wanted=False) as advance:
        advance()
    assert front.seen == []


def test_a_bar_of_time_comes_after_two_seconds(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    with progress.time_bar("measuring", 10.0) as look:
        look()
        now = 1.9
        look()
        assert front.seen == []
        now = 5.0
        look()
        now = 12.0
        look()
    assert [text.rpartition("> ")[2] for text in front.seen[1:-1]] == ["50%", "100%"]


def test_a_bar_changes_no_more_often_than_one_can_see(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 3600.0)
    with progress.progress_bar("x", 1000) as advance:
        for _ in range(1000):
            advance()
    assert len(front.seen) == 3  # its beginning, the first step, its end


def test_silent_without_a_terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.progress_bar("x", 1) as advance:
        advance()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("title", ["reading run[/1].json.gz", "[bold]x[/bold]", "reading a\x1b[31m.json"])
def test_a_title_is_shown_as_it_is(
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

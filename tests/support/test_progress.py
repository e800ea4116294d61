"""Progress bars on a terminal, in a notebook, and without either; and bars of elapsed time."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flopscope.support import progress


class Front:
    """A stand-in for IPython in a kernel, which collects the displayed HTML."""

    def __init__(self) -> None:
        self.displayed: list[str] = []
        self.display = SimpleNamespace(HTML=str, display=self._display)

    def get_ipython(self) -> Any:
        return SimpleNamespace(kernel=object())

    def _display(self, html: str, display_id: bool) -> Any:
        self.displayed.append(html)
        return SimpleNamespace(update=self.displayed.append)


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    front_end = Front()
    monkeypatch.setitem(sys.modules, "IPython", front_end)
    monkeypatch.setitem(sys.modules, "IPython.display", front_end.display)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    return front_end


def test_a_notebook_shows_html_and_then_nothing(front: Front) -> None:
    with progress.progress_bar("reading <b>", 4) as advance:
        for _ in range(4):
            advance()
    assert [text.rpartition("> ")[2] for text in front.displayed[1:-1]] == ["0%", "25%", "50%", "75%", "100%"]
    assert "reading &lt;b&gt;" in front.displayed[0] and front.displayed[-1] == ""
    with pytest.raises(ZeroDivisionError), progress.progress_bar("x", 4):
        raise ZeroDivisionError
    assert front.displayed.pop() == "" != front.displayed[-1]
    front.displayed.clear()
    with progress.progress_bar("x", 1, wanted=False) as advance:
        advance()
    assert front.displayed == []


def test_a_nested_bar_is_not_shown(front: Front) -> None:
    with progress.progress_bar("outer", 1) as advance:
        with progress.progress_bar("inner", 1) as inner:
            inner()
        advance()
    assert front.displayed and not any("inner" in text for text in front.displayed)
    with progress.progress_bar("inner", 1):
        pass
    assert "inner" in front.displayed[-2]


def test_a_time_bar_appears_after_two_seconds(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    with progress.time_bar("measuring", 10.0) as look:
        look()
        now = 1.9
        look()
        assert front.displayed == []
        now = 5.0
        look()
        now = 12.0
        look()
    assert [text.rpartition("> ")[2] for text in front.displayed[1:-1]] == ["50%", "100%"]


def test_updates_of_a_bar_are_rate_limited(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 3600.0)
    with progress.progress_bar("x", 1000) as advance:
        for _ in range(1000):
            advance()
    assert len(front.displayed) == 3  # the initial state, the first step, and the final state


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

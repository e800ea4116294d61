"""Progress bars on a terminal, and without one; and bars of elapsed time."""

import contextlib
import re
import sys
from types import SimpleNamespace

import pytest

from flopscope.support import progress


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bars show: their titles, and shares as they grow."""
    seen: list[str] = []
    bar = SimpleNamespace(add_task=lambda title, total: seen.append(title))
    bar.update = lambda task, completed, refresh: seen.append(f"{completed:.0%}")
    monkeypatch.setattr("rich.progress.Progress", lambda **_: contextlib.nullcontext(bar))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    return seen


def test_a_bar_grows_by_its_steps_and_one_within_is_not_shown(drawn: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), progress.progress_bar("outer", 4) as advance:
        for _ in range(4):
            with progress.progress_bar("inner", 1) as inner:
                inner()
            advance()
        raise ZeroDivisionError
    with progress.progress_bar("unwanted", 1, wanted=False) as advance:
        advance()
    with progress.progress_bar("next", 1):
        pass
    assert drawn == ["outer", "0%", "25%", "50%", "75%", "100%", "next", "0%"]


def test_a_time_bar_appears_after_two_seconds(drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with progress.time_bar("measuring", 10.0) as look:
        for now[0] in (0.0, 1.9):
            look()
            assert drawn == []
        for now[0] in (5.0, 12.0):
            look()
    assert drawn == ["measuring", "50%", "100%"]


def test_updates_of_a_bar_are_rate_limited(drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 3600.0)
    with progress.progress_bar("x", 1000) as advance:
        for _ in range(1000):
            advance()
    assert len(drawn) == 2  # the title and the initial state


def test_no_bar_is_shown_without_a_terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.progress_bar("x", 1) as advance:
        advance()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("title", ["reading run[/1].json.gz", "[bold]x[/bold]", "reading a\x1b[31m.json"])
def test_titles_are_literal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, title: str) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.progress_bar(title, 1) as advance:
        advance()
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capfd.readouterr().err)
    assert title.replace("\x1b", r"\x1b") in shown

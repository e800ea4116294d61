"""The overview of a profile in a notebook: parsed, compared with the tables, and attacked."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA, hand_traces
from helpers.view_texts import Tags

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.show import summarize
from flopscope.support import device
from flopscope.support.units import percent_text, roofline_text, short_time_text

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
HOSTILE = ("<script>alert(1)</script>", "a\"b'c&d", "\x1b[31m\u202e", "line\nbreak", "x" * 1_000_000, "half \ud800")


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_the_overview_shows_what_the_tables_hold(path: Path) -> None:
    trace = fs.load_trace(path)
    html = trace._repr_html_()
    page = Tags(html)
    assert "script" not in page.tags and len(html) < 40_000
    assert path.name in page.text and "datasheet peaks of NVIDIA H200 (cuda:0)" in page.text
    whole = trace.accounting().iloc[-1]
    steps = int(trace.accounting()["step"].notna().sum()) or 1
    assert f"{short_time_text(whole['total'] / steps)}" in page.text
    assert f"MFU {percent_text(whole['mfu'])}" in page.text or not whole["mfu"] > 0
    widths = [float(found[1]) for style in page.styles if (found := re.match(r"width: ([\d.]+)%", style))]
    shown = sum(whole[part] for part in PARTS if whole[part] >= 0.004 * whole["total"])
    assert sum(widths) == pytest.approx(100 * shown / whole["total"], abs=0.1)
    assert all(_core.parts[part].gloss in page.text for part in PARTS if whole[part] > 0.01 * whole["total"])
    rows = {row.key: row for row in trace.key_averages()}
    listed = page.cells[page.cells.index(next(cells for cells in page.cells if cells[0] == "Name")) :]
    body = [cells for cells in listed[1:11] if cells[0] in rows]
    place = listed[0].index("% roof") if "% roof" in listed[0] else None
    assert body and all(place is None or cells[place] == roofline_text(rows[cells[0]].pct_roofline) for cells in body)
    for advice in list(trace.advice())[:3]:
        assert advice.action in page.text and short_time_text(advice.saving_us) in page.text


def test_a_profile_has_an_overview_or_says_why_not_and_measures_no_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*arguments: Any) -> None:
        raise AssertionError("peaks are measured")

    monkeypatch.setattr(device, "measure_peaks", measure)
    x = fs.ones((64, 64))
    assert "not started" in Tags(fs.profile()._repr_html_()).text
    with fs.profile() as prof:
        assert "still running" in Tags(prof._repr_html_()).text
    assert "Nothing was recorded" in Tags(prof._repr_html_()).text
    with fs.profile() as prof:
        fs.matmul(x, x)
    page = Tags(prof._repr_html_())
    assert any(cells[0].endswith("matmul") for cells in page.cells) and "peaks are measured" not in page.text
    trace = fs.load_trace(TRACES[0])
    for plain, most in ((repr(trace), 300), (repr(prof), 100)):
        assert "\n" not in plain and len(plain) < most


def test_an_error_becomes_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyError("<b>broken</b>")

    monkeypatch.setattr(summarize, "summarize", fail)
    assert "<b>broken</b>" in Tags(fs.load_trace(TRACES[0])._repr_html_()).text


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:8]))
def test_hostile_names_are_escaped(name: str) -> None:
    program = hand_traces.Program()
    program.run("aten::mm", 0, 20, 40, [512, 512], [512, 512], kernel=name)
    program.run(f"x::{name}", 50, 100, 40)
    trace = program.load()
    trace.source = f"/somewhere/{name}"
    page = Tags(trace._repr_html_())
    assert "script" not in page.tags and len(page.text) < 20_000 and "\x1b" not in page.text

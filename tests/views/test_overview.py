"""The overview of a profile or a measurement in a notebook: parsed, compared with the tables, and attacked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import DATA, hand_traces
from helpers.fake_sweep import measurement

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.show import profile_overview
from flopscope.show.overview import overview_html
from flopscope.show.roofs import Point, roofs_of, slopes_of
from flopscope.show.thumbnail import roofline_svg, strip_svg
from flopscope.support import device
from flopscope.support.peaks import Peaks
from flopscope.support.units import percent_text, roofline_text, short_time_text

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
VOID = {"br", "meta"}
HOSTILE = ("<script>alert(1)</script>", "a\"b'c&d", "\x1b[31m\u202e", "line\nbreak", "x" * 1_000_000, "half \ud800")


class Page(HTMLParser):
    """The elements of a fragment, which must be well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.cells: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.styles += [value or "" for name, value in attrs if name == "style"]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


def svg_of(text: str, kind: str = "roofline") -> ElementTree.Element:
    """Parse the picture as XML."""
    (found,) = re.findall(rf'<svg class="flopscope-{kind}".*?</svg>', text, re.DOTALL)
    assert len(found) <= 20_000
    return ElementTree.fromstring(found)


def local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def titles(element: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in element.iter() if local(one) == "title"][1:]


# Profiles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_the_overview_shows_what_the_tables_hold(path: Path) -> None:
    trace = fs.load_trace(path)
    html = trace._repr_html_()
    page = Page(html)
    assert "script" not in page.tags and len(html) < 40_000
    assert "cuda:0, NVIDIA H200" in page.text and path.name in page.text and "datasheet peaks" in page.text
    whole = trace.accounting().iloc[-1]
    steps = int(trace.accounting()["step"].notna().sum()) or 1
    assert (
        f"{short_time_text(whole['total'] / steps)}" in page.text and f"MFU {percent_text(whole['mfu'])}" in page.text
    )
    widths = [float(found[1]) for style in page.styles if (found := re.match(r"width: ([\d.]+)%", style))]
    shown = sum(whole[part] for part in PARTS if whole[part] >= 0.004 * whole["total"])
    assert sum(widths) == pytest.approx(100 * shown / whole["total"], abs=0.1)
    rows = {row.key: row for row in trace.key_averages() if row.device_type == "cpu" and not row.is_user_annotation}
    longest = sorted(rows.values(), key=lambda row: -row.self_device_time_total)[:10]
    assert all(_core.parts[part].gloss in page.text for part in PARTS if whole[part] > 0.01 * whole["total"])
    header, *body = page.cells
    assert header == ["op", "calls", "time", "share", "FLOP/s", "B/s", "% roofline", "bound"]
    longest = [row for row in longest if row.self_device_time_total > 0]
    assert [cells[0] for cells in body] == [row.key.removeprefix("aten::") for row in longest]
    assert [cells[2] for cells in body] == [short_time_text(row.self_device_time_total) for row in longest]
    assert [cells[6] for cells in body] == [roofline_text(row.pct_roofline) for row in longest]
    for advice in list(trace.advice())[:3]:
        assert advice.action in page.text and short_time_text(advice.saving_us) in page.text


def test_a_profile_has_an_overview_or_says_why_not_and_measures_no_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*arguments: Any) -> None:
        raise AssertionError("peaks are measured")

    monkeypatch.setattr(device, "measure_peaks", measure)
    x = fs.ones((64, 64))
    assert "not started" in Page(fs.profile()._repr_html_()).text
    with fs.profile() as prof:
        assert "still running" in Page(prof._repr_html_()).text
    assert "The profile holds no events" in Page(prof._repr_html_()).text
    with fs.profile() as prof:
        fs.matmul(x, x)
    page = Page(prof._repr_html_())
    assert "cpu" in page.text and any(cells[0] == "matmul" for cells in page.cells)
    assert "peaks are measured" not in page.text
    trace = fs.load_trace(TRACES[0])
    for plain, most in ((repr(trace), 300), (repr(prof), 100)):
        assert "\n" not in plain and len(plain) < most


@pytest.mark.parametrize("fails", ["analysis_of", "key_averages"])
def test_an_error_becomes_text(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fs.load_trace(TRACES[0])

    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyError("<b>broken</b>")

    monkeypatch.setattr(profile_overview if fails == "analysis_of" else trace, fails, fail)
    assert "<b>broken</b>" in Page(trace._repr_html_()).text


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:8]))
def test_hostile_names_are_escaped(name: str) -> None:
    program = hand_traces.Program()
    program.run("aten::mm", 0, 20, 40, [512, 512], [512, 512], kernel=name)
    program.run(f"x::{name}", 50, 100, 40)
    trace = program.load()
    trace.source = f"/somewhere/{name}"
    page = Page(trace._repr_html_())
    assert "script" not in page.tags and len(page.text) < 20_000 and "\x1b" not in page.text
    page = Page(overview_html([name], {"ideal": 1.0}, [(name, name, name)], "", (name, name), [(name, name)], [name]))
    assert "script" not in page.tags and len(page.text) < 5_000 and "\u202e" not in page.text
    assert "script" not in Page(replace(MEASURED, name=name, notes=(name,), device_name=name)._repr_html_()).tags


# The picture ----------------------------------------------------------------------------------------------------------


def drawn(marks: Sequence[Point], bandwidth: float | None, levels: dict[str, float]) -> str:
    peaks = {"datasheet": Peaks("datasheet", levels, bandwidth)}
    return roofline_svg(marks, roofs_of(peaks, levels), slopes_of(peaks, ()))


def test_marks_lie_where_their_logarithms_are() -> None:
    places = (("a", 100.0, 1.0, 0.1), ("b", 25.0, 10.0, 1.0), ("c", 1.0, 100.0, 10.0))
    marks = [Point(*place, "memory") for place in places]
    svg = svg_of(drawn(marks, 1e12, {"fp32": 50e12}))
    circles = [one for one in svg if local(one) == "circle"]
    xs, ys, radii = ([float(one.attrib[key]) for one in circles] for key in ("cx", "cy", "r"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2) and xs[0] < xs[1]
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.2) and ys[0] > ys[1]
    assert radii[:2] == [9.0, 4.5], "areas are proportional to the times"
    wide, high = float(svg.attrib["width"]), float(svg.attrib["height"])
    assert all(0 < x < wide and 0 < y < high for x, y in zip(xs, ys, strict=True))
    slope, level = [one.attrib["d"] for one in svg if local(one) == "path"]
    x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", slope))
    ridge, height, _ = map(float, re.findall(r"[\d.]+", level))
    assert (x1, y1) == pytest.approx((ridge, height), abs=0.2), "the roofs meet"
    assert (y0 - y1) / (x1 - x0) == pytest.approx((ys[0] - ys[1]) / (xs[1] - xs[0]), rel=0.02), "of slope 1"
    assert titles(svg)[:2] == ["memory: 1 TB/s datasheet", "fp32: 50 TFLOP/s datasheet"]
    assert titles(svg)[2] == "a: 100 µs, 0.1 TFLOP/s, memory-bound"


def test_the_name_of_a_roof_covers_no_mark() -> None:
    def box(*intensities: float) -> tuple[float, float]:
        """Return from where to where the name reaches; it must lie above its roof and cover no mark."""
        marks = [Point("a", 100.0, one, 49.0, "memory") for one in intensities]
        svg = svg_of(drawn([Point("far", 1.0, 0.1, 0.01, "memory"), *marks], 1e12, {"bf16_tensor": 50e12}))
        (name,) = [one for one in svg if local(one) == "text" and one.text == "bf16_tensor"]
        x, wide = float(name.attrib["x"]), 9 * 0.6 * len("bf16_tensor")
        left = x - wide if name.attrib["text-anchor"] == "end" else x
        for mark in (one for one in svg if local(one) == "circle" and float(one.attrib["r"]) > 5):
            centre, radius = float(mark.attrib["cx"]), float(mark.attrib["r"])
            assert centre + radius <= left + 1 or centre - radius >= left + wide - 1
        return left, left + wide

    usual = box()
    assert box(1000.0)[1] < usual[1] and box(100.0, 1000.0)[1] < usual[1]


def test_pictures_remain_small_and_valid() -> None:
    many = [Point("n" * 500 + "<&>", 10.0 + i, 10.0 ** (i % 5), 10.0 ** (i % 4), "latency") for i in range(5000)]
    assert len([one for one in svg_of(drawn(many, 1e12, {"fp32": 1e13})) if local(one) == "path"]) == 62
    unknown = [Point("x", math.nan, math.nan, 1.0, "memory"), Point("y", 1.0, 1.0, math.inf, "what")]
    for marks in ([], unknown):
        svg = svg_of(drawn(marks, None, {}))
        assert any(one.text == "no op of known work" for one in svg)
    svg_of(drawn([Point("x", math.nan, 1.0, 1.0, "what")], None, {}))
    svg_of(drawn([Point("x", 1.0, 1e-300, 1e300, "cache")], 1e12, {"fp32": 1e13}))


# Measurements ---------------------------------------------------------------------------------------------------------

MEASURED = replace(
    measurement(100.0, 1e8, 5e6, bound="compute", unit="fp32"), samples=(99.0, 100.0, 101.0, 103.0), n=4, name="neg"
)


def test_a_measurement_shows_verdict_rating_picture_and_samples() -> None:
    html = MEASURED._repr_html_()
    page = Page(html)
    assert MEASURED.verdict in page.text and "script" not in page.tags
    assert ["% roofline", roofline_text(MEASURED.pct_roofline)] in page.cells and ["bound", "compute"] in page.cells
    svg = svg_of(html)
    assert sum(title.startswith("neg: 100 µs") for title in titles(svg)) == 1
    strip = svg_of(html, "strip")
    ticks = [one.attrib["d"] for one in strip if local(one) == "path"][1]
    xs = [float(x) for x in re.findall(r"M([\d.]+)", ticks)]
    assert (xs[1] - xs[0]) / (xs[3] - xs[0]) == pytest.approx(1 / 4, abs=0.01) and len(xs) == 4
    assert [one.text for one in strip if local(one) == "text"] == ["99 µs", "103 µs"] + ["median 100 µs"] * (
        0.25 < 1 / 4 + 6 / 460 < 0.75
    )


def test_a_measurement_of_unknown_work_has_no_picture_and_an_error_becomes_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none = dict.fromkeys(("arithmetic_intensity", "tflops_per_s", "pct_roofline"), math.nan)
    html = replace(MEASURED, **none, bound="unknown")._repr_html_()  # type: ignore[arg-type]
    assert "flopscope-roofline" not in html.partition("</style>")[2] and "% roofline" not in Page(html).cells

    def fail(*arguments: Any) -> Callable[..., None]:
        raise ValueError("no")

    monkeypatch.setattr(type(MEASURED), "facts", fail)
    assert "measurement of neg: no" in Page(MEASURED._repr_html_()).text


def test_strips_of_any_samples_and_outliers() -> None:
    for samples in ((), (1.0,), (5.0,) * 10, (math.nan, 1.0, 2.0), tuple(map(float, range(5000)))):
        text = strip_svg(samples, 1.0)
        assert len(text) < 10_000 and bool(text) == any(sample == sample for sample in samples)
        assert not text or ElementTree.fromstring(text) is not None
    strip = ElementTree.fromstring(strip_svg((*(100.0 + i / 10 for i in range(98)), 5e4, 8e4), 105.0))
    texts = [one.text for one in strip if local(one) == "text"]
    assert texts[:2] == ["100 µs", "109.4 µs (5 % up to 80 ms)"]
    xs = [float(x) for x in re.findall(r"M([\d.]+) 4", [one.attrib["d"] for one in strip if local(one) == "path"][1])]
    assert len(xs) == 95 and max(xs) - min(xs) > 400

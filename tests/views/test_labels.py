"""The geometry of plots: no label covers another, a mark or the border of the picture. Read from rendered extents."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA, hand_traces
from helpers.fake_sweep import MEASURED
from helpers.plotted import ROWS, row, swept, table

import flopscope as fs
from flopscope.show.labels import Room, boxes_of
from flopscope.show.roofline import roofline
from flopscope.show.waterfall import plot_waterfall
from flopscope.support import device
from flopscope.support.safe import printable

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.legend import Legend  # noqa: E402

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
SIZES = ((9.0, 6.2), (6.4, 4.8), (14.0, 8.0))
LONG = "x" * 1_000_000
HOSTILE = ("a$b$\\frac{", "line\nbreak", LONG, "\x1b[31m\u202e", "<b>&amp;</b>")
Box = tuple[float, float, float, float]


@pytest.fixture(autouse=True)
def figures_close(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device, "cached_peaks", lambda there: MEASURED)
    yield
    pyplot.close("all")


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def mark_boxes(axes: Any) -> list[Box]:
    """Return the squares around the marks, of their area."""
    boxes = []
    for dots in axes.collections:
        sizes = dots.get_sizes()
        for number, (x, y) in enumerate(axes.transData.transform(dots.get_offsets())):
            half = math.sqrt(sizes[number % len(sizes)]) / 2 * axes.figure.dpi / 72
            boxes.append((x - half, y - half, x + half, y + half))
    return boxes


def texts_of(axes: Any) -> list[Any]:
    """Return the texts among the marks: labels of points, roofs, levels, caches and bounds."""
    named = ("label", "roof", "level", "cache", "bound")
    return [text for text in axes.texts if text.get_gid() in named and text.get_text()]


def check_axes(axes: Any) -> None:
    """Check that no text covers another, a legend or a mark, and that all lie within the axes."""
    texts = texts_of(axes)
    boxes = [boxes_of(text) for text in texts]
    legends = [one for one in (axes.get_legend(), *axes.artists) if isinstance(one, Legend)]
    inside = axes.get_window_extent()
    marks = mark_boxes(axes)
    for number, text in enumerate(texts):
        for box in boxes[number]:
            assert inside.x0 <= box[0] and box[2] <= inside.x1, text
            assert inside.y0 <= box[1] and box[3] <= inside.y1, text
            assert not [mark for mark in marks if overlap(box, mark)], text
            assert not [one for one in legends if overlap(box, boxes_of(one)[0])], text
            others = [i for i in range(number) for other in boxes[i] if overlap(box, other)]
            assert not others, (text, texts[others[0]])


def check_figure(figure: Any) -> None:
    """Draw the picture, and check all of its axes, and that titles and captions lie within it."""
    figure.canvas.draw()
    whole = figure.bbox
    for axes in figure.axes:
        check_axes(axes)
        outer = [axes.title, axes.xaxis.label, axes.yaxis.label]
        for text in (*outer, *(one for one in axes.texts if one.get_gid() in ("caption", "message"))):
            box = text.get_window_extent()
            assert not text.get_text() or (whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1), text
            assert not text.get_text() or (whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1), text


def named(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_gid() == "label"]


def axes_of_size(size: tuple[float, float], rows: int = 1) -> Any:
    return pyplot.subplots(rows, 1, figsize=size, layout="constrained")[1]


# Roofline -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_rooflines_of_recorded_traces(path: Path, size: tuple[float, float]) -> None:
    axes = roofline(fs.load_trace(path).key_averages(), ax=axes_of_size(size))
    check_figure(axes.figure)
    assert path.name in axes.get_title().replace("\n", " ") and "NVIDIA H200" in axes.get_title().replace("\n", " ")
    assert "datasheet peaks" in axes.get_title().replace("\n", " ")


@pytest.mark.parametrize("size", SIZES)
def test_sixty_labels(size: tuple[float, float]) -> None:
    rng = random.Random(3)
    rows = [row(f"op_number_{i}", rng.uniform(50, 500), 10 ** rng.uniform(5, 8), 12e6) for i in range(60)]
    axes = roofline(table(*rows), ax=axes_of_size(size), top=60)
    check_figure(axes.figure)
    missing = 60 - len(named(axes))
    caption = next((text.get_text() for text in axes.texts if text.get_gid() == "caption"), "")
    assert missing < 30 and (f"{missing} of the points" in caption.replace("\n", " ")) == (missing > 0)
    leaders = [text for text in axes.texts if text.get_gid() == "leader"]
    assert leaders, "labels away from their mark have a line to it"


def test_the_same_picture_every_time() -> None:
    def places() -> list[Any]:
        axes = roofline(table(*ROWS), ax=axes_of_size(SIZES[0]))
        return [(text.get_text(), tuple(text.xyann)) for text in axes.texts if text.get_gid() == "label"]

    assert places() == places()


def test_one_mark() -> None:
    axes = roofline(table(row("only", 10.0, 1e6, 1e6)), ax=axes_of_size(SIZES[1]))
    check_figure(axes.figure)
    assert named(axes) == ["only"]


def test_areas_are_proportional_to_the_time_and_have_a_legend() -> None:
    rows = [row("long", 400.0, 1e6, 1e7), row("short", 100.0, 1e7, 1e6), row("tiny", 1.0, 1e6, 1e6)]
    axes = roofline(table(*rows))
    areas = sorted(float(size) for dots in axes.collections for size in dots.get_sizes())
    assert areas == [25.0, 100.0, 400.0]
    (legend,) = [
        one for one in (axes.get_legend(), *axes.artists) if isinstance(one, Legend) and one.get_title().get_text()
    ]
    assert legend.get_title().get_text() == "CPU time"
    assert [text.get_text() for text in legend.get_texts()] == ["400us", "100us", "≤ 25.0us"]
    assert [line.get_markersize() for line in legend.get_lines()] == [20.0, 10.0, 5.0]


def test_an_empty_profile_says_so() -> None:
    with fs.profile() as prof:
        pass
    axes = roofline(prof.key_averages(peaks="none"))
    check_figure(axes.figure)
    assert [text.get_text() for text in axes.texts if text.get_gid() == "message"] == [
        "Nothing to draw: no op has time on this device"
    ]
    accounting = prof.plot_accounting(peaks="none")
    check_figure(accounting.figure)
    assert any("no work ran" in text.get_text() for text in accounting.texts)


def test_unknown_work_says_so() -> None:
    nothing = [row(f"op{i}", 10.0, math.nan, math.nan) for i in range(3)]
    axes = roofline(table(*nothing))
    check_figure(axes.figure)
    assert any("no op has both known FLOPs and known bytes" in text.get_text() for text in axes.texts)
    infinite = [row("inf", math.nan, math.inf, 1.0), row("ok", 10.0, 1e6, 1e6)]
    check_figure(roofline(table(*infinite)).figure)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:8]))
def test_hostile_names(name: str) -> None:
    axes = roofline(table(row(name, 10, 1e6, 1e6), row(f"{name}!", 5, 0, 1e6), row("mm", 8, 1e7, 1e6)))
    check_figure(axes.figure)
    assert sorted(named(axes))[-1 if name[0] > "m" else 0][:8] == printable(name)[:8]
    first = swept("float32", caches={name: 1e6}, op=name).plot()
    check_figure(first.figure)
    whole = plot_waterfall(columns(name), 1, name, program=name, peaks=name)
    check_figure(whole.figure)


# Sweeps ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ((8.0, 9.0), (6.0, 6.5), (11.0, 11.0)))
@pytest.mark.parametrize("dtypes", (("float32",), ("float32", "float64")))
def test_sweeps(dtypes: tuple[str, ...], size: tuple[float, float]) -> None:
    first = swept(*dtypes).plot(axes_of_size(size, 3))
    check_figure(first.figure)
    assert [axes.get_yscale() for axes in first.figure.axes] == ["log"] * 3, "values differ by two decades"
    assert "add on cpu" in first.get_title() and "measured and datasheet peaks" in first.get_title()


def test_every_plot_returns_axes() -> None:
    from matplotlib.axes import Axes

    trace = fs.load_trace(TRACES[0])
    drawn = [roofline(trace.key_averages()), trace.plot_accounting(), swept("float32").plot()]
    assert all(isinstance(axes, Axes) for axes in drawn)


# Accounting -----------------------------------------------------------------------------------------------------------


def columns(name: str | None = "cuda:0") -> dict[str, list[Any]]:
    from flopscope.answers.analysis import PARTS

    parts = {part: [10.0 ** (number % 4)] for number, part in enumerate(PARTS)}
    total = sum(value for (value,) in parts.values())
    return {"device": [name], "step": [None], "total": [total], **parts, "mfu": [12.5], "mbu": [50.0]}


@pytest.mark.parametrize("size", ((8.0, 5.0), (5.5, 4.0), (12.0, 6.0), (5.0, 2.0)))
def test_accounting(size: tuple[float, float]) -> None:
    axes = plot_waterfall(columns(), 1, "NVIDIA H200", axes_of_size(size), program="train.json", peaks="datasheet")
    axes.figure.canvas.draw()
    labels = [text for text in axes.texts if text.get_gid() == "label"]
    boxes = [text.get_window_extent() for text in labels]
    inside = axes.get_window_extent()
    assert len(labels) == len(axes.patches) == len(columns()) - 4  # a bar for each part, and the total
    bars = [bar.get_window_extent() for bar in axes.patches]
    for number, box in enumerate(boxes):
        assert box.x1 <= inside.x1 + 1, labels[number]
        assert not [other for other in boxes[:number] if box.overlaps(other)]
        assert not [bar for bar in bars if box.x0 < bar.x1 - 1 and bar.x0 < box.x1 and box.overlaps(bar)]
    names = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert all(a.y0 >= b.y1 - 1 for a, b in itertools.pairwise(names))
    title = axes.get_title().replace("\n", " ")
    assert "train.json" in title and "NVIDIA H200 (datasheet peaks): MFU 12.5%, MBU 50.0%" in title


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_accounting_of_recorded_traces(path: Path) -> None:
    axes = fs.load_trace(path).plot_accounting(axes_of_size((5.5, 4.0)))
    check_figure_title(axes)
    inside = axes.get_window_extent()
    for text in axes.texts:
        if text.get_gid() == "label":
            assert text.get_window_extent().x1 <= inside.x1 + 1


def check_figure_title(axes: Any) -> None:
    axes.figure.canvas.draw()
    box = axes.title.get_window_extent()
    assert axes.figure.bbox.x0 <= box.x0 and box.x1 <= axes.figure.bbox.x1


def test_a_program_of_one_op_is_drawn() -> None:
    program = hand_traces.Program()
    program.run("aten::mm", 0, 20, 40, [512, 512], [512, 512])
    check_figure(roofline(program.load().key_averages()).figure)


def test_a_text_settles_where_it_covers_nothing_or_goes() -> None:
    figure, axes = pyplot.subplots()
    text = axes.text(0.5, 0.5, "here", transform=axes.transAxes)
    room, inside = Room(axes), axes.get_window_extent()
    room.take([(inside.x0, inside.y0, inside.x1, (inside.y0 + inside.y1) / 2)])  # the lower half
    places = [(0.5, 0.2), (0.5, 0.8), (0.1, 0.9)]

    def move(place: tuple[float, float]) -> None:
        text.set_position(place)

    room.settle(text, places, move)
    box = text.get_window_extent()
    assert text.get_position() == (0.5, 0.8) and room.taken[-1] == (box.x0, box.y0, box.x1, box.y1)
    assert room.covered((inside.x0, inside.y0, inside.x1, inside.y1)) == 2 and room.covered(room.taken[-1]) == 1
    room.settle(text, places[:2], move)  # both are taken now
    assert text not in axes.texts
    pyplot.close(figure)

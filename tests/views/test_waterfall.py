"""plot_accounting(): bars, labels and title, read from matplotlib's artists."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import DATA

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.show.looks import BOUNDS
from flopscope.show.plots import plot_waterfall
from flopscope.support.safe import printable

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402

FAULTS = DATA / "programs"


@pytest.fixture(autouse=True)
def settings_stay() -> Iterator[None]:
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before
    pyplot.close("all")


def columns(device: str | None = "cuda:0", **times: float) -> dict[str, list[Any]]:
    parts = {part: [times.get(part, 0.0)] for part in PARTS}
    shares = {"mfu": [times.get("mfu", 12.5)], "mbu": [times.get("mbu", 50.0)]}
    return {"device": [device], "step": [None], "total": [sum(value for (value,) in parts.values())], **parts, **shares}


TIMES = {"ideal": 3000.0, "memory": 1000.0, "host": 2000.0, "copy": 4.0}


def bars(axes: Any) -> list[tuple[str, float, float]]:
    """Return the label, left end and right end of each bar, from the top."""
    names = [text.get_text() for text in axes.get_yticklabels()]
    found = sorted((round(bar.get_y() + bar.get_height() / 2), bar) for bar in axes.patches)
    return [(names[y], bar.get_x(), bar.get_x() + bar.get_width()) for y, bar in found]


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_gid() == "label"]


def test_the_bars_lead_from_the_total_down_to_the_ideal() -> None:
    axes = plot_waterfall(columns(**TIMES), 1)
    expected = [("total", 0, 6.004), ("idle: host late", 4.004, 6.004), ("memory, beyond ideal", 3.004, 4.004)]
    expected += [("copies", 3.0, 3.004), ("ideal", 0, 3.0)]
    assert [name for name, _, _ in bars(axes)] == [name for name, _, _ in expected]
    for (_, left, right), (_, low, high) in zip(bars(axes), expected, strict=True):
        assert (left, right) == pytest.approx((low, high))
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the total is at the top
    assert labels(axes) == ["6.00ms  100.0%", "2.00ms  33.3%", "1.00ms  16.7%", "4.00us  0.1%", "3.00ms  50.0%"]
    assert axes.get_title() == "Accounting of a step on cuda:0: MFU 12.5%, MBU 50.0%"


def test_times_are_per_step_and_shares_and_devices_may_be_unknown() -> None:
    axes = plot_waterfall(columns(**TIMES), 4)
    assert labels(axes)[0] == "1.50ms  100.0%" and bars(axes)[0][2] == pytest.approx(1.501)
    assert plot_waterfall(columns(**TIMES), 0).get_title().startswith("Accounting of the profile on")
    axes = plot_waterfall(columns(None, **TIMES, mfu=float("nan")), 1)
    assert axes.get_title() == "Accounting of a step on all devices: MBU 50.0%"
    assert "1.00us  <0.1%" in labels(plot_waterfall(columns(ideal=10000.0, other=1.0), 1)), "tiny parts are not nothing"


def test_every_part_has_its_own_look_and_bounds_their_usual_colours() -> None:
    assert len({(part.light, part.hatch) for part in _core.parts.values()}) == len(PARTS)
    axes = plot_waterfall(columns(ideal=10.0, memory=5.0, host=2.0), 1)
    drawn = {to_hex(bar.get_facecolor()) for bar in axes.patches}
    assert drawn >= {BOUNDS["memory"].light, _core.parts["ideal"].light, _core.parts["host"].light}


@pytest.mark.parametrize("name", ["tf32_before", "data_before", "graph_after"])
def test_no_label_is_cut_or_overlaps_another(name: str) -> None:
    figure, given = pyplot.subplots()
    trace = fs.load_trace(FAULTS / f"{name}.json.gz")
    assert trace.plot_accounting(given) is given and "NVIDIA" in given.get_title() and len(figure.axes) == 1
    axes = trace.plot_accounting()
    figure = axes.figure
    figure.canvas.draw()
    shown = [text for text in (*axes.texts, *axes.get_yticklabels(), axes.title) if text.get_text()]
    boxes = [text.get_window_extent() for text in shown]
    inside = figure.bbox
    for number, box in enumerate(boxes):
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in boxes[number + 1 :]), shown[number].get_text()


@pytest.mark.parametrize("name", [r"a$\frac{b$c", "paid $5 or $6", "\x1b[31m\u202e", "half \ud800 a pair", "_x"])
def test_any_name_is_drawn_literally(name: str) -> None:
    with matplotlib.rc_context({"text.usetex": True}):
        axes = plot_waterfall(columns(name, **TIMES), 1, name)
        drawn = [axes.title, axes.xaxis.label, *axes.texts, *axes.get_yticklabels()]
        assert [text.get_text() for text in drawn if text.get_usetex() or text.get_parse_math()] == []
    assert printable(name) in axes.get_title()
    axes = plot_waterfall(columns(name, **TIMES), 1, name)
    axes.figure.savefig(io.BytesIO(), format="png")


def test_a_profile_without_work_says_so() -> None:
    for empty in (columns(), {name: [] for name in columns()}):
        axes = plot_waterfall(empty, 1)
        assert [text.get_text() for text in axes.texts] == ["Nothing to draw: no work ran in this profile"]

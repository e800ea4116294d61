"""Plots: their contents, read from matplotlib's artists."""

import io
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.fake_sweep import DATASHEET, MEASURED, UNITS, measurement
from helpers.recordings import FAULTS
from helpers.tables import make_table

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.results.table_facts import Facts
from flopscope.show.looks import BOUNDS
from flopscope.show.plots import plot_waterfall, roofline
from flopscope.show.roofs import level_label, levels_of
from flopscope.support import device
from flopscope.support.peaks import Peaks
from flopscope.support.safe import printable

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

BYTES = (3e3, 3e4, 3e5, 3e6, 3e7)
MICROSECONDS = (1.0, 1.2, 1.0, 40.0, 400.0)
IN_ORDER = ("launch", "launch", "cache", "memory", "memory")


def point(size: int, dtype: str, moved: float, us: float, bound: str, **others: Any) -> SweepPoint:
    unit = UNITS[dtype]
    return SweepPoint(
        size, dtype, str(size), size, moved, measurement(us, moved / 12, moved, bound=bound, unit=unit, **others)
    )


def swept(*dtypes: str, **others: Any) -> Sweep:
    points = [
        point(number, dtype, moved, us, bound)
        for dtype in dtypes
        for number, (moved, us, bound) in enumerate(zip(BYTES, MICROSECONDS, IN_ORDER, strict=True))
    ]
    values = {"peaks": {"measured": MEASURED, "datasheet": DATASHEET}, **others}
    return Sweep(values.pop("op", "add"), tuple(points), device.find_device("cpu"), **values)


def row(key: str, us: float, flops: float, moved: float, **others: Any) -> dict[str, Any]:
    """Return a row of a CPU table with the peaks MEASURED."""
    known = not math.isnan(flops + moved)
    return {
        "key": key,
        "self_cpu_time_total": us,
        "cpu_time_total": us,
        "flops": flops,
        "bytes_total_moved": moved,
        "tflops_per_s": flops / us / 1e6,
        "arithmetic_intensity": flops / moved if known and moved else math.nan,
        "unit": "fp32" if flops > 0 else None,
        "bound": "memory",
        **others,
    }


ROWS = (
    row("flopscope::add", 100.0, 1e6, 12e6),
    row("flopscope::matmul", 400.0, 3e8, 3e6, bound="compute"),
    row("flopscope::copy", 50.0, 0.0, 8e6),
    row("flopscope::fill_", 30.0, 0.0, 4e6),
    row("mystery", 20.0, math.nan, math.nan, bound="unknown"),
)


def table(*rows: dict[str, Any]) -> Any:
    return make_table(*rows, peaks={"cpu": {"source": "measured", "name": device.find_device("cpu").name}})


from matplotlib.colors import to_hex  # noqa: E402


@pytest.fixture(autouse=True)
def settings_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device, "cached_peaks", lambda there: MEASURED)
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before
    pyplot.close("all")


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def caption(axes: Any) -> str:
    return next((text.get_text() for text in axes.texts if text.get_gid() == "caption"), "")


def labels(axes: Any) -> list[Any]:
    return [text for text in axes.texts if text.get_gid() == "label"]


def labels_of(axes: Any) -> list[str]:
    return [text.get_text() for text in labels(axes)]


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def marks(axes: Any) -> list[tuple[float, float, str, float]]:
    """Return x, y, colour and area of each point."""
    return [
        (float(x), float(y), to_hex(dots.get_facecolor()[0]), float(size))
        for dots in axes.collections
        for (x, y), size in zip(dots.get_offsets(), np.resize(dots.get_sizes(), len(dots.get_offsets())), strict=True)
    ]


def line(axes: Any, name: str) -> tuple[list[float], list[float]]:
    found = next(one for one in axes.lines if one.get_label() == name)
    return list(map(float, found.get_xdata())), list(map(float, found.get_ydata()))


def level_of(axes: Any, y: float) -> list[Any]:
    """Return the horizontal lines at this height."""
    return [one for one in axes.lines if list(one.get_xdata()) == [0, 1] and np.allclose(one.get_ydata(), y)]


# A sweep --------------------------------------------------------------------------------------------------------------


def test_the_rate_is_drawn_over_the_working_set_with_the_bounds_of_the_points() -> None:
    axes = swept("float32", "float64").plot()
    assert axes.get_xscale() == axes.get_yscale() == "log" and axes.get_ylabel() == "GB/s"
    assert axes.get_xlabel() == "working set: bytes of operands and result" and "add on cpu" in axes.get_title()
    x, y = line(axes, "float32")
    assert x == pytest.approx(BYTES)
    assert y == pytest.approx([moved / us / 1e3 for moved, us in zip(BYTES, MICROSECONDS, strict=True)])
    expected = ["float32", "float64", "memory: 100 GB/s measured", "memory: 120 GB/s datasheet"]
    assert legend(axes) == [*expected, "memory-bound", "launch-bound", "cache-bound"]
    colours = {(x, colour) for x, _, colour, _ in marks(axes)}
    assert colours == {(moved, BOUNDS[bound].light) for moved, bound in zip(BYTES, IN_ORDER, strict=True)}
    assert len(level_of(axes, 100)) == len(level_of(axes, 120)) == 1


def test_products_show_their_flop_rate_and_the_units_peak() -> None:
    points = [
        SweepPoint(
            n,
            "float64",
            f"{n} x {n}",
            n * n,
            24.0 * n * n,
            measurement(us, 2.0 * n**3, 24.0 * n * n, bound="compute", unit="fp64"),
        )
        for n, us in ((64, 10.0), (512, 800.0))
    ]
    product = Sweep("matmul", tuple(points), device.find_device("cpu"), {"measured": MEASURED, "datasheet": DATASHEET})
    axes = product.plot()
    assert axes.get_ylabel() == "TFLOP/s"
    assert line(axes, "float64")[1] == pytest.approx([2 * 64**3 / 1e7, 2 * 512**3 / 8e8])
    assert len(level_of(axes, 0.5)) == 1 and "fp64: 500 GFLOP/s measured" in legend(axes)


def test_without_known_bytes_the_axis_shows_elements_and_without_work_the_time() -> None:
    points = [SweepPoint(n, "float32", "", n, math.nan, measurement(1.0, 1.0, 1.0)) for n in (8, 32)]
    axes = Sweep("f", tuple(points), device.find_device("cpu")).plot()
    assert line(axes, "float32")[0] == [8, 32] and "elements" in axes.get_xlabel()
    points = [SweepPoint(n, "float32", "", math.nan, math.nan, measurement(1.0, 1.0, 1.0)) for n in "ab"]
    assert line(Sweep("f", tuple(points), device.find_device("cpu")).plot(), "float32")[0] == [1, 2]
    unknown = dict.fromkeys(("pct_roofline", "gbytes_per_s", "tflops_per_s"), math.nan)
    drawn = point(1, "float32", 1e5, 1, "unknown", **unknown)
    axes = Sweep("f", (drawn, SweepPoint(2, "float32", "", 2, 1e6, None, "no")), device.find_device("cpu")).plot()
    assert line(axes, "float32") == ([1e5], [1]) and legend(axes) == ["float32", "bound unknown"]
    assert axes.get_ylabel() == "time per call (µs)"


# The roofline ---------------------------------------------------------------------------------------------------------


def test_points_show_intensity_and_rate_and_their_area_the_time() -> None:
    axes = roofline(table(*ROWS))
    assert axes.get_xscale() == axes.get_yscale() == "log" and axes.get_ylabel() == "TFLOP/s"
    points = {colour: (x, y, size) for x, y, colour, size in marks(axes)}
    add, matmul = points[BOUNDS["memory"].light], points[BOUNDS["compute"].light]
    assert add[:2] == pytest.approx((1 / 12, 1e6 / 100 / 1e6)) and matmul[:2] == pytest.approx((100, 3e8 / 400 / 1e6))
    assert len(marks(axes)) == 2 and add[2] < matmul[2]
    assert labels_of(axes) == ["matmul", "add"]
    assert legend(axes) == ["compute-bound", "memory-bound", "measured peaks"]


def test_ops_that_are_not_shown_are_counted_with_their_share_of_the_time() -> None:
    text = caption(roofline(table(*ROWS)))
    assert "2 ops without FLOPs, 13 % of the time: copy, fill_" in text  # 80 of 600 µs
    assert "1 op of unknown work, 3.3 % of the time: mystery" in text
    many = [row(f"op{i}", 100.0 - i, 0.0, 1e6) for i in range(5)]
    assert "op0, op1, op2, and 2 more" in caption(roofline(table(*many)))
    tiny = row("tiny", 0.1, 1.0, 1e6)
    axes = roofline(table(*ROWS, tiny))
    assert "1 op beyond the axes, 0.017 % of the time: tiny" in caption(axes) and len(labels(axes)) == 2


def test_roofs_meet_at_the_ridge() -> None:
    axes = roofline(table(*ROWS), peaks=[MEASURED, DATASHEET])
    for source, peaks in (("measured", MEASURED), ("datasheet", DATASHEET)):
        assert peaks.bandwidth is not None
        ridge = peaks.flops["fp32"] / peaks.bandwidth
        x, y = line(axes, f"memory {source}")
        assert x[1] == pytest.approx(ridge) and y[1] == pytest.approx(peaks.flops["fp32"] / 1e12)
        assert y[0] / x[0] == pytest.approx(peaks.bandwidth / 1e12)
        x, y = line(axes, f"fp32 {source}")
        assert x[0] == pytest.approx(ridge) and y == pytest.approx([peaks.flops["fp32"] / 1e12] * 2)
    assert "fp32: 1 TFLOP/s measured, 1.2 datasheet" in texts(axes)
    assert "memory: 100 GB/s measured, 120 datasheet" in texts(axes)
    assert "fp64 measured" not in [one.get_label() for one in axes.lines]
    low, high = axes.get_xlim()
    assert low < 1 / 12 and high > 100


def test_only_requested_and_known_peaks_are_drawn() -> None:
    def roofs(axes: Any) -> list[str]:
        return sorted(one.get_label() for one in axes.lines if not one.get_label().startswith("_"))

    assert roofs(roofline(table(*ROWS), peaks="measured")) == ["fp32 measured", "memory measured"]
    none = roofline(table(*ROWS), peaks="datasheet")
    assert roofs(none) == [] and "No roofs" in caption(none)
    assert roofs(roofline(table(*ROWS), peaks=DATASHEET)) == ["fp32 datasheet", "memory datasheet"]


def test_peaks_of_a_missing_gpu_come_from_the_datasheet() -> None:
    us, flops, moved = 100.0, 5e10, 1e8
    gemm = {
        **row("aten::mm", us, flops, moved),
        "self_device_time_total": us,
        "device_time_total": us,
        "unit": "bf16_tensor",
    }
    copies = {**row("aten::copy_", 7.0, 0.0, moved), "self_device_time_total": 50.0, "device_time_total": 50.0}
    kernel = {"key": "k", "device_type": "cuda", "self_device_time_total": 200.0}
    axes = roofline(make_table(gemm, copies, kernel, peaks={"cuda:0": {"source": "datasheet", "name": "NVIDIA H200"}}))
    assert axes.get_title() == "Roofline of cuda:0, NVIDIA H200 (datasheet peaks)"
    assert line(axes, "bf16_tensor datasheet")[1] == pytest.approx([989.4] * 2, rel=1e-3)
    assert line(axes, "memory datasheet")[1][1] == pytest.approx(989.4, rel=1e-3)
    assert "1 op without FLOPs, 33 % of the time: copy_" in caption(axes)
    assert "25 % of the device time, not launched by any op" in caption(axes)


def test_labels_do_not_overlap() -> None:
    rows = [row(f"flopscope::op_number_{i}", 100.0 + i, 1e6 * 1.02**i, 12e6) for i in range(8)]
    axes = roofline(table(*rows))
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in labels(axes)]
    assert labels(axes)[0].get_text() == "op_number_7"
    assert [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])] == []


def test_no_name_covers_a_large_mark_or_the_name_of_a_roof() -> None:
    """Marks at one place, on a level of one unit, just below that of another."""
    units = {"fp32": 1.0e12, "tf32_tensor": 1.05e12, "bf16_tensor": 9e12}
    rows = [row(f"product_{unit}", 500.0, 480e6, 2e6, unit=unit) for unit in units]
    axes = roofline(table(*rows), peaks=Peaks("measured", units, 1e11), device="cpu")
    axes.figure.canvas.draw()
    named = [text for text in axes.texts if text.get_gid() in ("label", "roof") and not text.get_rotation()]
    boxes = [text.get_window_extent() for text in named]
    assert {*units} <= {text.get_text().partition(":")[0] for text in named}
    assert [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])] == []
    for x, y, *_ in marks(axes):
        at = axes.transData.transform((x, y))
        assert not [text for text, box in zip(named, boxes, strict=True) if box.contains(*at)]


def test_areas_are_proportional_to_the_time() -> None:
    rows = [row("long", 400.0, 1e6, 1e7), row("short", 100.0, 1e7, 1e6), row("tiny", 1.0, 1e6, 1e6)]
    assert sorted(size for *_, size in marks(roofline(table(*rows)))) == [25.0, 100.0, 400.0]


def test_a_picture_of_nothing_says_so() -> None:
    with fs.profile() as prof:
        pass
    assert "no op has time on this device" in texts(roofline(prof.key_averages(peaks="none")))[0]
    assert "no work ran" in texts(prof.plot_accounting(peaks="none"))[0]
    unknown = roofline(table(*(row(f"op{i}", 10.0, math.nan, math.nan) for i in range(3))))
    assert any("no op has both known FLOPs and known bytes" in " ".join(text.split()) for text in texts(unknown))


def test_the_longest_ops_are_labelled_up_to_top() -> None:
    rows = [row(f"op{i}", 100.0 + i, 1e6 * 3**i, 12e6) for i in range(5)]
    assert [text.get_text() for text in labels(roofline(table(*rows), top=2))] == ["op4", "op3"]
    assert labels(roofline(table(*rows), labels=False)) == []
    with pytest.raises(ValueError, match=r"top must be .*, not -1"):
        roofline(table(*rows), top=-1)


def test_only_measurements_of_one_device_are_drawn() -> None:
    name = device.find_device("cpu").name
    here = measurement(10.0, 1e6, 1e6, name="mine", device_name=name)
    there = measurement(500.0, 1e6, 1e6, name="theirs", device="cuda:1", device_name="NVIDIA H200")
    axes = roofline(here)
    assert [mark[:2] for mark in marks(axes)] == [pytest.approx((1.0, 0.1))]
    assert [text.get_text() for text in labels(roofline([here, there]))] == ["theirs"]
    chosen = roofline([here, there], device="cpu")
    assert [text.get_text() for text in labels(chosen)] == ["mine"]
    assert "Not shown: 1 measurement of other devices" in caption(chosen)
    with pytest.raises(ValueError, match="no Measurement of cuda:7, only of cpu"):
        roofline(here, device="cuda:7")


def test_points_of_a_sweep_are_named_by_size() -> None:
    axes = roofline(swept("float32"))
    assert {"0", "4"} <= {text.get_text() for text in labels(axes)} <= {"0", "1", "2", "3", "4"}
    assert len({size for *_, size in marks(axes)}) == 1 and "of add on cpu" in axes.get_title()
    both = {text.get_text() for text in labels(roofline(swept("float32", "float64")))}
    assert "0 float32" in both


def test_pictures_are_drawn_on_given_axes() -> None:
    figure, target = pyplot.subplots()
    for drawn in (roofline(table(*ROWS), ax=target), swept("float32").plot(target)):
        assert drawn is target and pyplot.get_fignums() == [figure.number]
    part = pyplot.figure(layout="constrained").subfigures(1, 2)[1].subplots()
    assert len(labels(roofline(table(*ROWS), ax=part))) == 2


def test_other_types_are_rejected() -> None:
    for wrong in (3, "text", [1, 2]):
        with pytest.raises(TypeError, match="a table of key_averages"):
            roofline(wrong)
    with pytest.raises(ValueError, match="there are no Measurements"):
        roofline([])
    with pytest.raises(ValueError, match=r"peaks must be .*, not 'best'"):
        roofline(table(*ROWS), peaks="best")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"fs\.devices"):
        roofline(table(*ROWS), peaks=[None])  # type: ignore[list-item]


# An accounting --------------------------------------------------------------------------------------------------------


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


def of(model: str) -> Facts:
    """Return the facts of a profile on a device of this name."""
    return Facts(peaks={"cuda:0": {"name": model, "source": "measured"}})


def test_the_bars_lead_from_the_total_down_to_the_ideal() -> None:
    axes = plot_waterfall(columns(**TIMES), 1)
    expected = [("total", 0, 6.004), ("idle: host late", 4.004, 6.004), ("memory, beyond ideal", 3.004, 4.004)]
    expected += [("copies", 3.0, 3.004), ("ideal", 0, 3.0)]
    assert [name for name, _, _ in bars(axes)] == [name for name, _, _ in expected]
    for (_, left, right), (_, low, high) in zip(bars(axes), expected, strict=True):
        assert (left, right) == pytest.approx((low, high))
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the total is at the top
    assert labels_of(axes) == ["6.00ms  100.0%", "2.00ms  33.3%", "1.00ms  16.7%", "4.00us  0.1%", "3.00ms  50.0%"]
    assert axes.get_title() == "Accounting of a step on cuda:0: MFU 12.5%, MBU 50.0%"


def test_times_are_per_step_and_shares_and_devices_may_be_unknown() -> None:
    axes = plot_waterfall(columns(**TIMES), 4)
    assert labels_of(axes)[0] == "1.50ms  100.0%" and bars(axes)[0][2] == pytest.approx(1.501)
    assert plot_waterfall(columns(**TIMES), 0).get_title().startswith("Accounting of the profile on")
    axes = plot_waterfall(columns(None, **TIMES, mfu=float("nan")), 1)
    assert axes.get_title() == "Accounting of a step on all devices: MBU 50.0%"
    assert "1.00us  <0.1%" in labels_of(plot_waterfall(columns(ideal=10000.0, other=1.0), 1)), (
        "tiny parts are not nothing"
    )


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


def test_an_accounting_without_work_says_so() -> None:
    for empty in (columns(), {name: [] for name in columns()}):
        assert texts(plot_waterfall(empty, 1)) == ["Nothing to draw: no work ran in this profile"]


# Text -----------------------------------------------------------------------------------------------------------------


def test_levels_are_of_the_units_used_and_equal_levels_are_merged() -> None:
    both = {"measured": MEASURED, "datasheet": DATASHEET}
    fp32, fp64 = ("fp32", {"measured": 1e12, "datasheet": 1.2e12}), ("fp64", {"measured": 0.5e12, "datasheet": 0.6e12})
    assert levels_of(both, ["fp64", None, "fp32", "fp64"]) == [fp32, fp64]
    assert levels_of(both, [None, "fp8_tensor"]) == []
    alike = {"datasheet": Peaks("datasheet", {"fp16_tensor": 1e15, "bf16_tensor": 1e15, "fp32": 1e14}, bandwidth=1e12)}
    assert levels_of(alike, ["fp16_tensor", "bf16_tensor"]) == [("fp16/bf16_tensor", {"datasheet": 1e15})]
    assert level_label("fp32", {"measured": 65.2e12, "datasheet": 66.9e12}, "FLOP") == (
        "fp32: 65.2 TFLOP/s measured, 66.9 datasheet"
    )
    assert level_label("memory", {"measured": 980e9, "datasheet": 1.1e12}, "B") == (
        "memory: 980 GB/s measured, 1.1 TB/s datasheet"
    )


HOSTILE = (
    r"a$\frac{b$c",  # no formula that can be drawn
    "paid $5 or $6",
    r"one$ \$two$ x_1^2 %#&~{}",
    r"back\slash\n",
    "_begins_as_what_legends_leave_out",
    "\x1b[31m\a\n\u202e\u2066",
    "half \ud800 a pair",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_drawn_literally(name: str) -> None:
    shown, rows = printable(name), (row(name, 10, 1e6, 1e6), row(f"{name}!", 5, 0, 1e6))
    axes = roofline(table(*rows), device="cpu", peaks=[replace(MEASURED, flops={name: 1e12})])
    axes.figure.savefig(io.BytesIO(), format="png")
    assert shown in texts(axes) and f"{shown}!" in caption(axes)
    assert any(text.startswith(f"{shown}: ") for text in texts(axes))
    axes = swept("float32", op=name).plot()
    axes.figure.savefig(io.BytesIO(), format="svg")
    assert axes.get_title().startswith(f"{shown} on cpu")
    axes = plot_waterfall(columns(name, **TIMES), 1, of(name))
    axes.figure.savefig(io.BytesIO(), format="png")
    assert shown in axes.get_title()


def test_no_text_is_rendered_by_tex() -> None:
    with matplotlib.rc_context({"text.usetex": True}):
        picture = roofline(table(row("a_b", 10, 1e6, 1e6)), device="cpu", peaks=MEASURED, labels=False)
        drawn = [picture, swept("float32").plot(), plot_waterfall(columns("a_b", **TIMES), 1, of("a_b"))]
    for axes in drawn:
        artists = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        artists += axes.get_yticklabels() if axes is drawn[2] else []  # names of parts
        artists += axes.get_legend().get_texts() if axes.get_legend() else []
        parsed = [text for text in artists if text.get_usetex() or text.get_parse_math()]
        assert [text.get_text() for text in parsed if text.get_text()] == []


def test_without_matplotlib_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    calls = (lambda: swept("float32").plot(), lambda: roofline(table(*ROWS)), lambda: roofline(table(*ROWS), ax=3))
    for call in (*calls, lambda: plot_waterfall({"total": [0.0]}, 1)):
        with pytest.raises(ImportError, match=r"pip install 'flopscope-profiler\[plot\]'"):
            call()


def test_matplotlib_is_imported_only_for_a_plot() -> None:
    code = "import sys, flopscope.show.plots, flopscope.measuring.sweep; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

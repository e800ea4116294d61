"""The roofline, read from its SVG, and the plot of a sweep, read from matplotlib's artists."""

import html
import io
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.fake_sweep import DATASHEET, MEASURED, UNITS, measurement
from helpers.tables import make_table

import flopscope as fs
from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.show.looks import BOUNDS
from flopscope.show.roofs import level_label, levels_of
from flopscope.support import device
from flopscope.support.peaks import Peaks
from flopscope.support.safe import printable

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402

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
        "key": key, "self_cpu_time_total": us, "cpu_time_total": us, "flops": flops, "bytes_total_moved": moved,
        "tflops_per_s": flops / us / 1e6, "arithmetic_intensity": flops / moved if known and moved else math.nan,
        "unit": "fp32" if flops > 0 else None, "bound": "memory", **others,
    }  # fmt: skip


ROWS = (
    row("flopscope::add", 100.0, 1e6, 12e6),
    row("flopscope::matmul", 400.0, 3e8, 3e6, bound="compute"),
    row("flopscope::copy", 50.0, 0.0, 8e6),
    row("flopscope::fill_", 30.0, 0.0, 4e6),
    row("mystery", 20.0, math.nan, math.nan, bound="unknown"),
)


def table(*rows: dict[str, Any]) -> Any:
    return make_table(*rows, peaks={"cpu": {"source": "measured", "name": device.find_device("cpu").name}})


@pytest.fixture(autouse=True)
def settings_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device, "cached_peaks", lambda there: MEASURED)
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before
    pyplot.close("all")


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


def levels_at(axes: Any, y: float) -> int:
    return sum(list(one.get_xdata()) == [0, 1] and np.allclose(one.get_ydata(), y) for one in axes.lines)


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
    assert levels_at(axes, 100) == levels_at(axes, 120) == 1


def test_products_show_their_flop_rate_and_the_units_peak() -> None:
    points = [
        SweepPoint(
            n, "float64", f"{n} x {n}", n * n, 24.0 * n * n,
            measurement(us, 2.0 * n**3, 24.0 * n * n, bound="compute", unit="fp64"),
        )
        for n, us in ((64, 10.0), (512, 800.0))
    ]  # fmt: skip
    product = Sweep("matmul", tuple(points), device.find_device("cpu"), {"measured": MEASURED, "datasheet": DATASHEET})
    axes = product.plot()
    assert axes.get_ylabel() == "TFLOP/s"
    assert line(axes, "float64")[1] == pytest.approx([2 * 64**3 / 1e7, 2 * 512**3 / 8e8])
    assert levels_at(axes, 0.5) == 1 and "fp64: 500 GFLOP/s measured" in legend(axes)


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


def picture(*rows: dict[str, Any], **options: Any) -> tuple[list[str], str]:
    """Return the titles of the marks and the roofs of a roofline, and its caption."""
    found = fs.roofline(table(*rows), **options)
    svg = ElementTree.fromstring(found.svg)
    return [title.text or "" for one in svg for title in one if title.tag.endswith("title")], found.caption


def test_a_roofline_has_a_mark_for_each_op_of_known_work_and_a_roof_for_each_peak() -> None:
    titles, caption = picture(*ROWS)
    assert titles == [
        *("memory: 100 GB/s measured", "fp32: 1 TFLOP/s measured"),
        "flopscope::matmul: 400 µs, 750 GFLOP/s, compute-bound".replace("750 GFLOP/s", "0.75 TFLOP/s"),
        *("flopscope::add: 100 µs, 10 GFLOP/s, memory-bound", "flopscope::copy: 50 µs, 160 GB/s, memory-bound"),
        "flopscope::fill_: 30 µs, 133 GB/s, memory-bound",
    ]
    cpu = device.find_device("cpu").name
    assert caption == f"Roofline on cpu, {cpu} (measured peaks). Not drawn, of unknown work or time: mystery."
    many = [row(f"op{i}", 100.0 - i, math.nan, math.nan) for i in range(5)]
    titles, caption = picture(*many)
    assert "op0, op1, op2, and 2 more. No op has known work and time on this device." in caption


def test_peaks_of_a_missing_gpu_come_from_the_datasheet() -> None:
    us, moved = 100.0, 1e8
    gemm = {
        **row("aten::mm", us, 5e10, moved), "self_device_time_total": us, "device_time_total": us,
        "unit": "bf16_tensor",
    }  # fmt: skip
    peaks = {"cuda:0": {"source": "datasheet", "name": "NVIDIA H200"}}
    drawn = fs.roofline(make_table(gemm, peaks=peaks))
    assert drawn.caption == "Roofline on cuda:0, NVIDIA H200 (datasheet peaks)."
    assert "bf16_tensor: 989 TFLOP/s datasheet" in drawn.svg and "memory: 4.8 TB/s datasheet" in drawn.svg
    assert "No op has known work and time" in fs.roofline(make_table(gemm, peaks=peaks), device="cpu").caption


def test_a_picture_is_shown_by_notebooks_and_written_as_a_file(tmp_path: Path) -> None:
    drawn = fs.roofline(table(*ROWS))
    drawn.write(tmp_path / "roofline.svg")
    assert (tmp_path / "roofline.svg").read_text(encoding="utf-8") == drawn.svg
    assert drawn.svg in drawn._repr_html_() and drawn.caption in html.unescape(drawn._repr_html_())
    for bound in ("compute", "memory"):
        assert f".bound-{bound} {{fill: {BOUNDS[bound].light}}}" in drawn.svg and f">{bound}-bound<" in drawn.svg
    with pytest.raises(TypeError, match="a table of key_averages"):
        fs.roofline(3)  # type: ignore[arg-type]


# Text -----------------------------------------------------------------------------------------------------------------


def test_levels_are_of_the_units_used_and_equal_levels_are_merged() -> None:
    both = {"measured": MEASURED, "datasheet": DATASHEET}
    fp32, fp64 = ("fp32", {"measured": 1e12, "datasheet": 1.2e12}), ("fp64", {"measured": 0.5e12, "datasheet": 0.6e12})
    assert levels_of(both, ["fp64", None, "fp32", "fp64"]) == [fp32, fp64]
    assert levels_of(both, [None, "fp8_tensor"]) == []
    alike = {"datasheet": Peaks("datasheet", {"fp16_tensor": 1e15, "bf16_tensor": 1e15, "fp32": 1e14}, bandwidth=1e12)}
    assert levels_of(alike, ["fp16_tensor", "bf16_tensor"]) == [("fp16/bf16_tensor", {"datasheet": 1e15})]
    label = level_label("fp32", {"measured": 65.2e12, "datasheet": 66.9e12}, "FLOP")
    assert label == "fp32: 65.2 TFLOP/s measured, 66.9 datasheet"
    label = level_label("memory", {"measured": 980e9, "datasheet": 1.1e12}, "B")
    assert label == "memory: 980 GB/s measured, 1.1 TB/s datasheet"


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
    drawn = fs.roofline(table(row(name, 10, 1e6, 1e6), row(f"{name}!", 5, math.nan, math.nan)), device="cpu")
    titles = [one.text or "" for one in ElementTree.fromstring(drawn.svg).iter() if one.tag.endswith("title")]
    assert any(title.startswith(f"{printable(name)}: ") for title in titles) and printable(f"{name}!") in drawn.caption
    with matplotlib.rc_context({"text.usetex": True}):
        axes = swept("float32", op=name).plot()
    artists = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *axes.get_legend().get_texts()]
    assert not [text.get_text() for text in artists if text.get_usetex() or text.get_parse_math()]
    swept("float32", op=name).plot().figure.savefig(io.BytesIO(), format="svg")
    assert axes.get_title().startswith(f"{printable(name)} on cpu")


def test_a_sweep_is_drawn_on_given_axes_and_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, target = pyplot.subplots()
    assert swept("float32").plot(target) is target and pyplot.get_fignums() == [figure.number]
    monkeypatch.setitem(sys.modules, "matplotlib.lines", None)
    with pytest.raises(ImportError, match=r"pip install 'flopscope-profiler\[plot\]'"):
        swept("float32").plot()
    code = "import sys, flopscope.show.plots, flopscope.measuring.sweep; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", "it is imported only for a plot"

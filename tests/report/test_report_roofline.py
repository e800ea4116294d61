"""The data of the report's roofline, against the table and the datasheet."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.hand_traces import BF16, Program
from helpers.report_pages import PageRead, written

import flopscope as fs
from flopscope.show.page import roofline
from flopscope.show.roofline import roofline_svg
from flopscope.show.roofs import Point, roofs_of, slopes_of
from flopscope.support.peaks import Peaks
from flopscope.support.units import long_time_text


def program(devices: int = 1) -> Program:
    made = Program(devices)
    ops = [
        ("aten::mm", [[4096, 4096], [4096, 4096]], BF16, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn", 300.0),
        ("aten::add", [[8192, 8192], [8192, 8192]], "float", "elementwise_kernel<4, CUDAFunctor_add>", 180.0),
        ("aten::copy_", [[8192, 8192], [8192, 8192]], "float", "copy_kernel", 120.0),
        ("aten::mystery", [[64]], "float", "mystery_kernel", 50.0),
    ]
    if devices == 1:
        ops.append(("aten::view", [[64]], "float", "no_work_kernel", 40.0))
    time = 0.0
    for device in range(devices):
        for i, (name, shapes, dtype, kernel, duration) in enumerate(ops[: len(ops) - device]):
            number = 10 * device + i + 1
            made.op(name, time, 20, *shapes, dtype=dtype)
            made.call("cudaLaunchKernel", time + 2, 5, correlation=number)
            made.add("kernel", kernel, time + 10, duration, 7, device, correlation=number, device=device, stream=7)
            time += duration + 30
    return made


MARKS = {"aten::mm": "300 µs", "aten::add": "180 µs", "aten::copy_": "120 µs"}


def titles(device: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the row and the title of each mark, -1 for the picture and its roofs."""
    picture = ElementTree.fromstring(device["svg"])
    return [
        (int(one.get("data-row", -1)), title.text or "")
        for one in picture.iter()
        for title in one
        if title.tag.endswith("title")
    ]


def marks(page: PageRead, device: dict[str, Any]) -> dict[str, str]:
    """Return the times of the marks, as their titles have them."""
    keys = page.texts(page.data["rows"]["columns"]["key"])
    found = {str(keys[row]): title for row, title in titles(device) if row >= 0}
    assert all(title.startswith(name) for name, title in found.items())
    return {name: title.rpartition(": ")[2].partition(",")[0] for name, title in found.items()}


def told(page: PageRead, one: dict[str, Any]) -> tuple[int, float, list[str]]:
    return one["rows"], one["time"], [page.strings[i] for i in one["names"]]


def test_marks_roofs_and_what_is_left_out(tmp_path: Path) -> None:
    page = written(program().load(), tmp_path)
    (device,) = page.data["sections"]["roofline"]["devices"]
    assert marks(page, device) == MARKS
    assert any("4,474 GB/s, memory-bound" in title for _, title in titles(device) if title.startswith("aten::copy_"))
    assert device["has_roofs"] and device["has_strip"] and set(device["bounds"]) == {"compute", "memory"}
    without, unknown, less = device["left_out"]
    assert told(page, without) == (1, 40, ["aten::view"]) and told(page, unknown) == (1, 50, ["aten::mystery"])
    assert less["rows"] == 0 and device["total"] == 690
    roofs = [title for row, title in titles(device)[1:] if row < 0]
    assert [title.partition(":")[0] for title in roofs] == ["memory", "bf16_tensor", "fp32"]


def test_each_device_has_its_own_marks(tmp_path: Path) -> None:
    page = written(program(2).load(), tmp_path)
    first, second = page.data["sections"]["roofline"]["devices"]
    assert (first["name"], second["name"]) == ("cuda:0", "cuda:1")
    assert marks(page, first) == marks(page, second) == MARKS and first["total"] == 650 and second["total"] == 600


def test_ops_with_the_least_time_are_counted_past_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "MOST_MARKS", 1)
    page = written(program().load(), tmp_path)
    (device,) = page.data["sections"]["roofline"]["devices"]
    assert marks(page, device) == {"aten::mm": "300 µs"}
    assert told(page, device["left_out"][2]) == (2, 300, ["aten::add", "aten::copy_"])


def test_a_cpu_profile_has_marks_of_its_own_time(tmp_path: Path) -> None:
    x = fs.ones((256, 256))
    with fs.profile(record_shapes=True) as prof:
        fs.matmul(x, x)
    page = written(prof, tmp_path)
    (device,) = page.data["sections"]["roofline"]["devices"]
    row = next(row for row in prof.key_averages(peaks="none") if row.key == "flopscope::matmul")
    assert device["name"] == "cpu" and [*marks(page, device)] == ["flopscope::matmul"]
    assert marks(page, device)["flopscope::matmul"] == long_time_text(row.self_cpu_time_total)


def test_without_ops_there_is_no_roofline(tmp_path: Path) -> None:
    made = Program()
    made.add("kernel", "k", 0, 10, 7, 0, device=0, stream=7)
    assert "roofline" not in written(made.load(), tmp_path).data["sections"]


# The picture ----------------------------------------------------------------------------------------------------------


def drawn(marks: Sequence[Point], bandwidth: float | None, levels: dict[str, float]) -> ElementTree.Element:
    peaks = {"datasheet": Peaks("datasheet", levels, bandwidth)}
    return ElementTree.fromstring(roofline_svg(marks, roofs_of(peaks, levels), slopes_of(peaks, ())))


def test_no_text_covers_another_or_a_large_mark() -> None:
    """By the widths of letters in the fonts of browsers, of at most 0.6 of the size on average."""
    levels = {"fp32": 1.0e12, "tf32_tensor": 1.05e12, "bf16_tensor": 9e12}
    marks = [Point(f"product_{i}", 100.0, 240.0, 0.96 + 0.02 * i, "compute") for i in range(3)]
    svg = drawn([*marks, Point("far", 30.0, 60.0, 0.9, "compute")], 1e11, levels)
    boxes, circles = [], []
    for one in svg:
        at, text = {key: float(one.get(key, 0)) for key in ("x", "y", "font-size", "cx", "cy", "r")}, one.text or ""
        if one.tag.endswith("text") and one.get("x") and not re.match(r"[\d.e-]+$|FLOP/B|no FLOPs|TFLOP", text):
            wide, x, y = 0.5 * at["font-size"] * len(text), at["x"], at["y"]
            left = x - wide * {"start": 0.0, "middle": 0.5, "end": 1.0}[one.attrib["text-anchor"]]
            boxes.append((left, y - 7, left + wide, y))
        if one.tag.endswith("circle"):
            x, y, r = at["cx"], at["cy"], 0.7 * at["r"]
            circles.append((x - r, y - r, x + r, y + r))
    apart = [(a, b) for i, a in enumerate(boxes) for b in (*boxes[:i], *circles)]
    assert len(boxes) >= 5
    assert not [(a, b) for a, b in apart if all(a[k] < b[k + 2] and b[k] < a[k + 2] for k in (0, 1))]


def test_marks_lie_where_their_logarithms_are() -> None:
    places = (("a", 100.0, 1.0, 0.1), ("b", 25.0, 10.0, 1.0), ("c", 1.0, 100.0, 10.0))
    svg = drawn([Point(*place, "memory") for place in places], 1e12, {"fp32": 50e12})
    circles = [one for one in svg if one.tag.endswith("circle")]
    xs, ys, radii = ([float(one.attrib[key]) for one in circles] for key in ("cx", "cy", "r"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2) and xs[0] < xs[1]
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.2) and ys[0] > ys[1]
    assert radii[:2] == [18.0, 9.0], "areas are proportional to the times"
    wide, high = float(svg.attrib["width"]), float(svg.attrib["height"])
    assert all(0 < x < wide and 0 < y < high for x, y in zip(xs, ys, strict=True))
    slope, level = [one.attrib["d"] for one in svg if one.tag.endswith("path")]
    x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", slope))
    ridge, height, _ = map(float, re.findall(r"[\d.]+", level))
    assert (x1, y1) == pytest.approx((ridge, height), abs=0.2), "the roofs meet"
    assert (y0 - y1) / (x1 - x0) == pytest.approx((ys[0] - ys[1]) / (xs[1] - xs[0]), rel=0.02), "of slope 1"
    shown = [title.text for one in svg for title in one if title.tag.endswith("title")]
    assert shown[:2] == ["memory: 1 TB/s datasheet", "fp32: 50 TFLOP/s datasheet"]
    assert shown[2] == "a: 100 µs, 0.1 TFLOP/s, memory-bound"


def test_pictures_of_odd_numbers_are_valid() -> None:
    assert len(drawn([], None, {})) > 3
    drawn([Point("<&>", math.nan, 1.0, 1.0, "what")], None, {})
    drawn([Point("x", 1.0, 1e-300, 1e300, "cache")], 1e12, {"fp32": 1e13})

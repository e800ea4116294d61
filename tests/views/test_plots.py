"""The roofline, read from its SVG."""

import html
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.fake_sweep import DATASHEET, MEASURED
from helpers.tables import make_table

import flopscope as fs
from flopscope.show.looks import BOUNDS
from flopscope.show.roofs import level_label, levels_of
from flopscope.support import device
from flopscope.support.peaks import Peaks
from flopscope.support.safe import printable


def row(key: str, us: float, flops: float, moved: float, **others: Any) -> dict[str, Any]:
    """Return a row of a CPU table with the peaks MEASURED."""
    known = not math.isnan(flops + moved)
    return {
        "key": key, "self_cpu_time_total": us, "cpu_time_total": us, "flops": flops, "bytes_total_moved": moved,
        "tflops_per_s": flops / us / 1e6, "arithmetic_intensity": flops / moved if known and moved else math.nan,
        "unit": "fp32" if flops > 0 else None, "bound": "memory", **others,
    }  # fmt: skip


ROWS = (
    row("flopscope::add", 100.0, 1e6, 12e6), row("flopscope::matmul", 400.0, 3e8, 3e6, bound="compute"),
    row("flopscope::copy", 50.0, 0.0, 8e6), row("flopscope::fill_", 30.0, 0.0, 4e6),
    row("mystery", 20.0, math.nan, math.nan, bound="unknown"),
)  # fmt: skip


def table(*rows: dict[str, Any]) -> Any:
    return make_table(*rows, peaks={"cpu": {"source": "measured", "name": device.find_device("cpu").name}})


@pytest.fixture(autouse=True)
def known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cached_peaks", lambda there: MEASURED)


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
    "paid $5 or $6", r"one$ \$two$ x_1^2 %#&~{}", r"back\slash\n", "_begins_as_what_legends_leave_out",
    "\x1b[31m\a\n\u202e\u2066", "half \ud800 a pair",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_drawn_literally(name: str) -> None:
    drawn = fs.roofline(table(row(name, 10, 1e6, 1e6), row(f"{name}!", 5, math.nan, math.nan)), device="cpu")
    titles = [one.text or "" for one in ElementTree.fromstring(drawn.svg).iter() if one.tag.endswith("title")]
    assert any(title.startswith(f"{printable(name)}: ") for title in titles) and printable(f"{name}!") in drawn.caption

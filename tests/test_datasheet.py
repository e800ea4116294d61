"""Every datasheet row, held against a formula, its own memory bus and the rules that public tables most often break.

The rows are read from the X-macro file itself, so the checks need no built extension; the last tests hold the compiled
table against the same rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DEF_FILE = Path(__file__).parents[1] / "csrc" / "device" / "datasheet.def"

UNITS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "tf32_tensor",
    "fp16",
    "fp16_tensor",
    "bf16_tensor",
    "fp8_tensor",
    "int8_tensor",
)


@dataclass(frozen=True)
class Row:
    names: tuple[str, ...]
    major: int
    minor: int
    tensor_class: str
    sm_count: int
    clock_mhz: float
    tensor_clock_mhz: float
    l2_kib: float
    gb_s: float
    bus_bits: int
    pin_gbit_s: float
    tera: dict[str, float]
    source: str


def read_rows() -> list[Row]:
    """The .def file's rows. Without comments and macros it is a sequence of calls in Python's own syntax."""
    text = DEF_FILE.read_text(encoding="utf-8").replace("\\\n", " ")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    rows: list[Row] = []
    names: dict[str, Any] = {
        "NAN": math.nan,
        "FULL": "full",
        "HALF_FLOAT": "half_float",
        "HALF": "half",
        "NAMES": lambda *aliases: aliases,
        "TERA": lambda *rates: dict(zip(UNITS, rates, strict=True)),
        "SOURCE": lambda document, place: f"{document}: {place}",
        "FS_DEVICE": lambda *fields: rows.append(Row(*fields)),
    }
    for macro, value in re.findall(r"^#define (\w+) (.*)$", text, flags=re.MULTILINE):
        names[macro] = "".join(re.findall(r'"([^"]*)"', value))
    exec(re.sub(r"^#define.*$", "", text, flags=re.MULTILINE), names)
    return rows


ROWS = read_rows()
by_row = pytest.mark.parametrize("row", ROWS, ids=[row.names[0].replace(" ", "_") for row in ROWS])


def find(name: str) -> Row:
    return next(row for row in ROWS if name in row.names)


def flop_per_clock_per_sm(row: Row) -> dict[str, float]:
    """From the units an SM has, by the architecture whitepapers: lanes times 2 for a multiply-add, and tensor cores."""
    cc = (row.major, row.minor)
    fp32_lanes = {(7, 0): 64, (7, 5): 64, (8, 0): 64}.get(cc, 128)
    fp64_lanes = {(7, 0): 32, (8, 0): 32, (9, 0): 64, (10, 0): 64}.get(cc, 2)
    fp16_lanes = {(7, 0): 128, (7, 5): 128, (8, 0): 256, (9, 0): 256, (10, 0): math.nan}.get(cc, 128)
    fp16_tensor = {(7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (9, 0): 4096, (10, 0): 8192}.get(cc, 1024)
    half = 1.0 if row.tensor_class == "full" else 0.5
    has_float_types = cc >= (8, 0)
    return {
        "fp64": 2.0 * fp64_lanes,
        "fp64_tensor": {(8, 0): 128.0, (9, 0): 256.0, (10, 0): 128.0}.get(cc, math.nan),
        "fp32": 2.0 * fp32_lanes,
        "tf32_tensor": half * fp16_tensor / 2 if has_float_types else math.nan,
        "fp16": 2.0 * fp16_lanes,
        "fp16_tensor": half * fp16_tensor,
        "bf16_tensor": half * fp16_tensor if has_float_types else math.nan,
        "fp8_tensor": half * fp16_tensor * 2 if cc >= (8, 9) else math.nan,
        "int8_tensor": (0.5 if row.tensor_class == "half" else 1.0) * fp16_tensor * 2 if cc >= (7, 5) else math.nan,
    }


# Vendors round to two or three digits: 1 %. Where a datasheet rounds harder or contradicts its own clock: 2 %, and why.
ROUNDED = {
    ("NVIDIA L40S", "fp16_tensor"): "362.05 beside 733 with sparsity: the L40's number, not half of the L40S's",
    ("NVIDIA L40S", "bf16_tensor"): "362.05 beside 733 with sparsity: the L40's number, not half of the L40S's",
    ("NVIDIA L4", "tf32_tensor"): "120 with sparsity, rounded from 121.1",
    ("NVIDIA GH200 480GB", "fp64"): "34 for 33.45",
    ("NVIDIA GH200 144G HBM3e", "fp64"): "34 for 33.45",
    ("Tesla T4", "fp16"): "16.2 is twice the rounded 8.1",
}


@by_row
def test_rates_agree_with_the_formula(row: Row) -> None:
    per_clock = flop_per_clock_per_sm(row)
    for unit in UNITS:
        vendor = row.tera[unit]
        if math.isnan(vendor):
            continue
        on_tensor_clock = unit.endswith("_tensor") and unit != "fp64_tensor"
        megahertz = row.tensor_clock_mhz if on_tensor_clock else row.clock_mhz
        formula = row.sm_count * per_clock[unit] * megahertz * 1e-6
        tolerance = 0.02 if (row.names[0], unit) in ROUNDED else 0.01
        assert vendor == pytest.approx(formula, rel=tolerance), f"{unit}: {vendor} is not {formula:.2f}"


@by_row
def test_no_rate_is_for_a_unit_that_the_device_lacks(row: Row) -> None:
    cc = (row.major, row.minor)
    assert math.isnan(row.tera["bf16_tensor"]) == (cc < (8, 0))
    assert math.isnan(row.tera["tf32_tensor"]) == (cc < (8, 0))
    assert math.isnan(row.tera["fp8_tensor"]) == (cc < (8, 9))
    assert math.isnan(row.tera["int8_tensor"]) == (cc < (7, 5))
    assert math.isnan(row.tera["fp64_tensor"]) == (cc not in {(8, 0), (9, 0), (10, 0)})
    for unit in ("fp64", "fp32", "fp16_tensor"):
        assert row.tera[unit] > 0


@by_row
def test_no_rate_is_a_sparse_one(row: Row) -> None:
    """One sparse number among dense ones breaks a factor of two between neighbouring types."""
    tera = row.tera
    if row.major >= 8:
        assert tera["bf16_tensor"] == tera["fp16_tensor"]
        assert tera["fp16_tensor"] == pytest.approx(2 * tera["tf32_tensor"], rel=0.02)
    if not math.isnan(tera["fp8_tensor"]):
        assert tera["fp8_tensor"] == pytest.approx(2 * tera["fp16_tensor"], rel=0.02)
    if row.major >= 8:
        int8_per_fp16 = 4 if row.tensor_class == "half_float" else 2
        assert tera["int8_tensor"] == pytest.approx(int8_per_fp16 * tera["fp16_tensor"], rel=0.02)
    # A row with sparse numbers in all of its columns would pass all of the above.
    most = {(7, 0): 8, (7, 5): 8, (8, 0): 16, (9, 0): 16, (10, 0): 32}.get((row.major, row.minor), 4)
    assert tera["fp16_tensor"] <= 1.02 * most * tera["fp32"]


@by_row
def test_bandwidth_is_that_of_the_memory_bus(row: Row) -> None:
    assert 100 < row.gb_s < 10_000
    assert (row.bus_bits == 0) == math.isnan(row.pin_gbit_s)
    if row.bus_bits:
        assert row.gb_s == pytest.approx(row.bus_bits * row.pin_gbit_s / 8, rel=0.005)


@by_row
def test_bandwidth_is_in_decimal_gigabytes(row: Row) -> None:
    """GiB for GB is 7.4 % off, more than any vendor's rounding."""
    if row.bus_bits:
        gib = row.bus_bits * row.pin_gbit_s / 8 * 1e9 / 2**30
        assert abs(row.gb_s / gib - 1) > 0.06


@by_row
def test_clocks_and_sizes_are_plausible(row: Row) -> None:
    assert 1000 <= row.clock_mhz <= 3000
    assert 0.8 * row.clock_mhz <= row.tensor_clock_mhz <= row.clock_mhz
    assert 10 <= row.sm_count <= 200
    if not math.isnan(row.l2_kib):
        assert row.l2_kib % 512 == 0
        least, most = {7: (4, 6), 8: (4, 96), 9: (50, 60), 10: (100, 130), 12: (48, 128)}[row.major]
        assert least <= row.l2_kib / 1024 <= most


L2_MIB = {
    "Tesla T4": 4,
    "Tesla V100-SXM2-32GB": 6,
    "NVIDIA A100-SXM4-80GB": 40,
    "NVIDIA A30": 24,
    "NVIDIA L4": 48,
    "NVIDIA L40S": 96,
    "NVIDIA GeForce RTX 3090": 6,
    "NVIDIA GeForce RTX 4090": 72,
    "NVIDIA GeForce RTX 5090": 96,
    "NVIDIA H100 80GB HBM3": 50,
    "NVIDIA H200": 60,
    "NVIDIA B200": 126.5,
}


@pytest.mark.parametrize("name", L2_MIB)
def test_l2_is_what_the_driver_reports(name: str) -> None:
    assert find(name).l2_kib == 1024 * L2_MIB[name]


def test_an_l4_does_not_have_the_bandwidth_of_an_h100() -> None:
    assert find("NVIDIA L4").gb_s == 300
    assert find("NVIDIA H100 80GB HBM3").gb_s == 3350


def test_hopper_has_a_lower_clock_for_its_tensor_cores_and_nobody_before_has() -> None:
    for row in ROWS:
        assert (row.tensor_clock_mhz < row.clock_mhz) == (row.major in (9, 10)), row.names


def test_names_are_unique_and_written_as_drivers_write_them() -> None:
    names = [name for row in ROWS for name in row.names]
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert name == " ".join(name.split())


def test_every_row_names_its_source() -> None:
    for row in ROWS:
        assert re.fullmatch(r"NVIDIA .+, https://\S+: \S.*", row.source), row.source


def test_the_exceptions_name_rows_that_exist() -> None:
    for (name, unit), why in ROUNDED.items():
        assert not math.isnan(find(name).tera[unit])
        assert why


def test_the_compiled_table_holds_the_same_rows() -> None:
    core = pytest.importorskip("flopscope._core")
    compiled = core.datasheet()
    assert len(compiled) == len(ROWS)
    for row, entry in zip(ROWS, compiled, strict=True):
        assert tuple(entry["names"]) == row.names
        assert entry["source"] == row.source
        assert entry["bandwidth"] == pytest.approx(row.gb_s * 1e9, rel=1e-12)
        assert set(entry["flops"]) == set(UNITS)
        for unit in UNITS:
            vendor = row.tera[unit]
            assert entry["flops"][unit] == (None if math.isnan(vendor) else pytest.approx(vendor * 1e12, rel=1e-12))


def test_the_compiled_lookup_takes_whole_names_only() -> None:
    core = pytest.importorskip("flopscope._core")
    for row in ROWS:
        for name in row.names:
            assert core.datasheet_find(name)["names"][0] == row.names[0]
            assert core.datasheet_find(f"  {name.upper()} ")["names"][0] == row.names[0]
    for unknown in ("", "H200", "NVIDIA", "Graphics Device", "NVIDIA Graphics Device", "NVIDIA H200 MIG 1g.18gb"):
        assert core.datasheet_find(unknown) is None

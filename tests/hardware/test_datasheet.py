"""Every datasheet row, compared with a formula, its own memory bus, and the rules that public tables often break.

The rows are read from the X-macro files; the last tests compare the compiled table with them.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from helpers import ROOT

from flopscope import _core

DEF_FILE = ROOT / "csrc" / "device" / "datasheet.def"
INCLUDE = re.compile(r'^#include "(device/\w+\.def)"$', flags=re.MULTILINE)

TENSORS = ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor")
UNITS = ("fp64", "fp64_tensor", "fp32", "tf32_tensor", "fp16", *TENSORS[1:])
CLASSES = ("FULL", "HALF_FLOAT", "HALF", "LESS_DOUBLE", "QUARTER", "CDNA2", "CDNA3", "CDNA4")


@dataclass(frozen=True)
class Row:
    names: tuple[str, ...]
    major: int
    minor: int
    tensor_class: str
    sm_count: int
    memory_gib: int
    clock_mhz: float
    tensor_clock_mhz: float
    l2_kib: float
    gb_s: float
    bus_bits: int
    pin_gbit_s: float
    tera: dict[str, float]
    source: str


def read_rows() -> list[Row]:
    """Return the rows of the .def files, which without comments and macros are calls in Python's syntax."""
    included = INCLUDE.findall(DEF_FILE.read_text(encoding="utf-8"))
    text = "".join((DEF_FILE.parents[1] / file).read_text(encoding="utf-8") for file in included)
    text = text.replace("\\\n", " ")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    rows: list[Row] = []
    names: dict[str, Any] = {
        "NAN": math.nan, **{name: name.lower() for name in CLASSES}, "NAMES": lambda *aliases: aliases,
        "TERA": lambda *rates: dict(zip(UNITS, rates, strict=True)),
        "SOURCE": lambda document, place: f"{document}: {place}",
        "FS_DEVICE": lambda *fields: rows.append(Row(*fields)),
    }  # fmt: skip
    for macro, value in re.findall(r"^#define (\w+) (.*)$", text, flags=re.MULTILINE):
        names[macro] = "".join(re.findall(r'"([^"]*)"', value))
    exec(re.sub(r"^#define.*$", "", text, flags=re.MULTILINE), names)
    return rows


ROWS = read_rows()
by_row = pytest.mark.parametrize("row", ROWS, ids=[f"{row.names[0]}-{row.sm_count}".replace(" ", "_") for row in ROWS])
AMD = ("cdna2", "cdna3", "cdna4")


def find(name: str) -> Row:
    return next(row for row in ROWS if name in row.names)


def amd_flop_per_clock_per_cu(row: Row) -> dict[str, float]:
    """Derive the rates from a compute unit: 64 lanes, each with a 64-bit multiply-add, and four matrix cores."""
    double, packed, matrix_double = 64 * 2, 64 * 2 * 2, {"cdna4": 128}.get(row.tensor_class, 256)
    matrix_half = 4 * {"cdna2": 256, "cdna3": 512, "cdna4": 1024}[row.tensor_class]
    has_float8 = row.tensor_class != "cdna2"
    return {
        "fp64": double, "fp64_tensor": matrix_double, "fp32": packed,
        "tf32_tensor": matrix_half / 2 if row.tensor_class == "cdna3" else math.nan, "fp16": math.nan,
        "fp16_tensor": matrix_half, "bf16_tensor": matrix_half,
        "fp8_tensor": matrix_half * 2 if has_float8 else math.nan,
        "int8_tensor": matrix_half * 2 if has_float8 else matrix_half,
    }  # fmt: skip


def flop_per_clock_per_sm(row: Row) -> dict[str, float]:
    """Derive the rates from the units of an SM, by the whitepapers: 2 FLOPs per lane and clock, and tensor cores."""
    if row.tensor_class in AMD:
        return amd_flop_per_clock_per_cu(row)
    cc, none = (row.major, row.minor), math.nan
    fp32_lanes = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}.get(cc, 128)
    fp64_lanes = {(6, 0): 32, (7, 0): 32, (8, 0): 32, (9, 0): 64, (10, 0): 64}.get(cc, 2)
    if row.tensor_class == "less_double":
        fp64_lanes = 2
    fp16_lanes = {(8, 0): 256, (9, 0): 256, (10, 0): none, (10, 3): none}.get(cc, 128)
    fp16_tensor = {(6, 0): none, (8, 0): 2048, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192}.get(cc, 1024)
    share = {"half": 0.5, "half_float": 0.5, "quarter": 0.25}.get(row.tensor_class, 1.0)
    int8_share = {"half": 0.5, "quarter": 0.25}.get(row.tensor_class, 1.0)
    has_float_types = cc >= (8, 0)
    has_double = row.tensor_class in ("full", "half", "half_float")
    return {
        "fp64": 2.0 * fp64_lanes,
        "fp64_tensor": {(8, 0): 128.0, (9, 0): 256.0, (10, 0): 128.0}.get(cc, none) if has_double else none,
        "fp32": 2.0 * fp32_lanes, "tf32_tensor": share * fp16_tensor / 2 if has_float_types else none,
        "fp16": 2.0 * fp16_lanes, "fp16_tensor": share * fp16_tensor,
        "bf16_tensor": share * fp16_tensor if has_float_types else none,
        "fp8_tensor": share * fp16_tensor * 2 if cc >= (8, 9) else none,
        "int8_tensor": int8_share * fp16_tensor * 2 if cc >= (7, 5) else none,
    }  # fmt: skip


# Vendors round to two or three digits: 1 %. These datasheets round more or contradict their own clock: by how much, and
# why.
ROUNDED = {
    ("NVIDIA L40S", "fp16_tensor"): (0.02, "362.05 beside 733 with sparsity: the L40's number, not half of the L40S's"),
    ("NVIDIA L40S", "bf16_tensor"): (0.02, "362.05 beside 733 with sparsity: the L40's number, not half of the L40S's"),
    ("NVIDIA L4", "tf32_tensor"): (0.02, "120 with sparsity, rounded from 121.1"),
    ("NVIDIA GH200 480GB", "fp64"): (0.02, "34 for 33.45"), ("NVIDIA GH200 144G HBM3e", "fp64"): (0.02, "34 for 33.45"),
    ("NVIDIA H800", "fp64"): (0.05, "1 for 1.045"), ("Tesla T4", "fp16"): (0.02, "16.2 is twice the rounded 8.1"),
}  # fmt: skip
# Bandwidths are rounded to three digits: 0.5 %.
ROUNDED_BANDWIDTH = {
    "AMD Instinct MI325X": (0.025, "6 TB/s for 6.144"), "AMD Instinct MI350X": (0.025, "8 TB/s for 8.192"),
    "AMD Instinct MI355X": (0.025, "8 TB/s for 8.192"), "NVIDIA GB200": (0.01, "8 TB/s for 7.928"),
    "NVIDIA GB300": (0.01, "8 TB/s for 7.928"),
}  # fmt: skip
# Units that the device has but for which its vendor publishes no rate, or none from which a rate per SM follows.
UNSAID = {
    "AMD Instinct MI308X": ("fp64", "fp64_tensor", "fp32", *TENSORS), "NVIDIA H20": ("fp64",),
    "NVIDIA B300 SXM6 AC": ("int8_tensor",), "NVIDIA GB300": ("int8_tensor",),
    "NVIDIA GeForce RTX 5090 D": ("fp32", *TENSORS), "NVIDIA GeForce RTX 5090 D v2": ("fp32", *TENSORS),
}  # fmt: skip


def tera_by_formula(row: Row, unit: str) -> float:
    on_tensor_clock = unit.endswith("_tensor") and unit != "fp64_tensor"
    megahertz = row.tensor_clock_mhz if on_tensor_clock else row.clock_mhz
    return row.sm_count * flop_per_clock_per_sm(row)[unit] * megahertz * 1e-6


@by_row
def test_rates_agree_with_the_formula(row: Row) -> None:
    for unit in UNITS:
        vendor = row.tera[unit]
        if math.isnan(vendor):
            continue
        formula = tera_by_formula(row, unit)
        tolerance, _ = ROUNDED.get((row.names[0], unit), (0.01, ""))
        assert vendor == pytest.approx(formula, rel=tolerance), f"{unit}: {vendor} is not {formula:.2f}"


@by_row
def test_rates_exist_exactly_for_the_units_of_the_device(row: Row) -> None:
    unsaid = UNSAID.get(row.names[0], ())
    for unit, per_clock in flop_per_clock_per_sm(row).items():
        if unit != "fp16":  # no work is compared with it, and few vendors publish it
            assert math.isnan(row.tera[unit]) == (math.isnan(per_clock) or unit in unsaid), unit
    if not math.isnan(row.tera["fp32"]):  # work of a device without tensor cores is compared with it: NAN says so
        assert not {"fp16_tensor", "bf16_tensor", "tf32_tensor"} & set(unsaid)


TWO_MEMORIES = ("NVIDIA GeForce RTX 3060 Ti",)  # sold with GDDR6 and with GDDR6X, otherwise identical


@by_row
def test_bandwidth_is_that_of_the_memory_bus_in_decimal_gigabytes(row: Row) -> None:
    assert 100 < row.gb_s < 10_000 or (math.isnan(row.gb_s) and row.names[0] in TWO_MEMORIES)
    assert (row.bus_bits == 0) == math.isnan(row.pin_gbit_s)
    if row.bus_bits:
        of_bus = row.bus_bits * row.pin_gbit_s / 8
        assert row.gb_s == pytest.approx(of_bus, rel=ROUNDED_BANDWIDTH.get(row.names[0], (0.005, ""))[0])
        assert abs(row.gb_s / (of_bus * 1e9 / 2**30) - 1) > 0.04, "GiB are 7.4 % fewer, more than any rounding"


@by_row
def test_clocks_and_sizes_are_plausible(row: Row) -> None:
    if row.names[0] not in UNSAID or not math.isnan(row.clock_mhz):
        assert 1000 <= row.clock_mhz <= 3000 and 0.8 * row.clock_mhz <= row.tensor_clock_mhz <= row.clock_mhz
    assert 10 <= row.sm_count <= (304 if row.tensor_class in AMD else 200) and row.memory_gib in (0, 6, 8, 10, 12, 96)
    if not math.isnan(row.l2_kib):
        assert row.l2_kib % 256 == 0
        sizes = {6: (4, 4), 7: (3, 6), 8: (2, 96), 9: (50, 60), 10: (100, 130), 12: (32, 128)}
        least, most = (4, 8) if row.tensor_class in AMD else sizes[row.major]
        assert least <= row.l2_kib / 1024 <= most


L2_MIB = {
    "AMD Instinct MI210": 8, "AMD Instinct MI300X": 4, "Tesla P100-SXM2-16GB": 4, "Tesla T4": 4,
    "Tesla V100-SXM2-32GB": 6, "NVIDIA A100-SXM4-80GB": 40, "NVIDIA A30": 24, "NVIDIA L4": 48, "NVIDIA L40S": 96,
    "NVIDIA GeForce RTX 3090": 6, "NVIDIA GeForce RTX 4090": 72, "NVIDIA GeForce RTX 5090": 96,
    "NVIDIA H100 80GB HBM3": 50, "NVIDIA H200": 60, "NVIDIA B200": 126.5, "NVIDIA GB200": 129.25,
}  # fmt: skip


def test_l2_matches_the_driver() -> None:
    assert {name: find(name).l2_kib / 1024 for name in L2_MIB} == L2_MIB


def test_names_are_written_as_drivers_write_them_and_rows_name_their_source() -> None:
    for row in ROWS:
        for name in row.names:
            assert name == " ".join(name.split())
            assert name.startswith(("AMD Instinct ", "NVIDIA ", "GeForce ", "RTX ", "TITAN ", "Tesla ", "Quadro ", "A"))
        assert re.fullmatch(r"(AMD|NVIDIA) .+, https://\S+: \S.*", row.source), row.source


def test_rows_that_share_a_name_differ_in_sms_or_memory() -> None:
    by_name: dict[str, list[Row]] = {}
    for row in ROWS:
        assert len(set(row.names)) == len(row.names)
        for name in row.names:
            by_name.setdefault(name.lower(), []).append(row)
    for name, rows in by_name.items():
        for a, b in combinations(rows, 2):
            sizes = sorted((a.memory_gib, b.memory_gib))
            assert a.sm_count != b.sm_count or 0 < sizes[0] * 1.25 <= sizes[1], name
    shared = {row.names[0] for rows in by_name.values() if len(rows) > 1 for row in rows}
    assert {row.names[0] for row in ROWS if row.memory_gib} <= shared | {"NVIDIA H100"}


# Names, SM counts and bytes of memory of the devices in recorded traces.
IN_TRACES = {
    ("AMD Instinct MI210", 104, 68702699520): (1638.4, 181),
    ("AMD Instinct MI300X VF", 304, 205571227648): (5300, 1307.4),
    ("AMD Instinct MI308X", 80, 206141652992): (5300, math.nan),
    ("NVIDIA A100 80GB PCIe", 108, 84987740160): (1935, 312), ("NVIDIA A100-PCIE-40GB", 108, 42346610688): (1555, 312),
    ("NVIDIA A100-PG509-200", 108, 42297524224): (1555, 312), ("NVIDIA A100-SXM4-40GB", 108, 42481549312): (1555, 312),
    ("NVIDIA A100-SXM4-80GB", 108, 85095874560): (2039, 312), ("NVIDIA B200", 148, 191503007744): (7700, 2250),
    ("NVIDIA GH200 480GB", 132, 101468602368): (4000, 989.5),
    ("NVIDIA GeForce RTX 2080 Ti", 68, 11554586624): (616, 53.8), ("NVIDIA H100", 132, 102085492736): (2447, 989.4),
    ("NVIDIA H100 80GB HBM3", 132, 85045477376): (3350, 989.4), ("NVIDIA PG509-210", 108, 84990623744): (2039, 312),
    ("Quadro GP100", 56, 17069309952): (717, math.nan), ("Tesla T4", 40, 15835660288): (320, 65),
    ("Tesla V100-DGXS-32GB", 80, 34084028416): (900, 125), ("Tesla V100-SXM2-32GB", 80, 34089730048): (900, 125),
}  # fmt: skip


def test_devices_of_recorded_traces_have_their_peaks() -> None:
    for device, (gb_s, half) in IN_TRACES.items():
        found = _core.datasheet_find(*device)
        rates = {"memory": found["bandwidth"] / 1e9, "half": (found["flops"]["fp16_tensor"] or math.nan) / 1e12}
        assert rates == pytest.approx({"memory": gb_s, "half": half}, rel=1e-12, nan_ok=True), device


@pytest.mark.parametrize("name", ["RTX 2060", "RTX 3050", "RTX 3060", "RTX 3080"])
def test_a_name_shared_by_two_cards_needs_sms_and_memory_to_find_a_row(name: str) -> None:
    assert _core.datasheet_find(f"NVIDIA GeForce {name}") is None
    rows = [row for row in ROWS if f"NVIDIA GeForce {name}" in row.names]
    assert len(rows) == 2
    for row in rows:
        usual = 0.98 * row.memory_gib * 2**30
        found = _core.datasheet_find(row.names[0], row.sm_count, usual)
        assert (found["sm_count"], found["memory_gib"]) == (row.sm_count, row.memory_gib)
        assert _core.datasheet_find(row.names[0], row.sm_count, 2 * usual) is None
        assert _core.datasheet_find(row.names[0], row.sm_count + 1, usual) is None


def test_the_compiled_table_contains_the_same_rows() -> None:
    compiled = _core.datasheet()
    assert len(compiled) == len(ROWS)
    for row, entry in zip(ROWS, compiled, strict=True):
        assert tuple(entry["names"]) == row.names and entry["source"] == row.source
        known = None if math.isnan(row.gb_s) else pytest.approx(row.gb_s * 1e9, rel=1e-12)
        assert (entry["bandwidth"], entry["memory_gib"]) == (known, row.memory_gib)
        assert set(entry["flops"]) == set(UNITS)
        for unit in UNITS:
            vendor = row.tera[unit]
            assert entry["flops"][unit] == (None if math.isnan(vendor) else pytest.approx(vendor * 1e12, rel=1e-12))


UNKNOWN = """
H200; NVIDIA; NVIDIA H2; NVIDIA H2000; NVIDIAH200; NVIDIA H 200; Graphics Device; NVIDIA Graphics Device; ARTEMIS;
Tesla; AMD Radeon Graphics; NVIDIA GeForce RTX 4090 Laptop GPU; NVIDIA H200 MIG 1g.18gb;
NVIDIA A100-SXM4-40GB MIG 3g.20gb
"""


def test_the_compiled_lookup_accepts_only_full_names() -> None:
    times = Counter(name for row in ROWS for name in row.names)
    for row in ROWS:
        size = row.sm_count, row.memory_gib * 2.0**30
        assert [name for name in row.names if times[name] == 1 and _core.datasheet_find(name) is None] == []
        for name in row.names:
            assert _core.datasheet_find(name, *size)["source"] == row.source
            spaced = name.upper().replace(" ", "   ")
            assert _core.datasheet_find(f" \t{spaced} \n", *size)["source"] == row.source
    for unknown in ["", *UNKNOWN.replace("\n", " ").strip().split("; ")]:
        assert _core.datasheet_find(unknown) is None
    # The size of the memory does not matter if the name is unique.
    assert _core.datasheet_find("NVIDIA H200", 132, 1e9) == _core.datasheet_find("NVIDIA H200")
    for part in (("AMD Instinct MI300X", 38, 192 << 30), ("AMD Instinct MI300X", 38), ("AMD Instinct MI250X", 104)):
        assert _core.datasheet_find(*part) is None, "a part of a device has no row"

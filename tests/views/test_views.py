"""Views: text compared with that of torch.profiler for the same rows, other formats with the rows themselves."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.tables import ANSWERS, make_table, recorded_rows
from helpers.view_texts import Tags, header_of

from flopscope import _core
from flopscope.results.table import COLUMNS
from flopscope.support import units

RECORDED = sorted(name.removesuffix(".table.txt") for name in ANSWERS if name.endswith(".table.txt"))
NAMES = [column.name for column in COLUMNS]


def without_flops_column(text: str) -> str:
    """Remove the last column of torch.profiler's text, "Total …FLOPs", which flopscope does not have."""
    lines = text.rstrip("\n").splitlines()
    if "FLOPs" in lines[1]:
        last_rule = len(lines) - 1 - lines[::-1].index(lines[0])
        lines[: last_rule + 1] = [line[:-14] for line in lines[: last_rule + 1]]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", RECORDED)
def test_text_equals_the_text_of_torch(name: str) -> None:
    expected = without_flops_column(ANSWERS[f"{name}.table.txt"])
    assert make_table(*recorded_rows(name), profile_memory=True).table(row_limit=-1, roofline=False) == expected


def body(text: str) -> list[str]:
    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if line and not line.strip("- ")]
    return lines[rules[1] + 1 : rules[2]]


def cells(text: str, row: int = 0) -> dict[str, str]:
    """Return the cells of a row by header, split at the widths of the rule (a header may be wider)."""
    rule = next(line for line in text.splitlines() if line and not line.strip("- "))
    shown, at = [], 0
    for width in map(len, rule.split()):
        shown.append(body(text)[row][at : at + width].strip())
        at += width + 2
    return dict(zip(header_of(text), shown, strict=True))


ADD: dict[str, Any] = {
    **{"key": "flopscope::add", "count": 2, "self_cpu_time_total": 10.0, "cpu_time_total": 12.5},
    **{"self_device_time_total": 364.0, "device_time_total": 364.0, "timing_source": "cupti"},
    **{"input_shapes": [[8192, 8192], [8192, 8192]], "input_dtypes": ["float32", "float32"]},
    **{"flops": 134217728.0, "bytes_total_moved": 1610612736.0, "tflops_per_s": 0.36872, "gbytes_per_s": 4424.76},
    **{"arithmetic_intensity": 1 / 12, "pct_roofline": 92.18, "bound": "memory"},
}
TIMES = {"self_device_time_total": 364.0, "device_time_total": 364.0}
KERNEL: dict[str, Any] = {"key": "void add<float>", "device_type": "cuda", "count": 2, **TIMES}
H200 = {"source": "measured", "name": "NVIDIA H200"}
OVER = {**ADD, "pct_roofline": 131.0, "bound": "cache"}


def test_columns_of_flopscope_follow_those_of_torch() -> None:
    text = make_table(ADD, KERNEL).table()
    assert header_of(text)[-7:] == ["FLOPs", "Bytes", "FLOP/s", "B/s", "FLOP/B", "% Roofline", "Bound"]
    assert header_of(text)[:-7] == header_of(make_table(ADD, KERNEL).table(roofline=False))
    expected = ["134.2 M", "1.5 GiB", "369 G", "4.42 T", "0.0833", "92.2%", "memory"]
    assert list(cells(text).values())[-7:] == expected and list(cells(text, 1).values())[-7:] == ["--"] * 7
    assert len({len(line) for line in (text.splitlines()[0], *body(text))}) == 1
    small = make_table({**ADD, "tflops_per_s": 1.1e-7, "gbytes_per_s": 8.79e-3})
    assert list(cells(small.table()).values())[-5:-3] == ["110 k", "8.79 M"]
    assert "110 k" in small.table(width=200) and "8.79 M" in small.table(width=200)


def test_every_header_of_a_printed_table_sorts_it() -> None:
    table = make_table(*({**ADD, "key": name, "count": count} for name, count in (("a", 1), ("b", 3), ("c", 2))))
    for header in table.table(width=0).splitlines()[0].split("  "):
        if header.strip():
            assert len(table.sorted(header.strip())) == 3
    assert [row.key for row in table.sorted("Calls")] == ["b", "c", "a"]
    with pytest.raises(ValueError) as refused:
        table.sorted("fly")
    assert all(f"{name}," in str(refused.value) for name in ("Self CPU", "CUDA %", "% roof", "FLOP/s", "Headroom"))


def test_all_is_known_only_where_no_cell_is_missing() -> None:
    known = {**ADD, "flops": 8.0, "bytes_total_moved": 8.0, "arithmetic_intensity": 1.0}
    unknown = {**ADD, "key": "b", "flops": math.nan, "pct_roofline": math.nan}
    for table, said in ((make_table(known), True), (make_table(known, unknown), False)):
        for text in (table.table(width=200), table._repr_html_()):
            assert ("All FLOPs and bytes are known." in text) == said == ("the row has no work of its own" not in text)
    narrow = make_table({**known, "arithmetic_intensity": math.nan}).table(columns=["Calls"])
    assert "All FLOPs and bytes are known." in narrow, "no cell of the columns shown is missing"


def test_shares_above_the_roofline_and_rates_above_their_peak_are_marked_and_explained() -> None:
    """The column of the share may give way in a narrow table; 114 TB/s is no rate of an H200."""
    assert cells(make_table(OVER).table())["% Roofline"] == "131.0%*"
    assert "* more" not in make_table(ADD).table() and "* more" not in make_table(OVER).table(row_limit=0)
    wrong = {**ADD, "gbytes_per_s": 114e3, "pct_peak_bandwidth": 2375.0, "pct_roofline": 2375.0, "bound": "unknown"}
    table = make_table(wrong, {**ADD, "key": "b", "tflops_per_s": 70.0, "pct_peak_flops": 104.6, "pct_roofline": 104.6})
    first, second = cells(table.table()), cells(table.table(), 1)
    assert (first["B/s"], first["FLOP/s"], first["% Roofline"]) == ("114 T*", "369 G", "2375.0%*")
    assert (second["B/s"], second["FLOP/s"]) == ("4.42 T", "70.0 T*")
    for text in (table.table(width=200), table._repr_html_()):
        assert "114 T*" in text and "70.0 T*" in text and "* more than the roofline" in text


def test_devices_with_the_same_peaks_share_a_footnote() -> None:
    peaks = {f"cuda:{i}": {"source": "datasheet", "name": "NVIDIA H200"} for i in (0, 1, 3)}
    table = make_table(ADD, peaks=peaks | {"cuda:2": {"source": "measured", "name": "NVIDIA H200"}})
    assert [line for line in table.table().splitlines() if line.startswith("% Roofline")] == [
        "% Roofline: of the datasheet peaks of NVIDIA H200 (cuda:0, cuda:1, cuda:3).",
        "% Roofline: of the measured peaks of NVIDIA H200 (cuda:2).",
    ]


def test_footnotes_explain_the_numbers() -> None:
    plain = make_table(ADD, peaks={"cuda:0": H200}).table()
    assert plain.endswith("Self CUDA time total: 0.000us\n% Roofline: of the measured peaks of NVIDIA H200 (cuda:0).\n")
    assert "Coverage" not in plain and "Open" not in plain and "Dropped" not in plain
    coverage = {"bytes": 0.91, "flops": 0.875, "unmodelled": [(f"aten::<{c}", 1500.0) for c in "abcde"]}
    table = make_table(OVER, coverage=coverage, open_events=3, dropped=7, peaks={"cuda:0": H200})
    for line in (
        "91.0% and the FLOPs of 87.5%",
        "Not modelled: aten::<a 1.500ms, aten::<b 1.500ms, aten::<c 1.500ms and 2 more.",
        *("Open events: 3", "Dropped records: 7", "their time is unknown", "* more than the roofline"),
    ):
        assert line in table.table() and line.replace("<", "&lt;").replace("1.500ms", "1.50ms") in table._repr_html_()
    assert table._repr_html_().rstrip().endswith("% roof: of the measured peaks of NVIDIA H200 (cuda:0).</div>")


def test_html_has_bars_tooltips_and_the_columns_of_the_text() -> None:
    long = "aten::" + "x" * 90
    table = make_table({**ADD, "key": long, "bound": "inefficient"}, self_device_time_total=728.0)
    page = table._repr_html_()
    assert f'title="{long}"' in page and f'title="{_core.bounds["inefficient"].meaning}"' in page
    assert "linear-gradient(to right, " in page and "92.2%, transparent 0" in page
    assert "position: sticky" in page and "max-width: 830px" in page
    headers = [text for text in Tags(page).texts if text in ("Self CUDA", "CUDA %", "% roof", "Bound", "Headroom")]
    assert headers == ["Self CUDA", "CUDA %", "Headroom", "% roof", "Bound"] or "Headroom" not in headers


def test_columns_without_values_are_hidden() -> None:
    host = {"key": "a", "self_cpu_time_total": 1.0}
    memory = {**host, "self_device_memory_usage": 8}
    for table, shown, hidden in (
        (make_table(host), (), ("Self CUDA", "CPU Mem")),
        (make_table(memory, profile_memory=True), ("CPU Mem", "Self CUDA Mem"), ()),
        (make_table(host, profile_memory=True), ("CPU Mem",), ("CUDA Mem",)),
        (make_table(ADD), ("Input Shapes",), ()),
        (make_table(KERNEL), (), ("Input Shapes",)),
        (make_table({**host, "overload_name": "Tensor"}), ("Overload Name",), ()),
    ):
        headers = header_of(table.table())
        assert set(shown) <= set(headers) and not set(hidden) & set(headers)


def test_rows_are_sorted_and_limited_below_a_header() -> None:
    rows = [{"key": name, "self_cpu_time_total": time} for name, time in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
    table = make_table(*rows, top_level=[True, False, True])
    names = lambda text: [line.split()[0] for line in body(text)]  # noqa: E731
    assert names(table.table()) == ["a", "b", "c"]
    assert names(table.table(sort_by="self_cpu_time_total", row_limit=2)) == ["b", "c"]
    assert names(table.table(row_limit=-1)) == ["a", "b", "c"] and names(table.table(row_limit=0)) == []
    lines = table.table(header="what I measured", top_level_events_only=True).splitlines()
    assert lines[1] == "what I measured" and set(lines[0]) == {"="}
    assert names(table.table(top_level_events_only=True)) == ["a", "c"] and table[:0].table() == ""


def test_long_names_and_shapes_are_cut_and_times_have_a_unit() -> None:
    table = make_table({"key": "n" * 80, "input_shapes": [[1000] * 30], "self_cpu_time_total": 2_500_000.0})
    shown = cells(table.table())
    assert shown["Name"] == "n" * 52 + "..." and shown["Input Shapes"] == str([[1000] * 30])[:80].strip()
    assert shown["Self CPU"] == "2.500s" and cells(table.table(time_unit="ms"))["Self CPU"] == "2500.000ms"
    full = cells(table.table(max_name_column_width=None, max_shapes_column_width=None))
    assert full["Name"] == "n" * 80 and full["Input Shapes"] == str([[1000] * 30])
    with pytest.raises(ValueError, match="time_unit must be one of s, ms, us"):
        table.table(time_unit="min")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.count_text(999.0), "999"), (units.count_text(2.0**37), "137.4 G"), (units.count_text(0.0), "0"),
        (units.count_text(math.nan), "--"), (units.bytes_text(1023.0), "1023 B"),
        (units.bytes_text(805306368.0), "768.0 MiB"), (units.memory_text(-400556032), "-382.00 MB"),
        (units.number_text(45.678), "45.68"), (units.number_text(4012.34), "4012"),
        (units.time_text(999.9996), "1000.000us"), (units.share_text(1.0, 0.0), "NaN"),
    ],
)  # fmt: skip
def test_numbers_are_formatted(text: str, expected: str) -> None:
    assert text == expected


def test_html_escapes_names_and_loads_nothing() -> None:
    fragment = make_table(ADD, {**ADD, "key": "<script>alert('x')</script>\"&"})._repr_html_()
    parsed = Tags(fragment)
    assert "script" not in parsed.tags and "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;" in fragment
    assert "http" not in fragment and "url(" not in fragment and "src=" not in fragment and parsed.tags.count("tr") == 3


def test_html_shows_the_longest_rows_first() -> None:
    rows = [{"key": f"op{i}", "self_cpu_time_total": float(i)} for i in range(120)]
    parsed = Tags(make_table(*rows)._repr_html_())
    names = [text for text in parsed.texts if text.startswith("op")]
    assert names == [f"op{i}" for i in range(119, 69, -1)] and any("50 of 120 ops" in text for text in parsed.texts)
    assert Tags(make_table()._repr_html_()).tags.count("table") == 1


def test_dicts_and_csv_contain_every_value(tmp_path: Path) -> None:
    table = make_table(ADD, {**KERNEL, "key": 'a, "b"\nc'})
    first, second = json.loads(json.dumps(table.to_dicts(), allow_nan=False))
    assert list(first) == NAMES and first["flops"] == 134217728.0 and first["input_dtypes"] == ["float32", "float32"]
    assert second["flops"] is None and second["count"] == 2
    table.to_csv(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert list(first) == NAMES and float(first["gbytes_per_s"]) == 4424.76
    assert json.loads(first["input_shapes"]) == ADD["input_shapes"]
    assert second["key"] == 'a, "b"\nc' and second["flops"] == "" and second["count"] == "2"
